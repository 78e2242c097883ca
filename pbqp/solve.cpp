// solve: from problem to result.
#include <algorithm>
#include <stdexcept>

#include "core.hpp"
#include "eliminate.hpp"
#include "search.hpp"

namespace pbqp {
namespace detail {
namespace {

// The unit of all costs and the size of their sum.
struct Range {
  int exponent = 0;   // every finite cost is a multiple of 2^exponent
  int magnitude = 0;  // and every sum below 2^magnitude in absolute value
};

class RangeScan {
 public:
  void add(const std::vector<double>& costs) {
    double largest = 0;
    for (const double x : costs) {
      if (x == 0 || x == kInfinity) continue;
      largest = std::max(largest, std::abs(x));
      low_ = std::min(low_, decompose(x).e);
    }
    // In units of 2^1023 the sum cannot overflow.
    if (largest > 0) sum_ += std::ldexp(largest, -60) * (1 + 1e-9);
  }
  Range range() const {
    Range r;
    if (sum_ == 0) return r;
    r.exponent = low_;
    r.magnitude = sum_ < kInfinity ? std::ilogb(sum_) + 61 : 1024 + 61;
    return r;
  }

 private:
  int low_ = 1024;
  double sum_ = 0;
};

Range scan(const Problem& problem) {
  RangeScan s;
  for (std::size_t v = 0; v < problem.node_count(); ++v) s.add(problem.costs(v));
  for (std::size_t e = 0; e < problem.edge_count(); ++e) s.add(problem.edge(e).matrix.data);
  return s.range();
}

template <class V>
class Solver {
 public:
  Solver(const Problem& problem, const Limits& limits, const Clock& clock, int exponent,
         bool rounded, const V& max_sum, Result& result)
      : problem_(problem),
        limits_(limits),
        clock_(clock),
        exponent_(exponent),
        proof_(limits.certificate),
        result_(result),
        layout_(problem),
        core_(problem, layout_, exponent, rounded, proof_, result.statistics) {
    core_.set_max_sum(max_sum);
  }

  void run();

 private:
  void solve_blocks();
  bool solve_block(const std::vector<std::uint32_t>& parts, std::uint32_t interface_part);
  std::vector<std::vector<std::uint32_t>> biconnected(std::vector<std::uint32_t>& interfaces);
  void finish(const std::vector<std::size_t>& chosen);

  const Problem& problem_;
  const Limits& limits_;
  const Clock& clock_;
  int exponent_;
  Proof proof_;
  Result& result_;
  Parts layout_;
  Core<V> core_;
  bool exact_ = true;  // no search was stopped short
};

// Blocks of the living graph, each after all blocks that hang below it, with the cut part by which
// it hangs on the rest (kNone for the last of a component). Hopcroft and Tarjan 1973, without
// recursion.
template <class V>
std::vector<std::vector<std::uint32_t>> Solver<V>::biconnected(
    std::vector<std::uint32_t>& interfaces) {
  struct Visit {
    std::uint32_t part;
    std::uint32_t parent_edge;
    std::size_t next;
  };
  std::vector<std::vector<std::uint32_t>> blocks;
  std::vector<std::uint32_t> depth(core_.part_count(), 0);
  std::vector<std::uint32_t> low(core_.part_count(), 0);
  std::vector<std::uint32_t> pile;
  std::vector<Visit> path;
  for (const std::uint32_t root : core_.alive_parts()) {
    if (depth[root] != 0) continue;
    std::uint32_t clock = 1;
    depth[root] = low[root] = clock;
    path.push_back({root, Core<V>::kNone, 0});
    pile.push_back(root);
    std::size_t first_of_component = blocks.size();
    while (!path.empty()) {
      Visit& at = path.back();
      const auto& edges = core_.edges_of(at.part);
      if (at.next < edges.size()) {
        const std::uint32_t e = edges[at.next++];
        if (e == at.parent_edge) continue;
        const std::uint32_t w = core_.other(core_.edge(e), at.part);
        if (depth[w] != 0) {
          low[at.part] = std::min(low[at.part], depth[w]);
          continue;
        }
        depth[w] = low[w] = ++clock;
        pile.push_back(w);
        path.push_back({w, e, 0});
        continue;
      }
      const std::uint32_t done = at.part;
      path.pop_back();
      if (path.empty()) break;
      const std::uint32_t up = path.back().part;
      low[up] = std::min(low[up], low[done]);
      if (low[done] >= depth[up]) {
        std::vector<std::uint32_t> block;
        std::uint32_t w;
        do {
          w = pile.back();
          pile.pop_back();
          block.push_back(w);
        } while (w != done);
        block.push_back(up);
        std::sort(block.begin(), block.end());
        blocks.push_back(std::move(block));
        interfaces.push_back(up);
      }
    }
    pile.clear();
    // The last block closed at the root has no rest to hang on.
    if (blocks.size() > first_of_component) interfaces.back() = Core<V>::kNone;
  }
  return blocks;
}

template <class V>
void Solver<V>::solve_blocks() {
  std::vector<std::uint32_t> interfaces;
  const auto blocks = biconnected(interfaces);
  result_.statistics.blocks += blocks.size();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!solve_block(blocks[i], interfaces[i]) || core_.infeasible()) return;
  }
}

template <class V>
bool Solver<V>::solve_block(const std::vector<std::uint32_t>& parts, std::uint32_t interface_part) {
  Statistics& stats = result_.statistics;
  auto block = std::make_shared<Block<V>>(cut_out(core_, parts));
  const std::size_t n = block->size();
  std::size_t keep = n;
  std::vector<std::uint32_t> inner;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (parts[i] == interface_part) {
      keep = i;
    } else {
      inner.push_back(parts[i]);
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (block->dim(i) == 0) {
      core_.add_constant(infinity<V>());
      return true;
    }
  }
  const EliminationPlan plan = plan_elimination(*block, keep);
  std::vector<V> rest;
  const double bytes = plan.entries * static_cast<double>(sizeof(V) + 2);
  if (plan.operations <= 2e7 && bytes <= static_cast<double>(limits_.memory_bytes)) {
    std::vector<EliminationStep> steps;
    if (!eliminate(*block, plan, keep, clock_, steps, rest)) return false;
    for (EliminationStep& s : steps) {
      std::vector<std::uint32_t> scope;
      for (const std::uint32_t w : s.scope) scope.push_back(parts[w]);
      std::string line = "elim " + std::to_string(parts[s.node]);
      for (const std::uint32_t p : scope) line += " " + std::to_string(p);
      proof_.raw(line + "\n");
      core_.log(
          {parts[s.node], std::move(scope), std::move(s.best), block, s.node, std::move(s.scope)});
    }
    stats.eliminated += inner.size();
    stats.width = std::max(stats.width, plan.width);
  } else {
    std::string line = "block " + (keep < n ? std::to_string(interface_part) : std::string("-"));
    for (const std::uint32_t p : inner) line += " " + std::to_string(p);
    proof_.raw(line + "\n");
    const std::size_t cases = keep < n ? block->dim(keep) : 1;
    rest.assign(cases, infinity<V>());
    std::vector<std::vector<std::uint32_t>> chosen(cases);
    std::vector<std::uint32_t> start;
    bool complete = true;
    for (std::size_t i = 0; i < cases; ++i) {
      const std::string head =
          "case " + (keep < n ? std::to_string(block->option[keep][i]) : std::string("-")) + " ";
      // The target is known after the search only.
      Proof tree(proof_.on());
      Search<V> s(*block, clock_, tree, stats);
      const auto out = s.run(keep, i, V(core_.max_sum() + V(1)), start);
      if (out.found) {
        start = out.assignment;
        chosen[i] = out.assignment;
      }
      rest[i] = out.found || !out.complete ? out.lower : infinity<V>();
      complete = complete && out.complete;
      proof_.raw(head + (is_inf(rest[i]) ? "inf" : decimal(rest[i])) + "\n");
      proof_.raw(tree.take());
      proof_.raw("end\n");
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      if (i == keep) continue;
      ArgTable table(cases, block->dim(i));
      for (std::size_t c = 0; c < cases; ++c) {
        if (!chosen[c].empty()) table.set(c, chosen[c][i]);
      }
      std::vector<std::uint32_t> scope;
      std::vector<std::uint32_t> local;
      if (keep < n) scope = {interface_part}, local = {static_cast<std::uint32_t>(keep)};
      core_.log({parts[i], scope, std::move(table), block, i, local});
    }
    stats.searched += inner.size();
    stats.width = std::max(stats.width, plan.width);
    if (!complete) exact_ = false;
  }
  for (const std::uint32_t p : inner) core_.remove(p);
  if (keep < n) {
    auto& cost = core_.part(interface_part).cost;
    for (std::size_t i = 0; i < rest.size(); ++i) {
      V& c = cost[block->option[keep][i]];
      c = sat_add<V>(c, rest[i]);
    }
  } else {
    core_.add_constant(rest[0]);
  }
  return true;
}

template <class V>
void Solver<V>::finish(const std::vector<std::size_t>& chosen) {
  const std::size_t n = problem_.node_count();
  result_.assignment.assign(n, 0);
  for (std::size_t v = 0; v < n; ++v) {
    const std::uint32_t p = layout_.first_part(v);
    const bool split = layout_.split(v);
    const auto& costs = problem_.costs(v);
    bool any = false;
    V least = V(0);
    for (std::size_t i = 0; i < costs.size(); ++i) {
      if (layout_.map(p).of[i] != chosen[p]) continue;
      if (split && layout_.map(p + 1).of[i] != chosen[p + 1]) continue;
      V c = core_.convert(costs[i]);
      for (const std::uint32_t e : layout_.self_loops(v)) {
        c = sat_add<V>(c, core_.convert(problem_.edge(e).cost(i, i)));
      }
      if (!any || c < least) {
        result_.assignment[v] = i;
        least = c;
        any = true;
      }
    }
  }
  result_.upper = problem_.cost(result_.assignment);
  if (result_.upper == kInfinity) result_.assignment.clear();
}

template <class V>
void Solver<V>::run() {
  core_.reduce(clock_);
  if (!core_.infeasible()) solve_blocks();
  core_.reduce(clock_);
  if (core_.infeasible()) {
    result_.status = Status::kInfeasible;
    result_.lower = kInfinity;
    return;
  }
  finish(core_.back_propagate(std::vector<std::size_t>(core_.part_count(), 0)));
  result_.lower = to_double(core_.constant(), exponent_);
  result_.status = exact_ ? Status::kOptimal : Status::kFeasible;
}

template <class V>
void solve_in(const Problem& problem, const Limits& limits, const Clock& clock, Range range,
              Result& result) {
  result.statistics.number_bits = Num<V>::kBits;
  result.statistics.quantum = std::ldexp(1.0, range.exponent);
  Solver<V> solver(problem, limits, clock, range.exponent, limits.quantum > 0,
                   Num<V>::shifted(V(1), range.magnitude - range.exponent), result);
  solver.run();
}

}  // namespace
}  // namespace detail

Result solve(const Problem& problem, const Limits& limits) {
  using namespace detail;
  const Clock clock(limits);
  Result result;
  result.statistics.nodes = problem.node_count();
  result.statistics.edges = problem.edge_count();
  for (std::size_t v = 0; v < problem.node_count(); ++v) {
    result.statistics.options += problem.option_count(v);
  }
  const Range range = scan(problem);
  const int bits = range.magnitude - range.exponent;
  if (bits <= 64 - 10) {
    solve_in<std::int64_t>(problem, limits, clock, range, result);
  } else if (bits <= 128 - 10) {
    solve_in<Int128>(problem, limits, clock, range, result);
  } else if (bits <= 384 - 10) {
    solve_in<Wide<6>>(problem, limits, clock, range, result);
  } else {
    solve_in<Widest>(problem, limits, clock, range, result);
  }
  result.statistics.seconds = clock.elapsed();
  return result;
}

}  // namespace pbqp
