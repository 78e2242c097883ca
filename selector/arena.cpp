#include "selector/arena.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace convprim {
namespace {

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

ArenaPlan plan_arena(const std::vector<Lifetime>& buffers) {
  std::vector<std::size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return buffers[a].bytes > buffers[b].bytes;
  });
  ArenaPlan plan;
  plan.offsets.resize(buffers.size());
  std::vector<std::size_t> placed;  // in the order of their offsets
  for (std::size_t i : order) {
    const std::size_t need = aligned(buffers[i].bytes);
    std::size_t best = 0, best_gap = std::numeric_limits<std::size_t>::max(), end = 0;
    for (std::size_t j : placed) {
      const bool together =
          buffers[i].first <= buffers[j].last && buffers[j].first <= buffers[i].last;
      if (!together) continue;
      if (plan.offsets[j] > end) {
        const std::size_t gap = plan.offsets[j] - end;
        if (gap >= need && gap < best_gap) best = end, best_gap = gap;
      }
      end = std::max(end, plan.offsets[j] + aligned(buffers[j].bytes));
    }
    if (best_gap == std::numeric_limits<std::size_t>::max()) best = end;
    plan.offsets[i] = best;
    plan.bytes = std::max(plan.bytes, best + need);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](std::size_t a, std::size_t b) {
                                     return plan.offsets[a] < plan.offsets[b];
                                   }),
                  i);
  }
  return plan;
}

std::size_t peak_bytes(const std::vector<Lifetime>& buffers) {
  int steps = 0;
  for (const Lifetime& b : buffers) steps = std::max(steps, b.last + 1);
  std::size_t peak = 0;
  for (int step = 0; step < steps; ++step) {
    std::size_t live = 0;
    for (const Lifetime& b : buffers) {
      if (b.first <= step && step <= b.last) live += aligned(b.bytes);
    }
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace convprim
