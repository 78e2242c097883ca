// Fully connected layers, see fc.hpp:
//
//   out[i][j] = sum over k of x[i][k] * w[k][j]
//
// with the sums of all images and the panel's outputs in registers; each element of x is broadcast,
// and the weights are read once, front to back. One image takes two sets of sums in turns, since
// the latency of an addition would otherwise be felt; blocks are summed by themselves before.
#include "kernels/fc.hpp"

#include "kernels/vmath.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

using Words = std::int32_t __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
using Bits = std::uint32_t __attribute__((vector_size(kLanes * 4)));

CONVPRIM_INLINE Vec to_floats(Bits integers) {
  return __builtin_convertvector((VecI)integers, Vec);
}

/// The weights of a group of elements for vectors [first, first + kVecs) of the panel's V; if
/// scaled, they are to be multiplied by scale(). Weights kAhead bytes on are prefetched.
template <FcWeights F, int V>
struct Group;

template <int V>
struct Group<FcWeights::float32, V> {
  static constexpr int kVecs = V;
  static constexpr int kAhead = 4096;
  static constexpr bool kScaled = false;
  const float* w;
  CONVPRIM_INLINE Group(const char* group, int) : w(reinterpret_cast<const float*>(group)) {}
  CONVPRIM_INLINE Vec at(int j, int v) const { return load(w + (j * V + v) * kLanes); }
};

template <int V>
struct Group<FcWeights::fixed24, V> {
  static constexpr int kVecs = 1;
  static constexpr int kAhead = 4096;
  static constexpr bool kScaled = false;
  Vec weight[4];

  CONVPRIM_INLINE Group(const char* group, int first) {
    const auto* words = reinterpret_cast<const Words*>(group) + first * 3;
    const Bits a = (Bits)words[0], b = (Bits)words[1], c = (Bits)words[2];
    weight[0] = to_floats(a & ~255U);
    weight[1] = to_floats(b & ~255U);
    weight[2] = to_floats(c & ~255U);
    weight[3] = to_floats((a << 24) | ((b & 255U) << 16) | ((c & 255U) << 8));
  }
  CONVPRIM_INLINE Vec at(int j, int) const { return weight[j]; }
};

template <int V>
struct Group<FcWeights::block20, V> {
  static constexpr int kVecs = 1;
  static constexpr int kAhead = 8192;
  static constexpr bool kScaled = true;
  Vec weight[8];
  Bits exponent;

  CONVPRIM_INLINE Group(const char* group, int first) {
    const auto* words = reinterpret_cast<const Words*>(group) + first * 5;
    const Bits a = (Bits)words[0], b = (Bits)words[1], c = (Bits)words[2], d = (Bits)words[3],
               e = (Bits)words[4];
    constexpr std::uint32_t kUpper = ~0x1FFFU;
    weight[0] = to_floats(a & kUpper);
    weight[1] = to_floats(b & kUpper);
    weight[2] = to_floats(c & kUpper);
    weight[3] = to_floats(d & kUpper);
    weight[4] = to_floats(e & kUpper);
    weight[5] = to_floats((a << 19) | ((b & 0x1F80U) << 6));
    weight[6] = to_floats((c << 19) | ((d & 0x1F80U) << 6));
    weight[7] = to_floats((e << 19) | ((b & 0x7EU) << 12));
    exponent = (b & 1U) << 30 | (d & 0x7FU) << 23;
  }
  CONVPRIM_INLINE Vec at(int j, int) const { return weight[j]; }
  CONVPRIM_INLINE Vec scale() const { return (Vec)exponent; }
};

template <FcWeights F, int V, int N>
void pass(const FcPass& p) {
  using Weights = Group<F, V>;
  constexpr int kSets = N * V >= 8 || Weights::kScaled ? 1 : 2;
  constexpr int kGroup = fc_group(F).size;
  constexpr int kBytes = V * fc_group(F).words * kLanes * 4;
  Vec acc[kSets][N][V] = {};
  const char* w = static_cast<const char*>(p.w);
  const auto step = [&](const float* x, std::ptrdiff_t x_step) {
    CONVPRIM_UNROLL
    for (int first = 0; first < V; first += Weights::kVecs) {
      const Weights weights(w, first);
      if constexpr (Weights::kScaled) {
        CONVPRIM_UNROLL
        for (int i = 0; i < N; ++i) {
          Vec sum = weights.at(0, 0) * x[i * x_step];
          CONVPRIM_UNROLL
          for (int j = 1; j < kGroup; ++j) sum += weights.at(j, 0) * x[i * x_step + j];
          acc[0][i][first] += sum * weights.scale();
        }
        continue;
      }
      CONVPRIM_UNROLL
      for (int j = 0; j < kGroup; ++j) {
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
  for (; k + kGroup <= p.k; k += kGroup) {
    // Into the next page or the one after, where the hardware's own prefetch stops: floats
    // take 1.06 times as long without, or with 1 KiB, blocks 1.14 times as long with 4 KiB or 16,
    // since fewer of their bytes are in the core's window at a time.
    CONVPRIM_UNROLL
    for (int line = 0; line < kBytes; line += 64) __builtin_prefetch(w + Weights::kAhead + line);
    step(p.x + k, p.x_step);
  }
  if (k < p.k) {
    float x[N][kGroup] = {};
    for (int i = 0; i < N; ++i) {
      for (int j = 0; j < p.k - k; ++j) x[i][j] = p.x[i * p.x_step + k + j];
    }
    step(x[0], kGroup);
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
    {CONVPRIM_FC_FORMAT(FcWeights::float32), CONVPRIM_FC_FORMAT(FcWeights::fixed24),
     CONVPRIM_FC_FORMAT(FcWeights::block20)},
    to_fixed24};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
