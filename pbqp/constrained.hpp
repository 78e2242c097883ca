// Least cost under a limit on the sum of weights (pareto.cpp).
#pragma once

#include "pbqp/pbqp.hpp"

namespace pbqp::detail {

Result solve_with_capacity(const Problem& problem, const Limits& limits);

}  // namespace pbqp::detail
