// Why a problem has no finite assignment: a set of nodes that admits none among themselves.
#pragma once

#include <vector>

#include "core.hpp"

namespace pbqp::detail {

/// The nodes of an infeasible problem's core, sorted. With limits.minimise_core no node can be left
/// out, unless that takes too long. `near` is a node where the contradiction showed.
std::vector<std::size_t> infeasible_core(const Problem& problem, const Limits& limits,
                                         const Clock& clock, std::size_t near);

}  // namespace pbqp::detail
