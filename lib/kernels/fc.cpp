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

template <int V, int N>
void pass(const FcPass& p) {
  constexpr int kSets = N * V >= 8 ? 1 : 2;
  Vec acc[kSets][N][V] = {};
  const float* w = p.w;
  std::ptrdiff_t k = 0;
  const auto step = [&](Vec(&sum)[N][V], std::ptrdiff_t at) {
    CONVPRIM_UNROLL
    for (int v = 0; v < V; ++v) {
      const Vec weight = load(w + v * kLanes);
      CONVPRIM_UNROLL
      for (int i = 0; i < N; ++i) sum[i][v] += weight * p.x[i * p.x_step + at];
    }
    w += V * kLanes;
  };
  for (; k + 4 <= p.k; k += 4) {
    // 2 KiB ahead, into the next page, where the hardware's own prefetch stops: 1.06 times as fast
    // as without; 8 KiB would be slower than none.
    CONVPRIM_UNROLL
    for (int line = 0; line < 4 * V * kLanes; line += 16) __builtin_prefetch(w + 512 + line);
    step(acc[0], k);
    step(acc[kSets - 1], k + 1);
    step(acc[0], k + 2);
    step(acc[kSets - 1], k + 3);
  }
  for (; k < p.k; ++k) step(acc[0], k);
  CONVPRIM_UNROLL
  for (int i = 0; i < N; ++i) {
    CONVPRIM_UNROLL
    for (int v = 0; v < V; ++v) {
      const std::ptrdiff_t at = v * kLanes, left = p.valid - at;
      if (left <= 0) break;
      float* out = p.out + i * p.out_step + at;
      Vec sum = acc[0][i][v];
      if (kSets == 2) sum += acc[kSets - 1][i][v];
      sum += p.bias != nullptr ? load(p.bias + at) : load_part(out, left);
      store_part(out, clamp(sum, p.lo, p.hi), left);
    }
  }
}

#define CONVPRIM_FC_ROW(v) \
  { pass<v, 1>, pass<v, 2>, pass<v, 3>, pass<v, 4>, pass<v, 5>, pass<v, 6> }

}  // namespace

extern const FcKernels kFc;
const FcKernels kFc = {
    kRegisters == 32 ? 6 : 3,
    {CONVPRIM_FC_ROW(1), CONVPRIM_FC_ROW(2), CONVPRIM_FC_ROW(3), CONVPRIM_FC_ROW(4)}};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
