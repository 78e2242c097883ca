#include "selector/arena.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace convprim {
namespace {

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Places the buffers one by one, each into the smallest gap that holds it among those that live
/// with it.
ArenaPlan place(const std::vector<Lifetime>& buffers, const std::vector<std::size_t>& order) {
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

/// Bytes in use at each step.
std::vector<std::size_t> live_sums(const std::vector<Lifetime>& buffers) {
  int steps = 0;
  for (const Lifetime& b : buffers) steps = std::max(steps, b.last + 1);
  std::vector<std::size_t> sums(static_cast<std::size_t>(steps));
  for (const Lifetime& b : buffers) {
    for (int step = b.first; step <= b.last; ++step)
      sums[static_cast<std::size_t>(step)] += aligned(b.bytes);
  }
  return sums;
}

/// Indices of the buffers, the largest key first.
template <class Key>
std::vector<std::size_t> descending(const std::vector<Lifetime>& buffers, Key key) {
  std::vector<std::size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return key(buffers[a]) > key(buffers[b]); });
  return order;
}

}  // namespace

ArenaPlan plan_arena(const std::vector<Lifetime>& buffers) {
  const auto sums = live_sums(buffers);
  const std::size_t least = peak_bytes(buffers);
  // The fullest step at which a buffer is in use: those of the fullest steps must fit best.
  const auto fullest = [&](const Lifetime& b) {
    return *std::max_element(sums.begin() + b.first, sums.begin() + b.last + 1);
  };
  ArenaPlan best = place(buffers, descending(buffers, [](const Lifetime& b) { return b.bytes; }));
  const auto attempt = [&](const std::vector<std::size_t>& order) {
    if (best.bytes == least) return;
    ArenaPlan plan = place(buffers, order);
    if (plan.bytes < best.bytes) best = std::move(plan);
  };
  attempt(descending(buffers, [&](const Lifetime& b) { return std::pair(fullest(b), b.bytes); }));
  attempt(
      descending(buffers, [](const Lifetime& b) { return std::pair(b.last - b.first, b.bytes); }));
  attempt(descending(buffers, [](const Lifetime& b) {
    return b.bytes * static_cast<std::size_t>(b.last - b.first + 1);
  }));
  return best;
}

std::size_t peak_bytes(const std::vector<Lifetime>& buffers) {
  const auto sums = live_sums(buffers);
  return sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end());
}

}  // namespace convprim
