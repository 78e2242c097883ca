// Element-wise inner loops: the epilogues of primitives that do not fuse them in registers, and
// activations.
#pragma once

#include <cstddef>

namespace convprim::kernels {

struct ElementwiseKernels {
  /// x[i] = clamp(x[i] + bias + residual[i], lo, hi) for i < n: a run of one channel (CHW, HCW).
  /// residual may be null.
  void (*epilogue_channel)(float* x, const float* residual, float bias, float lo, float hi,
                           std::ptrdiff_t n);
  /// x[i] = clamp(x[i] + bias[i] + residual[i], lo, hi) for i < n: one pixel's channels (HWC). bias
  /// and residual may be null.
  void (*epilogue_pixel)(float* x, const float* residual, const float* bias, float lo, float hi,
                         std::ptrdiff_t n);
};

}  // namespace convprim::kernels
