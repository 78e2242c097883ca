// Where the threads of a team lie: near each other or far apart, which costs depend on. A system
// may move them at any time, and a virtual machine's processors too.
#pragma once

#include "convprim/costs.hpp"

namespace convprim {

/// Whether two distances are those of one place: neither is more than twice the other.
bool same_place(double a, double b);

/// Seconds from one thread to another and back, see handoff_seconds(): the median of some
/// measurements. 0 under emulation, and where it cannot be told.
double threads_apart(int threads);

/// Whether the threads lie where they lay when the costs of `machine` were taken, or that is not
/// known.
bool in_place(const Machine& machine);

}  // namespace convprim
