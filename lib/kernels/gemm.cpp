// Register tiles of a matrix product with packed weights, see gemm.hpp.
//
// For each term k of the sum a tile loads V vectors of weights, and for each pixel broadcasts one
// float and issues V multiply-adds. P * V sums are enough to hide the latency of two FMA units from
// 8 on, and (P + V) loads for them keep within two load ports as long as V >= 2. P is limited by
// the pixels' pointers, one general register each, and by P * V + V + 1 vector registers.
#include "kernels/gemm.hpp"

#include "kernels/simd.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

/// Stores sums[pixels][width] that the fast way does not fit: channels that do not fill the
/// vectors, vectors that straddle blocks, one plane for each channel.
__attribute__((noinline)) void finish(const GemmPanel& b, const GemmTile& t, const float* sums,
                                      int pixels, int width) {
  for (int p = 0; p < pixels; ++p) {
    const float* sum = sums + p * width;
    float* out = t.out + p * b.out.pixel_stride + b.out.offset;
    const float* residual = t.residual;
    if (residual != nullptr) residual += p * b.residual.pixel_stride + b.residual.offset;
    for (std::ptrdiff_t c = 0; c < b.stored;) {
      // The channels up to the end of this block are contiguous.
      const std::ptrdiff_t at = (b.lane + c) / b.block, in_block = (b.lane + c) % b.block;
      std::ptrdiff_t run = b.block - in_block;
      run = run < b.stored - c ? run : b.stored - c;
      float* o = out + at * b.out.block_stride + in_block;
      const std::ptrdiff_t exist = run < b.valid - c ? run : b.valid - c;
      for (std::ptrdiff_t i = 0; i < exist; ++i) {
        float x = sum[c + i];
        if (residual != nullptr) x += residual[at * b.residual.block_stride + in_block + i];
        x = x > b.lo ? x : b.lo;
        o[i] = x < b.hi ? x : b.hi;
      }
      for (std::ptrdiff_t i = exist > 0 ? exist : 0; i < run; ++i) o[i] = 0;
      c += run;
    }
  }
}

template <int V, int P>
void tile(const GemmPanel& b, const GemmTile& t) {
  Vec acc[P][V];
  CONVPRIM_UNROLL
  for (int v = 0; v < V; ++v) {
    const Vec bias = load(b.bias + v * kLanes);
    CONVPRIM_UNROLL
    for (int p = 0; p < P; ++p) acc[p][v] = bias;
  }
  const float* in = t.in + b.in_offset;
  const float* block_weights = b.weights;
  for (std::ptrdiff_t block = b.blocks - 1; block >= 0; --block) {
    const std::ptrdiff_t len = block > 0 ? b.len : b.last_len;
    const std::int32_t* offset = t.offsets;
    const float* w = block_weights + t.first_tap * len * (V * kLanes);
    for (std::ptrdiff_t tap = 0; tap < t.taps; ++tap) {
      const float* a[P];
      CONVPRIM_UNROLL
      for (int p = 0; p < P; ++p) a[p] = offset[p] >= 0 ? in + offset[p] : t.zeros;
      offset += t.offset_step;
      std::ptrdiff_t at = 0;
      for (std::ptrdiff_t k = len; k > 0; --k) {
        Vec x[V];
        CONVPRIM_UNROLL
        for (int v = 0; v < V; ++v) x[v] = load(w + v * kLanes);
        CONVPRIM_UNROLL
        for (int p = 0; p < P; ++p) {
          const Vec y = broadcast(a[p][at]);
          CONVPRIM_UNROLL
          for (int v = 0; v < V; ++v) acc[p][v] += y * x[v];
        }
        w += V * kLanes;
        at += b.step;
      }
    }
    in += b.block_stride;
    block_weights += b.weights_block;
  }
  if (!b.whole) {
    float sums[P * V * kLanes];
    CONVPRIM_UNROLL
    for (int p = 0; p < P; ++p) {
      CONVPRIM_UNROLL
      for (int v = 0; v < V; ++v) store(sums + (p * V + v) * kLanes, acc[p][v]);
    }
    finish(b, t, sums, P, V * kLanes);
    return;
  }
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
      store(out + p * b.out.pixel_stride, vmin(vmax(acc[p][v], lo), hi));
    }
  }
}

#if defined(CONVPRIM_KERNELS_AVX512) || defined(CONVPRIM_KERNELS_NEON)
#define CONVPRIM_TILES4(v) tile<v, 1>, tile<v, 2>, tile<v, 3>, tile<v, 4>
#define CONVPRIM_TILES6(v) CONVPRIM_TILES4(v), tile<v, 5>, tile<v, 6>
#define CONVPRIM_TILES9(v) CONVPRIM_TILES6(v), tile<v, 7>, tile<v, 8>, tile<v, 9>
#define CONVPRIM_TILES12(v) CONVPRIM_TILES9(v), tile<v, 10>, tile<v, 11>, tile<v, 12>
#endif

}  // namespace

extern const GemmKernels kGemm;
const GemmKernels kGemm = {
    kLanes,
#if defined(CONVPRIM_KERNELS_AVX512) || defined(CONVPRIM_KERNELS_NEON)
    {12, 12, 9, 6},
    {{CONVPRIM_TILES12(1)}, {CONVPRIM_TILES12(2)}, {CONVPRIM_TILES9(3)}, {CONVPRIM_TILES6(4)}},
#else
    {8, 6, 4, 0},
    {{tile<1, 1>, tile<1, 2>, tile<1, 3>, tile<1, 4>, tile<1, 5>, tile<1, 6>, tile<1, 7>,
      tile<1, 8>},
     {tile<2, 1>, tile<2, 2>, tile<2, 3>, tile<2, 4>, tile<2, 5>, tile<2, 6>},
     {tile<3, 1>, tile<3, 2>, tile<3, 3>, tile<3, 4>},
     {}},
#endif
};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
