// The tables of all algorithms: one declaration and one line in registry.cpp for each file.
#pragma once

#include <span>

#include "convprim/primitive.hpp"

namespace convprim {

std::span<const Primitive> sum2d_rows();
std::span<const Primitive> winograd_rows();
std::span<const Primitive> direct_blocked_rows();
std::span<const Primitive> direct_columns_rows();
std::span<const Primitive> implicit_gemm_rows();
std::span<const Primitive> im2_rows();
std::span<const Primitive> kn2_rows();
std::span<const Primitive> kn2_as_rows();
std::span<const Primitive> kn2_aa_rows();
std::span<const Primitive> mec_rows();
std::span<const Primitive> mec_aa_rows();
std::span<const Primitive> conv_1x1_rows();
std::span<const Primitive> fft_tile_rows();
#ifdef CONVPRIM_HAVE_FFT
std::span<const Primitive> fft_whole_rows();
#endif
#ifdef CONVPRIM_HAVE_ONEDNN
std::span<const Primitive> first_layer_rows();
std::span<const Primitive> depthwise_channels_rows();
std::span<const Primitive> depthwise_planes_rows();
std::span<const Primitive> onednn_rows();
#endif

}  // namespace convprim
