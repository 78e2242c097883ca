// Shared by the tests of the PBQP solver: random problems and the answer by trying everything.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "pbqp/pbqp.hpp"

namespace pbqp_test {

/// The least cost over all assignments (exact sums), the first that has it, and how many were
/// tried.
struct BruteForce {
  double cost = pbqp::kInfinity;
  pbqp::Assignment assignment;
};

inline BruteForce brute_force(const pbqp::Problem& p) {
  BruteForce r;
  pbqp::Assignment x(p.node_count(), 0);
  while (true) {
    const double c = p.cost(x);
    if (c < r.cost) {
      r.cost = c;
      r.assignment = x;
    }
    std::size_t v = 0;
    while (v < x.size() && ++x[v] == p.option_count(v)) x[v++] = 0;
    if (v == x.size()) return r;
  }
}

struct Random {
  std::mt19937_64 engine;
  explicit Random(std::uint64_t seed) : engine(seed) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine() % n); }
  bool chance(double p) { return uniform() < p; }
  double uniform() { return static_cast<double>(engine() >> 11) * 0x1p-53; }
};

enum class Costs { kTiny, kIntegers, kReals, kMixed, kNegative };

inline double random_cost(Random& r, Costs kind, double infinite) {
  if (r.chance(infinite)) return pbqp::kInfinity;
  switch (kind) {
    case Costs::kTiny:
      return static_cast<double>(r.below(2));
    case Costs::kIntegers:
      return static_cast<double>(r.below(10));
    case Costs::kReals:
      return r.uniform() * 100;
    case Costs::kMixed: {
      // Twelve orders of magnitude up and down: what a sum in double loses.
      const double scale[] = {1e-12, 1.0, 1e12, 0.0};
      return scale[r.below(4)] * static_cast<double>(1 + r.below(9));
    }
    case Costs::kNegative:
      break;
  }
  return (r.uniform() - 0.5) * 8;
}

/// A random problem of at most `nodes` nodes and `options` options, with parallel edges,
/// self-loops, class edges and dense edges among its edges.
inline pbqp::Problem random_problem(Random& r, std::size_t nodes, std::size_t options, Costs kind,
                                    double density, double infinite) {
  pbqp::Problem p;
  const std::size_t n = 1 + r.below(nodes);
  for (std::size_t v = 0; v < n; ++v) {
    std::vector<double> c(1 + r.below(options));
    for (double& x : c) x = random_cost(r, kind, infinite / 2);
    p.add_node(c);
  }
  for (std::size_t u = 0; u < n; ++u) {
    for (std::size_t v = 0; v < n; ++v) {
      if (!r.chance(u == v ? 0.05 : density / 2)) continue;
      const std::size_t ru = p.option_count(u);
      const std::size_t rv = p.option_count(v);
      if (r.chance(0.5)) {
        pbqp::Matrix m(ru, rv);
        for (double& x : m.data) x = random_cost(r, kind, infinite);
        p.add_edge(u, v, m);
      } else {
        const std::size_t a = 1 + r.below(3);
        const std::size_t b = 1 + r.below(3);
        pbqp::Classes row(ru);
        pbqp::Classes col(rv);
        for (auto& x : row) x = static_cast<std::uint32_t>(r.below(a));
        for (auto& x : col) x = static_cast<std::uint32_t>(r.below(b));
        pbqp::Matrix m(a, b);
        for (double& x : m.data) x = random_cost(r, kind, infinite);
        p.add_class_edge(u, row, v, col, m);
      }
    }
  }
  return p;
}

}  // namespace pbqp_test
