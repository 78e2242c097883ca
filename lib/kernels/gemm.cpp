// Register tiles of a matrix product with packed weights, see gemm.hpp.
//
// For each term k of the sum a tile loads V vectors of weights, and for each pixel broadcasts one
// float and issues V multiply-adds. P * V sums are enough to hide the latency of two FMA units from
// 8 on, and (P + V) loads for them keep within two load ports as long as V >= 2. P is limited by
// the pixels' pointers, one general register each, and by P * V + V + 1 vector registers. What a
// tile costs beside its multiply-adds (80 to 100 cycles) is most of what is lost where the sums are
// short: even tiles, whose pixels are equally far apart, need an address for nine of them only and
// are as wide as the vector registers allow.
#include "kernels/gemm.hpp"

#include "kernels/simd.hpp"
#include "kernels/transpose.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {

extern const TransposeKernels kTranspose;

namespace {

CONVPRIM_INLINE Vec clamp(const GemmPanel& b, Vec x) {
  return limit(x, broadcast(b.lo), broadcast(b.hi));
}

/// Stores sums[pixels][width] to planes: adjacent pixels, any distance between channels.
__attribute__((noinline)) void finish_planes(const GemmPanel& b, const GemmTile& t, float* sums,
                                             std::ptrdiff_t pixels, std::ptrdiff_t width) {
  float* out = t.out + b.out.offset;
  if (t.residual == nullptr) {
    for (std::ptrdiff_t i = 0; i < pixels * width; i += kLanes)
      store(sums + i, clamp(b, load(sums + i)));
    kTranspose.transpose(pixels, b.valid, sums, width, out, b.out.block_stride);
    return;
  }
  float turned[kMaxPanelVectors * kLanes * kMaxTilePixels];
  kTranspose.transpose(pixels, b.valid, sums, width, turned, kMaxTilePixels);
  const float* residual = t.residual + b.residual.offset;
  for (std::ptrdiff_t c = 0; c < b.valid; ++c) {
    for (std::ptrdiff_t p = 0; p < pixels; p += kLanes) {
      const std::ptrdiff_t n = pixels - p < kLanes ? pixels - p : kLanes;
      const Vec x = load_part(turned + c * kMaxTilePixels + p, n) +
                    load_part(residual + c * b.residual.block_stride + p, n);
      store_part(out + c * b.out.block_stride + p, clamp(b, x), n);
    }
  }
}

/// Stores sums[pixels][width] pixel by pixel: channels that do not fill the vectors, or vectors
/// that straddle blocks.
__attribute__((noinline)) void finish_pixels(const GemmPanel& b, const GemmTile& t,
                                             const float* sums, std::ptrdiff_t pixels,
                                             std::ptrdiff_t width) {
  for (std::ptrdiff_t p = 0; p < pixels; ++p) {
    const float* sum = sums + p * width;
    float* out = t.out + p * b.out.pixel_stride + b.out.offset;
    const float* residual = t.residual;
    if (residual != nullptr) residual += p * b.residual.pixel_stride + b.residual.offset;
    for (std::ptrdiff_t c = 0; c < b.stored;) {
      // The channels up to the end of this block are contiguous.
      const std::ptrdiff_t at = (b.lane + c) / b.block, in_block = (b.lane + c) % b.block;
      std::ptrdiff_t n = b.block - in_block;
      n = n < kLanes ? n : kLanes;
      n = n < b.stored - c ? n : b.stored - c;
      std::ptrdiff_t exist = b.valid - c > 0 ? b.valid - c : 0;
      exist = exist < n ? exist : n;
      Vec x = load_part(sum + c, exist);
      if (residual != nullptr) {
        x += load_part(residual + at * b.residual.block_stride + in_block, exist);
      }
      float* o = out + at * b.out.block_stride + in_block;
      store_part(o, clamp(b, x), exist);
      store_part(o + exist, Vec{}, n - exist);
      c += n;
    }
  }
}

/// One term of the sum: V vectors of weights times one float of each pixel.
template <int V, int P>
CONVPRIM_INLINE void add_term(Vec (&acc)[P][V], const float* const (&a)[P], std::ptrdiff_t at,
                              const float* w) {
  Vec x[V];
  CONVPRIM_UNROLL
  for (int v = 0; v < V; ++v) x[v] = load(w + v * kLanes);
  CONVPRIM_UNROLL
  for (int p = 0; p < P; ++p) {
    const Factor y = factor(a[p] + at);
    CONVPRIM_UNROLL
    for (int v = 0; v < V; ++v) add_product(acc[p][v], x[v], y);
  }
}

/// As many terms as a register has floats: those of one pixel come with one load, and each
/// multiply-add takes one of them by its lane.
template <int V, int P>
CONVPRIM_INLINE void add_lanes(Vec (&acc)[P][V], const float* const (&a)[P], std::ptrdiff_t at,
                               const float* w) {
  Vec y[P];
  CONVPRIM_UNROLL
  for (int p = 0; p < P; ++p) y[p] = load(a[p] + at);
  CONVPRIM_UNROLL
  for (int l = 0; l < kLanes; ++l) {
    Vec x[V];
    CONVPRIM_UNROLL
    for (int v = 0; v < V; ++v) x[v] = load(w + (l * V + v) * kLanes);
    CONVPRIM_UNROLL
    for (int p = 0; p < P; ++p) {
      CONVPRIM_UNROLL
      for (int v = 0; v < V; ++v) add_product(acc[p][v], x[v], y[p], l);
    }
    asm volatile("" ::: "memory");
  }
}

/// A run's terms, those of one pixel next to each other (Unit) or `step` floats apart. Unrolled,
/// since the loop's own additions compete with the multiply-adds for two of the ports.
template <int V, int P, bool Unit>
CONVPRIM_INLINE void add_run(Vec (&acc)[P][V], const float* const (&a)[P], std::ptrdiff_t at,
                             const float* w, std::ptrdiff_t terms, std::ptrdiff_t step,
                             const float* prefetch) {
  constexpr int kUnroll = 8;
  // `at` is hidden from the compiler, which would rather advance P pointers than one index. The
  // clobbered memory keeps it from loading the next weights early, for which no registers are left.
  if (Unit) {
    for (; terms >= kUnroll; terms -= kUnroll) {
      asm volatile("" : "+r"(at), "+r"(w)::"memory");
      constexpr int kStep = kLaneFactors ? kLanes : 1;
      CONVPRIM_UNROLL
      for (int u = 0; u < kUnroll; u += kStep) {
        if constexpr (kLaneFactors) {
          add_lanes<V, P>(acc, a, at + u, w + u * V * kLanes);
        } else {
          add_term<V, P>(acc, a, at + u, w + u * V * kLanes);
          asm volatile("" ::: "memory");
        }
      }
      CONVPRIM_UNROLL
      for (int i = 0; i < kUnroll * kPrefetch; i += 16) __builtin_prefetch(prefetch + i, 0, 2);
      prefetch += kUnroll * kPrefetch;
      w += kUnroll * V * kLanes;
      at += kUnroll;
    }
  }
  if (!Unit && kLaneFactors) {
    for (; terms >= kLanes; terms -= kLanes) {
      asm volatile("" : "+r"(at), "+r"(w)::"memory");
      CONVPRIM_UNROLL
      for (int u = 0; u < kLanes; ++u) {
        add_term<V, P>(acc, a, at, w + u * V * kLanes);
        asm volatile("" ::: "memory");
        at += step;
      }
      w += kLanes * V * kLanes;
    }
  }
  for (; terms > 0; --terms) {
    asm volatile("" : "+r"(at), "+r"(w)::"memory");
    add_term<V, P>(acc, a, at, w);
    w += V * kLanes;
    at += Unit ? 1 : step;
  }
}

// Even tiles
// -------------------------------------------------------------------------------------------------

template <int P>
inline constexpr int kBases = (P + Steps::kPerBase - 1) / Steps::kPerBase;

/// Pixels 0, 9, 18, ... and the steps between pixels.
template <int P>
struct EvenPixels {
  const float* base[kBases<P>];
  Steps steps;

  /// Hides the addresses from the compiler, which would else keep sums of them.
  CONVPRIM_INLINE void pin() {
    CONVPRIM_UNROLL
    for (int q = 0; q < kBases<P>; ++q) asm volatile("" : "+r"(base[q]));
    steps.pin();
  }
  CONVPRIM_INLINE void move(std::ptrdiff_t floats) {
    CONVPRIM_UNROLL
    for (int q = 0; q < kBases<P>; ++q) base[q] += floats;
  }
  CONVPRIM_INLINE float at(int p, std::ptrdiff_t floats) const {
    return steps.at(base[p / Steps::kPerBase], p % Steps::kPerBase)[floats];
  }
};

template <int V, int P>
CONVPRIM_INLINE void add_even_term(Vec (&acc)[P][V], const EvenPixels<P>& a, std::ptrdiff_t at,
                                   const float* w) {
  Vec x[V];
  CONVPRIM_UNROLL
  for (int v = 0; v < V; ++v) x[v] = load(w + v * kLanes);
  CONVPRIM_UNROLL
  for (int p = 0; p < P; ++p) {
    const Vec y = broadcast(a.at(p, at));
    CONVPRIM_UNROLL
    for (int v = 0; v < V; ++v) acc[p][v] += y * x[v];
  }
}

/// add_run() of an even tile.
template <int V, int P, bool Unit>
CONVPRIM_INLINE void add_even_run(Vec (&acc)[P][V], EvenPixels<P> a, const float* w,
                                  std::ptrdiff_t terms, std::ptrdiff_t step,
                                  const float* prefetch) {
  constexpr int kUnroll = 8;
  if (Unit) {
    for (; terms >= kUnroll; terms -= kUnroll) {
      CONVPRIM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        a.pin();
        asm volatile("" : "+r"(w)::"memory");
        add_even_term<V, P>(acc, a, u, w + u * V * kLanes);
      }
      CONVPRIM_UNROLL
      for (int i = 0; i < kUnroll * kPrefetch; i += 16) __builtin_prefetch(prefetch + i, 0, 2);
      prefetch += kUnroll * kPrefetch;
      w += kUnroll * V * kLanes;
      a.move(kUnroll);
    }
  }
  for (; terms > 0; --terms) {
    a.pin();
    asm volatile("" : "+r"(w)::"memory");
    add_even_term<V, P>(acc, a, 0, w);
    w += V * kLanes;
    a.move(Unit ? 1 : step);
  }
}

// Results
// -------------------------------------------------------------------------------------------------

#if defined(CONVPRIM_KERNELS_AVX512)
using Half = Pack<kLanes / 2>;
/// Half h of a vector, finished and stored.
template <int h>
CONVPRIM_INLINE void store_half(float* out, const float* residual, Vec sum, float lo, float hi) {
  Half::type x = h == 0 ? __builtin_shufflevector(sum, sum, 0, 1, 2, 3, 4, 5, 6, 7)
                        : __builtin_shufflevector(sum, sum, 8, 9, 10, 11, 12, 13, 14, 15);
  if (residual != nullptr) x += *reinterpret_cast<const Half::unaligned*>(residual);
  const Half::type low = lo - Half::type{}, high = hi - Half::type{};
  x = x > low ? x : low;
  *reinterpret_cast<Half::unaligned*>(out) = x < high ? x : high;
}
#endif

template <int V, int P>
CONVPRIM_INLINE void store_tile(const GemmPanel& b, const GemmTile& t, Vec (&acc)[P][V]) {
  if (b.store == GemmPanel::Store::whole) {
    const Vec lo = broadcast(b.lo), hi = broadcast(b.hi);
    CONVPRIM_UNROLL
    for (int v = 0; v < V; ++v) {
      float* out = t.out + b.out.vectors[v];
      if (t.residual != nullptr) {
        const float* residual = t.residual + b.residual.vectors[v];
        CONVPRIM_UNROLL
        for (int p = 0; p < P; ++p) acc[p][v] += load(residual + p * b.residual.pixel_stride);
      }
      CONVPRIM_UNROLL
      for (int p = 0; p < P; ++p) {
        store(out + p * b.out.pixel_stride, limit(acc[p][v], lo, hi));
      }
    }
    return;
  }
#if defined(CONVPRIM_KERNELS_AVX512)
  if (b.store == GemmPanel::Store::halves) {
    const float* r = t.residual;
    CONVPRIM_UNROLL
    for (int p = 0; p < P; ++p) {
      float* out = t.out + p * b.out.pixel_stride;
      CONVPRIM_UNROLL
      for (int v = 0; v < V; ++v) {
        store_half<0>(out + b.out.vectors[2 * v],
                      r != nullptr ? r + b.residual.vectors[2 * v] : nullptr, acc[p][v], b.lo,
                      b.hi);
        store_half<1>(out + b.out.vectors[2 * v + 1],
                      r != nullptr ? r + b.residual.vectors[2 * v + 1] : nullptr, acc[p][v], b.lo,
                      b.hi);
      }
      if (r != nullptr) r += b.residual.pixel_stride;
    }
    return;
  }
#endif
  float sums[P * V * kLanes];
  CONVPRIM_UNROLL
  for (int p = 0; p < P; ++p) {
    CONVPRIM_UNROLL
    for (int v = 0; v < V; ++v) store(sums + (p * V + v) * kLanes, acc[p][v]);
  }
  if (b.block == 1 && b.out.pixel_stride == 1) {
    finish_planes(b, t, sums, P, V * kLanes);
  } else {
    finish_pixels(b, t, sums, P, V * kLanes);
  }
}

template <int V, int P, bool Unit>
void tile(const GemmPanel& b, const GemmTile& t) {
  Vec acc[P][V];
  CONVPRIM_UNROLL
  for (int v = 0; v < V; ++v) {
    const Vec bias = load(b.bias + v * kLanes);
    CONVPRIM_UNROLL
    for (int p = 0; p < P; ++p) acc[p][v] = bias;
  }
  const GemmGroup* group = t.groups;
  for (std::ptrdiff_t g = t.group_count; g > 0; --g, ++group) {
    const float* in = t.in + b.in_offset + group->shift;
    const std::int32_t* offsets = t.offsets + group->offset_row;
    const float* a[P];
    CONVPRIM_UNROLL
    for (int p = 0; p < P; ++p) a[p] = offsets[p] >= 0 ? in + offsets[p] : t.zeros;
    const GemmRun* run = group->runs;
    for (std::ptrdiff_t r = group->run_count; r > 0; --r, ++run) {
      const std::ptrdiff_t term = run->first_term;
      add_run<V, P, Unit>(acc, a, run->at, b.weights + term * (V * kLanes), run->terms, b.step,
                          t.prefetch + run->at * t.prefetch_at + term * t.prefetch_term);
    }
  }
  store_tile<V, P>(b, t, acc);
}

template <int V, int P, bool Unit>
void even(const GemmPanel& b, const GemmTile& t) {
  Vec acc[P][V];
  CONVPRIM_UNROLL
  for (int v = 0; v < V; ++v) {
    const Vec bias = load(b.bias + v * kLanes);
    CONVPRIM_UNROLL
    for (int p = 0; p < P; ++p) acc[p][v] = bias;
  }
  const GemmGroup* group = t.groups;
  for (std::ptrdiff_t g = t.group_count; g > 0; --g, ++group) {
    const float* in = t.in + b.in_offset + group->shift + t.offsets[group->offset_row];
    const GemmRun* run = group->runs;
    for (std::ptrdiff_t r = group->run_count; r > 0; --r, ++run) {
      const std::ptrdiff_t term = run->first_term;
      EvenPixels<P> a{{}, Steps(t.pixel_step)};
      CONVPRIM_UNROLL
      for (int q = 0; q < kBases<P>; ++q) {
        a.base[q] = in + run->at + q * Steps::kPerBase * t.pixel_step;
      }
      add_even_run<V, P, Unit>(acc, a, b.weights + term * (V * kLanes), run->terms, b.step,
                               t.prefetch + run->at * t.prefetch_at + term * t.prefetch_term);
    }
  }
  store_tile<V, P>(b, t, acc);
}

using Tile = void (*)(const GemmPanel&, const GemmTile&);

template <int V, int P, bool Unit>
constexpr void fill_even(Tile* tiles) {
  tiles[P - 1] = even<V, P, Unit>;
  if constexpr (P > 1) fill_even<V, P - 1, Unit>(tiles);
}

constexpr GemmKernels with_even(GemmKernels k) {
#if defined(CONVPRIM_KERNELS_AVX512)
  const int most[kMaxPanelVectors] = {28, 14, 9, 6};
  for (int v = 0; v < kMaxPanelVectors; ++v) k.max_even[v] = most[v];
  fill_even<1, 28, false>(k.even[0][0]), fill_even<1, 28, true>(k.even[1][0]);
  fill_even<2, 14, false>(k.even[0][1]), fill_even<2, 14, true>(k.even[1][1]);
  fill_even<3, 9, false>(k.even[0][2]), fill_even<3, 9, true>(k.even[1][2]);
  fill_even<4, 6, false>(k.even[0][3]), fill_even<4, 6, true>(k.even[1][3]);
#endif
  return k;
}

#if defined(CONVPRIM_KERNELS_NEON)
// Beside the sums a register for each pixel, and V of weights.
#define CONVPRIM_MAX_PIXELS \
  { 12, 10, 7, 5 }
#define CONVPRIM_TILES(unit)                                                                \
  {                                                                                         \
    {CONVPRIM_TILES12(1, unit)}, {CONVPRIM_TILES10(2, unit)}, {CONVPRIM_TILES7(3, unit)}, { \
      CONVPRIM_TILES5(4, unit)                                                              \
    }                                                                                       \
  }
#elif defined(CONVPRIM_KERNELS_AVX512)
#define CONVPRIM_MAX_PIXELS \
  { 12, 11, 9, 6 }
#define CONVPRIM_TILES(unit)                                                                \
  {                                                                                         \
    {CONVPRIM_TILES12(1, unit)}, {CONVPRIM_TILES11(2, unit)}, {CONVPRIM_TILES9(3, unit)}, { \
      CONVPRIM_TILES6(4, unit)                                                              \
    }                                                                                       \
  }
#else
#define CONVPRIM_MAX_PIXELS \
  { 9, 6, 4, 0 }
#define CONVPRIM_TILES(unit)                                                               \
  {                                                                                        \
    {CONVPRIM_TILES9(1, unit)}, {CONVPRIM_TILES6(2, unit)}, {CONVPRIM_TILES4(3, unit)}, {} \
  }
#endif
#define CONVPRIM_TILES4(v, unit) \
  tile<v, 1, unit>, tile<v, 2, unit>, tile<v, 3, unit>, tile<v, 4, unit>
#define CONVPRIM_TILES5(v, unit) CONVPRIM_TILES4(v, unit), tile<v, 5, unit>
#define CONVPRIM_TILES6(v, unit) CONVPRIM_TILES5(v, unit), tile<v, 6, unit>
#define CONVPRIM_TILES7(v, unit) CONVPRIM_TILES6(v, unit), tile<v, 7, unit>
#define CONVPRIM_TILES9(v, unit) CONVPRIM_TILES7(v, unit), tile<v, 8, unit>, tile<v, 9, unit>
#define CONVPRIM_TILES10(v, unit) CONVPRIM_TILES9(v, unit), tile<v, 10, unit>
#define CONVPRIM_TILES11(v, unit) CONVPRIM_TILES10(v, unit), tile<v, 11, unit>
#define CONVPRIM_TILES12(v, unit) CONVPRIM_TILES11(v, unit), tile<v, 12, unit>

}  // namespace

extern const GemmKernels kGemm;
constinit const GemmKernels kGemm =
    with_even({kLanes, CONVPRIM_MAX_PIXELS, {CONVPRIM_TILES(false), CONVPRIM_TILES(true)}, {}, {}});

}  // namespace convprim::kernels::CONVPRIM_KERNELS
