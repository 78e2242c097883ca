#include "selector/arena.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

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

/// Betters an arena step by step: a buffer that reaches its end, or now and then any, is placed
/// earlier. Stops at the lower bound `least`, or after a while.
void promote(const std::vector<Lifetime>& buffers, std::vector<std::size_t> order, ArenaPlan& best,
             std::size_t least) {
  constexpr std::size_t kWork = 20'000'000;  // pairs of buffers looked at, of some nanoseconds each
  constexpr std::size_t kSteps = 500, kStepsFarOff = 20'000;
  const std::size_t affordable = kWork / (buffers.size() * buffers.size() + 1);
  std::mt19937 rng(1);
  ArenaPlan plan = best;
  for (std::size_t step = 0; best.bytes > least; ++step) {
    const bool far_off = best.bytes > least + least / 20;
    if (step >= std::min(affordable, far_off ? kStepsFarOff : kSteps)) break;
    std::vector<std::size_t> last;  // places in the order of the buffers that reach the end
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (plan.offsets[order[k]] + aligned(buffers[order[k]].bytes) == plan.bytes)
        last.push_back(k);
    }
    const std::size_t from = step % 3 == 2 ? rng() % order.size() : last[rng() % last.size()];
    const std::size_t to = from == 0 ? 0 : rng() % from;
    std::vector<std::size_t> next = order;
    std::rotate(next.begin() + static_cast<std::ptrdiff_t>(to),
                next.begin() + static_cast<std::ptrdiff_t>(from),
                next.begin() + static_cast<std::ptrdiff_t>(from) + 1);
    ArenaPlan tried = place(buffers, next);
    if (tried.bytes <= plan.bytes + plan.bytes / 50) {  // a little worse now may lead to better
      order = std::move(next);
      plan = std::move(tried);
      if (plan.bytes < best.bytes) best = plan;
    }
  }
}

}  // namespace

ArenaPlan plan_arena(const std::vector<Lifetime>& buffers) {
  const auto sums = live_sums(buffers);
  const std::size_t least = peak_bytes(buffers);
  // The fullest step at which a buffer is in use: those of the fullest steps must fit best.
  const auto fullest = [&](const Lifetime& b) {
    return *std::max_element(sums.begin() + b.first, sums.begin() + b.last + 1);
  };
  auto best_order = descending(buffers, [](const Lifetime& b) { return b.bytes; });
  ArenaPlan best = place(buffers, best_order);
  const auto attempt = [&](std::vector<std::size_t> order) {
    if (best.bytes == least) return;
    ArenaPlan plan = place(buffers, order);
    if (plan.bytes < best.bytes) best = std::move(plan), best_order = std::move(order);
  };
  attempt(descending(buffers, [&](const Lifetime& b) { return std::pair(fullest(b), b.bytes); }));
  attempt(
      descending(buffers, [](const Lifetime& b) { return std::pair(b.last - b.first, b.bytes); }));
  attempt(descending(buffers, [](const Lifetime& b) {
    return b.bytes * static_cast<std::size_t>(b.last - b.first + 1);
  }));
  promote(buffers, best_order, best, least);
  return best;
}

std::size_t peak_bytes(const std::vector<Lifetime>& buffers) {
  const auto sums = live_sums(buffers);
  return sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end());
}

}  // namespace convprim
