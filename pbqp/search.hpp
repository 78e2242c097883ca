// Branch and bound on a block, with bounds by soft arc consistency.
//
// A lower bound is kept as a reparametrisation (Cooper et al., Soft arc consistency revisited,
// 2010): each edge side has messages m; theta_v(a) = c_v(a) + sum of messages to v, and
// theta_uv(a,b) = C_uv(a,b) - m_u(a) - m_v(b) >= 0. Any integers for m give an equivalent problem,
// so rounding costs strength, never correctness. The bound is the sum of the minima that were moved
// from the theta_v into c0; it never falls. Sweeps over the nodes, forth and back, raise it: each
// node gives an equal share of its costs to the edges ahead, which pass on what they can (the
// schedule of sequential tree-reweighted message passing, Kolmogorov 2006, with non-negative
// residues). Options with c0 + theta_v(a) >= upper bound go (reduced-cost fixing, node consistency
// NC*). Branching is binary: v = a, then v != a; depth first, on an explicit stack.
#pragma once

#include <algorithm>
#include <vector>

#include "block.hpp"

namespace pbqp::detail {

template <class V>
class Search {
 public:
  struct Outcome {
    bool complete = false;  // lower is the optimum (or the cutoff, if nothing below it was found)
    bool found = false;
    V upper;  // of the assignment found
    V lower;
    std::vector<std::uint32_t> assignment;
  };

  Search(const Block<V>& block, const Clock& clock, Proof& proof, Statistics& statistics)
      : b_(block), clock_(clock), proof_(proof), stats_(statistics) {
    const std::size_t n = b_.size();
    offset_.resize(n + 1, 0);
    for (std::size_t v = 0; v < n; ++v) {
      offset_[v + 1] = offset_[v] + static_cast<std::uint32_t>(b_.dim(v));
    }
    row_message_.resize(b_.edges.size());
    col_message_.resize(b_.edges.size());
    std::uint32_t at = 0;
    for (std::size_t e = 0; e < b_.edges.size(); ++e) {
      row_message_[e] = at;
      at += static_cast<std::uint32_t>(b_.dim(b_.edges[e].u));
      col_message_[e] = at;
      at += static_cast<std::uint32_t>(b_.dim(b_.edges[e].v));
    }
    messages_ = at;
    weight_.assign(n, 1.0);
    tolerance_ = V(0);
  }

  /// Least cost of the block below `cutoff`. If `forced` is a node, it takes option `option` and
  /// its own cost does not count. `start`, if not empty, is tried as a first assignment.
  Outcome run(std::size_t forced, std::size_t option, const V& cutoff,
              const std::vector<std::uint32_t>& start);

  /// Gives up, incomplete, after this many nodes of the search tree.
  void set_branch_limit(std::size_t limit) { branch_limit_ = limit; }

  /// Bounds within this of the best assignment count as closed.
  void set_tolerance(const V& t) { tolerance_ = t; }

  /// Cost of an assignment, without the cost of the forced node.
  V evaluate(const std::vector<std::uint32_t>& x, std::size_t forced) const {
    V sum = V(0);
    for (std::size_t v = 0; v < b_.size(); ++v) {
      if (v != forced) sum = sat_add<V>(sum, b_.cost[v][x[v]]);
    }
    for (const auto& e : b_.edges) sum = sat_add<V>(sum, b_.at(e, x[e.u], x[e.v]));
    return sum;
  }

 private:
  struct State {
    V c0 = V(0);
    std::vector<V> theta;
    std::vector<V> message;
    std::vector<std::uint32_t> live;   // per node, from offset_[v]: its options alive, ascending
    std::vector<std::uint32_t> count;  // per node
    bool closed = false;
  };

  V upper() const { return best_cost_; }
  bool reaches(const V& bound) const { return bound + tolerance_ >= best_cost_; }
  void close(State& s, const V& bound) {
    s.closed = true;
    // What was cut off cannot cost less than its bound.
    if (bound < least_open_) least_open_ = bound;
  }
  void pull(State& s, std::uint32_t v);
  void remove(State& s, std::uint32_t v, std::uint32_t i);
  void assign(State& s, std::uint32_t v, std::uint32_t i);
  void absorb(State& s, std::uint32_t v);
  void receive(State& s, std::uint32_t e, std::uint32_t from, std::uint32_t to, const V* scaled);
  void sweep(State& s, bool forward);
  void settle(State& s);
  void cut(State& s);
  void bound(State& s, int rounds);
  void decode(const State& s);
  void improve(std::vector<std::uint32_t>& x, std::size_t forced) const;
  std::uint32_t choose(const State& s) const;
  void emit_shifts(const State& s);
  void emit(std::string_view verb, std::uint32_t v, std::uint32_t i) {
    proof_.line(verb, b_.part[v], b_.option[v][i]);
  }

  V& message(State& s, std::uint32_t e, std::uint32_t v, std::uint32_t i) const {
    return s.message[(b_.edges[e].u == v ? row_message_[e] : col_message_[e]) + i];
  }

  const Block<V>& b_;
  const Clock& clock_;
  Proof& proof_;
  Statistics& stats_;
  std::vector<std::uint32_t> offset_;
  std::vector<std::uint32_t> row_message_;
  std::vector<std::uint32_t> col_message_;
  std::size_t messages_ = 0;
  std::vector<double> weight_;
  V best_cost_ = V(0);
  V least_open_ = V(0);
  V tolerance_;
  std::size_t branch_limit_ = ~std::size_t{0};
  V lowest_message_ = -Num<V>::shifted(V(1), Num<V>::kBits - 7);
  bool capped_ = false;
  bool at_root_ = false;
  bool found_ = false;
  std::size_t forced_ = 0;
  std::vector<std::uint32_t> best_;
  std::vector<V> declared_;                      // messages as the proof's reader knows them
  std::vector<std::vector<V>> parent_declared_;  // per depth: the same before the child's scope
  std::vector<V> scratch_, delta_;
  std::vector<std::uint32_t> single_;   // nodes left with one option, to be absorbed
  std::vector<std::uint32_t> pending_;  // options to cut
  std::vector<V> lows_;                 // and their bounds
};

// What the messages to options alive have become since the reader of the proof was told last.
template <class V>
void Search<V>::emit_shifts(const State& s) {
  if (!proof_.on()) return;
  for (std::uint32_t e = 0; e < b_.edges.size(); ++e) {
    const auto& edge = b_.edges[e];
    for (const std::uint32_t v : {edge.u, edge.v}) {
      const std::uint32_t base = edge.u == v ? row_message_[e] : col_message_[e];
      const std::uint32_t* live = &s.live[offset_[v]];
      bool changed = false;
      for (std::uint32_t k = 0; k < s.count[v] && !changed; ++k) {
        changed = !(s.message[base + live[k]] == declared_[base + live[k]]);
      }
      if (!changed) continue;
      proof_.words("shift", b_.part[v], b_.part[b_.other(e, v)]);
      for (std::uint32_t k = 0; k < s.count[v]; ++k) {
        const std::uint32_t i = base + live[k];
        proof_.raw(" ");
        proof_.raw(decimal(V(s.message[i] - declared_[i])));
        declared_[i] = s.message[i];
      }
      proof_.raw("\n");
    }
  }
}

// Moves the least cost of a node to c0. Options found to be forbidden go first, from the proof too:
// what is moved must bound all options that count as alive.
template <class V>
void Search<V>::pull(State& s, std::uint32_t v) {
  V* theta = &s.theta[offset_[v]];
  std::uint32_t* live = &s.live[offset_[v]];
  std::uint32_t kept = 0;
  V least = infinity<V>();
  for (std::uint32_t k = 0; k < s.count[v]; ++k) {
    const std::uint32_t i = live[k];
    if (is_inf(theta[i])) {
      emit("cut", v, i);
      if (at_root_) ++stats_.cut_options;
      continue;
    }
    live[kept++] = i;
    least = std::min(least, theta[i]);
  }
  if (kept == 1 && s.count[v] > 1) single_.push_back(v);
  s.count[v] = kept;
  if (kept == 0) {
    close(s, infinity<V>());
    return;
  }
  if (least == V(0)) return;
  s.c0 += least;
  for (std::uint32_t k = 0; k < kept; ++k) theta[live[k]] -= least;
}

// Moves what a fixed node's edges cost to its neighbours.
template <class V>
void Search<V>::absorb(State& s, std::uint32_t v) {
  const std::uint32_t i = s.live[offset_[v]];
  for (const std::uint32_t e : b_.incident[v]) {
    const auto& edge = b_.edges[e];
    const std::uint32_t w = b_.other(e, v);
    const V mi = message(s, e, v, i);
    V* theta = &s.theta[offset_[w]];
    for (std::uint32_t k = 0; k < s.count[w]; ++k) {
      const std::uint32_t j = s.live[offset_[w] + k];
      const V& cost = edge.u == v ? b_.at(edge, i, j) : b_.at(edge, j, i);
      if (is_inf(cost)) {
        theta[j] = infinity<V>();
        continue;
      }
      V& mj = message(s, e, w, j);
      const V d = V(cost - mi) - mj;
      mj += d;
      theta[j] = sat_add<V>(theta[j], d);
    }
    pull(s, w);
    if (s.closed) return;
  }
}

// Nodes left with one option, one after the other (absorbing one may leave others with one).
template <class V>
void Search<V>::settle(State& s) {
  while (!s.closed && !single_.empty()) {
    const std::uint32_t v = single_.back();
    single_.pop_back();
    absorb(s, v);
  }
  single_.clear();
}

template <class V>
void Search<V>::assign(State& s, std::uint32_t v, std::uint32_t i) {
  s.count[v] = 1;
  s.live[offset_[v]] = i;
  pull(s, v);
  single_.push_back(v);
  settle(s);
}

template <class V>
void Search<V>::remove(State& s, std::uint32_t v, std::uint32_t i) {
  std::uint32_t* live = &s.live[offset_[v]];
  const std::uint32_t* end = live + s.count[v];
  std::uint32_t* at = std::find(live, live + s.count[v], i);
  if (at == end) return;
  std::copy(static_cast<const std::uint32_t*>(at) + 1, end, at);
  if (--s.count[v] == 0) {
    close(s, infinity<V>());
    return;
  }
  pull(s, v);
  if (s.count[v] == 1) single_.push_back(v);
  settle(s);
}

// Node `from` has given `scaled` (per option alive) to edge e; what the edge can spare goes to
// `to`.
template <class V>
void Search<V>::receive(State& s, std::uint32_t e, std::uint32_t from, std::uint32_t to,
                        const V* scaled) {
  const auto& edge = b_.edges[e];
  const bool rows = edge.u == from;
  const std::uint32_t nf = s.count[from];
  const std::uint32_t nt = s.count[to];
  const std::uint32_t* lf = &s.live[offset_[from]];
  const std::uint32_t* lt = &s.live[offset_[to]];
  V* mf = &s.message[rows ? row_message_[e] : col_message_[e]];
  V* mt = &s.message[rows ? col_message_[e] : row_message_[e]];
  V* theta = &s.theta[offset_[to]];
  const std::size_t cols = b_.dim(edge.v);
  scratch_.resize(nf);
  for (std::uint32_t k = 0; k < nf; ++k) {
    mf[lf[k]] -= scaled[k];
    scratch_[k] = -mf[lf[k]];
  }
  delta_.assign(nt, infinity<V>());
  if (rows) {
    for (std::uint32_t k = 0; k < nf; ++k) {
      const V base = scratch_[k];
      const V* row = &edge.m[lf[k] * cols];
      for (std::uint32_t j = 0; j < nt; ++j) {
        const V x = base + row[lt[j]];
        delta_[j] = x < delta_[j] ? x : delta_[j];
      }
    }
  } else {
    for (std::uint32_t j = 0; j < nt; ++j) {
      const V* row = &edge.m[lt[j] * cols];
      V least = infinity<V>();
      for (std::uint32_t k = 0; k < nf; ++k) {
        const V x = scratch_[k] + row[lf[k]];
        least = x < least ? x : least;
      }
      delta_[j] = least;
    }
  }
  for (std::uint32_t j = 0; j < nt; ++j) {
    const std::uint32_t b = lt[j];
    if (is_inf(delta_[j])) {
      theta[b] = infinity<V>();
      continue;
    }
    V d = delta_[j] - mt[b];
    // More than closes the option is not worth having, and could grow without end where no finite
    // assignment exists.
    if (capped_ && d > V(0) && s.c0 + theta[b] + d > best_cost_) {
      d = std::max(V(0), V(V(best_cost_ - s.c0) - theta[b]));
    }
    mt[b] += d;
    theta[b] = sat_add<V>(theta[b], d);
  }
}

template <class V>
void Search<V>::sweep(State& s, bool forward) {
  const auto n = static_cast<std::uint32_t>(b_.size());
  std::vector<V> share;
  std::vector<std::uint32_t> ahead;
  for (std::uint32_t step = 0; step < n; ++step) {
    const std::uint32_t v = forward ? step : n - 1 - step;
    pull(s, v);
    settle(s);
    if (s.closed) return;
    if (s.count[v] < 2) continue;
    std::uint32_t before = 0;
    ahead.clear();
    for (const std::uint32_t e : b_.incident[v]) {
      const std::uint32_t w = b_.other(e, v);
      if (s.count[w] < 2) continue;
      if (forward ? w > v : w < v) {
        ahead.push_back(e);
      } else {
        ++before;
      }
    }
    if (ahead.empty()) continue;
    const auto parts = static_cast<std::int64_t>(std::max<std::size_t>(ahead.size(), before));
    V* theta = &s.theta[offset_[v]];
    const std::uint32_t* live = &s.live[offset_[v]];
    share.resize(s.count[v]);
    for (std::uint32_t k = 0; k < s.count[v]; ++k) {
      V& t = theta[live[k]];
      if (is_inf(t)) {
        share[k] = V(0);
        continue;
      }
      share[k] = t / parts;
      for (const std::uint32_t e : ahead) {
        if (message(s, e, v, live[k]) < lowest_message_) share[k] = V(0);
      }
      for (std::size_t a = 0; a < ahead.size(); ++a) t -= share[k];
    }
    for (const std::uint32_t e : ahead) receive(s, e, v, b_.other(e, v), share.data());
  }
}

// Removes every option whose bound reaches the upper bound.
template <class V>
void Search<V>::cut(State& s) {
  bool again = true;
  while (again && !s.closed) {
    again = false;
    for (std::uint32_t v = 0; v < b_.size() && !s.closed; ++v) pull(s, v);
    settle(s);
    if (s.closed) break;
    if (reaches(s.c0)) {
      close(s, s.c0);
      break;
    }
    for (std::uint32_t v = 0; v < b_.size() && !s.closed; ++v) {
      if (s.count[v] < 2) continue;
      pending_.clear();
      lows_.clear();
      const V* theta = &s.theta[offset_[v]];
      for (std::uint32_t k = 0; k < s.count[v]; ++k) {
        const std::uint32_t i = s.live[offset_[v] + k];
        if (is_inf(theta[i])) continue;  // found out since, and next in turn
        const V low = V(s.c0 + theta[i]);
        if (!reaches(low)) continue;
        pending_.push_back(i);
        lows_.push_back(low);
      }
      if (pending_.empty()) continue;
      emit_shifts(s);  // also what fixing the last node has moved
      again = true;
      for (std::size_t k = 0; k < pending_.size() && !s.closed; ++k) {
        if (lows_[k] < least_open_) least_open_ = lows_[k];
        emit("cut", v, pending_[k]);
        if (at_root_) ++stats_.cut_options;
        remove(s, v, pending_[k]);
      }
    }
  }
}

template <class V>
void Search<V>::bound(State& s, int rounds) {
  for (int r = 0; r < rounds && !s.closed; ++r) {
    const V before = s.c0;
    sweep(s, true);
    if (!s.closed) sweep(s, false);
    if (s.closed) break;
    // Each cut puts the messages into the proof: there it waits until they have settled.
    if (!proof_.on()) cut(s);
    if (s.closed || reaches(s.c0)) break;
    const double gain = Num<V>::approximate(V(s.c0 - before));
    const double open = Num<V>::approximate(V(best_cost_ - s.c0));
    // At the root the bound is worth some work; below it branching soon gains more, though not for
    // the size of a proof.
    if (gain <= (at_root_ || proof_.on() ? 0.02 : 0.2) * open) break;
    if ((r & 7) == 7 && clock_.expired()) break;
  }
  if (!s.closed) cut(s);
}

// One option per node, in order, the cheapest given those before it.
template <class V>
void Search<V>::decode(const State& s) {
  const std::size_t n = b_.size();
  std::vector<std::uint32_t> x(n, Block<V>::kDead);
  for (std::uint32_t v = 0; v < n; ++v) {
    V least = infinity<V>();
    std::uint32_t arg = Block<V>::kDead;
    for (std::uint32_t k = 0; k < s.count[v]; ++k) {
      const std::uint32_t i = s.live[offset_[v] + k];
      V sum = s.theta[offset_[v] + i];
      for (const std::uint32_t e : b_.incident[v]) {
        const std::uint32_t w = b_.other(e, v);
        if (x[w] == Block<V>::kDead) continue;
        const auto& edge = b_.edges[e];
        const V& c = edge.u == v ? b_.at(edge, i, x[w]) : b_.at(edge, x[w], i);
        if (is_inf(c)) {
          sum = infinity<V>();
          break;
        }
        const std::uint32_t mv = (edge.u == v ? row_message_[e] : col_message_[e]) + i;
        const std::uint32_t mw = (edge.u == v ? col_message_[e] : row_message_[e]) + x[w];
        sum = sat_add<V>(sum, V(V(c - s.message[mv]) - s.message[mw]));
      }
      if (sum < least) least = sum, arg = i;
    }
    if (arg == Block<V>::kDead) return;
    x[v] = arg;
  }
  V cost = evaluate(x, forced_);
  if (is_inf(cost)) return;
  if (cost < best_cost_) {
    best_cost_ = cost;
    best_ = x;
    found_ = true;
  }
}

// Descent by changing one option at a time.
template <class V>
void Search<V>::improve(std::vector<std::uint32_t>& x, std::size_t forced) const {
  bool again = true;
  for (int round = 0; again && round < 100; ++round) {
    again = false;
    for (std::uint32_t v = 0; v < b_.size(); ++v) {
      if (v == forced) continue;
      V least = infinity<V>();
      std::uint32_t arg = x[v];
      V current = infinity<V>();
      for (std::uint32_t i = 0; i < b_.dim(v); ++i) {
        V sum = b_.cost[v][i];
        for (const std::uint32_t e : b_.incident[v]) {
          const auto& edge = b_.edges[e];
          const std::uint32_t w = b_.other(e, v);
          sum = sat_add<V>(sum, edge.u == v ? b_.at(edge, i, x[w]) : b_.at(edge, x[w], i));
        }
        if (i == x[v]) current = sum;
        if (sum < least) least = sum, arg = i;
      }
      if (least < current) {
        x[v] = arg;
        again = true;
      }
    }
  }
}

template <class V>
std::uint32_t Search<V>::choose(const State& s) const {
  std::uint32_t best = Block<V>::kDead;
  double best_score = 0;
  for (std::uint32_t v = 0; v < b_.size(); ++v) {
    if (s.count[v] < 2) continue;
    const double score = weight_[v] / s.count[v];
    if (best == Block<V>::kDead || score > best_score) best = v, best_score = score;
  }
  return best;
}

template <class V>
typename Search<V>::Outcome Search<V>::run(std::size_t forced, std::size_t option, const V& cutoff,
                                           const std::vector<std::uint32_t>& start) {
  const auto n = static_cast<std::uint32_t>(b_.size());
  forced_ = forced;
  best_cost_ = cutoff;
  least_open_ = infinity<V>();
  found_ = false;
  best_.clear();
  declared_.assign(messages_, V(0));
  if (!start.empty()) {
    std::vector<std::uint32_t> x = start;
    if (forced < n) x[forced] = static_cast<std::uint32_t>(option);
    improve(x, forced);
    const V cost = evaluate(x, forced);
    if (cost < best_cost_) best_cost_ = cost, best_ = x, found_ = true;
  }

  std::vector<State> stack(1);
  std::size_t depth = 1;
  State& root = stack[0];
  root.theta.resize(offset_[n]);
  root.message.assign(messages_, V(0));
  root.live.resize(offset_[n]);
  root.count.resize(n);
  for (std::uint32_t v = 0; v < n; ++v) {
    root.count[v] = static_cast<std::uint32_t>(b_.dim(v));
    for (std::uint32_t i = 0; i < root.count[v]; ++i) {
      root.live[offset_[v] + i] = i;
      root.theta[offset_[v] + i] = v == forced ? V(0) : b_.cost[v][i];
    }
    if (root.count[v] == 0) close(root, infinity<V>());
  }
  capped_ = false;
  // Non-negative edges: the least cost of each row moves to the row's node.
  for (std::uint32_t e = 0; e < b_.edges.size() && !root.closed; ++e) {
    const std::vector<V> none(b_.dim(b_.edges[e].v), V(0));
    receive(root, e, b_.edges[e].v, b_.edges[e].u, none.data());
  }
  for (std::uint32_t v = 0; v < n && !root.closed; ++v) pull(root, v);
  settle(root);
  if (forced < n && !root.closed)
    assign(root, static_cast<std::uint32_t>(forced), static_cast<std::uint32_t>(option));
  for (std::uint32_t v = 0; v < n && !root.closed; ++v) {
    if (root.count[v] == 1) single_.push_back(v);
  }
  settle(root);
  capped_ = true;
  at_root_ = true;
  if (!root.closed) cut(root);
  if (!root.closed) {
    bound(root, 200);
    if (!root.closed) {
      decode(root);
      if (found_) improve(best_, forced), best_cost_ = evaluate(best_, forced);
      bound(root, 200);
    }
  }
  at_root_ = false;
  std::size_t branches = 1;

  std::vector<std::pair<std::uint32_t, std::uint32_t>> tried(1);
  Outcome out;
  bool stopped = false;
  while (depth > 0) {
    State& s = stack[depth - 1];
    if (!s.closed && reaches(s.c0)) cut(s);
    if (!s.closed && (branches >= branch_limit_ || clock_.expired())) {
      stopped = true;
      break;
    }
    const std::uint32_t v = s.closed ? Block<V>::kDead : choose(s);
    if (!s.closed && v == Block<V>::kDead) {
      // All fixed: c0 is the cost.
      std::vector<std::uint32_t> x(n);
      for (std::uint32_t w = 0; w < n; ++w) x[w] = s.live[offset_[w]];
      best_cost_ = s.c0;
      best_ = std::move(x);
      found_ = true;
      close(s, s.c0);
    }
    if (s.closed) {
      emit_shifts(s);
      if (--depth == 0) break;
      State& parent = stack[depth - 1];
      const auto [pv, pi] = tried[depth - 1];
      proof_.line("end");
      if (proof_.on()) declared_ = parent_declared_[depth - 1];
      weight_[pv] += 1.0;
      remove(parent, pv, pi);
      if (!parent.closed) bound(parent, 2);
      continue;
    }
    // The option that looks best, first.
    std::uint32_t arg = s.live[offset_[v]];
    for (std::uint32_t k = 1; k < s.count[v]; ++k) {
      const std::uint32_t i = s.live[offset_[v] + k];
      if (s.theta[offset_[v] + i] < s.theta[offset_[v] + arg]) arg = i;
    }
    if (stack.size() == depth) {
      stack.emplace_back();
      tried.emplace_back();
    }
    State& child = stack[depth];
    child = stack[depth - 1];
    tried[depth - 1] = {v, arg};
    if (parent_declared_.size() < depth) parent_declared_.resize(depth);
    if (proof_.on()) parent_declared_[depth - 1] = declared_;
    emit("try", v, arg);
    ++depth;
    ++branches;
    assign(child, v, arg);
    if (!child.closed) cut(child);
    if (!child.closed) bound(child, 20);
    if (!child.closed) decode(child);
  }

  out.lower = std::min(best_cost_, least_open_);
  if (stopped) {
    for (std::size_t d = 0; d < depth; ++d) out.lower = std::min(out.lower, stack[d].c0);
  }
  if (stopped && proof_.on()) {
    while (true) {
      emit_shifts(stack[depth - 1]);
      if (--depth == 0) break;
      proof_.line("end");
      declared_ = parent_declared_[depth - 1];
      // For the reader the end of the child removes what was tried.
      const auto [pv, pi] = tried[depth - 1];
      remove(stack[depth - 1], pv, pi);
    }
  }
  stats_.branches += branches;
  out.found = found_;
  out.upper = best_cost_;
  out.assignment = best_;
  out.complete = !stopped;
  return out;
}

}  // namespace pbqp::detail
