// Element-wise functions of one tensor.
#pragma once

#include <cstddef>

namespace convprim::kernels {

/// Constants of the functions, see ActivationOp.
struct ActParams {
  float lo, hi, slope, scale, shift, exponent;
};

/// The functions, in the order of ActivationOp::Kind.
inline constexpr int kActKinds = 13;

struct ActivationKernels {
  /// out[i] = f(in[i]) for i < n; in and out may be the same.
  void (*run[kActKinds])(const float* in, float* out, std::ptrdiff_t n, const ActParams&);
};

}  // namespace convprim::kernels
