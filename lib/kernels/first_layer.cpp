// Inner loops of convolution with few input channels, see first_layer.hpp.
//
// By channels: a tile of two registers of channels x TW columns has its sums in registers; a tap is
// two loads of weights and TW broadcasts for 2 TW multiply-adds. By columns: 6 channels x NX
// registers of columns; a tap is NX loads and 6 broadcasts for 6 NX multiply-adds.
#include "kernels/first_layer.hpp"

#include "kernels/simd.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

using std::ptrdiff_t;

// By channels
// ----------------------------------------------------------------------------------------------

/// A register of channels as the layout stores it: `count` of them, from piece number `first` on.
CONVPRIM_INLINE void put(const FirstRow& a, float* p, ptrdiff_t first, Vec v, ptrdiff_t count) {
#if defined(CONVPRIM_KERNELS_AVX512)
  if (a.piece == 8) {
    storev<8>(p + a.places[first], __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7));
    if (count > 8) {
      storev<8>(p + a.places[first + 1],
                __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
    }
    return;
  }
#endif
  store_part(p + a.places[first], v, count);
}

CONVPRIM_INLINE Vec get(const FirstRow& a, const float* p, ptrdiff_t first, ptrdiff_t count) {
#if defined(CONVPRIM_KERNELS_AVX512)
  if (a.piece == 8) {
    const auto low = loadv<8>(p + a.residual_places[first]);
    const auto high = count > 8 ? loadv<8>(p + a.residual_places[first + 1]) : Pack<8>::type{};
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
#endif
  return load_part(p + a.residual_places[first], count);
}

/// All tiles of a row. `simple`: whole registers of channels lie together, and there is no
/// residual.
template <int NM, int TW>
void channel_row(const FirstRow& a) {
  const bool simple = a.lanes >= NM * kLanes && a.piece == kLanes && a.residual == nullptr;
  constexpr int kN = NM * kLanes;
  for (ptrdiff_t x = 0; x < a.ow; x += TW) {
    Vec acc[NM][TW];
    CONVPRIM_UNROLL
    for (int m = 0; m < NM; ++m) {
      const Vec bias = load(a.packed + m * kLanes);
      CONVPRIM_UNROLL
      for (int t = 0; t < TW; ++t) acc[m][t] = bias;
    }
    const float* weights = a.packed + 3 * kN;
    const float* in = a.in + x;
    for (ptrdiff_t tap = 0; tap < a.taps; ++tap) {
      const float* p = in + a.offsets[tap];
      Vec k[NM];
      CONVPRIM_UNROLL
      for (int m = 0; m < NM; ++m) k[m] = load(weights + m * kLanes);
      CONVPRIM_UNROLL
      for (int t = 0; t < TW; ++t) {
        const Factor v = factor(p + t);
        CONVPRIM_UNROLL
        for (int m = 0; m < NM; ++m) add_product(acc[m][t], k[m], v);
      }
      weights += kN;
    }
    const ptrdiff_t columns = a.ow - x;
    if (simple && columns >= TW) {
      CONVPRIM_UNROLL
      for (int m = 0; m < NM; ++m) {
        const Vec lo = load(a.packed + kN + m * kLanes), hi = load(a.packed + 2 * kN + m * kLanes);
        float* out = a.out + a.places[m] + x * a.out_col;
        CONVPRIM_UNROLL
        for (int t = 0; t < TW; ++t) store(out + t * a.out_col, limit(acc[m][t], lo, hi));
      }
      continue;
    }
    CONVPRIM_UNROLL
    for (int m = 0; m < NM; ++m) {
      const Vec lo = load(a.packed + kN + m * kLanes), hi = load(a.packed + 2 * kN + m * kLanes);
      const ptrdiff_t count = a.lanes - m * kLanes, first = m * (kLanes / a.piece);
      if (count <= 0) break;
      CONVPRIM_UNROLL
      for (int t = 0; t < TW; ++t) {
        if (t >= columns) break;
        Vec v = acc[m][t];
        if (a.residual != nullptr) {
          v += get(a, a.residual + (x + t) * a.residual_col, first, count);
        }
        put(a, a.out + (x + t) * a.out_col, first, limit(v, lo, hi), count);
      }
    }
  }
}

using Row = void (*)(const FirstRow&);

/// Tile widths, widest first, and their kernels. The widest leaves room for the weights and a
/// broadcast.
#define CONVPRIM_WIDTHS(X) X(14) X(13) X(12) X(10) X(8) X(6) X(5) X(4) X(2) X(1)
constexpr int kWidest = kRegisters == 32 ? 14 : 6;
constexpr int kWidths[] = {
#define CONVPRIM_WIDTH(n) n,
    CONVPRIM_WIDTHS(CONVPRIM_WIDTH)
#undef CONVPRIM_WIDTH
};

template <int NM>
void by_channels_of(const FirstRow& a) {
  static constexpr Row kRows[] = {
#define CONVPRIM_ROW(n) channel_row<NM, (n <= kWidest ? n : kWidest)>,
      CONVPRIM_WIDTHS(CONVPRIM_ROW)
#undef CONVPRIM_ROW
  };
  // A tile costs about its columns plus one; the last one's surplus columns are lost.
  constexpr int kCount = sizeof kWidths / sizeof kWidths[0];
  int best = -1;
  ptrdiff_t least = 0;
  for (int i = 0; i < kCount; ++i) {
    if (kWidths[i] > kWidest) continue;
    const ptrdiff_t cost = (a.ow + kWidths[i] - 1) / kWidths[i] * (kWidths[i] + 1);
    if (best < 0 || cost < least) best = i, least = cost;
  }
  kRows[best](a);
}

void by_channels(const FirstRow& a) {
  if (a.vectors == 2) {
    by_channels_of<2>(a);
  } else {
    by_channels_of<1>(a);
  }
}

// By columns
// ----------------------------------------------------------------------------------------------

template <int NX>
CONVPRIM_INLINE void column_tile(const FirstRow& a, ptrdiff_t x) {
  constexpr int kM = kFirstChannels;
  Vec acc[kM][NX];
  CONVPRIM_UNROLL
  for (int m = 0; m < kM; ++m) {
    CONVPRIM_UNROLL
    for (int n = 0; n < NX; ++n) acc[m][n] = broadcast(a.packed[m]);
  }
  const float* weights = a.packed + kM;
  for (ptrdiff_t tap = 0; tap < a.taps; ++tap) {
    const float* p = a.in + a.offsets[tap] + x;
    Vec v[NX];
    CONVPRIM_UNROLL
    for (int n = 0; n < NX; ++n) v[n] = load(p + n * kLanes);
    CONVPRIM_UNROLL
    for (int m = 0; m < kM; ++m) {
      const Vec k = broadcast(weights[m]);
      CONVPRIM_UNROLL
      for (int n = 0; n < NX; ++n) acc[m][n] += v[n] * k;
    }
    weights += kM;
  }
  const Vec lo = broadcast(a.lo), hi = broadcast(a.hi);
  CONVPRIM_UNROLL
  for (int m = 0; m < kM; ++m) {
    if (m >= a.channels) break;
    CONVPRIM_UNROLL
    for (int n = 0; n < NX; ++n) {
      const ptrdiff_t at = x + n * kLanes, count = a.ow - at;
      Vec s = acc[m][n];
      if (a.residual != nullptr) s += load_part(a.residual + m * a.residual_channel + at, count);
      store_part(a.out + m * a.out_channel + at, limit(s, lo, hi), count);
    }
  }
}

void by_columns(const FirstRow& a) {
  constexpr int kMost = kRegisters == 32 ? 4 : 2;
  // As few tiles as there can be, as even as they can be: 7 registers are 4 and 3.
  const ptrdiff_t registers = (a.ow + kLanes - 1) / kLanes;
  const ptrdiff_t tiles = (registers + kMost - 1) / kMost;
  ptrdiff_t at = 0;
  for (ptrdiff_t i = 1; i <= tiles; ++i) {
    const ptrdiff_t end = registers * i / tiles, x = at * kLanes;
    if (end - at == 1) column_tile<1>(a, x);
    if (end - at == 2) column_tile<2>(a, x);
    if constexpr (kMost > 2) {
      if (end - at == 3) column_tile<3>(a, x);
      if (end - at == 4) column_tile<4>(a, x);
    }
    at = end;
  }
}

}  // namespace

extern const FirstLayerKernels kFirstLayer;
const FirstLayerKernels kFirstLayer = {by_channels, by_columns};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
