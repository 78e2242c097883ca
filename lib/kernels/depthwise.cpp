// Inner loops of depthwise convolution, see depthwise.hpp.
//
// Channel vectors: a tile of up to 8 output columns has its sums in registers. For each kernel row
// the KW weight vectors are loaded once, then each input pixel once; a pixel is multiplied into
// every column that it lies under. 3 x 3 at stride 1: 13 loads for 24 multiply-adds. Tiles at the
// left and right edge skip the pixels outside the image.
//
// Column vectors: R output rows of one vector have their sums in registers; each input vector is
// loaded once per tap column and serves up to KH output rows.
#include "kernels/depthwise.hpp"

#include "kernels/simd.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

using std::ptrdiff_t;

template <int V>
using P = typename Pack<V>::type;

// Channel vectors
// ----------------------------------------------------------------------------------------------

constexpr int kMaxTile = 8;

#if defined(CONVPRIM_KERNELS_NEON)
/// Addresses scale an index by the size of an element only, but there are registers for the
/// distances of all pixels from the first.
struct InSteps {
  static constexpr int kPerBase = 20;
  ptrdiff_t floats[kPerBase];
  CONVPRIM_INLINE explicit InSteps(ptrdiff_t step) {
    CONVPRIM_UNROLL
    for (int i = 0; i < kPerBase; ++i) {
      floats[i] = i * step;
      asm("" : "+r"(floats[i]));  // else the compiler adds the step from pixel to pixel
    }
  }
  CONVPRIM_INLINE void pin() {}
  CONVPRIM_INLINE const float* at(const float* base, int i) const { return base + floats[i]; }
};
#else
using InSteps = Steps;
#endif

/// Columns that a tile reads, and the bases that address them.
template <int KW, int SW, int TW>
constexpr int kColumns = (TW - 1) * SW + KW;
template <int KW, int SW, int TW>
constexpr int kBases = (kColumns<KW, SW, TW> + InSteps::kPerBase - 1) / InSteps::kPerBase;

/// x times row i of the kernel, for the columns that it lies under as column `col` of the tile.
template <int V, int KW, int SW, int TW>
CONVPRIM_INLINE void add_pixel(P<V> (&acc)[TW], P<V> x, const P<V> (&k)[KW], int col) {
  CONVPRIM_UNROLL
  for (int j = 0; j < KW; ++j) {
    const int t = (col - j) / SW;
    if (col >= j && (col - j) % SW == 0 && t < TW) add_product(acc[t], x, k[j]);
  }
}

/// The sums of one kernel row: KW and SW are known, the dilation is 1.
template <int V, int KW, int SW, int TW, bool kEdge>
CONVPRIM_INLINE void add_row(P<V> (&acc)[TW], const DepthwiseRows& a, const float* in,
                             const InSteps& steps, const float* weights, ptrdiff_t first_col) {
  P<V> k[KW];
  CONVPRIM_UNROLL
  for (int j = 0; j < KW; ++j) k[j] = loadv<V>(weights + j * V);
  const float* base[kBases<KW, SW, TW>];
  CONVPRIM_UNROLL
  for (int b = 0; b < kBases<KW, SW, TW>; ++b) {
    base[b] = in + b * InSteps::kPerBase * a.in_col;
    if constexpr (!kLaneFactors) asm volatile("" : "+r"(base[b]));
  }
  CONVPRIM_UNROLL
  for (int col = 0; col < kColumns<KW, SW, TW>; ++col) {
    // Below zero it wraps to something large.
    if (kEdge && static_cast<std::size_t>(first_col + col) >= static_cast<std::size_t>(a.w)) {
      continue;
    }
    const P<V> x = loadv<V>(steps.at(base[col / InSteps::kPerBase], col % InSteps::kPerBase));
    add_pixel<V, KW, SW, TW>(acc, x, k, col);
  }
}

/// The sums of one kernel row of any width, stride and dilation; `lanes` of the V channels exist.
template <int V, int TW, bool kEdge, bool kPart>
CONVPRIM_INLINE void add_row_any(P<V> (&acc)[TW], const DepthwiseRows& a, const float* in,
                                 const float* weights, ptrdiff_t first_col, ptrdiff_t lanes) {
  const ptrdiff_t step = a.sw * a.in_col;
  for (ptrdiff_t j = 0; j < a.kw; ++j) {
    const P<V> k = loadv<V>(weights + j * V);
    const float* p = in + j * a.dw * a.in_col;
    CONVPRIM_UNROLL
    for (int t = 0; t < TW; ++t) {
      if (kEdge && static_cast<std::size_t>(first_col + j * a.dw + t * a.sw) >=
                       static_cast<std::size_t>(a.w)) {
        continue;
      }
      add_product(acc[t], kPart ? load_partv<V>(p + t * step, lanes) : loadv<V>(p + t * step), k);
    }
  }
}

/// A tile of two output rows of a 3 x 3 kernel at stride 1, all of it inside the image above and
/// below: the rows share half of what they read. Fetches the rows that the next two need first. At
/// an edge one column at most is outside on either side.
template <int V, int TW, bool kEdge>
CONVPRIM_INLINE void two_rows(const DepthwiseRows& a, const float* in, InSteps& in_steps,
                              const float* packed, float* out, Steps& out_steps,
                              const float* residual, ptrdiff_t first_col) {
  P<V> k[3][3];
  CONVPRIM_UNROLL
  for (int i = 0; i < 9; ++i) k[i / 3][i % 3] = loadv<V>(packed + (3 + i) * V);
  P<V> acc[2][TW];
  const P<V> bias = loadv<V>(packed);
  CONVPRIM_UNROLL
  for (int t = 0; t < 2 * TW; ++t) acc[t / TW][t % TW] = bias;
  CONVPRIM_UNROLL
  for (int row = 0; row < 6; ++row) {
    in_steps.pin();
    const float* base[2] = {in, in + InSteps::kPerBase * a.in_col};
    asm volatile("" : "+r"(base[0]), "+r"(base[1]));
    CONVPRIM_UNROLL
    for (int col = 0; col < TW + 2; ++col) {
      const float* p = in_steps.at(base[col / InSteps::kPerBase], col % InSteps::kPerBase);
      if (row >= 4) {
        if (col > 0 && col <= TW) __builtin_prefetch(p, 0, 2);
        continue;
      }
      if (kEdge && col == 0 && first_col < 0) continue;
      if (kEdge && col == TW + 1 && first_col + col >= a.w) continue;
      const P<V> x = loadv<V>(p);
      if (row < 3) add_pixel<V, 3, 1, TW>(acc[0], x, k[row % 3], col);
      if (row > 0) add_pixel<V, 3, 1, TW>(acc[1], x, k[(row + 2) % 3], col);
    }
    in += a.in_row;
  }
  const P<V> lo = loadv<V>(packed + V), hi = loadv<V>(packed + 2 * V);
  CONVPRIM_UNROLL
  for (int r = 0; r < 2; ++r) {
    if (residual != nullptr) {
      const float* p = residual + r * a.residual_next;
      CONVPRIM_UNROLL
      for (int t = 0; t < TW; ++t) {
        acc[r][t] += loadv<V>(p);
        p += a.residual_col;
      }
    }
    out_steps.pin();
    CONVPRIM_UNROLL
    for (int t = 0; t < TW; ++t) {
      storev<V>(const_cast<float*>(out_steps.at(out, t)), limit(acc[r][t], lo, hi));
    }
    out += a.out_next;
  }
}

/// `count` tiles of TW output columns from x on, all rows, all whole groups of channels (kPart: the
/// partial group). KW = 0 stands for any kernel. What does not change from tile to tile is more
/// than a tile's own work in small images: hence all loops in here.
template <int V, int KW, int SW, int TW, bool kEdge, bool kPart>
void tile(const DepthwiseRows& a, ptrdiff_t x, ptrdiff_t count) {
  const ptrdiff_t lanes = kPart ? a.tail : V, first = kPart ? a.groups : 0;
  const ptrdiff_t groups = kPart ? 1 : a.groups;
  InSteps in_steps(a.in_col);
  Steps out_steps(a.out_col);
  ptrdiff_t y = 0;
  if constexpr (KW == 3 && SW == 1 && kRegisters == 32) {
    const bool fits = a.rows == 3 && a.pl <= 1 && a.ow + 1 - a.pl <= a.w;
    for (; fits && y + 2 <= a.oh; y += 2) {
      for (ptrdiff_t n = 0; n < count; ++n) {
        const ptrdiff_t at = x + n * TW, first_col = at - a.pl;
        const float* in = a.in + y * a.in_next + first_col * a.in_col;
        float* out = a.out + y * a.out_next + at * a.out_col;
        const float* residual = a.residual;
        if (residual != nullptr) residual += y * a.residual_next + at * a.residual_col;
        for (ptrdiff_t g = 0; g < groups; ++g) {
          two_rows<V, TW, kEdge>(a, in + g * V, in_steps, a.packed + g * a.packed_group,
                                 out + g * V, out_steps,
                                 residual != nullptr ? residual + g * V : nullptr, first_col);
        }
      }
    }
  }
  for (; y < a.oh; ++y) {
    for (ptrdiff_t n = 0; n < count; ++n) {
      const ptrdiff_t at = x + n * TW, first_col = at * a.sw - a.pl;
      const float* packed = a.packed + first * a.packed_group;
      const float* pixels = a.in + y * a.in_next + first_col * a.in_col + first * V;
      float* out = a.out + y * a.out_next + at * a.out_col + first * V;
      for (ptrdiff_t g = 0; g < groups; ++g) {
        const float* weights = packed + (3 + a.first_row * a.kw) * V;
        const float* in = pixels;
        P<V> acc[TW];
        CONVPRIM_UNROLL
        for (int t = 0; t < TW; ++t) acc[t] = loadv<V>(packed);
        for (ptrdiff_t i = 0; i < a.rows; ++i) {
          if constexpr (KW > 0) {
            in_steps.pin();
            add_row<V, KW, SW, TW, kEdge>(acc, a, in, in_steps, weights, first_col);
          } else {
            add_row_any<V, TW, kEdge, kPart>(acc, a, in, weights, first_col, lanes);
          }
          in += a.in_row;
          weights += a.kw * V;
        }
        if (a.residual != nullptr) {
          const float* p = a.residual + y * a.residual_next + at * a.residual_col + (first + g) * V;
          CONVPRIM_UNROLL
          for (int t = 0; t < TW; ++t) {
            acc[t] += kPart ? load_partv<V>(p, lanes) : loadv<V>(p);
            p += a.residual_col;
          }
        }
        const P<V> lo = loadv<V>(packed + V), hi = loadv<V>(packed + 2 * V);
        out_steps.pin();
        CONVPRIM_UNROLL
        for (int t = 0; t < TW; ++t) {
          const P<V> v = limit(acc[t], lo, hi);
          float* p = const_cast<float*>(out_steps.at(out, t));
          if constexpr (kPart) {
            store_partv<V>(p, v, lanes);
          } else {
            storev<V>(p, v);
          }
        }
        packed += a.packed_group;
        pixels += V;
        out += V;
      }
    }
  }
}

using Tile = void (*)(const DepthwiseRows&, ptrdiff_t x, ptrdiff_t count);

/// One algorithm's tiles of 1 to 8 columns.
template <int V, int KW, int SW, bool kEdge, bool kPart>
constexpr Tile kTiles[kMaxTile] = {
    tile<V, KW, SW, 1, kEdge, kPart>, tile<V, KW, SW, 2, kEdge, kPart>,
    tile<V, KW, SW, 3, kEdge, kPart>, tile<V, KW, SW, 4, kEdge, kPart>,
    tile<V, KW, SW, 5, kEdge, kPart>, tile<V, KW, SW, 6, kEdge, kPart>,
    tile<V, KW, SW, 7, kEdge, kPart>, tile<V, KW, SW, 8, kEdge, kPart>};

template <int V, bool kEdge>
const Tile* tiles(const DepthwiseRows& a) {
  if (a.dw == 1 && a.kw == 3 && a.sw == 1) return kTiles<V, 3, 1, kEdge, false>;
  if (a.dw == 1 && a.kw == 3 && a.sw == 2) return kTiles<V, 3, 2, kEdge, false>;
  if (a.dw == 1 && a.kw == 5 && a.sw == 1) return kTiles<V, 5, 1, kEdge, false>;
  if (a.dw == 1 && a.kw == 5 && a.sw == 2) return kTiles<V, 5, 2, kEdge, false>;
  return kTiles<V, 0, 0, kEdge, false>;
}

template <int V>
void rows_by(const DepthwiseRows& a) {
  const Tile* inner = tiles<V, false>(a);
  const Tile* edge = tiles<V, true>(a);
  // As few tiles as there can be, as even as they can be: 14 columns are 7 and 7. The wider ones
  // come first.
  const ptrdiff_t count = (a.ow + kMaxTile - 1) / kMaxTile;
  const ptrdiff_t narrow = a.ow / count, wider = a.ow % count;
  const auto width = [&](ptrdiff_t i) { return narrow + (i < wider ? 1 : 0); };
  const auto inside = [&](ptrdiff_t x, ptrdiff_t end) {
    return x * a.sw >= a.pl && (end - 1) * a.sw - a.pl + (a.kw - 1) * a.dw < a.w;
  };
  ptrdiff_t x = 0;
  for (ptrdiff_t i = 0; i < count;) {
    // A run of tiles of one kind.
    const ptrdiff_t w = width(i), start = x;
    const bool in = inside(x, x + w);
    ptrdiff_t run = 0;
    do {
      ++run, ++i, x += w;
    } while (i < count && width(i) == w && inside(x, x + w) == in);
    if (a.groups > 0) (in ? inner : edge)[w - 1](a, start, run);
    if (a.tail > 0) kTiles<V, 0, 0, true, true>[w - 1](a, start, run);
  }
}

void rows(const DepthwiseRows& a) { rows_by<kLanes>(a); }
void rows8(const DepthwiseRows& a) { rows_by<(kLanes < 8 ? kLanes : 8)>(a); }

// Column vectors
// ----------------------------------------------------------------------------------------------

/// Sums of one vector of columns, finished and stored; kPart: only those that exist.
template <int V, bool kPart = true>
CONVPRIM_INLINE void finish(P<V> v, const DepthwisePlane& a, ptrdiff_t y, ptrdiff_t x,
                            bool residual) {
  const ptrdiff_t n = kPart ? a.ow - x : V;
  if (residual) v += load_partv<V>(a.residual + y * a.residual_row + x, n);
  v = limit(v, broadcastv<V>(a.lo), broadcastv<V>(a.hi));
  store_partv<V>(a.out + y * a.out_row + x, v, n);
}

/// R output rows from y on; K x K taps, vertical stride SH, vertical dilation 1.
template <int V, int K, int SH, int R>
CONVPRIM_INLINE void square_rows(const DepthwisePlane& a, ptrdiff_t y) {
  const float* in = a.in + y * SH * a.pitch;
  P<V> k[K][K];
  CONVPRIM_UNROLL
  for (int i = 0; i < K; ++i) {
    CONVPRIM_UNROLL
    for (int j = 0; j < K; ++j) k[i][j] = broadcastv<V>(a.weights[i * K + j]);
  }
  for (ptrdiff_t x = 0; x < a.ow; x += V) {
    P<V> acc[R];
    CONVPRIM_UNROLL
    for (int r = 0; r < R; ++r) acc[r] = broadcastv<V>(a.bias);
    CONVPRIM_UNROLL
    for (int row = 0; row < (R - 1) * SH + K; ++row) {
      CONVPRIM_UNROLL
      for (int j = 0; j < K; ++j) {
        const P<V> v = loadv<V>(in + row * a.pitch + a.column[j] + x);
        CONVPRIM_UNROLL
        for (int i = 0; i < K; ++i) {
          const int r = (row - i) / SH;
          if (row >= i && (row - i) % SH == 0 && r < R) acc[r] += v * k[i][j];
        }
      }
    }
    CONVPRIM_UNROLL
    for (int r = 0; r < R; ++r) finish<V>(acc[r], a, y + r, x, a.residual != nullptr);
  }
}

/// The same where a weight is a lane of a register, so that all weights fit; N of them.
template <int N>
struct LaneTaps {
  static constexpr int kWhole = N / kLanes;
  Vec k[kWhole + 1];
  explicit CONVPRIM_INLINE LaneTaps(const float* weights) {
    CONVPRIM_UNROLL
    for (int i = 0; i < kWhole; ++i) k[i] = load(weights + i * kLanes);
    k[kWhole] = load_part(weights + kWhole * kLanes, N % kLanes);
  }
};

/// N vectors of columns of R output rows; kPart: of the only one some columns are missing.
template <int K, int SH, int R, int N, bool kPart>
CONVPRIM_INLINE void lane_columns(const DepthwisePlane& a, const LaneTaps<K * K>& taps,
                                  const ptrdiff_t* row_at, ptrdiff_t y, ptrdiff_t x,
                                  bool residual) {
  const float* in = a.in + y * SH * a.pitch + x;
  Vec acc[R][N];
  CONVPRIM_UNROLL
  for (int i = 0; i < R * N; ++i) acc[i / N][i % N] = broadcast(a.bias);
  CONVPRIM_UNROLL
  for (int j = 0; j < K; ++j) {
    CONVPRIM_UNROLL
    for (int n = 0; n < N; ++n) {
      const float* column = in + a.column[j] + n * kLanes;
      asm("" : "+r"(column));
      CONVPRIM_UNROLL
      for (int row = 0; row < (R - 1) * SH + K; ++row) {
        const Vec v = load(column + row_at[row]);
        CONVPRIM_UNROLL
        for (int i = 0; i < K; ++i) {
          const int r = (row - i) / SH, tap = i * K + j;
          if (row >= i && (row - i) % SH == 0 && r < R)
            add_product(acc[r][n], v, taps.k[tap / kLanes], tap % kLanes);
        }
      }
    }
  }
  CONVPRIM_UNROLL
  for (int r = 0; r < R; ++r) {
    CONVPRIM_UNROLL
    for (int n = 0; n < N; ++n)
      finish<kLanes, kPart>(acc[r][n], a, y + r, x + n * kLanes, residual);
  }
}

/// Whole vectors have loops of their own, since parts of them are stored float by float.
template <int K, int SH, int R>
CONVPRIM_INLINE void lane_rows(const DepthwisePlane& a, ptrdiff_t y) {
  const LaneTaps<K * K> taps(a.weights);
  const DepthwisePlane own = a;  // no store can change it: its values stay in registers
  // Hidden from the compiler, which would rather keep a pointer for each pair of row and column.
  constexpr int kRows = (R - 1) * SH + K;
  ptrdiff_t row_at[kRows];
  CONVPRIM_UNROLL
  for (int row = 0; row < kRows; ++row) {
    row_at[row] = row * a.pitch;
    asm("" : "+r"(row_at[row]));
  }
  // Two vectors at a time, where their sums leave registers for all weights.
  constexpr int kVectors = K * K <= 16 ? 2 : 1;
  ptrdiff_t x = 0;
  if (own.residual == nullptr) {
    for (; x + kVectors * kLanes <= own.ow; x += kVectors * kLanes)
      lane_columns<K, SH, R, kVectors, false>(own, taps, row_at, y, x, false);
  }
  const bool residual = own.residual != nullptr;
  for (; x + kLanes <= own.ow; x += kLanes)
    lane_columns<K, SH, R, 1, false>(own, taps, row_at, y, x, residual);
  if (x < own.ow) lane_columns<K, SH, R, 1, true>(own, taps, row_at, y, x, residual);
}

template <int V, int K, int SH, int R>
CONVPRIM_INLINE void some_rows(const DepthwisePlane& a, ptrdiff_t y) {
  if constexpr (kLaneFactors && V == kLanes) {
    lane_rows<K, SH, R>(a, y);
  } else {
    square_rows<V, K, SH, R>(a, y);
  }
}

template <int V, int K, int SH>
CONVPRIM_IN_ORDER void square(const DepthwisePlane& a) {
  ptrdiff_t y = 0;
  for (; y + 4 <= a.rows; y += 4) some_rows<V, K, SH, 4>(a, y);
  for (; y + 2 <= a.rows; y += 2) some_rows<V, K, SH, 2>(a, y);
  for (; y < a.rows; ++y) some_rows<V, K, SH, 1>(a, y);
}

/// Any kernel: N vectors of one row.
template <int V, int N>
CONVPRIM_INLINE void any_columns(const DepthwisePlane& a, ptrdiff_t y, ptrdiff_t x) {
  P<V> acc[N];
  CONVPRIM_UNROLL
  for (int n = 0; n < N; ++n) acc[n] = broadcastv<V>(a.bias);
  for (ptrdiff_t i = 0; i < a.kh; ++i) {
    const float* in = a.in + (y * a.sh + i * a.dh) * a.pitch + x;
    for (ptrdiff_t j = 0; j < a.kw; ++j) {
      const P<V> k = broadcastv<V>(a.weights[i * a.kw + j]);
      CONVPRIM_UNROLL
      for (int n = 0; n < N; ++n) acc[n] += loadv<V>(in + a.column[j] + n * V) * k;
    }
  }
  CONVPRIM_UNROLL
  for (int n = 0; n < N; ++n) finish<V>(acc[n], a, y, x + n * V, a.residual != nullptr);
}

template <int V>
void any(const DepthwisePlane& a) {
  for (ptrdiff_t y = 0; y < a.rows; ++y) {
    ptrdiff_t x = 0;
    for (; x + 3 * V < a.ow; x += 4 * V) any_columns<V, 4>(a, y, x);
    for (; x < a.ow; x += V) any_columns<V, 1>(a, y, x);
  }
}

template <int V>
void plane_by(const DepthwisePlane& a) {
  const bool tight = a.dh == 1 && a.kh == a.kw;
  if (tight && a.kh == 3 && a.sh == 1) return square<V, 3, 1>(a);
  if (tight && a.kh == 3 && a.sh == 2) return square<V, 3, 2>(a);
  if (tight && a.kh == 5 && a.sh == 1) return square<V, 5, 1>(a);
  if (tight && a.kh == 5 && a.sh == 2) return square<V, 5, 2>(a);
  any<V>(a);
}

void plane(const DepthwisePlane& a) {
  if constexpr (kLanes > 8) {
    if (a.ow <= 8) return plane_by<8>(a);
  }
  plane_by<kLanes>(a);
}

CONVPRIM_INLINE void zero(float* p, ptrdiff_t n) {
  for (ptrdiff_t i = 0; i < n; i += kLanes) store_part(p + i, Vec{}, n - i);
}

/// The even floats of two vectors, or the odd ones.
template <int kFirst>
CONVPRIM_INLINE Vec every_second(Vec a, Vec b) {
  VecI pick;
  CONVPRIM_UNROLL
  for (int i = 0; i < kLanes; ++i) pick[i] = 2 * i + kFirst;
  return __builtin_shuffle(a, b, pick);
}

/// n floats of one row, split into two phases.
CONVPRIM_INLINE void split2(const float* in, ptrdiff_t n, float* even, float* odd) {
  ptrdiff_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Vec a = load(in + i), b = load(in + i + kLanes);
    store(even + i / 2, every_second<0>(a, b));
    store(odd + i / 2, every_second<1>(a, b));
  }
  if (i < n) {
    const ptrdiff_t rest = n - i;
    const Vec a = load_part(in + i, rest);
    const Vec b = rest > kLanes ? load_part(in + i + kLanes, rest - kLanes) : Vec{};
    store_part(even + i / 2, every_second<0>(a, b), (rest + 1) / 2);
    store_part(odd + i / 2, every_second<1>(a, b), rest / 2);
  }
}

void pad(const DepthwisePad& a) {
  const ptrdiff_t pitch = a.sw * a.phase;
  // Columns past the last tap are not copied.
  const ptrdiff_t used = a.w + a.pl <= pitch ? a.w : pitch - a.pl;
  for (ptrdiff_t r = 0; r < a.rows; ++r) {
    float* out = a.out + r * pitch;
    const ptrdiff_t row = a.first + r;
    if (row < 0 || row >= a.h || used <= 0) {
      zero(out, pitch);
      continue;
    }
    const float* in = a.in + row * a.in_row;
    if (a.sw == 1) {
      zero(out, a.pl);
      ptrdiff_t i = 0;
      for (; i + kLanes <= used; i += kLanes) store(out + a.pl + i, load(in + i));
      store_part(out + a.pl + i, load_part(in + i, used - i), used - i);
      zero(out + a.pl + used, pitch - a.pl - used);
      continue;
    }
    if (a.sw == 2) {
      // Input column c goes to padded column c + pl: phase (c + pl) % 2, place (c + pl) / 2.
      const ptrdiff_t even_base = a.pl % 2 * a.phase, odd_base = a.phase - even_base;
      const ptrdiff_t even = even_base + a.pl / 2, odd = odd_base + (a.pl + 1) / 2;
      const ptrdiff_t evens = (used + 1) / 2, odds = used / 2;
      zero(out + even_base, even - even_base);
      zero(out + odd_base, odd - odd_base);
      split2(in, used, out + even, out + odd);
      zero(out + even + evens, even_base + a.phase - even - evens);
      zero(out + odd + odds, odd_base + a.phase - odd - odds);
      continue;
    }
    zero(out, pitch);
    for (ptrdiff_t p = 0; p < a.sw; ++p) {
      // The first input column of phase p, and its place.
      ptrdiff_t i = p < a.pl ? (a.pl - p + a.sw - 1) / a.sw : 0;
      float* to = out + p * a.phase;
      for (ptrdiff_t c = i * a.sw + p - a.pl; c < used; c += a.sw) to[i++] = in[c];
    }
  }
}

}  // namespace

extern const DepthwiseKernels kDepthwise;
const DepthwiseKernels kDepthwise = {rows, rows8, plane, pad};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
