#include "selector/placement.hpp"

#include <algorithm>
#include <vector>

#include "convprim/cpu.hpp"
#include "machine.hpp"

namespace convprim {

bool same_place(double a, double b) { return std::max(a, b) <= 2 * std::min(a, b); }

double threads_apart(int threads) {
  if (threads <= 1 || emulated()) return 0;
  std::vector<double> all;
  for (int i = 0; i < 5; ++i) {
    const double seconds = handoff_seconds(threads);
    if (seconds > 0) all.push_back(seconds);
  }
  if (all.empty()) return 0;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

bool in_place(const Machine& machine) {
  if (machine.apart_ns == 0) return true;
  const double ns = threads_apart(machine.threads) * 1e9;
  return ns == 0 || same_place(ns, machine.apart_ns);
}

}  // namespace convprim
