// Vectors of float for the kernels, by the compiler's vector extensions: one source for all
// instruction sets. Included by kernel files only. Everything here is in the instruction set's own
// namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#define CONVPRIM_UNROLL _Pragma("GCC unroll 64")
#define CONVPRIM_INLINE inline __attribute__((always_inline))
/// For functions that fit into 32 registers as they are written, but not once GCC has mixed them.
#if defined(CONVPRIM_KERNELS_NEON) && defined(__GNUC__) && !defined(__clang__)
#define CONVPRIM_IN_ORDER __attribute__((optimize("no-schedule-insns")))
#else
#define CONVPRIM_IN_ORDER
#endif

namespace convprim::kernels::CONVPRIM_KERNELS {

#if defined(CONVPRIM_KERNELS_AVX512)
inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;
#elif defined(CONVPRIM_KERNELS_AVX2)
inline constexpr int kLanes = 8;
inline constexpr int kRegisters = 16;
#elif defined(CONVPRIM_KERNELS_NEON)
inline constexpr int kLanes = 4;
inline constexpr int kRegisters = 32;
#else
inline constexpr int kLanes = 4;
inline constexpr int kRegisters = 16;
#endif

/// A full register of floats.
using Vec = float __attribute__((vector_size(kLanes * 4)));
using VecI = std::int32_t __attribute__((vector_size(kLanes * 4)));
using VecU = float __attribute__((vector_size(kLanes * 4), aligned(4)));

/// V lanes whatever the register: 4, 8 or 16. Wider than a register it becomes several.
template <int V>
struct Pack {
  using type __attribute__((vector_size(V * 4))) = float;
  using unaligned __attribute__((vector_size(V * 4), aligned(4))) = float;
};

CONVPRIM_INLINE Vec load(const float* p) { return *reinterpret_cast<const VecU*>(p); }
CONVPRIM_INLINE void store(float* p, Vec v) { *reinterpret_cast<VecU*>(p) = v; }
CONVPRIM_INLINE Vec broadcast(float x) { return x - Vec{}; }
CONVPRIM_INLINE Vec vmax(Vec a, Vec b) { return a > b ? a : b; }
CONVPRIM_INLINE Vec vmin(Vec a, Vec b) { return a < b ? a : b; }

/// No less than lo and no more than hi; NaN becomes lo.
template <class X>
CONVPRIM_INLINE X limit(X x, X lo, X hi) {
  x = x > lo ? x : lo;
  return x < hi ? x : hi;
}
/// sum += a * b.
template <class X>
CONVPRIM_INLINE void add_product(X& sum, X a, X b) {
  sum += a * b;
}
/// sum -= a * b.
template <class X>
CONVPRIM_INLINE void subtract_product(X& sum, X a, X b) {
  sum -= a * b;
}
/// A float that multiplies whole vectors: in all lanes of a register, or in the first.
/// kLaneFactors: any lane of a register will do.
#if defined(CONVPRIM_KERNELS_NEON)
inline constexpr bool kLaneFactors = true;
using Factor = float;
CONVPRIM_INLINE Factor factor(const float* p) { return *p; }
// Written out, since the compiler moves sums from register to register in long unrolled loops.
CONVPRIM_INLINE void add_product(Vec& sum, Vec a, Vec b) {
  asm("fmla %0.4s, %1.4s, %2.4s" : "+w"(sum) : "w"(a), "w"(b));
}
CONVPRIM_INLINE void add_product(Vec& sum, Vec a, Factor b) {
  asm("fmla %0.4s, %1.4s, %2.s[0]" : "+w"(sum) : "w"(a), "w"(b));
}
CONVPRIM_INLINE Vec limit(Vec x, Vec lo, Vec hi) {
  asm("fmaxnm %0.4s, %0.4s, %1.4s\n\tfminnm %0.4s, %0.4s, %2.4s" : "+&w"(x) : "w"(lo), "w"(hi));
  return x;
}
CONVPRIM_INLINE void subtract_product(Vec& sum, Vec a, Factor b) {
  asm("fmls %0.4s, %1.4s, %2.s[0]" : "+w"(sum) : "w"(a), "w"(b));
}
/// sum += a * b[lane].
CONVPRIM_INLINE void add_product(Vec& sum, Vec a, Vec b, int lane) {
  asm("fmla %0.4s, %1.4s, %2.s[%3]" : "+w"(sum) : "w"(a), "w"(b), "i"(lane));
}
/// sum -= a * b[lane].
CONVPRIM_INLINE void subtract_product(Vec& sum, Vec a, Vec b, int lane) {
  asm("fmls %0.4s, %1.4s, %2.s[%3]" : "+w"(sum) : "w"(a), "w"(b), "i"(lane));
}
/// a * b[lane].
CONVPRIM_INLINE Vec product(Vec a, Vec b, int lane) {
  Vec x;
  asm("fmul %0.4s, %1.4s, %2.s[%3]" : "=w"(x) : "w"(a), "w"(b), "i"(lane));
  return x;
}
#else
inline constexpr bool kLaneFactors = false;
using Factor = Vec;
CONVPRIM_INLINE Factor factor(const float* p) { return broadcast(*p); }
CONVPRIM_INLINE void add_product(Vec& sum, Vec a, Vec b, int lane) { sum += a * b[lane]; }
CONVPRIM_INLINE void subtract_product(Vec& sum, Vec a, Vec b, int lane) { sum -= a * b[lane]; }
CONVPRIM_INLINE Vec product(Vec a, Vec b, int lane) { return a * b[lane]; }
#endif

#if defined(CONVPRIM_KERNELS_AVX512)
CONVPRIM_INLINE unsigned short first_lanes(std::ptrdiff_t n) {
  return static_cast<unsigned short>(n >= kLanes ? 0xFFFFU : (1U << n) - 1U);
}
/// The first n lanes from memory, zeros in the others; reads nothing beyond.
CONVPRIM_INLINE Vec load_part(const float* p, std::ptrdiff_t n) {
  if (n >= kLanes) return load(p);
  return __builtin_ia32_loadups512_mask(p, Vec{}, first_lanes(n));
}
/// Stores the first n lanes only. Whole vectors go without a mask: AMD's CPUs take much longer for
/// stores with one.
CONVPRIM_INLINE void store_part(float* p, Vec v, std::ptrdiff_t n) {
  if (n >= kLanes) return store(p, v);
  __builtin_ia32_storeups512_mask(p, v, first_lanes(n));
}
#elif defined(CONVPRIM_KERNELS_AVX2)
CONVPRIM_INLINE VecI first_lanes(std::ptrdiff_t n) {
  const int count = n < kLanes ? static_cast<int>(n) : kLanes;
  return VecI{0, 1, 2, 3, 4, 5, 6, 7} < (VecI{} + count);
}
/// The first n lanes from memory, zeros in the others; reads nothing beyond.
CONVPRIM_INLINE Vec load_part(const float* p, std::ptrdiff_t n) {
  return __builtin_ia32_maskloadps256(reinterpret_cast<const Vec*>(p), first_lanes(n));
}
/// Stores the first n lanes only.
CONVPRIM_INLINE void store_part(float* p, Vec v, std::ptrdiff_t n) {
  __builtin_ia32_maskstoreps256(reinterpret_cast<Vec*>(p), first_lanes(n), v);
}
#else
static_assert(kLanes == 4);
// Spelled out: for a loop the compiler calls memcpy, and keeps nothing in registers across it.
/// The first n lanes from memory, zeros in the others; reads nothing beyond.
CONVPRIM_INLINE Vec load_part(const float* p, std::ptrdiff_t n) {
  if (n >= kLanes) return load(p);
  Vec v{};
  if (n > 0) v[0] = p[0];
  if (n > 1) v[1] = p[1];
  if (n > 2) v[2] = p[2];
  return v;
}
/// Stores the first n lanes only.
CONVPRIM_INLINE void store_part(float* p, Vec v, std::ptrdiff_t n) {
  if (n >= kLanes) {
    store(p, v);
    return;
  }
  if (n > 0) p[0] = v[0];
  if (n > 1) p[1] = v[1];
  if (n > 2) p[2] = v[2];
}
#endif

/// Addresses of floats at equal distances: 1, 3, 5 and 7 times the bytes between two, which an x86
/// address can scale by 2, 4 and 8, so that nine of them need no more than a base.
struct Steps {
  static constexpr int kPerBase = 9;
  std::ptrdiff_t s1, s3, s5, s7;

  CONVPRIM_INLINE explicit Steps(std::ptrdiff_t floats)
      : s1(floats * 4), s3(floats * 12), s5(floats * 20), s7(floats * 28) {}
  /// Hides the steps from the compiler, which would else keep sums with them in registers. On
  /// AArch64 it may: there are enough, and addresses scale an index by the size of an element only.
  CONVPRIM_INLINE void pin() {
    if constexpr (!kLaneFactors) asm volatile("" : "+r"(s1), "+r"(s3), "+r"(s5), "+r"(s7));
  }
  /// The i-th from a base, i < kPerBase.
  CONVPRIM_INLINE const float* at(const float* base, int i) const {
    const char* b = reinterpret_cast<const char*>(base);
    b += i == 3 ? s3 : i == 5 ? s5 : i == 6 ? 2 * s3 : i == 7 ? s7 : i * s1;
    return reinterpret_cast<const float*>(b);
  }
};

// The same for V lanes: those of a register, or fewer.

template <int V>
CONVPRIM_INLINE typename Pack<V>::type loadv(const float* p) {
  return *reinterpret_cast<const typename Pack<V>::unaligned*>(p);
}
template <int V>
CONVPRIM_INLINE void storev(float* p, typename Pack<V>::type v) {
  *reinterpret_cast<typename Pack<V>::unaligned*>(p) = v;
}
template <int V>
CONVPRIM_INLINE typename Pack<V>::type broadcastv(float x) {
  return x - typename Pack<V>::type{};
}
template <int V>
CONVPRIM_INLINE typename Pack<V>::type load_partv(const float* p, std::ptrdiff_t n) {
  if constexpr (V == kLanes) {
    return load_part(p, n);
  } else {
    if (n >= V) return loadv<V>(p);
#if defined(CONVPRIM_KERNELS_AVX512)
    if constexpr (V == 8) {
      return __builtin_ia32_loadups256_mask(p, typename Pack<V>::type{},
                                            static_cast<unsigned char>((1U << n) - 1U));
    }
#endif
    typename Pack<V>::type v{};
    for (int i = 0; i < V; ++i) {
      if (i < n) v[i] = p[i];
    }
    return v;
  }
}
template <int V>
CONVPRIM_INLINE void store_partv(float* p, typename Pack<V>::type v, std::ptrdiff_t n) {
  if constexpr (V == kLanes) {
    store_part(p, v, n);
  } else {
    if (n >= V) return storev<V>(p, v);
#if defined(CONVPRIM_KERNELS_AVX512)
    if constexpr (V == 8) {
      return __builtin_ia32_storeups256_mask(p, v, static_cast<unsigned char>((1U << n) - 1U));
    }
#endif
    for (int i = 0; i < V; ++i) {
      if (i < n) p[i] = v[i];
    }
  }
}

}  // namespace convprim::kernels::CONVPRIM_KERNELS
