// solve: from problem to result.
#include <algorithm>
#include <stdexcept>

#include "constrained.hpp"
#include "core.hpp"
#include "eliminate.hpp"
#include "infeasible.hpp"
#include "pbqp/check.hpp"
#include "range.hpp"
#include "search.hpp"

namespace pbqp {
namespace detail {
namespace {

template <class V>
class Solver {
 public:
  Solver(const Problem& problem, const Limits& limits, const Clock& clock, int exponent,
         bool rounded, const V& max_sum, Result& result)
      : problem_(problem),
        limits_(limits),
        clock_(clock),
        exponent_(exponent),
        rounded_(rounded),
        proof_(limits.certificate),
        result_(result),
        layout_(problem),
        core_(problem, layout_, exponent, rounded, proof_, result.statistics) {
    core_.set_max_sum(max_sum);
  }

  void run();
  std::size_t culprit() const {
    return core_.culprit() == Core<V>::kNone ? 0 : layout_.parts()[core_.culprit()].node;
  }

 private:
  void solve_blocks();
  void write_certificate(const V& upper, const V& lower);
  void solve_block(const std::vector<std::uint32_t>& parts, std::uint32_t interface_part);
  bool eliminate_block(const std::shared_ptr<const Block<V>>& block, std::size_t keep,
                       const EliminationPlan& plan, std::vector<V>& rest);
  bool search_block(const std::shared_ptr<const Block<V>>& block, std::size_t keep,
                    std::size_t branch_limit, std::vector<V>& rest);
  std::vector<std::vector<std::uint32_t>> biconnected(std::vector<std::uint32_t>& interfaces);
  Assignment options(const std::vector<std::size_t>& chosen) const;
  V evaluate(const Assignment& x) const;
  void descend(Assignment& x) const;

  const Problem& problem_;
  const Limits& limits_;
  const Clock& clock_;
  int exponent_;
  bool rounded_;
  Proof proof_;
  Result& result_;
  Parts layout_;
  Core<V> core_;
  V tolerance_ = V(0);
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
  if (limits_.gap > 0 && !blocks.empty()) {
    // If the optimum is at least `low` > 0, stopping within gap * low in all keeps the promise.
    const V low = core_.least_sum();
    if (low > V(0) && !is_inf(low)) {
      const double share = std::min(limits_.gap, 1.0) / static_cast<double>(blocks.size());
      const auto scaled = static_cast<std::int64_t>(share * 0x1p30);
      tolerance_ = (low / (std::int64_t{1} << 30));
      V sum = V(0);  // tolerance_ * scaled, without a product of wide numbers
      for (int bit = 0; bit <= 30; ++bit) {
        if ((scaled >> bit & 1) != 0) sum += Num<V>::shifted(tolerance_, bit);
      }
      tolerance_ = sum;
    }
  }
  for (std::size_t i = 0; i < blocks.size() && !core_.infeasible(); ++i) {
    solve_block(blocks[i], interfaces[i]);
  }
}

template <class V>
bool Solver<V>::eliminate_block(const std::shared_ptr<const Block<V>>& block, std::size_t keep,
                                const EliminationPlan& plan, std::vector<V>& rest) {
  std::vector<EliminationStep> steps;
  if (!eliminate(*block, plan, keep, clock_, steps, rest)) return false;
  for (EliminationStep& s : steps) {
    proof_.words("elim", block->part[s.node]);
    for (const std::uint32_t w : s.scope) proof_.words("", block->part[w]);
    proof_.raw("\n");
    core_.log({block, s.node, std::move(s.scope), std::move(s.best)});
  }
  result_.statistics.eliminated += steps.size();
  return true;
}

template <class V>
bool Solver<V>::search_block(const std::shared_ptr<const Block<V>>& block, std::size_t keep,
                             std::size_t branch_limit, std::vector<V>& rest) {
  const std::size_t n = block->size();
  const bool hangs = keep < n;
  Proof proof(proof_.on());
  if (hangs) {
    proof.words("block", block->part[keep]);
  } else {
    proof.raw("block -");
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (i != keep) proof.words("", block->part[i]);
  }
  proof.raw("\n");
  const std::size_t cases = hangs ? block->dim(keep) : 1;
  rest.assign(cases, infinity<V>());
  std::vector<std::vector<std::uint32_t>> chosen(cases);
  std::vector<std::uint32_t> start;
  bool exact = true;
  for (std::size_t i = 0; i < cases; ++i) {
    const auto look = [&](Proof& tree, const V& cutoff) {
      Search<V> search(*block, clock_, tree, result_.statistics);
      search.set_tolerance(tolerance_);
      search.set_branch_limit(branch_limit);
      return search.run(keep, i, cutoff, start);
    };
    Proof tree(proof_.on());
    const auto out = look(tree, V(Num<V>::shifted(core_.max_sum(), 2) + V(1)));
    if (!out.complete && !clock_.expired()) return false;
    if (proof_.on() && out.complete && out.found && out.lower == out.upper) {
      // With the optimum known from the start the tree is as small as can be, and the proof with
      // it.
      Proof again(true);
      if (look(again, out.upper).complete) tree = std::move(again);
    }
    if (out.found) start = chosen[i] = out.assignment;
    rest[i] = out.found || !out.complete ? out.lower : infinity<V>();
    exact = exact && out.complete && (!out.found || out.lower == out.upper);
    if (hangs) {
      proof.words("case", block->option[keep][i]);
    } else {
      proof.raw("case -");
    }
    proof.raw(" ");
    proof.raw(is_inf(rest[i]) ? "inf" : decimal(rest[i]));
    proof.raw("\n");
    proof.raw(tree.take());
    proof.raw("end\n");
  }
  proof_.raw(proof.take());
  exact_ = exact_ && exact;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (i == keep) continue;
    ArgTable table(cases, block->dim(i));
    for (std::size_t c = 0; c < cases; ++c) {
      const auto& x = chosen[c].empty() ? start : chosen[c];
      if (!x.empty()) table.set(c, x[i]);
    }
    std::vector<std::uint32_t> scope;
    if (hangs) scope.push_back(static_cast<std::uint32_t>(keep));
    core_.log({block, i, std::move(scope), std::move(table)});
  }
  result_.statistics.searched += hangs ? n - 1 : n;
  return true;
}

template <class V>
void Solver<V>::solve_block(const std::vector<std::uint32_t>& parts, std::uint32_t interface_part) {
  const std::shared_ptr<const Block<V>> block = std::make_shared<Block<V>>(cut_out(core_, parts));
  const std::size_t n = block->size();
  std::size_t keep = n;
  for (std::size_t i = 0; i < n; ++i) {
    if (parts[i] == interface_part) keep = i;
    if (block->dim(i) == 0) {
      core_.set_culprit(parts[i]);
      core_.add_constant(infinity<V>());
      return;
    }
  }
  const EliminationPlan plan = plan_elimination(*block, keep);
  result_.statistics.width = std::max(result_.statistics.width, plan.width);
  const bool fits = plan.entries * static_cast<double>(sizeof(V) + 2) <=
                    static_cast<double>(limits_.memory_bytes);
  // Small tables: eliminate. Large ones: search, and should that take long, eliminate after all,
  // which takes a time that is known. Beyond memory there is only the search.
  std::vector<V> rest;
  bool done = fits && plan.operations <= 1e7 && eliminate_block(block, keep, plan, rest);
  if (!done) {
    const bool fall_back = fits && plan.operations <= 1e11;
    const auto nodes = static_cast<std::size_t>(fall_back ? plan.operations * 1e-5 + 1000 : 1e18);
    done = search_block(block, keep, nodes, rest) || eliminate_block(block, keep, plan, rest) ||
           search_block(block, keep, ~std::size_t{0}, rest);
  }
  if (std::all_of(rest.begin(), rest.end(), is_inf<V>)) core_.set_culprit(parts[0]);
  for (const std::uint32_t p : parts) {
    if (p != interface_part) core_.remove(p);
  }
  if (keep == n) {
    core_.add_constant(rest[0]);
    return;
  }
  auto& cost = core_.part(interface_part).cost;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    V& c = cost[block->option[keep][i]];
    c = sat_add<V>(c, rest[i]);
  }
}

// From options of parts to options of nodes: the cheapest one in the classes chosen.
template <class V>
Assignment Solver<V>::options(const std::vector<std::size_t>& chosen) const {
  const std::size_t n = problem_.node_count();
  Assignment x(n, 0);
  for (std::size_t v = 0; v < n; ++v) {
    const std::uint32_t p = layout_.first_part(v);
    const ClassMap& first = layout_.map(p);
    const ClassMap& second = layout_.map(layout_.split(v) ? p + 1 : p);
    const std::size_t k = chosen[p];
    const std::size_t l = chosen[layout_.split(v) ? p + 1 : p];
    bool any = false;
    V least = V(0);
    for (std::size_t i = 0; i < first.of.size(); ++i) {
      if (first.of[i] != k || second.of[i] != l) continue;
      V c = core_.convert(problem_.costs(v)[i]);
      for (const std::uint32_t e : layout_.self_loops(v)) {
        c = sat_add<V>(c, core_.convert(problem_.edge(e).cost(i, i)));
      }
      if (!any || c < least) x[v] = i, least = c, any = true;
    }
  }
  return x;
}

template <class V>
V Solver<V>::evaluate(const Assignment& x) const {
  V sum = V(0);
  for (std::size_t v = 0; v < problem_.node_count(); ++v) {
    sum = sat_add<V>(sum, core_.convert(problem_.costs(v)[x[v]]));
  }
  for (std::size_t i = 0; i < problem_.edge_count(); ++i) {
    const Edge& e = problem_.edge(i);
    sum = sat_add<V>(sum, core_.convert(e.cost(x[e.u], x[e.v])));
  }
  return sum;
}

// Descent by changing one node at a time.
template <class V>
void Solver<V>::descend(Assignment& x) const {
  std::vector<std::vector<std::uint32_t>> incident(problem_.node_count());
  for (std::uint32_t i = 0; i < problem_.edge_count(); ++i) {
    incident[problem_.edge(i).u].push_back(i);
    if (problem_.edge(i).v != problem_.edge(i).u) incident[problem_.edge(i).v].push_back(i);
  }
  bool again = true;
  // The time is up already: large problems get a single round.
  const int rounds = result_.statistics.options > 200000 ? 1 : 20;
  for (int round = 0; again && round < rounds; ++round) {
    again = false;
    for (std::size_t v = 0; v < x.size(); ++v) {
      const auto cost_of = [&](std::size_t i) {
        V sum = core_.convert(problem_.costs(v)[i]);
        for (const std::uint32_t id : incident[v]) {
          const Edge& e = problem_.edge(id);
          sum =
              sat_add<V>(sum, core_.convert(e.cost(e.u == v ? i : x[e.u], e.v == v ? i : x[e.v])));
        }
        return sum;
      };
      V least = cost_of(x[v]);
      for (std::size_t i = 0; i < problem_.option_count(v); ++i) {
        const V c = cost_of(i);
        if (c < least) least = c, x[v] = i, again = true;
      }
    }
  }
}

template <class V>
void Solver<V>::write_certificate(const V& upper, const V& lower) {
  Proof out(true);
  out.line("pbqp-certificate", 1);
  out.line("problem", problem_.node_count(), problem_.edge_count());
  out.line("exponent", exponent_);
  const auto claim = [&](std::string_view what, std::string_view value) {
    out.raw(what);
    out.raw(value);
    out.raw("\n");
  };
  claim("status ", to_string(result_.status));
  claim("upper ", is_inf(upper) ? "inf" : decimal(upper));
  claim("lower ", is_inf(lower) ? "inf" : decimal(lower));
  out.raw("assignment");
  if (result_.assignment.empty() && problem_.node_count() > 0) out.raw(" -");
  for (const std::size_t x : result_.assignment) out.words("", x);
  out.raw("\n");
  std::vector<bool> known;
  for (std::uint32_t p = 0; p < layout_.parts().size(); ++p) {
    const std::uint32_t map = layout_.map_id(p);
    if (known.size() <= map) known.resize(map + 1, false);
    if (!known[map]) {
      known[map] = true;
      out.words("map", map);
      for (const std::uint32_t c : layout_.map(p).of) out.words("", c);
      out.raw("\n");
    }
    out.line("part", layout_.parts()[p].node, map);
  }
  out.raw("proof\n");
  out.raw(proof_.take());
  out.raw("qed\n");
  result_.certificate = out.take();
  const std::string sum = certificate_checksum(result_.certificate);
  result_.certificate += "checksum ";
  result_.certificate += sum;
  result_.certificate += '\n';
}

template <class V>
void Solver<V>::run() {
  bool in_time = core_.reduce(clock_);
  if (in_time && !core_.infeasible()) {
    solve_blocks();
    in_time = core_.reduce(clock_);
  }
  V lower = core_.constant();
  if (!in_time || is_inf(lower)) {
    lower = core_.least_sum();
    proof_.raw("rest\n");
  }
  if (is_inf(lower)) {
    result_.status = Status::kInfeasible;
    result_.lower = kInfinity;
    if (proof_.on()) write_certificate(infinity<V>(), lower);
    return;
  }
  if (!in_time) {
    exact_ = false;
    core_.guess_rest();
  }
  Assignment x = options(core_.back_propagate(std::vector<std::size_t>(core_.part_count(), 0)));
  V upper = evaluate(x);
  if (!exact_) {
    descend(x);
    upper = evaluate(x);
  }
  result_.lower = to_double(lower, exponent_);
  if (upper == lower) {
    result_.status = Status::kOptimal;
  } else {
    result_.status = is_inf(upper) ? Status::kLimit : Status::kFeasible;
    // The conversion to double may have rounded up.
    result_.lower = std::nextafter(result_.lower, -kInfinity);
  }
  if (!is_inf(upper)) {
    result_.assignment = std::move(x);
    result_.upper = rounded_ ? problem_.cost(result_.assignment) : to_double(upper, exponent_);
  }
  if (proof_.on()) write_certificate(upper, lower);
}

template <class V>
std::size_t solve_in(const Problem& problem, const Limits& limits, const Clock& clock, Range range,
                     bool rounded, Result& result) {
  result.statistics.number_bits = Num<V>::kBits;
  result.statistics.quantum = std::ldexp(1.0, range.exponent);
  Solver<V> solver(problem, limits, clock, range.exponent, rounded,
                   Num<V>::shifted(V(1), range.magnitude - range.exponent), result);
  solver.run();
  return solver.culprit();
}

void check(const Limits& limits) {
  const auto require = [](bool ok, const char* what) {
    if (!ok) throw std::invalid_argument(what);
  };
  require(limits.seconds >= 0, "the time limit must not be negative");
  require(limits.gap >= 0, "the gap must not be negative");
  require(limits.capacity >= 0, "the capacity must not be negative");
  int exponent = 0;
  require(limits.quantum == 0 || (limits.quantum > 0 && limits.quantum < kInfinity &&
                                  std::frexp(limits.quantum, &exponent) == 0.5),
          "the quantum must be 0 or a power of two");
  require(limits.quantum == 0 || !limits.certificate,
          "a certificate needs exact sums: leave the quantum at 0");
  require(limits.capacity == kInfinity || !limits.certificate,
          "a certificate cannot speak of a capacity");
}

}  // namespace
}  // namespace detail

Result solve(const Problem& problem, const Limits& limits) {
  using namespace detail;
  check(limits);
  if (limits.capacity < kInfinity && problem.has_weights()) {
    return solve_with_capacity(problem, limits);
  }
  const Clock clock(limits);
  Result result;
  result.statistics.nodes = problem.node_count();
  result.statistics.edges = problem.edge_count();
  for (std::size_t v = 0; v < problem.node_count(); ++v) {
    result.statistics.options += problem.option_count(v);
  }
  Range range = scan(problem);
  bool rounded = false;
  if (limits.quantum > 0) {
    const int unit = std::ilogb(limits.quantum);
    rounded = unit > range.exponent;
    if (rounded) range = {unit, std::max(range.magnitude, unit) + 1};
  }
  std::size_t near = 0;  // a node where an infeasibility showed
  with_integers(range.magnitude - range.exponent, [&]<class V>(V) {
    near = solve_in<V>(problem, limits, clock, range, rounded, result);
  });
  if (rounded && result.status != Status::kInfeasible) {
    const auto terms = static_cast<double>(problem.node_count() + problem.edge_count());
    result.lower = std::nextafter(result.lower - 0.5 * limits.quantum * terms, -kInfinity);
    if (result.status == Status::kOptimal) result.status = Status::kFeasible;
  }
  if (result.status == Status::kInfeasible)
    result.core = infeasible_core(problem, limits, clock, near);
  result.statistics.seconds = clock.elapsed();
  return result;
}

}  // namespace pbqp
