// More than one answer: what each option would cost, the k best assignments, and trade-offs between
// cost and weight.
#pragma once

#include <vector>

#include "pbqp/pbqp.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace pbqp {

struct Marginals {
  Status status = Status::kLimit;  ///< of the problem
  double best = kInfinity;
  Assignment assignment;
  /// cost[v][i]: the exact least cost of the whole if node v had to take option i; infinite if that
  /// is impossible.
  std::vector<std::vector<double>> cost;
  /// False if a limit stopped the work; entries not reached then hold a lower bound.
  bool complete = false;
};

/// Min-marginals: in two passes over the elimination order where its tables fit the memory limit,
/// otherwise by solving once per option.
Marginals min_marginals(const Problem& problem, const Limits& limits = {});

struct Solution {
  double cost = kInfinity;
  Assignment assignment;
};

/// The k cheapest assignments of finite cost in ascending order, fewer if there are fewer or if a
/// limit stops the work (Yanover and Weiss 2003: best max-marginal first).
std::vector<Solution> k_best(const Problem& problem, std::size_t k, const Limits& limits = {});

struct ParetoPoint {
  double cost = 0;
  double weight = 0;
  Assignment assignment;
};

struct ParetoFront {
  Status status = Status::kLimit;  ///< optimal if the front is complete, feasible if it may not be
  /// By ascending weight and so descending cost; no point is as good as another in both.
  std::vector<ParetoPoint> points;
};

/// All non-dominated pairs of cost and weight (`Problem::set_weights`) up to limits.capacity.
ParetoFront pareto(const Problem& problem, const Limits& limits = {});

}  // namespace pbqp
#pragma GCC visibility pop
