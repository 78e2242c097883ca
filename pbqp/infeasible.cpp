// Infeasible cores by deletion: chunks of nodes are left out as long as the rest stays infeasible,
// first large ones, then single nodes. Each test is a solve over costs 0 and infinity, in which the
// reductions alone decide nearly everything.
#include "infeasible.hpp"

#include <algorithm>

namespace pbqp::detail {
namespace {

double only_infinite(double x) { return x == kInfinity ? kInfinity : 0.0; }

// The problem of some nodes with only its infinities.
class HardProblem {
 public:
  explicit HardProblem(const Problem& problem) : problem_(problem) {
    edges_.resize(problem.node_count());
    for (std::size_t i = 0; i < problem.edge_count(); ++i) {
      const Edge& e = problem.edge(i);
      // An edge without infinities forbids nothing.
      if (std::find(e.matrix.data.begin(), e.matrix.data.end(), kInfinity) != e.matrix.data.end()) {
        edges_[e.u].push_back(i);
        if (e.v != e.u) edges_[e.v].push_back(i);
      }
    }
  }

  bool infeasible(const std::vector<std::size_t>& nodes, const Clock& clock) const {
    Problem sub;
    std::vector<std::size_t> position(problem_.node_count(), ~std::size_t{0});
    for (const std::size_t v : nodes) {
      std::vector<double> costs = problem_.costs(v);
      for (double& c : costs) c = only_infinite(c);
      position[v] = sub.add_node(std::move(costs));
    }
    for (const std::size_t v : nodes) {
      for (const std::size_t i : edges_[v]) {
        const Edge& e = problem_.edge(i);
        if (e.u != v || position[e.v] == ~std::size_t{0}) continue;
        Matrix m = e.matrix;
        for (double& c : m.data) c = only_infinite(c);
        if (e.row_class) {
          sub.add_class_edge(position[e.u], *e.row_class, position[e.v], *e.col_class,
                             std::move(m));
        } else {
          sub.add_edge(position[e.u], position[e.v], std::move(m));
        }
      }
    }
    Limits limits;
    limits.minimise_core = false;
    limits.seconds = std::max(0.0, budget_ - clock.elapsed());
    return solve(sub, limits).status == Status::kInfeasible;
  }

  // Up to `count` nodes in the order of their distance from `root`, over edges that forbid
  // something.
  std::vector<std::size_t> around(std::size_t root, std::size_t count) const {
    std::vector<bool> seen(problem_.node_count(), false);
    seen[root] = true;
    std::vector<std::size_t> nodes{root};
    for (std::size_t k = 0; k < nodes.size() && nodes.size() < count; ++k) {
      for (const std::size_t i : edges_[nodes[k]]) {
        const Edge& e = problem_.edge(i);
        for (const std::size_t w : {e.u, e.v}) {
          if (seen[w]) continue;
          seen[w] = true;
          nodes.push_back(w);
        }
      }
    }
    return nodes;
  }

  // The nodes from which others can be reached, one for each component.
  std::vector<std::size_t> roots() const {
    std::vector<std::size_t> result;
    std::vector<bool> seen(problem_.node_count(), false);
    for (std::size_t root = 0; root < seen.size(); ++root) {
      if (seen[root]) continue;
      result.push_back(root);
      for (const std::size_t v : around(root, seen.size())) seen[v] = true;
    }
    return result;
  }

  void set_budget(double seconds) { budget_ = seconds; }

 private:
  const Problem& problem_;
  std::vector<std::vector<std::size_t>> edges_;  // per node: those that forbid something
  double budget_ = kInfinity;
};

}  // namespace

std::vector<std::size_t> infeasible_core(const Problem& problem, const Limits& limits,
                                         const Clock& clock, std::size_t near) {
  std::vector<std::size_t> core(problem.node_count());
  for (std::size_t v = 0; v < core.size(); ++v) core[v] = v;
  if (!limits.minimise_core || clock.elapsed() >= limits.seconds) return core;
  for (std::size_t v = 0; v < problem.node_count(); ++v) {
    const auto& c = problem.costs(v);
    if (std::all_of(c.begin(), c.end(), [](double x) { return x == kInfinity; })) return {v};
  }
  HardProblem hard(problem);
  // Finding out why should not take much longer than finding out that.
  hard.set_budget(std::min(limits.seconds, 1.0 + 5 * clock.elapsed()));
  // Ever larger surroundings of the place where it showed.
  bool found = false;
  std::size_t last = 0;
  for (std::size_t count = 4; !found; count *= 2) {
    std::vector<std::size_t> nodes = hard.around(near, count);
    if (nodes.size() == last) break;  // the whole component, and it is feasible
    last = nodes.size();
    found = hard.infeasible(nodes, clock);
    if (found) core = std::move(nodes);
  }
  if (!found) {
    for (const std::size_t root : hard.roots()) {
      std::vector<std::size_t> nodes = hard.around(root, core.size());
      if (nodes.size() < core.size() && hard.infeasible(nodes, clock)) {
        core = std::move(nodes);
        break;
      }
    }
  }
  // Nodes in the order of their distance: chunks hang together.
  for (std::size_t chunk = (core.size() + 1) / 2; chunk >= 1; chunk /= 2) {
    for (std::size_t at = 0; at < core.size() && core.size() > 1;) {
      const std::size_t end = std::min(core.size(), at + chunk);
      std::vector<std::size_t> rest(core.begin(), core.begin() + static_cast<std::ptrdiff_t>(at));
      rest.insert(rest.end(), core.begin() + static_cast<std::ptrdiff_t>(end), core.end());
      if (!rest.empty() && hard.infeasible(rest, clock)) {
        core = std::move(rest);
      } else {
        at = end;
      }
    }
  }
  std::sort(core.begin(), core.end());
  return core;
}

}  // namespace pbqp::detail
