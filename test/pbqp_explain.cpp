// Min-marginals, k best and Pareto fronts against brute force.
#include "pbqp/explain.hpp"

#include <algorithm>
#include <string>

#include "pbqp/generate.hpp"
#include "pbqp_util.hpp"
#include "test.hpp"

using pbqp::kInfinity;
using pbqp::Problem;
using pbqp_test::Costs;
using pbqp_test::Random;

namespace {

template <class F>
void each_assignment(const Problem& p, F f) {
  pbqp::Assignment x(p.node_count(), 0);
  while (true) {
    f(x);
    std::size_t v = 0;
    while (v < x.size() && ++x[v] == p.option_count(v)) x[v++] = 0;
    if (v == x.size()) return;
  }
}

const Costs kKinds[] = {Costs::kTiny, Costs::kIntegers, Costs::kReals, Costs::kMixed,
                        Costs::kNegative};

}  // namespace

TEST_CASE("pbqp: min-marginals agree with brute force") {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Random r(seed + 100);
    const Problem p = pbqp_test::random_problem(r, 6, 4, kKinds[seed % 5], 0.2 + 0.8 * r.uniform(),
                                                r.chance(0.5) ? 0.0 : 0.4);
    std::vector<std::vector<double>> truth;
    for (std::size_t v = 0; v < p.node_count(); ++v) {
      truth.emplace_back(p.option_count(v), kInfinity);
    }
    each_assignment(p, [&](const pbqp::Assignment& x) {
      const double c = p.cost(x);
      for (std::size_t v = 0; v < x.size(); ++v) truth[v][x[v]] = std::min(truth[v][x[v]], c);
    });
    INFO("seed " << seed);
    pbqp::Limits limits;
    if (seed % 4 == 3) limits.memory_bytes = 0;  // one solve per option
    const auto m = pbqp::min_marginals(p, limits);
    CHECK(m.complete);
    REQUIRE(m.cost.size() == truth.size());
    for (std::size_t v = 0; v < truth.size(); ++v) CHECK(m.cost[v] == truth[v]);
  }
}

TEST_CASE("pbqp: min-marginals by tables and by solving agree on generated problems") {
  for (const char* kind : {"resnet", "nasnet", "googlenet"}) {
    pbqp::GenerateOptions o;
    o.kind = kind;
    o.nodes = 20;
    o.options = 12;
    o.layouts = 4;
    o.infinite = 0.1;
    const Problem p = pbqp::generate(o);
    pbqp::Limits none;
    none.memory_bytes = 0;
    CHECK(pbqp::min_marginals(p).cost == pbqp::min_marginals(p, none).cost);
  }
}

TEST_CASE("pbqp: the k best assignments agree with brute force") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random r(seed + 5000);
    const Problem p = pbqp_test::random_problem(r, 5, 3, kKinds[seed % 5], 0.6, 0.2);
    std::vector<double> truth;
    each_assignment(p, [&](const pbqp::Assignment& x) {
      const double c = p.cost(x);
      if (c < kInfinity) truth.push_back(c);
    });
    std::sort(truth.begin(), truth.end());
    const std::size_t k = 1 + r.below(12);
    const auto best = pbqp::k_best(p, k);
    INFO("seed " << seed);
    REQUIRE(best.size() == std::min(k, truth.size()));
    for (std::size_t i = 0; i < best.size(); ++i) {
      CHECK(best[i].cost == truth[i]);
      CHECK(p.cost(best[i].assignment) == truth[i]);
      for (std::size_t j = 0; j < i; ++j) CHECK(best[i].assignment != best[j].assignment);
    }
  }
}

TEST_CASE("pbqp: Pareto fronts and capacities agree with brute force") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    Random r(seed + 9000);
    Problem p = pbqp_test::random_problem(r, 5, 4, kKinds[seed % 5], 0.2 + 0.8 * r.uniform(),
                                          r.chance(0.5) ? 0.0 : 0.3);
    for (std::size_t v = 0; v < p.node_count(); ++v) {
      if (r.chance(0.1)) continue;
      std::vector<double> w(p.option_count(v));
      for (double& x : w) x = seed % 2 == 0 ? static_cast<double>(r.below(8)) : r.uniform();
      p.set_weights(v, w);
    }
    std::vector<std::pair<double, double>> all;  // weight, cost
    each_assignment(p, [&](const pbqp::Assignment& x) {
      if (p.cost(x) < kInfinity) all.emplace_back(p.weight(x), p.cost(x));
    });
    std::sort(all.begin(), all.end());
    std::vector<std::pair<double, double>> truth;
    for (const auto& a : all) {
      if (truth.empty() || a.second < truth.back().second) truth.push_back(a);
    }
    INFO("seed " << seed);
    const auto front = pbqp::pareto(p);
    CHECK(front.status == (truth.empty() ? pbqp::Status::kInfeasible : pbqp::Status::kOptimal));
    REQUIRE(front.points.size() == truth.size());
    for (std::size_t i = 0; i < truth.size(); ++i) {
      CHECK(front.points[i].weight == truth[i].first);
      CHECK(front.points[i].cost == truth[i].second);
      CHECK(p.cost(front.points[i].assignment) == truth[i].second);
      CHECK(p.weight(front.points[i].assignment) == truth[i].first);
    }
    if (!p.has_weights()) continue;
    for (int k = 0; k < 4; ++k) {
      pbqp::Limits limits;
      limits.capacity = r.uniform() * 3.0 * static_cast<double>(p.node_count());
      if (k == 0 && !truth.empty()) limits.capacity = truth[r.below(truth.size())].first;
      double best = kInfinity;
      for (const auto& t : truth) {
        if (t.first <= limits.capacity) best = t.second;
      }
      const auto s = pbqp::solve(p, limits);
      INFO("capacity " << limits.capacity);
      CHECK(s.status == (best < kInfinity ? pbqp::Status::kOptimal : pbqp::Status::kInfeasible));
      CHECK(s.upper == best);
      CHECK(s.lower == best);
      if (s.optimal()) CHECK(p.weight(s.assignment) <= limits.capacity);
    }
  }
}

TEST_CASE("pbqp: a capacity on a generated network holds and only costs what it must") {
  pbqp::GenerateOptions o;
  o.kind = "googlenet";
  o.nodes = 40;
  o.options = 20;
  o.layouts = 4;
  o.weights = true;
  const Problem p = pbqp::generate(o);
  const auto free = pbqp::solve(p);
  double last = free.upper;
  for (const double share : {0.9, 0.7, 0.5}) {
    pbqp::Limits limits;
    limits.capacity = share * p.weight(free.assignment);
    const auto r = pbqp::solve(p, limits);
    REQUIRE(r.optimal());
    CHECK(p.weight(r.assignment) <= limits.capacity);
    CHECK(r.upper >= last);
    last = r.upper;
  }
}
