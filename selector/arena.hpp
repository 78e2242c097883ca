// Placing buffers of known lifetimes in one arena.
#pragma once

#include <cstddef>
#include <vector>

namespace convprim {

/// A buffer that is in use from step `first` to step `last`, both included.
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;
};

/// Offsets such that buffers in use at the same step do not overlap, and the bytes that they take
/// together.
struct ArenaPlan {
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};

/// Places buffers one by one, each into the smallest gap that holds it among those that live with
/// it: the largest first, those of the fullest step first ("greedy by size" and "by breadth",
/// Pisarchyk and Lee, arXiv 2001.03288), the longest-lived first, or by bytes times lifetime,
/// whichever takes least; then by a short search from there. The same buffers give the same plan.
/// Offsets are multiples of 64 bytes.
ArenaPlan plan_arena(const std::vector<Lifetime>& buffers);

/// The largest sum of buffers in use at one step: no arena is smaller.
std::size_t peak_bytes(const std::vector<Lifetime>& buffers);

}  // namespace convprim
