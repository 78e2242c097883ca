#include "layers/registry.hpp"

#include <vector>

namespace convprim {
namespace {

std::vector<const LayerImpl*> collect() {
  std::vector<const LayerImpl*> all;
  const auto add = [&](std::span<const LayerImpl> rows) {
    for (const LayerImpl& row : rows) all.push_back(&row);
  };
  add(pool_rows());
  add(lrn_rows());
  add(fc_rows());
  add(softmax_rows());
  add(eltwise_rows());
  add(activation_rows());
  add(channelwise_rows());
  add(move_rows());
  add(broadcast_rows());
  add(resize_rows());
  add(reduce_rows());
  add(normalize_rows());
  add(deconv_rows());
  return all;
}

}  // namespace

std::span<const LayerImpl* const> layer_impls() {
  static const std::vector<const LayerImpl*> all = collect();
  return all;
}

}  // namespace convprim
