#include "primitives/registry.hpp"

#include <vector>

namespace convprim {
namespace {

std::vector<const Primitive*> collect() {
  std::vector<const Primitive*> all;
  const auto add = [&](std::span<const Primitive> rows) {
    for (const Primitive& row : rows) all.push_back(&row);
  };
  add(sum2d_rows());
  add(winograd_rows());
  add(direct_blocked_rows());
  add(direct_columns_rows());
  add(implicit_gemm_rows());
  add(im2_rows());
  add(conv_1x1_rows());
  add(mec_rows());
  add(mec_aa_rows());
  add(kn2_rows());
  add(kn2_as_rows());
  add(kn2_aa_rows());
  add(fft_tile_rows());
#ifdef CONVPRIM_HAVE_FFT
  add(fft_whole_rows());
#endif
  add(first_layer_rows());
  add(depthwise_channels_rows());
  add(depthwise_planes_rows());
#ifdef CONVPRIM_HAVE_ONEDNN
  add(onednn_rows());
#endif
  return all;
}

}  // namespace

std::span<const Primitive* const> primitives() {
  static const std::vector<const Primitive*> all = collect();
  return all;
}

const Primitive* find_primitive(std::string_view name) {
  for (const Primitive* p : primitives()) {
    if (p->name == name) return p;
  }
  return nullptr;
}

}  // namespace convprim
