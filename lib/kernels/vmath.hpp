// Elementary functions on vectors of float, for kernel files only. Each is a range reduction and a
// Taylor polynomial; the errors given are relative and were measured over the whole range.
#pragma once

#include "kernels/simd.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {

inline constexpr float kInfinity = __builtin_inff();
// ln 2 in two parts: the first has 15 bits, so that its product with an exponent is exact.
inline constexpr float kLn2High = 0.693145751953125F;
inline constexpr float kLn2Low = 1.42860682030941723e-6F;

CONVPRIM_INLINE VecI bits(Vec v) { return reinterpret_cast<VecI>(v); }
CONVPRIM_INLINE Vec from_bits(VecI v) { return reinterpret_cast<Vec>(v); }
CONVPRIM_INLINE Vec to_float(VecI v) { return __builtin_convertvector(v, Vec); }
CONVPRIM_INLINE Vec vabs(Vec v) { return from_bits(bits(v) & 0x7FFFFFFF); }
/// 2^n for n in -126..127.
CONVPRIM_INLINE Vec exp2_int(VecI n) { return from_bits((n + 127) << 23); }

/// A NaN stays one: the comparison is false then, and yields the second operand.
CONVPRIM_INLINE Vec clamp(Vec x, float lo, float hi) {
  const Vec at_least = vmax(broadcast(lo), x);
  return vmin(broadcast(hi), at_least);
}

/// n and r with x = n ln 2 + r, |r| <= ln 2 / 2, for |x| < 2^20.
CONVPRIM_INLINE void split_exponent(Vec x, VecI& n, Vec& r) {
  // Adding 1.5 * 2^23 leaves the rounded value in the low bits of the mantissa.
  const Vec magic = broadcast(12582912.0F);
  const Vec t = x * 1.44269504088896341F + magic;
  n = bits(t) - bits(magic);
  const Vec k = t - magic;
  r = x - k * kLn2High;
  r = r - k * kLn2Low;
}

/// exp(r) - 1 for |r| <= ln 2 / 2. Taylor to degree 7: the next term is 5e-9 of exp(r).
CONVPRIM_INLINE Vec expm1_small(Vec r) {
  Vec p = broadcast(1.0F / 5040);
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  return p * (r * r) + r;
}

/// exp(x), to 1.2e-7; 0 and infinity where float ends, denormals in between.
CONVPRIM_INLINE Vec vexp(Vec x) {
  VecI n;
  Vec r;
  split_exponent(clamp(x, -104.0F, 89.0F), n, r);
  const Vec p = expm1_small(r) + 1.0F;
  // 2^n in two factors, since n runs from -150 to 128.
  const VecI half = n >> 1;
  return p * exp2_int(half) * exp2_int(n - half);
}

/// exp(x) - 1, to 2e-7, near 0 too.
CONVPRIM_INLINE Vec vexpm1(Vec x) {
  VecI n;
  Vec r;
  split_exponent(clamp(x, -30.0F, 89.0F), n, r);
  // Half of it first: 2^128 does not exist.
  const Vec scale = exp2_int(n - 1);
  return 2.0F * (scale * expm1_small(r) + (scale - 0.5F));
}

/// log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)]: with s = f / (2 + f), the series of 2 atanh(s).
CONVPRIM_INLINE Vec log1p_small(Vec f) {
  const Vec s = f / (f + 2.0F), z = s * s;
  Vec p = broadcast(2.0F / 9);
  p = p * z + 2.0F / 7;
  p = p * z + 2.0F / 5;
  p = p * z + 2.0F / 3;
  return f - s * (f - p * z);
}

/// log(x), to 1.5e-7; -infinity at 0, NaN below.
CONVPRIM_INLINE Vec vlog(Vec x) {
  constexpr float kTiny = 0x1p-126F;
  const VecI denormal = x < kTiny;
  const Vec y = denormal ? x * 0x1p23F : x;
  // The exponent is cut so that the mantissa comes to lie in [sqrt(1/2), sqrt(2)). Without the
  // sign: what is below 0 comes out as NaN in the end, and its bits would overflow here.
  const VecI positive = bits(y) & 0x7FFFFFFF;
  VecI e = (positive - 0x3F3504F3) >> 23;
  const Vec f = from_bits(positive - (e << 23)) - 1.0F;
  e += denormal & -23;
  const Vec n = to_float(e);
  Vec r = n * kLn2High + (log1p_small(f) + n * kLn2Low);
  r = x < kInfinity ? r : x;  // infinity, and NaN
  r = x > 0.0F ? r : broadcast(__builtin_nanf(""));
  return x == 0.0F ? broadcast(-kInfinity) : r;
}

/// log(1 + exp(x)), to 3e-7: max(x, 0) + log1p(exp(-|x|)).
CONVPRIM_INLINE Vec vsoftplus(Vec x) {
  const Vec e = vexp(-vabs(x));
  // 1 + e is in (1, 2]: the upper part is halved first.
  const VecI upper = e > 0.41421356F;
  const Vec f = upper ? (e - 1.0F) * 0.5F : e;
  Vec r = log1p_small(f);
  r += upper ? broadcast(kLn2High + kLn2Low) : Vec{};
  return vmax(Vec{}, x) + r;
}

/// tanh(x), to 3e-7: expm1(2x) / (expm1(2x) + 2).
CONVPRIM_INLINE Vec vtanh(Vec x) {
  const Vec e = vexpm1(clamp(2.0F * x, -20.0F, 20.0F));
  return e / (e + 2.0F);
}

/// x^y = exp(y log x) for x >= 0; the error grows with |y log x|: 1e-7 of it.
CONVPRIM_INLINE Vec vpow(Vec x, Vec y) {
  const Vec r = vexp(y * vlog(x));
  return y == 0.0F ? broadcast(1.0F) : r;
}

/// x^y for any x as pow() has it: for x < 0 a number if y is an integer, else NaN.
CONVPRIM_INLINE Vec vpow_signed(Vec x, Vec y) {
  const Vec r = vpow(vabs(x), y);
  // Beyond 2^22 every float that matters here is even.
  const Vec magic = broadcast(12582912.0F);
  const Vec whole = (y + magic) - magic;
  const VecI large = vabs(y) >= 4194304.0F;
  const VecI integer = large | (whole == y);
  const VecI odd = ((bits(y + magic) & 1) == 1) & ~large;
  const Vec negative = integer ? (odd ? -r : r) : broadcast(__builtin_nanf(""));
  return x < 0.0F ? negative : r;
}

CONVPRIM_INLINE Vec vsqrt(Vec x) {
  Vec r{};
  for (int l = 0; l < kLanes; ++l) r[l] = __builtin_sqrtf(x[l]);
  return r;
}

/// 1 / sqrt(x) for normal positive x, to 2e-7.
CONVPRIM_INLINE Vec vrsqrt(Vec x) {
#if defined(CONVPRIM_KERNELS_AVX512)
  Vec y = __builtin_ia32_rsqrt14ps512_mask(x, Vec{}, static_cast<unsigned short>(0xFFFF));
#else
  // A first guess from halving the exponent, good to 3.5 per cent, and two steps of Newton's
  // method; the third is common to all.
  Vec y = from_bits(0x5F3759DF - (bits(x) >> 1));
  y = y * (1.5F - (0.5F * x) * y * y);
  y = y * (1.5F - (0.5F * x) * y * y);
#endif
  const Vec error = 1.0F - x * y * y;
  return y + (0.5F * y) * error;
}

}  // namespace convprim::kernels::CONVPRIM_KERNELS
