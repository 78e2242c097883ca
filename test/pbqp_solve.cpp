// The PBQP solver against brute force.
#include "test.hpp"

#include <string>

#include "pbqp_util.hpp"

using pbqp::kInfinity;
using pbqp::Problem;
using pbqp::Status;
using pbqp_test::Costs;
using pbqp_test::Random;

namespace {

void compare_with(const Problem& p, const std::string& what, const pbqp::Limits& limits,
                  const pbqp_test::BruteForce& truth) {
  const pbqp::Result r = pbqp::solve(p, limits);
  INFO(what);
  if (truth.cost == kInfinity) {
    CHECK(r.status == Status::kInfeasible);
    CHECK(r.upper == kInfinity);
    CHECK(r.lower == kInfinity);
    CHECK(r.assignment.empty());
    return;
  }
  REQUIRE(r.status == Status::kOptimal);
  CHECK(r.upper == truth.cost);
  CHECK(r.lower == truth.cost);
  REQUIRE(r.assignment.size() == p.node_count());
  CHECK(p.cost(r.assignment) == truth.cost);
}

// Without memory for tables everything above degree two is searched, not eliminated.
void compare(const Problem& p, const std::string& what) {
  const auto truth = pbqp_test::brute_force(p);
  pbqp::Limits limits;
  compare_with(p, what, limits, truth);
  limits.memory_bytes = 0;
  compare_with(p, what + ", searched", limits, truth);
}

}  // namespace

TEST_CASE("pbqp: random problems of every kind agree with brute force") {
  const Costs kinds[] = {Costs::kTiny, Costs::kIntegers, Costs::kReals, Costs::kMixed,
                         Costs::kNegative};
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    Random r(seed);
    const std::size_t nodes = 1 + r.below(8);
    const std::size_t options = nodes > 6 ? 3 : 4;
    const double density = 0.2 + 0.8 * r.uniform();
    const double infinite = r.chance(0.5) ? 0.0 : 0.6 * r.uniform();
    const Costs kind = kinds[seed % 5];
    compare(pbqp_test::random_problem(r, nodes, options, kind, density, infinite),
            "seed " + std::to_string(seed));
  }
}
