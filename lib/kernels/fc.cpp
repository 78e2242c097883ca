// Fully connected layers, see fc.hpp:
//
//   out[i][j] = sum over k of x[i][k] * w[k][j]
//
// with the sums of all images and the panel's outputs in registers; each element of x is broadcast,
// and the weights are read once, front to back. One image takes two sets of sums in turns, since
// the latency of an addition would otherwise be felt.
#include "kernels/fc.hpp"

#include "kernels/vmath.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

/// The weights of a group of elements for vectors [first, first + kVecs) of the panel's V.
template <FcWeights F, int V>
struct Group;

template <int V>
struct Group<FcWeights::float32, V> {
  static constexpr int kWords = 4;  // for each output
  static constexpr int kVecs = V;
  const float* w;
  CONVPRIM_INLINE Group(const char* group, int) : w(reinterpret_cast<const float*>(group)) {}
  CONVPRIM_INLINE Vec at(int j, int v) const { return load(w + (j * V + v) * kLanes); }
};

template <int V>
struct Group<FcWeights::fixed24, V> {
  static constexpr int kWords = 3;
  static constexpr int kVecs = 1;
  Vec weight[kFcGroup];

  CONVPRIM_INLINE Group(const char* group, int first) {
    using Words = std::int32_t __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
    using Bits = std::uint32_t __attribute__((vector_size(kLanes * 4)));
    const auto* words = reinterpret_cast<const Words*>(group) + first * kWords;
    const VecI a = words[0], b = words[1], c = words[2];
    const Bits last = ((Bits)a << 24) | ((Bits)(b & 255) << 16) | ((Bits)(c & 255) << 8);
    weight[0] = __builtin_convertvector(a & ~255, Vec);
    weight[1] = __builtin_convertvector(b & ~255, Vec);
    weight[2] = __builtin_convertvector(c & ~255, Vec);
    weight[3] = __builtin_convertvector((VecI)last, Vec);
  }
  CONVPRIM_INLINE Vec at(int j, int) const { return weight[j]; }
};

template <FcWeights F, int V, int N>
void pass(const FcPass& p) {
  using Weights = Group<F, V>;
  constexpr int kSets = N * V >= 8 ? 1 : 2;
  constexpr int kBytes = V * Weights::kWords * kLanes * 4;
  Vec acc[kSets][N][V] = {};
  const char* w = static_cast<const char*>(p.w);
  const auto step = [&](const float* x, std::ptrdiff_t x_step) {
    CONVPRIM_UNROLL
    for (int first = 0; first < V; first += Weights::kVecs) {
      const Weights weights(w, first);
      CONVPRIM_UNROLL
      for (int j = 0; j < kFcGroup; ++j) {
        CONVPRIM_UNROLL
        for (int v = 0; v < Weights::kVecs; ++v) {
          const Vec weight = weights.at(j, v);
          CONVPRIM_UNROLL
          for (int i = 0; i < N; ++i) acc[j % kSets][i][first + v] += weight * x[i * x_step + j];
        }
      }
    }
    w += kBytes;
  };
  std::ptrdiff_t k = 0;
  for (; k + kFcGroup <= p.k; k += kFcGroup) {
    // 4 KiB ahead, into the next page, where the hardware's own prefetch stops: 1.06 times as fast
    // as without, and as 1 KiB.
    CONVPRIM_UNROLL
    for (int line = 0; line < kBytes; line += 64) __builtin_prefetch(w + 4096 + line);
    step(p.x + k, p.x_step);
  }
  if (k < p.k) {
    float x[N][kFcGroup] = {};
    for (int i = 0; i < N; ++i) {
      for (int j = 0; j < p.k - k; ++j) x[i][j] = p.x[i * p.x_step + k + j];
    }
    step(x[0], kFcGroup);
  }
  CONVPRIM_UNROLL
  for (int i = 0; i < N; ++i) {
    CONVPRIM_UNROLL
    for (int v = 0; v < V; ++v) {
      const std::ptrdiff_t at = v * kLanes, left = p.valid - at;
      if (left <= 0) break;
      float* out = p.out + i * p.out_step + at;
      Vec sum = acc[0][i][v];
      if (kSets == 2) sum += acc[kSets - 1][i][v];
      if (F == FcWeights::fixed24) sum *= load(p.scale + at);
      sum += p.bias != nullptr ? load(p.bias + at) : load_part(out, left);
      store_part(out, clamp(sum, p.lo, p.hi), left);
    }
  }
}

void to_fixed24(const float* w, std::ptrdiff_t n, float per_unit, std::int32_t* q) {
  constexpr float kLargest = 0x1p23F - 1;
  for (std::ptrdiff_t i = 0; i < n; i += kLanes) {
    const Vec x = clamp(load(w + i) * per_unit, -kLargest, kLargest);
    // Floats of 2^23 and more are integers, and additions round to the nearest.
    const Vec big = x < 0 ? Vec{} - 0x1p23F : Vec{} + 0x1p23F;
    const VecI integer = __builtin_convertvector((x + big) - big, VecI);
    __builtin_memcpy(q + i, &integer, sizeof integer);
  }
}

#define CONVPRIM_FC_ROW(f, v) \
  { pass<f, v, 1>, pass<f, v, 2>, pass<f, v, 3>, pass<f, v, 4>, pass<f, v, 5>, pass<f, v, 6> }
#define CONVPRIM_FC_FORMAT(f) \
  { CONVPRIM_FC_ROW(f, 1), CONVPRIM_FC_ROW(f, 2), CONVPRIM_FC_ROW(f, 3), CONVPRIM_FC_ROW(f, 4) }

}  // namespace

extern const FcKernels kFc;
const FcKernels kFc = {
    kRegisters == 32 ? 6 : 3,
    {CONVPRIM_FC_FORMAT(FcWeights::float32), CONVPRIM_FC_FORMAT(FcWeights::fixed24)},
    to_fixed24};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
