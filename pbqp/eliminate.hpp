// Exact elimination of a block's nodes (nonserial dynamic programming, Bertele and Brioschi 1972;
// "bucket elimination", Dechter 1999), for blocks whose tables are small enough.
//
// Eliminating v joins all functions of v, minimises over v, and leaves one function of v's
// neighbours: RI and RII for any degree. The order is greedy: always the node whose table is
// smallest.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "block.hpp"

namespace pbqp::detail {

struct EliminationPlan {
  std::vector<std::uint32_t> order;
  double operations = 0;  // entries visited
  double entries = 0;     // table entries written; all are kept for back-propagation
  std::size_t width = 0;
};

/// An order for all nodes but `keep` (size() for none).
template <class V>
EliminationPlan plan_elimination(const Block<V>& b, std::size_t keep) {
  const std::size_t n = b.size();
  std::vector<std::set<std::uint32_t>> near(n);
  for (const auto& e : b.edges) {
    near[e.u].insert(e.v);
    near[e.v].insert(e.u);
  }
  const auto table = [&](std::size_t v) {
    double t = 1;
    for (const std::uint32_t w : near[v]) t *= static_cast<double>(b.dim(w));
    return t;
  };
  std::set<std::pair<double, std::uint32_t>> queue;
  std::vector<double> key(n);
  for (std::uint32_t v = 0; v < n; ++v) {
    key[v] = table(v);
    if (v != keep) queue.insert({key[v], v});
  }
  EliminationPlan plan;
  while (!queue.empty()) {
    const auto [size, v] = *queue.begin();
    queue.erase(queue.begin());
    plan.order.push_back(v);
    plan.entries += size;
    plan.operations += size * static_cast<double>(b.dim(v));
    plan.width = std::max(plan.width, near[v].size());
    for (const std::uint32_t a : near[v]) {
      near[a].erase(v);
      for (const std::uint32_t c : near[v]) {
        if (c != a) near[a].insert(c);
      }
    }
    for (const std::uint32_t a : near[v]) {
      if (a == keep) continue;
      queue.erase({key[a], a});
      key[a] = table(a);
      queue.insert({key[a], a});
    }
    near[v].clear();
  }
  return plan;
}

template <class V>
struct Function {
  std::vector<std::uint32_t> scope;
  std::vector<V> table;  // row-major over the scope
};

struct EliminationStep {
  std::uint32_t node;
  std::vector<std::uint32_t> scope;
  ArgTable best;
};

/// Carries out a plan. Steps go to `steps`; returns the function left of `keep` (one entry if
/// none). Node costs count, but for those of `keep`. False if the clock ran out.
template <class V>
bool eliminate(const Block<V>& b, const EliminationPlan& plan, std::size_t keep, const Clock& clock,
               std::vector<EliminationStep>& steps, std::vector<V>& rest) {
  const std::size_t n = b.size();
  std::vector<std::vector<std::shared_ptr<Function<V>>>> of(n);
  for (const auto& e : b.edges) {
    auto f = std::make_shared<Function<V>>();
    f->scope = {e.u, e.v};
    f->table = e.m;
    of[e.u].push_back(f);
    of[e.v].push_back(f);
  }
  V constant = V(0);
  rest.assign(keep < n ? b.dim(keep) : 1, V(0));
  std::vector<V> line;
  for (const std::uint32_t v : plan.order) {
    const std::size_t kv = b.dim(v);
    const auto functions = std::move(of[v]);
    of[v].clear();
    std::vector<std::uint32_t> scope;
    for (const auto& f : functions) {
      for (const std::uint32_t w : f->scope) {
        if (w != v && std::find(scope.begin(), scope.end(), w) == scope.end()) scope.push_back(w);
      }
    }
    std::sort(scope.begin(), scope.end());
    std::size_t size = 1;
    for (const std::uint32_t w : scope) size *= b.dim(w);
    // Each function as columns over v: offset(scope options) + k * stride.
    struct View {
      const V* data;
      std::size_t stride;
      std::vector<std::size_t> step;  // per scope position
      std::size_t at = 0;
    };
    std::vector<View> views;
    for (const auto& f : functions) {
      View view{f->table.data(), 0, std::vector<std::size_t>(scope.size(), 0)};
      std::size_t stride = 1;
      for (std::size_t i = f->scope.size(); i-- > 0;) {
        const std::uint32_t w = f->scope[i];
        if (w == v) {
          view.stride = stride;
        } else {
          const auto pos = std::lower_bound(scope.begin(), scope.end(), w) - scope.begin();
          view.step[static_cast<std::size_t>(pos)] = stride;
        }
        stride *= b.dim(w);
      }
      views.push_back(std::move(view));
    }
    auto result = std::make_shared<Function<V>>();
    result->scope = scope;
    result->table.resize(size);
    ArgTable best(size, kv);
    std::vector<std::size_t> digit(scope.size(), 0);
    line.resize(kv);
    for (std::size_t i = 0; i < size; ++i) {
      if ((i & 0xffff) == 0xffff && clock.expired()) return false;
      for (std::size_t k = 0; k < kv; ++k) line[k] = b.cost[v][k];
      for (const View& view : views) {
        const V* data = view.data + view.at;
        for (std::size_t k = 0; k < kv; ++k) line[k] = sat_add<V>(line[k], data[k * view.stride]);
      }
      std::size_t arg = 0;
      for (std::size_t k = 1; k < kv; ++k) {
        if (line[k] < line[arg]) arg = k;
      }
      result->table[i] = line[arg];
      best.set(i, arg);
      for (std::size_t d = scope.size(); d-- > 0;) {
        if (++digit[d] < b.dim(scope[d])) {
          for (View& view : views) view.at += view.step[d];
          break;
        }
        for (View& view : views) view.at -= view.step[d] * (digit[d] - 1);
        digit[d] = 0;
      }
    }
    steps.push_back({v, scope, std::move(best)});
    if (scope.empty()) {
      constant = sat_add<V>(constant, result->table[0]);
    } else if (scope.size() == 1 && scope[0] == keep) {
      for (std::size_t i = 0; i < size; ++i) rest[i] = sat_add<V>(rest[i], result->table[i]);
    } else {
      for (const std::uint32_t w : scope) {
        if (w != keep) of[w].push_back(result);
      }
      // The used functions leave the other nodes' lists.
      for (const std::uint32_t w : scope) {
        std::erase_if(of[w], [&](const std::shared_ptr<Function<V>>& g) {
          return std::find(g->scope.begin(), g->scope.end(), v) != g->scope.end();
        });
      }
      continue;
    }
    for (const std::uint32_t w : scope) {
      std::erase_if(of[w], [&](const std::shared_ptr<Function<V>>& g) {
        return std::find(g->scope.begin(), g->scope.end(), v) != g->scope.end();
      });
    }
  }
  for (V& x : rest) x = sat_add<V>(x, constant);
  return true;
}

}  // namespace pbqp::detail
