#include "layers/registry.hpp"

#include <fmt/format.h>

#include <vector>

#include "convprim/error.hpp"

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

const LayerImpl* find_layer_impl(std::string_view name) {
  for (const LayerImpl* impl : layer_impls()) {
    if (impl->name == name) return impl;
  }
  return nullptr;
}

std::unique_ptr<PreparedLayer> LayerImpl::prepare(const LayerProblem& p) const {
  if (convprim::kind(*p.op) != kind)
    throw Error(fmt::format("{} computes {}, not {}", name, kind, convprim::kind(*p.op)));
  if (const char* why = reject(p))
    throw Error(fmt::format("{} cannot compute {}: {}", name, str(p), why));
  for (const Blob& blob : p.blobs) {
    if (!blob.data) throw Error(fmt::format("{}: its {} lacks weights", name, kind));
  }
  return prepare_fn(*this, p);
}

}  // namespace convprim
