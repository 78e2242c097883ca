// Moving a tensor between layouts: chains, trees and slices, and what they cost.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "layouts/dt_graph.hpp"
#include "selector/candidates.hpp"

namespace convprim {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A conversion step of a plan.
using Steps = std::vector<const Conversion*>;

/// Everything about moving a tensor of one shape between layouts.
class Transport {
 public:
  Transport(const Shape& shape, const CostFunction& costs)
      : shape_(shape), costs_(routine_costs(shape, costs)), graph_(shape, conversions(), costs_) {
    for (std::size_t i = 0; i < kLayoutCount; ++i) {
      const LayerImpl* impl = copy_impl(kLayouts[i]);
      const LayerProblem problem = copy_problem(shape, 1);
      copy_[i] = impl == nullptr || impl->reject(problem) != nullptr
                     ? kInfinity
                     : costs({CostKind::layer, str(problem), std::string(impl->name)});
    }
    build_trees();
  }

  double cost(Layout from, Layout to) const { return graph_.cost(from, to); }
  Steps chain(Layout from, Layout to) const { return graph_.chain(from, to); }
  double copy(Layout layout) const { return copy_[static_cast<std::size_t>(layout)]; }
  double cost_of(const Conversion* routine) const {
    return costs_[static_cast<std::size_t>(routine - conversions().data())];
  }

  /// True if the tensor, written in one layout into a slice, lies there as the other wants it.
  bool joined(Layout a, Layout b, const ChannelSlice& slice) const {
    return convprim::joined(a, b, shape_, slice);
  }

  /// Cheapest way to get the tensor from `from` into a slice in `to` by at least one routine: the
  /// last one writes the slice.
  std::pair<double, Steps> into_slice(Layout from, Layout to) const {
    double best = kInfinity;
    const Conversion* last = nullptr;
    for (const Conversion& r : conversions()) {
      const double total = r.to == to ? graph_.cost(from, r.from) + cost_of(&r) : kInfinity;
      if (total < best) best = total, last = &r;
    }
    if (last == nullptr) return {kInfinity, {}};
    Steps steps = graph_.chain(from, last->from);
    steps.push_back(last);
    return {best, steps};
  }

  /// Cheapest tree of conversions from `from` to all layouts of the set (a bit mask), itself
  /// included if in the set.
  double tree_cost(Layout from, unsigned set) const {
    return tree_[static_cast<std::size_t>(from)][set].cost;
  }
  Steps tree(Layout from, unsigned set) const {
    Steps steps;
    collect(static_cast<std::size_t>(from), set, steps);
    return steps;
  }

 private:
  static std::vector<double> routine_costs(const Shape& shape, const CostFunction& costs) {
    std::vector<double> all;
    for (const Conversion& r : conversions()) all.push_back(costs(conversion_key(shape, r)));
    return all;
  }

  static constexpr unsigned kSets = 1U << kLayoutCount;
  struct Tree {
    double cost = kInfinity;
    unsigned part = 0;               // nonzero: the set is split into this and the rest
    std::size_t via = kLayoutCount;  // else: go to this layout first
  };

  void build_trees() {
    for (unsigned set = 0; set < kSets; ++set) {
      for (std::size_t v = 0; v < kLayoutCount; ++v) {
        Tree& t = tree_[v][set];
        if ((set & ~(1U << v)) == 0) {
          t.cost = 0;
          continue;
        }
        // A vertex that is itself wanted costs nothing here.
        if ((set & (1U << v)) != 0) {
          t.cost = tree_[v][set & ~(1U << v)].cost;
          t.part = 1U << v;
          continue;
        }
        for (unsigned part = (set - 1) & set; part != 0; part = (part - 1) & set) {
          const double split = tree_[v][part].cost + tree_[v][set & ~part].cost;
          if (split < t.cost) t = {split, part, kLayoutCount};
        }
      }
      // Then one step of the shortest-path closure to another root, the cheapest settled first: all
      // costs are against settled roots only.
      std::array<double, kLayoutCount> base;
      for (std::size_t v = 0; v < kLayoutCount; ++v) base[v] = own_cost(v, set);
      for (std::size_t v = 0; v < kLayoutCount; ++v) {
        for (std::size_t u = 0; u < kLayoutCount; ++u) {
          const double moved = graph_.cost(kLayouts[v], kLayouts[u]) + base[u];
          if (u != v && moved < tree_[v][set].cost) tree_[v][set] = {moved, 0, u};
        }
      }
    }
  }

  /// Cost of covering the set from v without moving the root first.
  double own_cost(std::size_t v, unsigned set) const { return tree_[v][set].cost; }

  void collect(std::size_t v, unsigned set, Steps& steps) const {
    const Tree& t = tree_[v][set];
    if ((set & ~(1U << v)) == 0) return;
    if (t.part != 0) {
      collect(v, t.part, steps);
      collect(v, set & ~t.part, steps);
      return;
    }
    for (const Conversion* r : graph_.chain(kLayouts[v], kLayouts[t.via])) {
      // Of two ways to a layout that cost the same, one is enough.
      const auto arrives = [r](const Conversion* other) { return other->to == r->to; };
      if (std::none_of(steps.begin(), steps.end(), arrives)) steps.push_back(r);
    }
    collect(t.via, set, steps);
  }

  Shape shape_;
  std::vector<double> costs_;
  DtGraph graph_;
  std::array<double, kLayoutCount> copy_{};
  std::array<std::array<Tree, kSets>, kLayoutCount> tree_{};
};

}  // namespace convprim
