// The reduced problem, and the reductions R0, RI and RII.
//
// A core is a plain PBQP over parts (parts.hpp) with exact integer costs. Reductions (Scholz and
// Eckstein 2002) remove a part v of degree
//   0: constant += min_k c_v[k]
//   1: c_u[i] += min_k (c_v[k] + E_vu[k][i])
//   2: E_uw[i][j] += min_k (c_v[k] + E_uv[i][k] + E_vw[k][j])
// and keep the optimum; which k was best is remembered for back-propagation. Matrices are turned
// into integers when they are first touched and freed when they have been used, so that a large
// problem is never there twice.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "numbers.hpp"
#include "parts.hpp"
#include "pbqp/pbqp.hpp"

namespace pbqp::detail {

// The wall-clock limit of a solve.
class Clock {
 public:
  explicit Clock(const Limits& limits)
      : start_(std::chrono::steady_clock::now()), seconds_(limits.seconds), stop_(limits.stop) {}
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  bool expired() const {
    return (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) ||
           (seconds_ < kInfinity && elapsed() >= seconds_);
  }

 private:
  std::chrono::steady_clock::time_point start_;
  double seconds_;
  const std::atomic<bool>* stop_;
};

// Text of a certificate in the making; costs nothing when switched off.
class Proof {
 public:
  explicit Proof(bool on) : on_(on) {}
  bool on() const { return on_; }
  template <class... Words>
  void line(std::string_view verb, Words... numbers) {
    if (!on_) return;
    words(verb, numbers...);
    text_ += '\n';
  }
  template <class... Words>
  void words(std::string_view verb, Words... numbers) {
    if (!on_) return;
    text_ += verb;
    ((text_ += ' ', text_ += std::to_string(numbers)), ...);
  }
  void raw(std::string_view s) {
    if (on_) text_ += s;
  }
  std::string take() { return std::move(text_); }

 private:
  bool on_;
  std::string text_;
};

// The best option of a part for each combination of its neighbours' options.
class ArgTable {
 public:
  ArgTable() = default;
  ArgTable(std::size_t entries, std::size_t options) {
    if (options <= 0x100) {
      bytes_ = std::make_unique<std::uint8_t[]>(entries);
    } else {
      words_ = std::make_unique<std::uint32_t[]>(entries);
    }
  }
  void set(std::size_t i, std::size_t option) {
    if (bytes_) {
      bytes_[i] = static_cast<std::uint8_t>(option);
    } else {
      words_[i] = static_cast<std::uint32_t>(option);
    }
  }
  std::size_t operator[](std::size_t i) const { return bytes_ ? bytes_[i] : words_[i]; }

 private:
  std::unique_ptr<std::uint8_t[]> bytes_;
  std::unique_ptr<std::uint32_t[]> words_;
};

// A small dense problem cut out of a core: the options still alive of some parts and the matrices
// between them. Elimination (eliminate.hpp) and branch and bound (search.hpp) work on blocks.
template <class V>
struct Block {
  static constexpr std::uint32_t kDead = 0xffffffff;

  struct Edge {
    std::uint32_t u;
    std::uint32_t v;
    std::vector<V> m;  // rows: options of u
  };

  std::vector<std::uint32_t> part;                 // core part of each node
  std::vector<std::vector<std::uint32_t>> option;  // core option of each option, ascending
  std::vector<std::vector<V>> cost;
  std::vector<Edge> edges;
  std::vector<std::vector<std::uint32_t>> incident;  // edges of each node

  std::size_t size() const { return part.size(); }
  std::size_t dim(std::size_t v) const { return cost[v].size(); }
  std::uint32_t other(std::uint32_t e, std::uint32_t v) const {
    return edges[e].u == v ? edges[e].v : edges[e].u;
  }
  const V& at(const Edge& e, std::size_t i, std::size_t j) const {
    return e.m[i * cost[e.v].size() + j];
  }
};

template <class V>
class Core {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  static constexpr std::uint32_t kBlock = 0xfffffffe;

  struct Part {
    std::vector<V> cost;
    std::vector<std::uint32_t> adjacent;  // edge numbers, dead ones among them
    std::uint32_t degree = 0;
    bool alive = true;
  };
  struct Edge {
    std::uint32_t u = 0;
    std::uint32_t v = 0;
    std::uint32_t source = kNone;  // first problem edge that it sums, see next_source_
    bool split = false;            // joins the two parts of a node
    bool ready = false;            // m holds the costs
    bool alive = true;
    std::vector<V> m;
  };
  // What was removed, in order; undone backwards.
  struct Step {
    std::uint32_t part;
    std::uint32_t near[2];  // the neighbours whose options decide, kNone where there are fewer
    ArgTable best;          // row-major over their options
  };
  // The same for a part of a block: node `node` of it, with the table over the options alive of the
  // block's nodes `scope`.
  struct BlockStep {
    std::shared_ptr<const Block<V>> block;
    std::uint32_t node;
    std::vector<std::uint32_t> scope;
    ArgTable best;
  };

  /// From a problem. `exponent` is the unit of the integers; `drop` removes independent edges.
  Core(const Problem& problem, const Parts& parts, int exponent, bool rounded, Proof& proof,
       Statistics& statistics, bool drop = true);
  std::size_t part_count() const { return parts_.size(); }
  Part& part(std::uint32_t p) { return parts_[p]; }
  Edge& edge(std::uint32_t e) { return edges_[e]; }
  std::size_t edge_count() const { return edges_.size(); }
  std::size_t dim(std::uint32_t p) const { return dims_[p]; }
  const V& constant() const { return constant_; }
  void add_constant(const V& x) { constant_ = sat_add<V>(constant_, x); }
  bool infeasible() const { return is_inf(constant_); }
  /// The part whose options were all found to be forbidden, if any.
  std::uint32_t culprit() const { return culprit_; }
  void set_culprit(std::uint32_t p) {
    if (culprit_ == kNone) culprit_ = p;
  }

  /// Drops edges that are zero or independent, everywhere.
  void drop_all();
  /// Applies R0, RI and RII until none applies; false if the clock ran out.
  bool reduce(const Clock& clock);
  /// A bound on all completions: the sum of the least costs of what is left.
  V least_sum();
  /// Chooses options for all parts left, one by one, each the cheapest given those before it and
  /// hoping for the best from those behind it.
  void guess_rest();
  /// Removes a part by choosing option k, for better or worse.
  void fix(std::uint32_t p, std::size_t k);
  void push_if_reducible(std::uint32_t p);
  /// Removes a part with its edges; the caller has accounted for its costs.
  void remove(std::uint32_t p);
  void log(BlockStep step) {
    // In its turn among the steps.
    steps_.push_back({step.block->part[step.node],
                      {static_cast<std::uint32_t>(block_steps_.size()), kBlock},
                      {}});
    block_steps_.push_back(std::move(step));
  }
  /// Drops an edge if its costs are independent: M[a][b] = f[a] + g[b]. Only options that are alive
  /// count. True if dropped.
  bool drop_if_independent(std::uint32_t e);

  std::vector<std::uint32_t> alive_parts() const;
  /// Fresh: edge numbers of a living part's living edges.
  const std::vector<std::uint32_t>& edges_of(std::uint32_t p);
  std::uint32_t other(const Edge& e, std::uint32_t p) const { return e.u == p ? e.v : e.u; }
  void ready(std::uint32_t e) {
    if (!edges_[e].ready) materialise(edges_[e]);
  }

  /// Options of all parts; `chosen` holds those of parts still alive.
  std::vector<std::size_t> back_propagate(std::vector<std::size_t> chosen) const;

  const V& max_sum() const { return max_sum_; }
  void set_max_sum(const V& s) { max_sum_ = s; }

  V convert(double x) const {
    if constexpr (std::is_same_v<V, std::int64_t>) {
      // A multiple of the unit and narrow enough: scaling is exact.
      if (scale_ > 0 && x != kInfinity && !rounded_) return static_cast<std::int64_t>(x * scale_);
    }
    if (!rounded_ || x == kInfinity) return from_double<V>(x, exponent_);
    return from_double<V>(std::nearbyint(std::ldexp(x, -exponent_)), 0);
  }

 private:
  void materialise(Edge& e);
  void reduce0(std::uint32_t v);
  void reduce1(std::uint32_t v);
  void reduce2(std::uint32_t v);
  void min_plus(std::size_t ku, std::size_t kv, std::size_t kw, const std::vector<V>& cost,
                ArgTable& table);
  // Copies with the given part as row index.
  void gather(const Edge& e, std::uint32_t row_part, std::vector<V>& out) const;
  std::uint32_t find_edge(std::uint32_t u, std::uint32_t v);
  void detach(std::uint32_t e);
  bool might_be_independent(const Edge& e) const;
  std::vector<V> option_costs(std::size_t node) const;

  const Problem* problem_ = nullptr;
  const Parts* layout_ = nullptr;
  int exponent_ = 0;
  bool rounded_ = false;
  double scale_ = 0;  // 2^-exponent where that is a double
  Proof& proof_;
  Statistics& stats_;
  V constant_ = V(0);
  V max_sum_ = V(0);
  std::uint32_t culprit_ = kNone;
  std::vector<Part> parts_;
  std::vector<std::uint32_t> dims_;  // options per part, also after its removal
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> next_source_;  // per problem edge: the next one of the same core edge
  std::vector<Step> steps_;
  std::vector<BlockStep> block_steps_;
  std::vector<std::uint32_t> bucket_[3];  // parts that may have degree 0, 1, 2
  std::vector<V> a_, b_, c_;              // scratch
  std::vector<std::uint32_t> arg_;
};

template <class V>
std::vector<V> Core<V>::option_costs(std::size_t node) const {
  const auto& costs = problem_->costs(node);
  std::vector<V> r(costs.size());
  for (std::size_t i = 0; i < r.size(); ++i) r[i] = convert(costs[i]);
  for (const std::uint32_t e : layout_->self_loops(node)) {
    for (std::size_t i = 0; i < r.size(); ++i) {
      r[i] = sat_add<V>(r[i], convert(problem_->edge(e).cost(i, i)));
    }
  }
  return r;
}

template <class V>
Core<V>::Core(const Problem& problem, const Parts& layout, int exponent, bool rounded, Proof& proof,
              Statistics& statistics, bool drop)
    : problem_(&problem),
      layout_(&layout),
      exponent_(exponent),
      rounded_(rounded),
      scale_(std::abs(exponent) < 1000 ? std::ldexp(1.0, -exponent) : 0.0),
      proof_(proof),
      stats_(statistics) {
  const std::size_t n = layout.parts().size();
  parts_.resize(n);
  std::vector<std::uint32_t> degree(n, 0);
  for (const auto& link : layout.links()) {
    ++degree[link.row_part];
    ++degree[link.col_part];
  }
  edges_.reserve(layout.links().size() + n - problem.node_count());
  next_source_.assign(problem.edge_count(), kNone);
  for (std::size_t v = 0; v < problem.node_count(); ++v) {
    const std::uint32_t p = layout.first_part(v);
    if (layout.split(v)) {
      for (const std::uint32_t q : {p, p + 1}) {
        parts_[q].cost.assign(layout.map(q).first.size(), V(0));
        parts_[q].adjacent.reserve(degree[q] + 1);
      }
      Edge e;
      e.u = p;
      e.v = p + 1;
      e.split = true;
      for (const std::uint32_t q : {p, p + 1}) {
        parts_[q].adjacent.push_back(static_cast<std::uint32_t>(edges_.size()));
      }
      edges_.push_back(std::move(e));
    } else {
      const ClassMap& map = layout.map(p);
      auto& cost = parts_[p].cost;
      cost.assign(map.first.size(), infinity<V>());
      const std::vector<V> all = option_costs(v);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] < cost[map.of[i]]) cost[map.of[i]] = all[i];
      }
      parts_[p].adjacent.reserve(degree[p]);
    }
  }
  // Links grouped by row part, so that parallel ones are found with a stamp per part.
  std::vector<std::uint32_t> count(n + 1, 0);
  const auto low = [](const Parts::Link& l) { return std::min(l.row_part, l.col_part); };
  for (const auto& link : layout.links()) ++count[low(link) + 1];
  for (std::size_t i = 0; i < n; ++i) count[i + 1] += count[i];
  std::vector<std::uint32_t> order(layout.links().size());
  {
    std::vector<std::uint32_t> at(count.begin(), count.end() - 1);
    for (std::uint32_t i = 0; i < order.size(); ++i) order[at[low(layout.links()[i])]++] = i;
  }
  std::vector<std::uint32_t> stamp(n, kNone);
  std::vector<std::uint32_t> tail(problem.edge_count());
  std::vector<std::uint32_t> touched;
  for (std::uint32_t p = 0; p < n; ++p) {
    touched.clear();
    for (std::uint32_t i = count[p]; i < count[p + 1]; ++i) {
      const auto& link = layout.links()[order[i]];
      const std::uint32_t q = std::max(link.row_part, link.col_part);
      if (stamp[q] != kNone) {
        Edge& e = edges_[stamp[q]];
        next_source_[tail[e.source]] = link.edge;
        tail[e.source] = link.edge;
        continue;
      }
      Edge e;
      e.u = link.row_part;
      e.v = link.col_part;
      e.source = link.edge;
      tail[link.edge] = link.edge;
      const auto id = static_cast<std::uint32_t>(edges_.size());
      stamp[q] = id;
      touched.push_back(q);
      parts_[e.u].adjacent.push_back(id);
      parts_[e.v].adjacent.push_back(id);
      edges_.push_back(std::move(e));
    }
    for (const std::uint32_t q : touched) stamp[q] = kNone;
  }
  stats_.parts = n;
  for (std::uint32_t p = 0; p < n; ++p) {
    parts_[p].degree = static_cast<std::uint32_t>(parts_[p].adjacent.size());
    stats_.part_options += parts_[p].cost.size();
    dims_.push_back(static_cast<std::uint32_t>(parts_[p].cost.size()));
  }
  if (drop) drop_all();
  for (std::uint32_t p = static_cast<std::uint32_t>(n); p-- > 0;) push_if_reducible(p);
}

template <class V>
void Core<V>::materialise(Edge& e) {
  e.ready = true;
  const ClassMap& mu = layout_->map(e.u);
  const ClassMap& mv = layout_->map(e.v);
  const std::size_t rows = mu.first.size();
  const std::size_t cols = mv.first.size();
  if (e.split) {
    e.m.assign(rows * cols, infinity<V>());
    const std::vector<V> all = option_costs(layout_->parts()[e.u].node);
    for (std::size_t i = 0; i < all.size(); ++i) {
      V& x = e.m[mu.of[i] * cols + mv.of[i]];
      if (all[i] < x) x = all[i];
    }
    return;
  }
  e.m.assign(rows * cols, V(0));
  for (std::uint32_t s = e.source; s != kNone; s = next_source_[s]) {
    const pbqp::Edge& src = problem_->edge(s);
    const bool straight = layout_->parts()[e.u].node == src.u;
    const ClassMap& rmap = straight ? mu : mv;
    const ClassMap& cmap = straight ? mv : mu;
    for (std::size_t i = 0; i < rmap.first.size(); ++i) {
      const std::size_t r = src.row_class ? (*src.row_class)[rmap.first[i]] : rmap.first[i];
      for (std::size_t j = 0; j < cmap.first.size(); ++j) {
        const std::size_t c = src.col_class ? (*src.col_class)[cmap.first[j]] : cmap.first[j];
        V& x = straight ? e.m[i * cols + j] : e.m[j * cols + i];
        x = sat_add<V>(x, convert(src.matrix(r, c)));
      }
    }
  }
}

template <class V>
void Core<V>::gather(const Edge& e, std::uint32_t row_part, std::vector<V>& out) const {
  if (e.u == row_part) {
    out = e.m;
    return;
  }
  const std::size_t rows = dim(e.u);
  const std::size_t cols = dim(e.v);
  out.resize(rows * cols);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < cols; ++j) out[j * rows + i] = e.m[i * cols + j];
  }
}

template <class V>
const std::vector<std::uint32_t>& Core<V>::edges_of(std::uint32_t p) {
  auto& adjacent = parts_[p].adjacent;
  if (adjacent.size() != parts_[p].degree) {
    std::erase_if(adjacent, [&](std::uint32_t e) { return !edges_[e].alive; });
  }
  return adjacent;
}

template <class V>
std::uint32_t Core<V>::find_edge(std::uint32_t u, std::uint32_t v) {
  const std::uint32_t from = parts_[u].degree < parts_[v].degree ? u : v;
  for (const std::uint32_t e : parts_[from].adjacent) {
    if (edges_[e].alive && other(edges_[e], from) == (from == u ? v : u)) return e;
  }
  return kNone;
}

template <class V>
void Core<V>::push_if_reducible(std::uint32_t p) {
  if (parts_[p].degree <= 2) bucket_[parts_[p].degree].push_back(p);
}

template <class V>
void Core<V>::detach(std::uint32_t e) {
  Edge& edge = edges_[e];
  edge.alive = false;
  std::vector<V>().swap(edge.m);
  for (const std::uint32_t p : {edge.u, edge.v}) {
    --parts_[p].degree;
    // Lists are cleaned when half of them is dead, so that hubs cost no more than their edges.
    if (parts_[p].adjacent.size() > 2 * parts_[p].degree + 4) edges_of(p);
    if (parts_[p].alive) push_if_reducible(p);
  }
}

template <class V>
void Core<V>::remove(std::uint32_t p) {
  parts_[p].alive = false;
  const std::vector<std::uint32_t> all = edges_of(p);
  for (const std::uint32_t e : all) detach(e);
  std::vector<V>().swap(parts_[p].cost);
  std::vector<std::uint32_t>().swap(parts_[p].adjacent);
}

// A look at four costs rules out nearly all edges without touching the rest.
template <class V>
bool Core<V>::might_be_independent(const Edge& e) const {
  if (e.ready || e.split || next_source_[e.source] != kNone) return true;
  if (dim(e.u) < 2 || dim(e.v) < 2) return true;
  const pbqp::Edge& src = problem_->edge(e.source);
  const bool straight = layout_->parts()[e.u].node == src.u;
  const ClassMap& rmap = layout_->map(straight ? e.u : e.v);
  const ClassMap& cmap = layout_->map(straight ? e.v : e.u);
  const double x00 = src.cost(rmap.first[0], cmap.first[0]);
  const double x01 = src.cost(rmap.first[0], cmap.first[1]);
  const double x10 = src.cost(rmap.first[1], cmap.first[0]);
  const double x11 = src.cost(rmap.first[1], cmap.first[1]);
  for (const double x : {x00, x01, x10, x11}) {
    if (x == kInfinity) return true;
  }
  for (const std::uint32_t p : {e.u, e.v}) {
    if (is_inf(parts_[p].cost[0]) || is_inf(parts_[p].cost[1])) return true;
  }
  return V(convert(x00) + convert(x11)) == V(convert(x01) + convert(x10));
}

template <class V>
void Core<V>::drop_all() {
  for (std::uint32_t e = 0; e < edges_.size(); ++e) {
    if (edges_[e].alive && might_be_independent(edges_[e])) drop_if_independent(e);
  }
}

template <class V>
bool Core<V>::drop_if_independent(std::uint32_t id) {
  ready(id);
  Edge& e = edges_[id];
  Part& pu = parts_[e.u];
  Part& pv = parts_[e.v];
  const std::size_t rows = pu.cost.size();
  const std::size_t cols = pv.cost.size();
  // A row is all infinite, or differs from the reference row by a constant and is infinite where it
  // is.
  std::size_t ref = rows;
  std::size_t ref_col = cols;
  for (std::size_t i = 0; i < rows; ++i) {
    if (is_inf(pu.cost[i])) continue;
    const V* row = &e.m[i * cols];
    if (ref == rows) {
      for (std::size_t j = 0; j < cols && ref == rows; ++j) {
        if (!is_inf(pv.cost[j]) && !is_inf(row[j])) ref = i, ref_col = j;
      }
      continue;
    }
    const V* base = &e.m[ref * cols];
    if (is_inf(row[ref_col])) {
      for (std::size_t j = 0; j < cols; ++j) {
        if (!is_inf(pv.cost[j]) && !is_inf(row[j])) return false;
      }
      continue;
    }
    const V shift = row[ref_col] - base[ref_col];
    for (std::size_t j = 0; j < cols; ++j) {
      if (is_inf(pv.cost[j])) continue;
      if (is_inf(row[j]) != is_inf(base[j])) return false;
      if (!is_inf(row[j]) && !(V(row[j] - base[j]) == shift)) return false;
    }
  }
  // M[a][b] = least + f[a] + g[b] with f, g >= 0, so that no value grows beyond the matrix's range.
  if (ref == rows) {
    for (std::size_t i = 0; i < rows; ++i) pu.cost[i] = infinity<V>();
  } else {
    V low_row = V(0);  // of f + M[ref][ref_col]
    V low_col = V(0);
    for (std::size_t i = 0; i < rows; ++i) {
      if (is_inf(pu.cost[i]) || is_inf(e.m[i * cols + ref_col])) continue;
      const V d = e.m[i * cols + ref_col] - e.m[ref * cols + ref_col];
      if (d < low_row) low_row = d;
    }
    for (std::size_t j = 0; j < cols; ++j) {
      if (is_inf(pv.cost[j]) || is_inf(e.m[ref * cols + j])) continue;
      const V d = e.m[ref * cols + j] - e.m[ref * cols + ref_col];
      if (d < low_col) low_col = d;
    }
    const V base = e.m[ref * cols + ref_col];
    for (std::size_t i = 0; i < rows; ++i) {
      if (is_inf(pu.cost[i])) continue;
      const V& x = e.m[i * cols + ref_col];
      pu.cost[i] = is_inf(x) ? infinity<V>() : sat_add<V>(pu.cost[i], V(V(x - base) - low_row));
    }
    for (std::size_t j = 0; j < cols; ++j) {
      if (is_inf(pv.cost[j])) continue;
      const V& x = e.m[ref * cols + j];
      pv.cost[j] = is_inf(x) ? infinity<V>() : sat_add<V>(pv.cost[j], V(V(x - base) - low_col));
    }
    add_constant(V(V(base + low_row) + low_col));
  }
  proof_.line("drop", e.u, e.v);
  ++stats_.dropped_edges;
  detach(id);
  return true;
}

template <class V>
void Core<V>::reduce0(std::uint32_t v) {
  const auto& cost = parts_[v].cost;
  std::size_t best = 0;
  for (std::size_t k = 1; k < cost.size(); ++k) {
    if (cost[k] < cost[best]) best = k;
  }
  if (is_inf(cost[best])) set_culprit(v);
  add_constant(cost[best]);
  ArgTable table(1, cost.size());
  table.set(0, best);
  steps_.push_back({v, {kNone, kNone}, std::move(table)});
  proof_.line("r0", v);
  ++stats_.r0;
  remove(v);
}

template <class V>
void Core<V>::reduce1(std::uint32_t v) {
  const std::uint32_t id = edges_of(v)[0];
  ready(id);
  const Edge& e = edges_[id];
  const std::uint32_t u = other(e, v);
  const auto& cost = parts_[v].cost;
  auto& target = parts_[u].cost;
  const std::size_t ku = target.size();
  const std::size_t kv = cost.size();
  const std::size_t step_u = e.u == u ? kv : 1;
  const std::size_t step_v = e.u == u ? 1 : ku;
  ArgTable table(ku, kv);
  bool any = false;
  for (std::size_t i = 0; i < ku; ++i) {
    const V* m = &e.m[i * step_u];
    std::size_t best = 0;
    V least = sat_add<V>(cost[0], m[0]);
    for (std::size_t k = 1; k < kv; ++k) {
      const V x = cost[k] + m[k * step_v];
      if (x < least) least = x, best = k;
    }
    table.set(i, best);
    target[i] = sat_add<V>(target[i], clamp<V>(least));
    any = any || !is_inf(target[i]);
  }
  if (!any) set_culprit(u);
  steps_.push_back({v, {u, kNone}, std::move(table)});
  proof_.line("r1", v, u);
  ++stats_.r1;
  stats_.width = std::max<std::size_t>(stats_.width, 1);
  remove(v);
}

// c_[i][j] = min_k (a_[i][k] + cost[k]) + b_[k][j], with j innermost: no gaps, no branches.
template <class V>
void Core<V>::min_plus(std::size_t ku, std::size_t kv, std::size_t kw, const std::vector<V>& cost,
                       ArgTable& table) {
  c_.assign(ku * kw, infinity<V>());
  if constexpr (std::is_same_v<V, std::int64_t>) {
    // Where four bits are to spare, k stands in the lowest bits of each sum: the least sum then
    // brings its k along, the lowest one among equals.
    if (kv <= 16 && max_sum_ < (std::int64_t{1} << 50)) {
      for (V& x : b_) x = is_inf(x) ? infinity<V>() : x * 16;
      for (std::size_t i = 0; i < ku; ++i) {
        V* out = &c_[i * kw];
        for (std::size_t k = 0; k < kv; ++k) {
          V x = a_[i * kv + k] + cost[k];
          if (is_inf(x)) continue;
          x = x * 16 + static_cast<V>(k);
          const V* row = &b_[k * kw];
          for (std::size_t j = 0; j < kw; ++j) out[j] = std::min(out[j], x + row[j]);
        }
        for (std::size_t j = 0; j < kw; ++j) {
          table.set(i * kw + j, is_inf(out[j]) ? 0 : static_cast<std::size_t>(out[j] & 15));
          out[j] = is_inf(out[j]) ? infinity<V>() : out[j] >> 4;
        }
      }
      return;
    }
  }
  arg_.assign(ku * kw, 0);
  for (std::size_t i = 0; i < ku; ++i) {
    V* out = &c_[i * kw];
    std::uint32_t* arg = &arg_[i * kw];
    for (std::size_t k = 0; k < kv; ++k) {
      const V x = a_[i * kv + k] + cost[k];
      if (is_inf(x)) continue;
      const V* row = &b_[k * kw];
      for (std::size_t j = 0; j < kw; ++j) {
        const V y = x + row[j];
        const bool less = y < out[j];
        out[j] = less ? y : out[j];
        arg[j] = less ? static_cast<std::uint32_t>(k) : arg[j];
      }
    }
  }
  for (V& x : c_) x = clamp<V>(x);
  for (std::size_t i = 0; i < arg_.size(); ++i) table.set(i, arg_[i]);
}

template <class V>
void Core<V>::reduce2(std::uint32_t v) {
  const std::uint32_t e1 = edges_of(v)[0];
  const std::uint32_t e2 = edges_of(v)[1];
  ready(e1);
  ready(e2);
  std::uint32_t u = other(edges_[e1], v);
  std::uint32_t w = other(edges_[e2], v);
  const auto& cost = parts_[v].cost;
  const std::size_t kv = cost.size();
  const std::size_t ku = dim(u);
  const std::size_t kw = dim(w);
  gather(edges_[e1], u, a_);
  gather(edges_[e2], v, b_);
  ArgTable table(ku * kw, kv);
  min_plus(ku, kv, kw, cost, table);
  steps_.push_back({v, {u, w}, std::move(table)});
  proof_.line("r2", v, u, w);
  ++stats_.r2;
  stats_.width = std::max<std::size_t>(stats_.width, 2);
  const std::uint32_t known = find_edge(u, w);
  if (known == kNone) {
    // The first edge stays u's and turns from v to w.
    std::erase(parts_[v].adjacent, e1);
    --parts_[v].degree;
    ++parts_[w].degree;
    remove(v);
    Edge& e = edges_[e1];
    e.u = u;
    e.v = w;
    e.split = false;
    e.m = c_;
    parts_[w].adjacent.push_back(e1);
    drop_if_independent(e1);
    return;
  }
  remove(v);
  ready(known);
  Edge& e = edges_[known];
  if (e.u == u) {
    for (std::size_t i = 0; i < c_.size(); ++i) e.m[i] = sat_add<V>(e.m[i], c_[i]);
  } else {
    for (std::size_t i = 0; i < ku; ++i) {
      for (std::size_t j = 0; j < kw; ++j) {
        e.m[j * ku + i] = sat_add<V>(e.m[j * ku + i], c_[i * kw + j]);
      }
    }
  }
  drop_if_independent(known);
}

template <class V>
bool Core<V>::reduce(const Clock& clock) {
  for (std::size_t count = 0;; ++count) {
    if (infeasible()) return true;
    if ((count & 1023) == 0 && clock.expired()) return false;
    std::size_t d = 0;
    while (d < 3 && bucket_[d].empty()) ++d;
    if (d == 3) return true;
    const std::uint32_t v = bucket_[d].back();
    bucket_[d].pop_back();
    if (!parts_[v].alive || parts_[v].degree != d) continue;
    if (d == 0) {
      reduce0(v);
    } else if (d == 1) {
      reduce1(v);
    } else {
      reduce2(v);
    }
  }
}

template <class V>
void Core<V>::fix(std::uint32_t p, std::size_t k) {
  add_constant(parts_[p].cost[k]);
  const std::vector<std::uint32_t> all = edges_of(p);
  for (const std::uint32_t id : all) {
    ready(id);
    const Edge& e = edges_[id];
    const std::uint32_t q = other(e, p);
    auto& cost = parts_[q].cost;
    for (std::size_t j = 0; j < cost.size(); ++j) {
      cost[j] = sat_add<V>(cost[j], e.u == p ? e.m[k * cost.size() + j] : e.m[j * dim(p) + k]);
    }
  }
  ArgTable table(1, dim(p));
  table.set(0, k);
  steps_.push_back({p, {kNone, kNone}, std::move(table)});
  remove(p);
}

template <class V>
V Core<V>::least_sum() {
  V sum = constant_;
  for (const Part& p : parts_) {
    if (p.alive) sum = sat_add<V>(sum, *std::min_element(p.cost.begin(), p.cost.end()));
  }
  for (std::uint32_t e = 0; e < edges_.size(); ++e) {
    if (!edges_[e].alive) continue;
    ready(e);
    sum = sat_add<V>(sum, *std::min_element(edges_[e].m.begin(), edges_[e].m.end()));
  }
  return sum;
}

template <class V>
void Core<V>::guess_rest() {
  for (const std::uint32_t p : alive_parts()) {
    std::size_t best = 0;
    V least = infinity<V>();
    for (std::size_t k = 0; k < dim(p); ++k) {
      V sum = parts_[p].cost[k];
      for (const std::uint32_t id : edges_of(p)) {
        ready(id);
        const Edge& e = edges_[id];
        const auto& cost = parts_[other(e, p)].cost;
        V low = infinity<V>();
        for (std::size_t j = 0; j < cost.size(); ++j) {
          const V& m = e.u == p ? e.m[k * cost.size() + j] : e.m[j * dim(p) + k];
          if (!is_inf(cost[j])) low = std::min(low, m);
        }
        sum = sat_add<V>(sum, low);
      }
      if (sum < least) least = sum, best = k;
    }
    fix(p, best);
  }
}

template <class V>
std::vector<std::uint32_t> Core<V>::alive_parts() const {
  std::vector<std::uint32_t> r;
  for (std::uint32_t p = 0; p < parts_.size(); ++p) {
    if (parts_[p].alive) r.push_back(p);
  }
  return r;
}

template <class V>
std::vector<std::size_t> Core<V>::back_propagate(std::vector<std::size_t> chosen) const {
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const Step& s = steps_[i];
    if (s.near[1] != kBlock) {
      std::size_t at = 0;
      for (const std::uint32_t p : s.near) {
        if (p != kNone) at = at * dims_[p] + chosen[p];
      }
      chosen[s.part] = s.best[at];
      continue;
    }
    const BlockStep& b = block_steps_[s.near[0]];
    std::size_t at = 0;
    for (const std::uint32_t w : b.scope) {
      const auto& option = b.block->option[w];
      const auto it = std::lower_bound(option.begin(), option.end(), chosen[b.block->part[w]]);
      at = at * option.size() + static_cast<std::size_t>(it - option.begin());
    }
    chosen[s.part] = b.block->option[b.node][b.best[at]];
  }
  return chosen;
}

}  // namespace pbqp::detail
