// Loops that show what the machine can do at best, see machine.hpp.
#include "kernels/machine.hpp"

#include "kernels/simd.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

// Two multiply-adds a cycle with a latency of 4 to 5 keep 10 chains busy; 12 leave some slack and
// fit in 16 registers.
constexpr int kChains = 12;

float fma_loop(std::ptrdiff_t rounds, float factor) {
  Vec acc[kChains];
  CONVPRIM_UNROLL
  for (int i = 0; i < kChains; ++i) acc[i] = broadcast(static_cast<float>(i));
  const Vec f = broadcast(factor), g = broadcast(1.0F - factor);
  for (std::ptrdiff_t r = 0; r < rounds; ++r) {
    CONVPRIM_UNROLL
    for (int i = 0; i < kChains; ++i) acc[i] = acc[i] * f + g;
    // The accumulators stay in registers, and the compiler may not merge rounds.
    asm volatile("" ::: "memory");
  }
  Vec sum = acc[0];
  CONVPRIM_UNROLL
  for (int i = 1; i < kChains; ++i) sum += acc[i];
  return sum[0];
}

float read_loop(const float* p, std::ptrdiff_t n) {
  constexpr int kStreams = 8;
  Vec acc[kStreams] = {};
  std::ptrdiff_t i = 0;
  for (; i + kStreams * kLanes <= n; i += kStreams * kLanes) {
    CONVPRIM_UNROLL
    for (int s = 0; s < kStreams; ++s) acc[s] += load(p + i + s * kLanes);
  }
  Vec sum{};
  CONVPRIM_UNROLL
  for (int s = 0; s < kStreams; ++s) sum += acc[s];
  float total = 0;
  for (int l = 0; l < kLanes; ++l) total += sum[l];
  for (; i < n; ++i) total += p[i];
  return total;
}

}  // namespace

extern const MachineKernels kMachine;
const MachineKernels kMachine = {fma_loop, 2.0 * kChains* kLanes, read_loop};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
