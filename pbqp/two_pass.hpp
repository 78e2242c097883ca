// Elimination forth and back over a block (bucket tree elimination, Kask et al. 2005): for each
// node v, with S its neighbours when it is eliminated, up(S) is what everything eliminated below v
// costs at least, and down(S) what all the rest does.
#pragma once

#include <algorithm>
#include <vector>

#include "eliminate.hpp"

namespace pbqp::detail {

template <class V>
class TwoPass {
 public:
  struct Bucket {
    std::uint32_t node;
    std::vector<std::uint32_t> scope;     // ascending, without the node
    std::vector<std::uint32_t> edges;     // of the block, in this bucket
    std::vector<std::uint32_t> children;  // buckets whose message comes here
    std::uint32_t parent = 0xffffffff;
    std::vector<V> up;
    std::vector<V> down;
  };

  TwoPass(const Block<V>& block, const EliminationPlan& plan) : b_(block) {
    const std::size_t n = b_.size();
    position_.resize(n);
    for (std::uint32_t i = 0; i < n; ++i) position_[plan.order[i]] = i;
    buckets_.resize(n);
    for (std::uint32_t i = 0; i < n; ++i) buckets_[i].node = plan.order[i];
    for (std::uint32_t e = 0; e < b_.edges.size(); ++e) {
      buckets_[std::min(position_[b_.edges[e].u], position_[b_.edges[e].v])].edges.push_back(e);
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      Bucket& b = buckets_[i];
      for (const std::uint32_t e : b.edges) b.scope.push_back(b_.other(e, b.node));
      for (const std::uint32_t c : b.children) {
        for (const std::uint32_t w : buckets_[c].scope) {
          if (w != b.node) b.scope.push_back(w);
        }
      }
      std::sort(b.scope.begin(), b.scope.end());
      b.scope.erase(std::unique(b.scope.begin(), b.scope.end()), b.scope.end());
      if (b.scope.empty()) continue;
      b.parent = 0xffffffff;
      for (const std::uint32_t w : b.scope) b.parent = std::min(b.parent, position_[w]);
      buckets_[b.parent].children.push_back(i);
    }
  }

  /// False if the clock ran out.
  bool run(const Clock& clock) {
    for (Bucket& b : buckets_) {
      if (clock.expired()) return false;
      b.up = project(total(b), variables(b), b.scope);
      if (b.scope.empty()) constant_ = sat_add<V>(constant_, b.up[0]);
    }
    for (std::size_t i = buckets_.size(); i-- > 0;) {
      if (clock.expired()) return false;
      Bucket& b = buckets_[i];
      if (b.scope.empty()) {
        // The other components' least costs.
        b.down.assign(1, infinity<V>());
        if (!is_inf(b.up[0]) && !is_inf(constant_)) b.down[0] = constant_ - b.up[0];
      }
      if (b.children.empty()) continue;
      const std::vector<V> all = belief(b);
      for (const std::uint32_t c : b.children) {
        Bucket& child = buckets_[c];
        child.down = project(all, variables(b), child.scope);
        for (std::size_t k = 0; k < child.down.size(); ++k) {
          // Where the child itself costs infinity the rest does not matter.
          child.down[k] = is_inf(child.up[k]) || is_inf(child.down[k])
                              ? infinity<V>()
                              : V(child.down[k] - child.up[k]);
        }
      }
    }
    return true;
  }

  const V& least() const { return constant_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  std::vector<std::uint32_t> variables(const Bucket& b) const {
    std::vector<std::uint32_t> r = b.scope;
    r.push_back(b.node);
    return r;
  }

  /// Least cost of the whole for each option of node v.
  std::vector<V> marginal(std::uint32_t v) const {
    const Bucket& b = buckets_[position_[v]];
    return project(belief(b), variables(b), {v});
  }
  /// The same for each pair of options (row-major) of two nodes joined by an edge.
  std::vector<V> marginal(std::uint32_t u, std::uint32_t v) const {
    const Bucket& b = buckets_[std::min(position_[u], position_[v])];
    return project(belief(b), variables(b), {u, v});
  }

  /// Steps through all combinations of options of `vars`, with the offset into a table over `sub`.
  template <class F>
  void each(const std::vector<std::uint32_t>& vars, const std::vector<std::uint32_t>& sub,
            F f) const {
    std::vector<std::size_t> step(vars.size(), 0);
    std::size_t stride = 1;
    for (std::size_t k = sub.size(); k-- > 0;) {
      const auto at = std::find(vars.begin(), vars.end(), sub[k]) - vars.begin();
      step[static_cast<std::size_t>(at)] = stride;
      stride *= b_.dim(sub[k]);
    }
    std::size_t size = 1;
    for (const std::uint32_t v : vars) size *= b_.dim(v);
    std::vector<std::size_t> digit(vars.size(), 0);
    std::size_t at = 0;
    for (std::size_t i = 0; i < size; ++i) {
      f(i, at);
      for (std::size_t d = vars.size(); d-- > 0;) {
        at += step[d];
        if (++digit[d] < b_.dim(vars[d])) break;
        at -= step[d] * digit[d];
        digit[d] = 0;
      }
    }
  }

 private:
  // The sum of a bucket's functions over (scope, node), what lies below included.
  std::vector<V> total(const Bucket& b) const {
    const auto vars = variables(b);
    std::size_t size = 1;
    for (const std::uint32_t v : vars) size *= b_.dim(v);
    std::vector<V> t(size, V(0));
    const auto add = [&](const std::vector<std::uint32_t>& scope, const std::vector<V>& table) {
      each(vars, scope, [&](std::size_t i, std::size_t at) { t[i] = sat_add<V>(t[i], table[at]); });
    };
    add({b.node}, b_.cost[b.node]);
    for (const std::uint32_t e : b.edges) add({b_.edges[e].u, b_.edges[e].v}, b_.edges[e].m);
    for (const std::uint32_t c : b.children) add(buckets_[c].scope, buckets_[c].up);
    return t;
  }
  std::vector<V> belief(const Bucket& b) const {
    std::vector<V> t = total(b);
    each(variables(b), b.scope,
         [&](std::size_t i, std::size_t at) { t[i] = sat_add<V>(t[i], b.down[at]); });
    return t;
  }
  std::vector<V> project(const std::vector<V>& table, const std::vector<std::uint32_t>& vars,
                         const std::vector<std::uint32_t>& sub) const {
    std::size_t size = 1;
    for (const std::uint32_t v : sub) size *= b_.dim(v);
    std::vector<V> r(size, infinity<V>());
    each(vars, sub, [&](std::size_t i, std::size_t at) {
      if (table[i] < r[at]) r[at] = table[i];
    });
    return r;
  }

  const Block<V>& b_;
  std::vector<std::uint32_t> position_;
  std::vector<Bucket> buckets_;
  V constant_ = V(0);
};

}  // namespace pbqp::detail
