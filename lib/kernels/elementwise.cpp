// Element-wise inner loops, see elementwise.hpp.
#include "kernels/elementwise.hpp"

#include "kernels/simd.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

CONVPRIM_INLINE float clamp1(float x, float lo, float hi) {
  x = x > lo ? x : lo;
  return x < hi ? x : hi;
}

void epilogue_channel(float* x, const float* residual, float bias, float lo, float hi,
                      std::ptrdiff_t n) {
  const Vec vb = broadcast(bias), vlo = broadcast(lo), vhi = broadcast(hi);
  std::ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Vec v = load(x + i) + vb;
    if (residual != nullptr) v += load(residual + i);
    store(x + i, vmin(vmax(v, vlo), vhi));
  }
  for (; i < n; ++i) {
    const float r = residual != nullptr ? residual[i] : 0.0F;
    x[i] = clamp1(x[i] + bias + r, lo, hi);
  }
}

void epilogue_pixel(float* x, const float* residual, const float* bias, float lo, float hi,
                    std::ptrdiff_t n) {
  const Vec vlo = broadcast(lo), vhi = broadcast(hi);
  std::ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Vec v = load(x + i);
    if (bias != nullptr) v += load(bias + i);
    if (residual != nullptr) v += load(residual + i);
    store(x + i, vmin(vmax(v, vlo), vhi));
  }
  for (; i < n; ++i) {
    float v = x[i];
    if (bias != nullptr) v += bias[i];
    if (residual != nullptr) v += residual[i];
    x[i] = clamp1(v, lo, hi);
  }
}

}  // namespace

extern const ElementwiseKernels kElementwise;
const ElementwiseKernels kElementwise = {epilogue_channel, epilogue_pixel};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
