// Cost against weight: the Pareto front, and the least cost under a capacity.
//
// Supported points (the lower convex hull) come from solving with costs c + lambda * w for the
// slopes between known points; the last slope gives the Lagrangian bound min (c + lambda * (w -
// capacity)). The rest comes from elimination with sets of non-dominated (cost, weight) labels in
// place of numbers. A label goes if even its best completion, by the tables "down" of two passes
// over cost, over weight and over c + lambda * w, is no better than a point already known.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "block.hpp"
#include "constrained.hpp"
#include "eliminate.hpp"
#include "pbqp/explain.hpp"
#include "range.hpp"
#include "two_pass.hpp"

namespace pbqp {
namespace detail {
namespace {

constexpr double kMostOperations = 1e8;

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

std::vector<double> weights_of(const Problem& p, std::size_t v) {
  return p.weights(v).empty() ? std::vector<double>(p.option_count(v), 0.0) : p.weights(v);
}

// Costs a * cost + b * weight.
Problem weighted(const Problem& problem, double a, double b) {
  Problem p;
  for (std::size_t v = 0; v < problem.node_count(); ++v) {
    std::vector<double> c = problem.costs(v);
    const std::vector<double> w = weights_of(problem, v);
    for (std::size_t i = 0; i < c.size(); ++i) {
      if (c[i] != kInfinity) c[i] = a * c[i] + b * w[i];
    }
    p.add_node(std::move(c));
  }
  for (std::size_t i = 0; i < problem.edge_count(); ++i) {
    const Edge& e = problem.edge(i);
    Matrix m = e.matrix;
    for (double& x : m.data) x = x == kInfinity ? x : a * x;
    if (e.row_class) {
      p.add_class_edge(e.u, *e.row_class, e.v, *e.col_class, std::move(m));
    } else {
      p.add_edge(e.u, e.v, std::move(m));
    }
  }
  return p;
}

ParetoPoint point(const Problem& problem, const Assignment& x) {
  return {problem.cost(x), problem.weight(x), x};
}

// Non-dominated points by ascending weight.
void tidy(std::vector<ParetoPoint>& points) {
  std::sort(points.begin(), points.end(), [](const ParetoPoint& a, const ParetoPoint& b) {
    return a.weight != b.weight ? a.weight < b.weight : a.cost < b.cost;
  });
  std::vector<ParetoPoint> kept;
  for (ParetoPoint& p : points) {
    if (kept.empty() || p.cost < kept.back().cost) kept.push_back(std::move(p));
  }
  points = std::move(kept);
}

// Elimination with labels.
template <class V>
class Labels {
 public:
  Labels(const Problem& problem, int cost_exponent, int weight_exponent)
      : problem_(problem),
        weight_exponent_(weight_exponent),
        cost_exponent_(cost_exponent),
        proof_(false),
        layout_(problem),
        core_(problem, layout_, cost_exponent, false, proof_, stats_, false) {}

  // Points that no known point equals or dominates; with a bound on the weight, and for one answer
  // only (`known` then holds the best so far) also by the Lagrangian bound at slope lambda. Nothing
  // if tables or labels are too many or the clock ran out.
  std::optional<std::vector<Assignment>> run(const Limits& limits, const Clock& clock,
                                             const std::vector<ParetoPoint>& known, bool one,
                                             double lambda) {
    std::vector<std::uint32_t> all(core_.part_count());
    std::iota(all.begin(), all.end(), 0u);
    const Block<V> cost = cut_out(core_, all);
    for (std::size_t p = 0; p < cost.size(); ++p) {
      if (cost.dim(p) == 0) return std::vector<Assignment>();
    }
    const EliminationPlan plan = plan_elimination(cost, cost.size());
    if (plan.operations > kMostOperations) return std::nullopt;

    // Each option alive of a part or pair of parts, as labels.
    arena_.clear();
    Block<V> weight = cost;
    Block<double> both;
    both.part = cost.part;
    both.option = cost.option;
    both.incident = cost.incident;
    for (std::size_t p = 0; p < cost.size(); ++p) {
      both.cost.emplace_back(cost.dim(p), 0.0);
      std::fill(weight.cost[p].begin(), weight.cost[p].end(), V(0));
    }
    for (std::size_t e = 0; e < cost.edges.size(); ++e) {
      both.edges.push_back({cost.edges[e].u, cost.edges[e].v, {}});
      for (V& x : weight.edges[e].m) {
        both.edges[e].m.push_back(to_double(x, cost_exponent_));
        if (!is_inf(x)) x = V(0);
      }
    }
    unary_.assign(cost.size(), {});
    pair_.assign(cost.edges.size(), {});
    for (std::size_t v = 0; v < problem_.node_count(); ++v) {
      const std::uint32_t p = layout_.first_part(v);
      std::vector<Set>* sets = &unary_[p];
      std::size_t joint = cost.edges.size();
      if (layout_.split(v)) {
        for (const std::uint32_t e : cost.incident[p]) {
          if (cost.other(e, p) == p + 1) joint = e;
        }
        sets = &pair_[joint];
        sets->resize(cost.dim(p) * cost.dim(p + 1));
      } else {
        sets->resize(cost.dim(p));
      }
      const auto index = [&](std::uint32_t part, std::size_t i) {
        const auto& alive = cost.option[part];
        const std::uint32_t c = layout_.map(part).of[i];
        return static_cast<std::size_t>(std::lower_bound(alive.begin(), alive.end(), c) -
                                        alive.begin());
      };
      const auto w = weights_of(problem_, v);
      for (std::size_t i = 0; i < w.size(); ++i) {
        V c = core_.convert(problem_.costs(v)[i]);
        for (const std::uint32_t e : layout_.self_loops(v)) {
          c = sat_add<V>(c, core_.convert(problem_.edge(e).cost(i, i)));
        }
        if (is_inf(c)) continue;
        std::size_t at = index(p, i);
        if (layout_.split(v)) at = at * cost.dim(p + 1) + index(p + 1, i);
        (*sets)[at].push_back({c, from_double<V>(w[i], weight_exponent_), leaf(v, i)});
      }
      for (std::size_t k = 0; k < sets->size(); ++k) {
        Set& s = (*sets)[k];
        filter(s);
        V light = infinity<V>();
        double low = kInfinity;
        for (const Label& l : s) {
          light = std::min(light, l.weight);
          low = std::min(low, to_double(l.cost, cost_exponent_) +
                                  lambda * to_double(l.weight, weight_exponent_));
        }
        if (layout_.split(v)) {
          weight.edges[joint].m[k] = light;
          both.edges[joint].m[k] = low;
        } else {
          weight.cost[p][k] = light;
          both.cost[p][k] = low;
        }
      }
    }
    TwoPass<V> by_cost(cost, plan);
    TwoPass<V> by_weight(weight, plan);
    TwoPass<double> by_both(both, plan);
    if (!by_cost.run(clock) || !by_weight.run(clock) || !by_both.run(clock)) return std::nullopt;

    // What is known, as a staircase; for one answer the best cost counts at every weight.
    std::vector<std::pair<V, V>> stairs;  // weight, cost
    for (const ParetoPoint& k : known) {
      stairs.emplace_back(one ? V(0) : weight_sum(k.assignment), cost_sum(k.assignment));
    }
    const auto useless = [&](const V& c, const V& w) {
      if (has_capacity_ && w > capacity_) return true;
      const auto it =
          std::upper_bound(stairs.begin(), stairs.end(), w,
                           [](const V& x, const std::pair<V, V>& s) { return x < s.first; });
      return it != stairs.begin() && !(c < std::prev(it)->second);
    };
    const double best = known.empty() ? kInfinity : known.back().cost;

    std::vector<std::vector<Set>> up(plan.order.size());
    Set roots{{V(0), V(0), kNothing}};
    for (std::uint32_t b = 0; b < plan.order.size(); ++b) {
      const auto& bucket = by_cost.buckets()[b];
      const auto& down_cost = bucket.down;
      const auto& down_weight = by_weight.buckets()[b].down;
      const auto& down_both = by_both.buckets()[b].down;
      const auto vars = by_cost.variables(bucket);
      const std::size_t kv = cost.dim(bucket.node);
      std::size_t size = kv;
      for (const std::uint32_t w : bucket.scope) size *= cost.dim(w);
      std::vector<Set> sets(size, Set{{V(0), V(0), kNothing}});
      const auto add = [&](const std::vector<std::uint32_t>& scope, auto get) {
        by_cost.each(vars, scope, [&](std::size_t i, std::size_t at) { get(sets[i], at); });
      };
      if (!unary_[bucket.node].empty()) {
        add({bucket.node}, [&](Set& s, std::size_t at) { join(s, unary_[bucket.node][at]); });
      }
      for (const std::uint32_t e : bucket.edges) {
        add({cost.edges[e].u, cost.edges[e].v}, [&](Set& s, std::size_t at) {
          if (!pair_[e].empty()) {
            join(s, pair_[e][at]);
          } else if (is_inf(cost.edges[e].m[at])) {
            s.clear();
          } else {
            for (Label& l : s) l.cost += cost.edges[e].m[at];
          }
        });
      }
      bool stop = false;
      for (const std::uint32_t c : bucket.children) {
        add(by_cost.buckets()[c].scope, [&](Set& s, std::size_t at) {
          if (stop) return;
          join(s, up[c][at]);
          stop = clock.expired() || arena_.size() * sizeof(Node) > limits.memory_bytes;
        });
        if (stop) return std::nullopt;
        up[c].clear();
      }
      std::vector<Set>& out = up[b];
      out.resize(size / kv);
      for (std::size_t i = 0; i < out.size(); ++i) {
        for (std::size_t k = 0; k < kv; ++k) {
          for (const Label& l : sets[i * kv + k]) {
            if (is_inf(down_cost[i]) || is_inf(down_weight[i])) continue;
            if (useless(V(l.cost + down_cost[i]), V(l.weight + down_weight[i]))) continue;
            if (one && has_capacity_) {
              const double bound = to_double(l.cost, cost_exponent_) +
                                   lambda * to_double(l.weight, weight_exponent_) + down_both[i] -
                                   lambda * limits.capacity;
              // Rounded sums: only what is clearly too dear goes.
              if (bound > best + 1e-9 * (std::abs(best) + lambda * limits.capacity)) continue;
            }
            out[i].push_back(l);
          }
        }
        filter(out[i]);
      }
      if (bucket.scope.empty()) {
        join(roots, out[0]);
        filter(roots);
      }
    }
    std::vector<Assignment> result;
    for (const Label& l : roots) result.push_back(unfold(l.ref));
    return result;
  }

  // A weight counts as what it is as a double: within the capacity are exact sums that round to it
  // or below, so that a weight reported by one call can be the capacity of the next.
  void set_capacity(double capacity) {
    const double units = std::ldexp(capacity, -weight_exponent_);
    // Beyond the sum of all weights it does not bind.
    has_capacity_ = units < std::ldexp(1.0, std::min(1000, Num<V>::kBits - 12));
    if (!has_capacity_) return;
    capacity_ = from_double<V>(std::floor(units), 0);
    const double ulp = std::nextafter(units, kInfinity) - units;
    if (ulp < 2) return;
    const bool odd = std::fmod(units / ulp, 2.0) != 0;  // the midpoint rounds to even
    capacity_ += from_double<V>(ulp / 2, 0) - V(odd ? 1 : 0);
  }

 private:
  static constexpr std::uint32_t kNothing = 0xffffffff;
  struct Label {
    V cost;
    V weight;
    std::uint32_t ref;  // into the arena: what was chosen
  };
  using Set = std::vector<Label>;
  // A choice (a = node, b = option) or two labels joined.
  struct Node {
    std::uint32_t a;
    std::uint32_t b;
    bool choice;
  };

  std::uint32_t leaf(std::size_t v, std::size_t i) {
    arena_.push_back({static_cast<std::uint32_t>(v), static_cast<std::uint32_t>(i), true});
    return static_cast<std::uint32_t>(arena_.size() - 1);
  }

  static void filter(Set& s) {
    if (s.size() < 2) return;
    std::stable_sort(s.begin(), s.end(), [](const Label& a, const Label& b) {
      return a.weight < b.weight || (a.weight == b.weight && a.cost < b.cost);
    });
    std::size_t kept = 1;
    for (std::size_t i = 1; i < s.size(); ++i) {
      if (s[i].cost < s[kept - 1].cost) s[kept++] = s[i];
    }
    s.resize(kept);
  }

  void join(Set& s, const Set& other) {
    if (s.size() == 1 && s[0].ref == kNothing) {
      const Label base = s[0];
      s = other;
      for (Label& l : s) l.cost += base.cost, l.weight += base.weight;
      return;
    }
    struct Pair {
      V cost, weight;
      std::uint32_t a, b;
    };
    std::vector<Pair> pairs;
    pairs.reserve(s.size() * other.size());
    for (const Label& x : s) {
      for (const Label& y : other) {
        pairs.push_back({V(x.cost + y.cost), V(x.weight + y.weight), x.ref, y.ref});
      }
    }
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
      return a.weight < b.weight || (a.weight == b.weight && a.cost < b.cost);
    });
    s.clear();
    for (const Pair& p : pairs) {
      if (!s.empty() && !(p.cost < s.back().cost)) continue;
      std::uint32_t ref = p.a;
      if (p.b != kNothing) {
        arena_.push_back({p.a, p.b, false});
        ref = static_cast<std::uint32_t>(arena_.size() - 1);
      }
      s.push_back({p.cost, p.weight, ref});
    }
  }

  Assignment unfold(std::uint32_t root) const {
    Assignment x(problem_.node_count(), 0);
    std::vector<std::uint32_t> stack{root};
    while (!stack.empty()) {
      const std::uint32_t r = stack.back();
      stack.pop_back();
      if (r == kNothing) continue;
      const Node& n = arena_[r];
      if (n.choice) {
        x[n.a] = n.b;
      } else {
        stack.push_back(n.a);
        stack.push_back(n.b);
      }
    }
    return x;
  }

  V cost_sum(const Assignment& x) const {
    V s = V(0);
    for (std::size_t v = 0; v < x.size(); ++v) s += core_.convert(problem_.costs(v)[x[v]]);
    for (std::size_t i = 0; i < problem_.edge_count(); ++i) {
      const Edge& e = problem_.edge(i);
      s += core_.convert(e.cost(x[e.u], x[e.v]));
    }
    return s;
  }
  V weight_sum(const Assignment& x) const {
    V s = V(0);
    for (std::size_t v = 0; v < x.size(); ++v) {
      s += from_double<V>(weights_of(problem_, v)[x[v]], weight_exponent_);
    }
    return s;
  }

  const Problem& problem_;
  int weight_exponent_;
  int cost_exponent_;
  Proof proof_;
  Statistics stats_;
  Parts layout_;
  Core<V> core_;
  bool has_capacity_ = false;
  V capacity_ = V(0);
  std::vector<std::vector<Set>> unary_;  // per part that is a whole node: by option
  std::vector<std::vector<Set>> pair_;   // per edge between the parts of a node: by pair
  std::vector<Node> arena_;
};

// The label elimination with integers wide enough for costs and for weights.
std::optional<std::vector<Assignment>> label(const Problem& problem, const Limits& limits,
                                             const Clock& clock,
                                             const std::vector<ParetoPoint>& known, bool one,
                                             double lambda) {
  const Range costs = scan(problem);
  RangeScan s;
  for (std::size_t v = 0; v < problem.node_count(); ++v) s.add(problem.weights(v));
  const Range weights = s.range();
  std::optional<std::vector<Assignment>> result;
  const int bits = std::max(costs.magnitude - costs.exponent, weights.magnitude - weights.exponent);
  with_integers(bits, [&]<class V>(V) {
    Labels<V> labels(problem, costs.exponent, weights.exponent);
    labels.set_capacity(limits.capacity);
    result = labels.run(limits, clock, known, one, lambda);
  });
  return result;
}

}  // namespace

Result solve_with_capacity(const Problem& problem, const Limits& limits) {
  const Clock clock(limits);
  Result result = solve(problem, remaining(limits, clock));
  if (result.status == Status::kInfeasible || !result.has_assignment()) return result;
  if (result.optimal() && problem.weight(result.assignment) <= limits.capacity) return result;
  double lower = result.lower;
  ParetoPoint heavy = point(problem, result.assignment);
  // The lightest assignment decides whether there is any.
  const Result light = solve(weighted(problem, 0.0, 1.0), remaining(limits, clock));
  result.assignment.clear();
  result.upper = kInfinity;
  result.core.clear();
  if (light.lower > limits.capacity) {
    result.status = Status::kInfeasible;
    result.lower = kInfinity;
    return result;
  }
  std::optional<ParetoPoint> good;
  double lambda = 0;
  if (light.has_assignment()) {
    const ParetoPoint l = point(problem, light.assignment);
    if (l.weight <= limits.capacity) good = l;
  }
  // The Lagrangian dual by the slopes between a point too heavy and one light enough.
  for (int round = 0; good && round < 100 && !clock.expired(); ++round) {
    if (heavy.weight <= good->weight || good->cost <= heavy.cost) break;
    const double slope = (good->cost - heavy.cost) / (heavy.weight - good->weight);
    const Result r = solve(weighted(problem, 1.0, slope), remaining(limits, clock));
    if (!r.has_assignment()) break;
    // The products were rounded, each by half an ulp at most.
    const double error = 1e-15 * (std::abs(r.lower) + slope * limits.capacity) *
                         static_cast<double>(problem.node_count() + 1);
    const double bound = r.lower - slope * limits.capacity - error;
    if (bound > lower) {
      lower = bound;
      lambda = slope;
    }
    const ParetoPoint p = point(problem, r.assignment);
    const double before = good->cost + slope * good->weight;
    if (p.weight <= limits.capacity) {
      if (p.cost < good->cost) {
        good = p;
      } else {
        break;
      }
    } else if (p.cost + slope * p.weight < before - error) {
      heavy = p;
    } else {
      break;
    }
  }
  std::vector<ParetoPoint> known;
  if (good) known.push_back(*good);
  const auto better = label(problem, limits, clock, known, true, lambda);
  if (better) {
    for (const Assignment& x : *better) {
      const ParetoPoint p = point(problem, x);
      if (p.weight <= limits.capacity && (!good || p.cost < good->cost)) good = p;
    }
  }
  if (!good) {
    result.status = better ? Status::kInfeasible : Status::kLimit;
    result.lower = better ? kInfinity : lower;
    return result;
  }
  result.assignment = good->assignment;
  result.upper = good->cost;
  result.status = better ? Status::kOptimal : Status::kFeasible;
  result.lower = better ? result.upper : std::min(lower, result.upper);
  result.statistics.seconds = clock.elapsed();
  return result;
}

}  // namespace detail

ParetoFront pareto(const Problem& problem, const Limits& limits) {
  using namespace detail;
  const Clock clock(limits);
  ParetoFront front;
  const Result cheap = solve(problem, remaining(limits, clock));
  front.status = cheap.status;
  if (!cheap.has_assignment()) return front;
  // The hull: between two neighbouring points, look along their slope.
  std::vector<ParetoPoint> points{point(problem, cheap.assignment)};
  const Result light = solve(weighted(problem, 0.0, 1.0), remaining(limits, clock));
  if (light.has_assignment()) {
    // Only finite assignments count: weights alone do not see forbidden pairs' costs, but keep
    // them.
    points.push_back(point(problem, light.assignment));
  }
  std::vector<std::pair<ParetoPoint, ParetoPoint>> open;
  if (points.size() == 2) open.emplace_back(points[1], points[0]);
  std::size_t looked = 0;
  while (!open.empty() && looked++ < 200 && !clock.expired()) {
    const auto [a, b] = open.back();  // a is lighter and dearer
    open.pop_back();
    if (!(a.weight < b.weight && a.cost > b.cost)) continue;
    const double slope = (a.cost - b.cost) / (b.weight - a.weight);
    const Result r = solve(weighted(problem, 1.0, slope), remaining(limits, clock));
    if (!r.has_assignment()) break;
    const ParetoPoint p = point(problem, r.assignment);
    const double line = a.cost + slope * a.weight;
    if (p.cost + slope * p.weight >= line - 1e-12 * std::abs(line)) continue;
    points.push_back(p);
    open.emplace_back(a, p);
    open.emplace_back(p, b);
  }
  tidy(points);
  const auto more = label(problem, limits, clock, points, false, 0.0);
  if (more) {
    for (const Assignment& x : *more) points.push_back(point(problem, x));
  }
  std::erase_if(points, [&](const ParetoPoint& p) { return p.weight > limits.capacity; });
  tidy(points);
  front.points = std::move(points);
  front.status =
      more ? (front.points.empty() ? Status::kInfeasible : Status::kOptimal) : Status::kFeasible;
  return front;
}

}  // namespace pbqp
