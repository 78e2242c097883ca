// The PBQP solver against brute force.
#include "test.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "pbqp/check.hpp"
#include "pbqp/generate.hpp"
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
  if (limits.certificate) {
    const pbqp::CheckReport c = pbqp::check(p, r.certificate);
    CHECK_MESSAGE(c.valid, c.message << " in line " << c.line);
    CHECK(c.status == r.status);
    CHECK(c.upper == r.upper);
    CHECK(c.lower == r.lower);
    CHECK(c.assignment == r.assignment);
  }
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
  limits.certificate = true;
  limits.memory_bytes = 0;
  compare_with(p, what + ", searched", limits, truth);
}

/// Whether the problem stays infeasible when a node and its edges are taken out.
bool infeasible_without(const Problem& p, std::size_t left_out) {
  Problem q;
  std::vector<std::size_t> position(p.node_count());
  for (std::size_t v = 0; v < p.node_count(); ++v) {
    if (v != left_out) position[v] = q.add_node(p.costs(v));
  }
  for (std::size_t i = 0; i < p.edge_count(); ++i) {
    const pbqp::Edge& e = p.edge(i);
    if (e.u == left_out || e.v == left_out) continue;
    pbqp::Matrix m(p.option_count(e.u), p.option_count(e.v));
    for (std::size_t a = 0; a < m.rows; ++a) {
      for (std::size_t b = 0; b < m.cols; ++b) m(a, b) = e.cost(a, b);
    }
    q.add_edge(position[e.u], position[e.v], m);
  }
  return pbqp_test::brute_force(q).cost == kInfinity;
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

// All matrices of a triangle, up to symmetry.
TEST_CASE("pbqp: every triangle over {0, 1, inf} agrees with brute force") {
  const double value[] = {0.0, 1.0, kInfinity};
  for (int code = 0; code < 531441; code += 1) {
    // Up to swapping the options of node 0: the first row of the first edge is not above the
    // second.
    int c = code;
    double x[12];
    for (double& y : x) {
      y = value[c % 3];
      c /= 3;
    }
    if (x[0] > x[2] || (x[0] == x[2] && x[1] > x[3])) continue;
    // Up to swapping the options of nodes 1 and 2.
    if (x[0] > x[1] || x[4] > x[5]) continue;
    Problem p;
    for (int v = 0; v < 3; ++v) p.add_node({0.0, 0.0});
    p.add_edge(0, 1, std::vector<double>(x, x + 4));
    p.add_edge(0, 2, std::vector<double>(x + 4, x + 8));
    p.add_edge(1, 2, std::vector<double>(x + 8, x + 12));
    double best = kInfinity;
    for (int a = 0; a < 2; ++a) {
      for (int b = 0; b < 2; ++b) {
        for (int d = 0; d < 2; ++d) {
          best = std::min(best, x[2 * a + b] + x[4 + 2 * a + d] + x[8 + 2 * b + d]);
        }
      }
    }
    const pbqp::Result r = pbqp::solve(p);
    if (r.upper != best ||
        r.status != (best < kInfinity ? Status::kOptimal : Status::kInfeasible)) {
      FAIL("triangle " << code << ": " << r.upper << " instead of " << best);
    }
  }
}

TEST_CASE("pbqp: every pair of nodes with three options over {0, 1, inf} agrees with brute force") {
  const double value[] = {0.0, 1.0, kInfinity};
  for (int code = 0; code < 19683; ++code) {
    int c = code;
    std::vector<double> x(9);
    for (double& y : x) {
      y = value[c % 3];
      c /= 3;
    }
    Problem p;
    p.add_node({0.0, 1.0, static_cast<double>(code % 2)});
    p.add_node({1.0, 0.0, code % 5 == 0 ? kInfinity : 0.0});
    p.add_edge(0, 1, x);
    double best = kInfinity;
    for (std::size_t a = 0; a < 3; ++a) {
      for (std::size_t b = 0; b < 3; ++b) {
        best = std::min(best, p.costs(0)[a] + p.costs(1)[b] + x[3 * a + b]);
      }
    }
    const pbqp::Result r = pbqp::solve(p);
    if (r.upper != best || r.lower != best) {
      FAIL("pair " << code << ": " << r.upper << " instead of " << best);
    }
  }
}

TEST_CASE("pbqp: graphs of four and five nodes over {0, 1, inf} agree with brute force") {
  // Every graph (set of edges) with every node's options distinguished by a seeded matrix each.
  const double value[] = {0.0, 1.0, kInfinity};
  for (int n = 4; n <= 5; ++n) {
    const int pairs = n * (n - 1) / 2;
    for (int graph = 0; graph < 1 << pairs; ++graph) {
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        Random r(static_cast<std::uint64_t>(graph) * 8 + seed + (n == 5 ? 1u << 20 : 0u));
        const std::size_t k = 2 + seed % 2;
        Problem p;
        for (int v = 0; v < n; ++v) {
          std::vector<double> c(k);
          for (double& x : c) x = value[r.below(seed == 0 ? 1 : 2)];
          p.add_node(c);
        }
        int bit = 0;
        for (int u = 0; u < n; ++u) {
          for (int v = u + 1; v < n; ++v, ++bit) {
            if ((graph >> bit & 1) == 0) continue;
            std::vector<double> m(k * k);
            for (double& x : m) x = value[r.below(3)];
            p.add_edge(static_cast<std::size_t>(u), static_cast<std::size_t>(v), m);
          }
        }
        compare(p, "graph " + std::to_string(graph) + ", seed " + std::to_string(seed));
      }
    }
  }
}

TEST_CASE("pbqp: a small cost is not lost beside a large one") {
  Problem p;
  p.add_node({1e12, 1e12 + 1e-3});
  p.add_node({1e-12, 0.0});
  p.add_node({-1e12, -1e12});
  p.add_edge(0, 1, std::vector<double>{0.0, 2e-12, 0.0, 0.0});
  p.add_edge(1, 2, std::vector<double>{0.0, 0.0, 0.0, 0.0});
  const auto r = pbqp::solve(p);
  REQUIRE(r.optimal());
  CHECK(r.assignment == pbqp::Assignment{0, 0, 0});
  CHECK(r.upper == 1e-12);
  Problem q;  // the whole range of doubles
  q.add_node({1e308, 0x1p-1074});
  q.add_node({1e308, 0.0});
  q.add_edge(0, 1, std::vector<double>{-1e308, 0.0, 0.0, 0x1p-1074});
  const auto s = pbqp::solve(q);
  REQUIRE(s.optimal());
  CHECK(s.assignment == pbqp::Assignment{1, 1});
  CHECK(s.upper == 0x1p-1073);
}

TEST_CASE("pbqp: the corner cases of a problem") {
  CHECK(pbqp::solve(Problem()).optimal());
  CHECK(pbqp::solve(Problem()).upper == 0.0);
  Problem one;
  one.add_node({3.0, 2.0, 2.0});
  CHECK(pbqp::solve(one).assignment == pbqp::Assignment{1});  // ties: the lowest index
  one.add_edge(0, 0, std::vector<double>{-5.0, 9.0, 9.0, 9.0, 0.0, 9.0, 9.0, 9.0, 0.0});
  CHECK(pbqp::solve(one).upper == -2.0);
  Problem parallel;
  parallel.add_node({0.0, 1.0});
  parallel.add_node({0.0, 1.0});
  for (int i = 0; i < 3; ++i) {
    parallel.add_edge(0, 1, std::vector<double>{1.0, 0.0, 0.5, 0.0});
    parallel.add_edge(1, 0, std::vector<double>{1.0, 0.0, 0.5, 0.0});
  }
  const auto truth = pbqp_test::brute_force(parallel);
  CHECK(pbqp::solve(parallel).upper == truth.cost);
}

TEST_CASE("pbqp: wrong arguments are refused when they are given") {
  Problem p;
  p.add_node({1.0, 2.0}, {}, "conv1");
  p.add_node({1.0, 2.0, 3.0});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto throws = [&](const std::function<void()>& f, const std::string& part) {
    try {
      f();
      FAIL("nothing thrown, expected: " << part);
    } catch (const std::invalid_argument& e) {
      INFO(e.what());
      CHECK(std::string(e.what()).find(part) != std::string::npos);
    }
  };
  throws([&] { p.add_node({}); }, "no options");
  throws([&] { p.add_node({nan}); }, "not a number");
  throws([&] { p.add_node({-kInfinity}); }, "minus infinity");
  throws([&] { p.add_node({1.0}, {"a", "b"}); }, "2 option names");
  throws([&] { p.add_edge(0, 5, pbqp::Matrix(2, 3)); }, "node 5 does not exist");
  throws([&] { p.add_edge(0, 1, pbqp::Matrix(3, 2)); }, "node 0 (conv1)");
  throws([&] { p.add_edge(0, 1, std::vector<double>(5)); }, "2 x 3");
  throws([&] { p.add_edge(0, 1, {0, 0, 0, 0, nan, 0}); }, "row 1, column 1");
  throws([&] { p.add_class_edge(0, {0, 2}, 1, {0, 0, 0}, pbqp::Matrix(2, 1)); }, "class 2");
  throws([&] { p.add_class_edge(0, {0}, 1, {0, 0, 0}, pbqp::Matrix(2, 1)); }, "2 options");
  throws([&] { p.set_weights(0, {1.0, -1.0}); }, "not negative");
  throws([&] { p.set_costs(2, {}); }, "does not exist");
  const pbqp::Assignment unknown{0, 3};
  throws([&] { (void)p.cost(unknown); }, "no option 3");
  pbqp::Limits limits;
  limits.seconds = -1;
  throws([&] { (void)pbqp::solve(p, limits); }, "time limit");
  limits = {};
  limits.quantum = 0.3;
  throws([&] { (void)pbqp::solve(p, limits); }, "quantum");
  CHECK(p.node_count() == 2);
  CHECK(p.edge_count() == 0);
}

TEST_CASE("pbqp: an infeasible core is infeasible and minimal") {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 3000 && found < 300; ++seed) {
    Random r(seed + 7000000);
    const Problem p = pbqp_test::random_problem(r, 7, 3, Costs::kTiny, 0.5, 0.6);
    const auto result = pbqp::solve(p);
    if (result.status != Status::kInfeasible) continue;
    ++found;
    REQUIRE(!result.core.empty());
    Problem sub;  // the problem of the core's nodes only
    std::vector<std::size_t> position(p.node_count(), ~std::size_t{0});
    for (const std::size_t v : result.core) position[v] = sub.add_node(p.costs(v));
    for (std::size_t i = 0; i < p.edge_count(); ++i) {
      const pbqp::Edge& e = p.edge(i);
      if (position[e.u] == ~std::size_t{0} || position[e.v] == ~std::size_t{0}) continue;
      pbqp::Matrix m(p.option_count(e.u), p.option_count(e.v));
      for (std::size_t a = 0; a < m.rows; ++a) {
        for (std::size_t b = 0; b < m.cols; ++b) m(a, b) = e.cost(a, b);
      }
      sub.add_edge(position[e.u], position[e.v], m);
    }
    INFO("seed " << seed);
    CHECK(pbqp_test::brute_force(sub).cost == kInfinity);
    for (std::size_t v = 0; v < sub.node_count() && sub.node_count() > 1; ++v) {
      CHECK(!infeasible_without(sub, v));
    }
  }
  CHECK(found >= 100);
}

TEST_CASE("pbqp: limits give bounds that hold") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    pbqp::GenerateOptions o;
    o.kind = seed % 2 == 0 ? "dense" : "randwire";
    o.nodes = o.kind == "dense" ? 14 : 60;
    o.options = 20;
    o.layouts = 5;
    o.infinite = seed % 3 == 0 ? 0.2 : 0.0;
    o.seed = seed;
    const Problem p = pbqp::generate(o);
    const auto best = pbqp::solve(p);
    REQUIRE(best.optimal());
    for (const double gap : {0.01, 0.1, 0.5}) {
      pbqp::Limits limits;
      limits.gap = gap;
      limits.memory_bytes = 0;
      limits.certificate = true;
      const auto r = pbqp::solve(p, limits);
      REQUIRE(r.has_assignment());
      CHECK(r.lower <= best.upper);
      CHECK(r.upper >= best.upper);
      CHECK(r.gap() <= gap);
      CHECK(p.cost(r.assignment) == r.upper);
      const auto c = pbqp::check(p, r.certificate);
      CHECK_MESSAGE(c.valid, c.message << " in line " << c.line);
    }
    for (const double seconds : {0.0, 0.0005, 0.002}) {
      pbqp::Limits limits;
      limits.seconds = seconds;
      limits.certificate = true;
      const auto r = pbqp::solve(p, limits);
      CHECK(r.lower <= best.upper);
      CHECK(r.upper >= best.upper);
      if (r.has_assignment()) CHECK(p.cost(r.assignment) == r.upper);
      const auto c = pbqp::check(p, r.certificate);
      CHECK_MESSAGE(c.valid, c.message << " in line " << c.line);
    }
    pbqp::Limits coarse;
    coarse.quantum = 0x1p-6;
    const auto r = pbqp::solve(p, coarse);
    CHECK(r.lower <= best.upper);
    CHECK(r.upper >= best.upper);
    CHECK(r.upper - r.lower <=
          0x1p-6 * static_cast<double>(p.node_count() + p.edge_count()) * 1.01);
  }
}

TEST_CASE("pbqp: the optimum does not depend on how the problem is written down") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    pbqp::GenerateOptions o;
    const auto kinds = pbqp::generator_kinds();
    o.kind = kinds[seed % kinds.size()];
    o.nodes = o.kind == "dense" ? 8 : 40;
    o.options = 12;
    o.layouts = 4;
    o.infinite = 0.1 * static_cast<double>(seed % 3);
    o.seed = seed;
    const Problem p = pbqp::generate(o);
    const auto best = pbqp::solve(p);
    INFO("kind " << o.kind << ", seed " << seed);
    // Expanded to full matrices.
    CHECK(pbqp::solve(pbqp::expand(p)).upper == best.upper);
    // Nodes and options permuted, edges transposed, every cost doubled, a constant spread.
    Random r(seed);
    std::vector<std::size_t> node(p.node_count());
    for (std::size_t v = 0; v < node.size(); ++v) node[v] = v;
    std::shuffle(node.begin(), node.end(), r.engine);
    std::vector<std::size_t> position(node.size());
    std::vector<std::vector<std::size_t>> option(node.size());
    Problem q;
    for (std::size_t k = 0; k < node.size(); ++k) {
      position[node[k]] = k;
      auto& perm = option[k];
      perm.resize(p.option_count(node[k]));
      for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = i;
      std::shuffle(perm.begin(), perm.end(), r.engine);
      std::vector<double> c;
      for (const std::size_t i : perm) c.push_back(2 * p.costs(node[k])[i] + 1);
      q.add_node(c);
    }
    for (std::size_t i = 0; i < p.edge_count(); ++i) {
      const pbqp::Edge& e = p.edge(i);
      const std::size_t a = position[e.u];
      const std::size_t b = position[e.v];
      pbqp::Matrix m(q.option_count(b), q.option_count(a));
      for (std::size_t x = 0; x < m.rows; ++x) {
        for (std::size_t y = 0; y < m.cols; ++y)
          m(x, y) = 2 * e.cost(option[a][y], option[b][x]) - 0.5;
      }
      q.add_edge(b, a, m);
    }
    const auto other = pbqp::solve(q);
    CHECK(other.status == best.status);
    if (best.optimal()) {
      CHECK(other.upper == 2 * best.upper + static_cast<double>(p.node_count()) -
                               0.5 * static_cast<double>(p.edge_count()));
    }
  }
}

TEST_CASE("pbqp: two threads may solve at once") {
  pbqp::GenerateOptions o;
  o.kind = "randwire";
  o.nodes = 100;
  const Problem p = pbqp::generate(o);
  const auto alone = pbqp::solve(p);
  pbqp::Result r[2];
  std::thread a([&] { r[0] = pbqp::solve(p); });
  std::thread b([&] { r[1] = pbqp::solve(p); });
  a.join();
  b.join();
  for (const auto& x : r) {
    CHECK(x.upper == alone.upper);
    CHECK(x.assignment == alone.assignment);
  }
}
