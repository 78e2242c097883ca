#include "selector/placement.hpp"

#include <algorithm>
#include <array>

#include "convprim/cpu.hpp"
#include "machine.hpp"

namespace convprim {

double threads_apart(int threads) {
  if (threads <= 1 || emulated()) return 0;
  std::array<double, 5> all{};
  for (double& seconds : all) seconds = handoff_seconds(threads);
  std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
  return all[all.size() / 2];
}

bool in_place(const Machine& machine) {
  if (machine.apart_ns == 0) return true;
  const double ns = threads_apart(machine.threads) * 1e9;
  return ns == 0 || (ns < 2 * machine.apart_ns && machine.apart_ns < 2 * ns);
}

}  // namespace convprim
