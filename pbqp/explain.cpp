// Min-marginals and the k best assignments.
#include "pbqp/explain.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "block.hpp"
#include "eliminate.hpp"
#include "range.hpp"
#include "two_pass.hpp"

namespace pbqp {
namespace detail {
namespace {

constexpr double kMostOperations = 3e8;

template <class V>
class Explainer {
 public:
  Explainer(const Problem& problem, int exponent)
      : problem_(problem),
        exponent_(exponent),
        proof_(false),
        layout_(problem),
        core_(problem, layout_, exponent, false, proof_, stats_) {}

  // False if the tables are too large or the clock ran out.
  bool run(const Limits& limits, const Clock& clock, Marginals& out) {
    if (core_.infeasible()) return false;
    std::vector<std::uint32_t> all(core_.part_count());
    std::iota(all.begin(), all.end(), 0u);
    const Block<V> block = cut_out(core_, all);
    for (std::size_t p = 0; p < block.size(); ++p) {
      if (block.dim(p) == 0) return true;  // infeasible: all entries stay infinite
    }
    // The parts of a node must share a table; without an edge between them they need not.
    for (std::uint32_t p = 0; p + 1 < block.size(); ++p) {
      if (layout_.parts()[p].node != layout_.parts()[p + 1].node) continue;
      const auto& edges = block.incident[p];
      if (std::none_of(edges.begin(), edges.end(),
                       [&](std::uint32_t e) { return block.other(e, p) == p + 1; })) {
        return false;
      }
    }
    const EliminationPlan plan = plan_elimination(block, block.size());
    // Tables up and down.
    if (plan.operations > kMostOperations || 2 * plan.entries * static_cast<double>(sizeof(V)) >
                                                 static_cast<double>(limits.memory_bytes)) {
      return false;
    }
    TwoPass<V> passes(block, plan);
    if (!passes.run(clock)) return false;
    for (std::size_t v = 0; v < problem_.node_count(); ++v) {
      if (clock.expired()) return false;
      node(v, block, passes, out.cost[v]);
    }
    return true;
  }

 private:
  // From classes to options: what the class costs without its own share, plus the option's cost.
  void node(std::size_t v, const Block<V>& block, const TwoPass<V>& passes,
            std::vector<double>& out) const {
    const std::uint32_t p = layout_.first_part(v);
    const bool split = layout_.split(v);
    const auto index = [&](std::uint32_t part, std::size_t option) {
      const auto& alive = block.option[part];
      const auto it = std::lower_bound(alive.begin(), alive.end(), option);
      return it == alive.end() || *it != option
                 ? std::optional<std::size_t>()
                 : std::optional<std::size_t>(static_cast<std::size_t>(it - alive.begin()));
    };
    const std::vector<V> least = split ? passes.marginal(p, p + 1) : passes.marginal(p);
    const ClassMap& first = layout_.map(p);
    const ClassMap& second = layout_.map(split ? p + 1 : p);
    std::vector<V> own(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      own[i] = core_.convert(problem_.costs(v)[i]);
      for (const std::uint32_t e : layout_.self_loops(v)) {
        own[i] = sat_add<V>(own[i], core_.convert(problem_.edge(e).cost(i, i)));
      }
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto k = index(p, first.of[i]);
      const auto l = split ? index(p + 1, second.of[i]) : std::optional<std::size_t>(0);
      if (is_inf(own[i]) || !k || !l) continue;
      const V& whole = split ? least[*k * block.dim(p + 1) + *l] : least[*k];
      if (is_inf(whole)) continue;
      V share = own[i];  // of the cheapest option in the same classes
      for (std::size_t j = 0; j < out.size(); ++j) {
        if (first.of[j] == first.of[i] && second.of[j] == second.of[i] && own[j] < share) {
          share = own[j];
        }
      }
      out[i] = to_double(V(V(whole - share) + V(own[i] + core_.constant())), exponent_);
    }
  }

  const Problem& problem_;
  int exponent_;
  Proof proof_;
  Statistics stats_;
  Parts layout_;
  Core<V> core_;
};

// The problem with every option of a node but one forbidden.
Problem with_forced(const Problem& problem, std::size_t v, std::size_t i) {
  Problem p = problem;
  std::vector<double> c(problem.option_count(v), kInfinity);
  c[i] = problem.costs(v)[i];
  p.set_costs(v, std::move(c));
  return p;
}

Problem with_forbidden(const Problem& problem, std::size_t v, std::size_t i) {
  Problem p = problem;
  std::vector<double> c = problem.costs(v);
  c[i] = kInfinity;
  p.set_costs(v, std::move(c));
  return p;
}

Limits remaining(const Limits& limits, const Clock& clock) {
  Limits l = limits;
  l.certificate = false;
  l.minimise_core = false;
  l.gap = 0;
  l.quantum = 0;
  l.capacity = kInfinity;
  l.seconds = std::max(0.0, limits.seconds - clock.elapsed());
  return l;
}

}  // namespace
}  // namespace detail

Marginals min_marginals(const Problem& problem, const Limits& limits) {
  using namespace detail;
  const Clock clock(limits);
  Marginals out;
  const Result best = solve(problem, remaining(limits, clock));
  out.status = best.status;
  out.best = best.upper;
  out.assignment = best.assignment;
  for (std::size_t v = 0; v < problem.node_count(); ++v) {
    out.cost.emplace_back(problem.option_count(v), kInfinity);
  }
  if (best.status == Status::kInfeasible) {
    out.complete = true;
    return out;
  }
  const Range range = scan(problem);
  with_integers(range.magnitude - range.exponent, [&]<class V>(V) {
    out.complete = Explainer<V>(problem, range.exponent).run(limits, clock, out);
  });
  if (out.complete) return out;
  // Too wide: one exact solve per option.
  out.complete = true;
  for (std::size_t v = 0; v < problem.node_count(); ++v) {
    for (std::size_t i = 0; i < problem.option_count(v); ++i) {
      if (!best.assignment.empty() && best.assignment[v] == i && best.optimal()) {
        out.cost[v][i] = best.upper;
        continue;
      }
      const Result r = solve(with_forced(problem, v, i), remaining(limits, clock));
      out.cost[v][i] = std::max(r.lower, best.lower);
      if (r.status != Status::kOptimal && r.status != Status::kInfeasible) out.complete = false;
    }
  }
  return out;
}

std::vector<Solution> k_best(const Problem& problem, std::size_t k, const Limits& limits) {
  using namespace detail;
  const Clock clock(limits);
  std::vector<Solution> result;
  if (k == 0) return result;
  // A region of the assignments, its best one, and what its second best costs and differs in.
  struct Region {
    Problem problem;
    Assignment best;
    double second = kInfinity;
    std::size_t node = 0;
    std::size_t option = 0;
    bool complete = true;
  };
  const auto explore = [&](Region& r) {
    const Marginals m = min_marginals(r.problem, remaining(limits, clock));
    r.complete = m.complete;
    r.second = kInfinity;
    for (std::size_t v = 0; v < m.cost.size(); ++v) {
      for (std::size_t i = 0; i < m.cost[v].size(); ++i) {
        if (i != r.best[v] && m.cost[v][i] < r.second) {
          r.second = m.cost[v][i];
          r.node = v;
          r.option = i;
        }
      }
    }
  };
  const Result first = solve(problem, remaining(limits, clock));
  if (!first.optimal()) return result;
  result.push_back({first.upper, first.assignment});
  std::vector<Region> regions;
  regions.push_back({problem, first.assignment});
  explore(regions[0]);
  while (result.size() < k) {
    const auto it =
        std::min_element(regions.begin(), regions.end(),
                         [](const Region& a, const Region& b) { return a.second < b.second; });
    if (it->second == kInfinity || !it->complete) break;
    Region next{with_forced(it->problem, it->node, it->option), {}};
    const Result r = solve(next.problem, remaining(limits, clock));
    if (!r.optimal()) break;
    next.best = r.assignment;
    result.push_back({r.upper, r.assignment});
    it->problem = with_forbidden(it->problem, it->node, it->option);
    if (result.size() < k) {
      explore(*it);
      explore(next);
      regions.push_back(std::move(next));
    }
  }
  return result;
}

}  // namespace pbqp
