// Register tiles of direct convolution with vectors along an output row, see direct.hpp.
#include "kernels/direct.hpp"

#include "kernels/simd.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

/// One tap: M weights times Q vectors of the input.
template <int Q, int M>
CONVPRIM_INLINE void add_tap(Vec (&acc)[M][Q], const float* row, const float* w) {
  // One address for all vectors of the row, not one each.
  if constexpr (kLaneFactors) asm("" : "+r"(row));
  Vec x[Q];
  CONVPRIM_UNROLL
  for (int q = 0; q < Q; ++q) x[q] = load(row + q * kLanes);
  constexpr int kWhole = kLaneFactors ? M / kLanes * kLanes : 0;
  CONVPRIM_UNROLL
  for (int m = 0; m < kWhole; m += kLanes) {
    const Vec y = load(w + m);
    CONVPRIM_UNROLL
    for (int l = 0; l < kLanes; ++l) {
      CONVPRIM_UNROLL
      for (int q = 0; q < Q; ++q) add_product(acc[m + l][q], x[q], y, l);
    }
  }
  CONVPRIM_UNROLL
  for (int m = kWhole; m < M; ++m) {
    const Factor y = factor(w + m);
    CONVPRIM_UNROLL
    for (int q = 0; q < Q; ++q) add_product(acc[m][q], x[q], y);
  }
}

template <int Q, int M>
void columns(const ColumnsTile& t) {
  Vec acc[M][Q];
  CONVPRIM_UNROLL
  for (int m = 0; m < M; ++m) {
    const Vec bias = broadcast(t.bias[m]);
    CONVPRIM_UNROLL
    for (int q = 0; q < Q; ++q) acc[m][q] = bias;
  }
  const float* in = t.in;
  const float* channel_weights = t.weights;
  for (std::ptrdiff_t c = t.channels; c > 0; --c) {
    const float* w = channel_weights;
    const std::int32_t* offset = t.offsets;
    const std::int32_t* end = offset + t.taps;
    // Three at a time, so that the loop itself costs less.
    if constexpr (kLaneFactors) {
      for (; offset + 3 <= end; offset += 3, w += 3 * M) {
        CONVPRIM_UNROLL
        for (int i = 0; i < 3; ++i) {
          add_tap<Q, M>(acc, in + offset[i], w + i * M);
          asm volatile("" ::: "memory");  // no registers are left to load for the next tap early
        }
      }
    }
    for (; offset < end; ++offset, w += M) add_tap<Q, M>(acc, in + *offset, w);
    in += t.channel_stride;
    channel_weights += t.weights_stride;
  }
  const Vec lo = broadcast(t.lo), hi = broadcast(t.hi);
  CONVPRIM_UNROLL
  for (int m = 0; m < M; ++m) {
    float* out = t.out + m * t.out_stride;
    const float* residual = t.residual != nullptr ? t.residual + m * t.residual_stride : nullptr;
    CONVPRIM_UNROLL
    for (int q = 0; q < Q; ++q) {
      const std::ptrdiff_t left = t.columns - q * kLanes;
      if (left >= kLanes) {
        Vec v = acc[m][q];
        if (residual != nullptr) v += load(residual + q * kLanes);
        store(out + q * kLanes, limit(v, lo, hi));
      } else if (left > 0) {
        Vec v = acc[m][q];
        if (residual != nullptr) v += load_part(residual + q * kLanes, left);
        store_part(out + q * kLanes, limit(v, lo, hi), left);
      }
    }
  }
}

#define CONVPRIM_TILES4(q) columns<q, 1>, columns<q, 2>, columns<q, 3>, columns<q, 4>
#define CONVPRIM_TILES6(q) CONVPRIM_TILES4(q), columns<q, 5>, columns<q, 6>
#define CONVPRIM_TILES8(q) CONVPRIM_TILES6(q), columns<q, 7>, columns<q, 8>
#define CONVPRIM_TILES12(q) \
  CONVPRIM_TILES8(q), columns<q, 9>, columns<q, 10>, columns<q, 11>, columns<q, 12>

}  // namespace

extern const DirectKernels kDirect;
const DirectKernels kDirect = {
    kLanes,
#if defined(CONVPRIM_KERNELS_AVX512) || defined(CONVPRIM_KERNELS_NEON)
    {12, 12, 8, 6},
    {{CONVPRIM_TILES12(1)}, {CONVPRIM_TILES12(2)}, {CONVPRIM_TILES8(3)}, {CONVPRIM_TILES6(4)}},
#else
    {12, 6, 4, 0},
    {{CONVPRIM_TILES12(1)}, {CONVPRIM_TILES6(2)}, {CONVPRIM_TILES4(3)}, {}},
#endif
};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
