// Element-wise functions of one tensor, see activation.hpp.
#include "kernels/activation.hpp"

#include "kernels/vmath.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

template <class F>
CONVPRIM_INLINE void map(const float* in, float* out, std::ptrdiff_t n, F f) {
  std::ptrdiff_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Vec a = f(load(in + i)), b = f(load(in + i + kLanes));
    store(out + i, a);
    store(out + i + kLanes, b);
  }
  for (; i + kLanes <= n; i += kLanes) store(out + i, f(load(in + i)));
  if (i < n) store_part(out + i, f(load_part(in + i, n - i)), n - i);
}

void act_clamp(const float* in, float* out, std::ptrdiff_t n, const ActParams& p) {
  map(in, out, n, [lo = p.lo, hi = p.hi](Vec x) { return clamp(x, lo, hi); });
}

void act_leaky(const float* in, float* out, std::ptrdiff_t n, const ActParams& p) {
  map(in, out, n, [s = p.slope](Vec x) { return x > 0.0F ? x : s * x; });
}

void act_sigmoid(const float* in, float* out, std::ptrdiff_t n, const ActParams&) {
  map(in, out, n, [](Vec x) { return 1.0F / (1.0F + vexp(-x)); });
}

void act_tanh(const float* in, float* out, std::ptrdiff_t n, const ActParams&) {
  map(in, out, n, [](Vec x) { return vtanh(x); });
}

void act_elu(const float* in, float* out, std::ptrdiff_t n, const ActParams& p) {
  map(in, out, n,
      [a = p.scale, b = p.scale * p.slope](Vec x) { return x > 0.0F ? a * x : b * vexpm1(x); });
}

void act_swish(const float* in, float* out, std::ptrdiff_t n, const ActParams& p) {
  map(in, out, n, [s = -p.slope](Vec x) { return x / (1.0F + vexp(s * x)); });
}

void act_hard_sigmoid(const float* in, float* out, std::ptrdiff_t n, const ActParams& p) {
  map(in, out, n, [a = p.slope, b = p.shift](Vec x) { return clamp(a * x + b, 0, 1); });
}

void act_hard_swish(const float* in, float* out, std::ptrdiff_t n, const ActParams& p) {
  map(in, out, n, [a = p.slope, b = p.shift](Vec x) { return x * clamp(a * x + b, 0, 1); });
}

/// Integer powers by squaring, the square root by itself, all others through the logarithm.
void act_power(const float* in, float* out, std::ptrdiff_t n, const ActParams& p) {
  const float a = p.scale, b = p.shift, y = p.exponent;
  const float magnitude = y < 0 ? -y : y;
  const int whole = magnitude <= 64 ? static_cast<int>(magnitude) : -1;
  if (static_cast<float>(whole) == magnitude) {
    map(in, out, n, [=](Vec x) {
      Vec base = a * x + b, r = broadcast(1.0F);
      for (int k = whole; k > 0; k >>= 1) {
        if (k & 1) r = r * base;
        base = base * base;
      }
      return y < 0 ? 1.0F / r : r;
    });
  } else if (magnitude == 0.5F) {
    map(in, out, n, [=](Vec x) {
      const Vec r = vsqrt(a * x + b);
      return y < 0 ? 1.0F / r : r;
    });
  } else {
    map(in, out, n, [=](Vec x) { return vpow_signed(a * x + b, broadcast(y)); });
  }
}

void act_exp(const float* in, float* out, std::ptrdiff_t n, const ActParams& p) {
  map(in, out, n, [a = p.scale, b = p.shift](Vec x) { return vexp(a * x + b); });
}

void act_log(const float* in, float* out, std::ptrdiff_t n, const ActParams& p) {
  map(in, out, n, [a = p.scale, b = p.shift](Vec x) { return vlog(a * x + b); });
}

void act_abs(const float* in, float* out, std::ptrdiff_t n, const ActParams&) {
  map(in, out, n, [](Vec x) { return vabs(x); });
}

void act_softplus(const float* in, float* out, std::ptrdiff_t n, const ActParams&) {
  map(in, out, n, [](Vec x) { return vsoftplus(x); });
}

}  // namespace

extern const ActivationKernels kActivation;
const ActivationKernels kActivation = {{act_clamp, act_leaky, act_sigmoid, act_tanh, act_elu,
                                        act_swish, act_hard_sigmoid, act_hard_swish, act_power,
                                        act_exp, act_log, act_abs, act_softplus}};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
