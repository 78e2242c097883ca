// Generated problems. A node is a layer: its options are primitives, each with an input and an
// output layout and a time; an edge is a tensor: its matrix holds the cheapest chain of conversions
// between the producer's output and the consumer's input layout, by all-pairs shortest paths over
// an incomplete set of direct routines, scaled by the tensor's size.
#include "pbqp/generate.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace pbqp {
namespace {

// splitmix64 (Steele, Lea and Flood 2014): small, and the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {
    // Neighbouring seeds would give one stream, shifted; a first output as the state does not.
    state_ = next();
  }
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }

 private:
  std::uint64_t state_;
};

double resolve(double ms) { return std::ldexp(std::round(std::ldexp(ms, 20)), -20); }

using Arcs = std::vector<std::pair<std::size_t, std::size_t>>;

// Hands out node numbers until the wanted count is reached; an arc to or from a node beyond it is
// left out, which cuts the last module short.
class Wiring {
 public:
  explicit Wiring(std::size_t nodes) : nodes_(nodes) {}
  bool full() const { return next_ >= nodes_; }
  std::size_t node(std::initializer_list<std::size_t> inputs = {}) {
    const std::size_t v = next_++;
    for (const std::size_t u : inputs) arc(u, v);
    return v;
  }
  void arc(std::size_t u, std::size_t v) {
    if (u >= nodes_ || v >= nodes_) return;
    if (std::find(
            arcs_.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(arcs_.size(), 64)),
            arcs_.end(), std::pair(u, v)) == arcs_.end()) {
      arcs_.emplace_back(u, v);
    }
  }
  Arcs take() { return std::move(arcs_); }

 private:
  std::size_t nodes_;
  std::size_t next_ = 0;
  Arcs arcs_;
};

Arcs wire(const std::string& kind, std::size_t n, Random& random) {
  Wiring w(n);
  std::size_t x = w.node();
  if (kind == "chain") {
    while (!w.full()) x = w.node({x});
  } else if (kind == "resnet") {
    for (std::size_t block = 0; !w.full(); ++block) {
      const std::size_t c = w.node({w.node({w.node({x})})});
      // The first block of a stage projects its shortcut.
      const std::size_t shortcut = block % 4 == 0 ? w.node({x}) : x;
      x = w.node({c, shortcut});
    }
  } else if (kind == "googlenet") {
    while (!w.full()) {
      const std::size_t a = w.node({x});
      const std::size_t b = w.node({w.node({x})});
      const std::size_t c = w.node({w.node({x})});
      const std::size_t d = w.node({w.node({x})});
      x = w.node({a, b, c, d});
    }
  } else if (kind == "densenet") {
    for (std::size_t layer = 1; !w.full(); ++layer) {
      x = layer % 7 == 0 ? w.node({w.node({x})}) : w.node({x, w.node({w.node({x})})});
    }
  } else if (kind == "nasnet") {
    // The normal cell of NASNet-A (Zoph et al. 2018, figure 4): five sums of pairs of operations on
    // the outputs h and g of the last two cells.
    std::size_t g = x;
    std::size_t h = w.node({x});
    while (!w.full()) {
      const std::size_t a = w.node({w.node({h}), h});
      const std::size_t b = w.node({w.node({g}), w.node({h})});
      const std::size_t c = w.node({w.node({h}), g});
      const std::size_t d = w.node({w.node({g}), w.node({g})});
      const std::size_t e = w.node({w.node({g}), w.node({g})});
      const std::size_t out = w.node({g, a, b, c, d, e});
      g = h;
      h = out;
    }
  } else if (kind == "randwire") {
    // Stages of a Watts-Strogatz graph, K = 4, P = 0.75, turned into a DAG by node number, with one
    // node before and one behind (Xie et al. 2019).
    while (!w.full()) {
      constexpr std::size_t kStage = 32;
      std::vector<std::vector<bool>> joined(kStage, std::vector<bool>(kStage, false));
      for (std::size_t i = 0; i < kStage; ++i) {
        for (std::size_t d = 1; d <= 2; ++d) {
          std::size_t j = (i + d) % kStage;
          if (random.uniform() < 0.75) {
            do {
              j = random.below(kStage);
            } while (j == i || joined[i][j]);
          }
          joined[i][j] = joined[j][i] = true;
        }
      }
      std::vector<std::size_t> id(kStage);
      for (std::size_t i = 0; i < kStage; ++i) {
        id[i] = w.node();
        bool input = false;
        for (std::size_t j = 0; j < i; ++j) {
          if (joined[i][j]) w.arc(id[j], id[i]), input = true;
        }
        if (!input) w.arc(x, id[i]);
      }
      const std::size_t out = w.node();
      for (std::size_t i = 0; i < kStage; ++i) {
        bool output = false;
        for (std::size_t j = i + 1; j < kStage; ++j) output = output || joined[i][j];
        if (!output) w.arc(id[i], out);
      }
      x = out;
    }
  } else if (kind == "dense") {
    Arcs arcs;
    for (std::size_t v = 0; v < n; ++v) {
      for (std::size_t u = 0; u < v; ++u) arcs.emplace_back(u, v);
    }
    return arcs;
  } else {
    std::string message = "unknown kind \"";
    message += kind;
    message += "\": it is one of";
    for (const std::string& k : generator_kinds()) {
      message += k == generator_kinds().front() ? " " : ", ";
      message += k;
    }
    throw std::invalid_argument(message);
  }
  return w.take();
}

// Milliseconds per unit of tensor size for the cheapest chain between each pair of layouts.
Matrix conversions(std::size_t layouts, double infinite, Random& random) {
  Matrix m(layouts, layouts);
  for (std::size_t i = 0; i < layouts; ++i) {
    for (std::size_t j = 0; j < layouts; ++j) {
      if (i == j) continue;
      const double cost = 0.5 + random.uniform();
      // Half of the pairs have a direct routine; a ring keeps the set connected unless infinities
      // are wanted.
      const bool direct = j == (i + 1) % layouts ? random.uniform() >= infinite
                                                 : random.uniform() < 0.5 * (1 - infinite);
      m(i, j) = direct ? cost : kInfinity;
    }
  }
  for (std::size_t k = 0; k < layouts; ++k) {
    for (std::size_t i = 0; i < layouts; ++i) {
      for (std::size_t j = 0; j < layouts; ++j) m(i, j) = std::min(m(i, j), m(i, k) + m(k, j));
    }
  }
  return m;
}

}  // namespace

std::vector<std::string> generator_kinds() {
  return {"chain", "resnet", "googlenet", "densenet", "nasnet", "randwire", "dense"};
}

Problem generate(const GenerateOptions& o) {
  if (o.options == 0 || o.layouts == 0) {
    throw std::invalid_argument("a generated problem needs at least one option and one layout");
  }
  if (o.options > 10000 || o.layouts > 1000 || o.nodes > 50000000) {
    throw std::invalid_argument("at most 10000 options, 1000 layouts and 50000000 nodes");
  }
  if (!(o.infinite >= 0 && o.infinite <= 1)) {
    throw std::invalid_argument("the share of infinite costs lies between 0 and 1");
  }
  Random random(o.seed);
  Problem problem;
  if (o.nodes == 0) return problem;
  const Arcs arcs = wire(o.kind, o.nodes, random);

  // What a primitive reads and writes is the same in every layer, as in a real library.
  Classes in(o.options);
  Classes out(o.options);
  for (std::size_t i = 0; i < o.options; ++i) {
    in[i] = static_cast<std::uint32_t>(random.below(o.layouts));
    out[i] = random.uniform() < 0.3 ? in[i] : static_cast<std::uint32_t>(random.below(o.layouts));
  }
  const Matrix unit = conversions(o.layouts, o.infinite, random);

  std::vector<double> size(o.nodes);  // of a layer's output
  for (std::size_t v = 0; v < o.nodes; ++v) {
    size[v] = 0.05 + 0.45 * random.uniform();
    const double work = 1.0 + 9.0 * random.uniform();
    std::vector<double> costs(o.options);
    std::vector<double> weights(o.options);
    for (std::size_t i = 0; i < o.options; ++i) {
      const double slow = random.uniform();
      costs[i] = random.uniform() < o.infinite
                     ? kInfinity
                     : resolve(work * (0.2 + 1.8 * slow * slow) + 0.01 * random.uniform());
      weights[i] = std::floor(4096 * work * (0.2 + random.uniform() * (2 - slow)));
    }
    // A layer that nothing implements would say little about the solver.
    if (o.infinite < 1 && costs[0] == kInfinity) costs[0] = resolve(2 * work);
    problem.add_node(std::move(costs), {}, "layer" + std::to_string(v));
    if (o.weights) problem.set_weights(v, std::move(weights));
  }
  for (const auto& [u, v] : arcs) {
    Matrix m(o.layouts, o.layouts);
    for (std::size_t i = 0; i < m.data.size(); ++i) {
      m.data[i] = unit.data[i] == kInfinity ? kInfinity : resolve(size[u] * unit.data[i]);
    }
    problem.add_class_edge(u, out, v, in, std::move(m));
  }
  return o.expanded ? expand(problem) : problem;
}

Problem expand(const Problem& problem) {
  Problem r;
  for (std::size_t v = 0; v < problem.node_count(); ++v) {
    r.add_node(problem.costs(v), problem.option_names(v), problem.name(v));
    if (!problem.weights(v).empty()) r.set_weights(v, problem.weights(v));
  }
  for (std::size_t i = 0; i < problem.edge_count(); ++i) {
    const Edge& e = problem.edge(i);
    Matrix m(problem.option_count(e.u), problem.option_count(e.v));
    for (std::size_t a = 0; a < m.rows; ++a) {
      for (std::size_t b = 0; b < m.cols; ++b) m(a, b) = e.cost(a, b);
    }
    r.add_edge(e.u, e.v, std::move(m));
  }
  return r;
}

}  // namespace pbqp
