// The problem as the caller states it: checked when it is built, stored as given.
#include <stdexcept>
#include <utility>

#include "numbers.hpp"
#include "pbqp/pbqp.hpp"

namespace pbqp {
namespace {

std::string plural(std::size_t n, std::string_view what) {
  return std::to_string(n) + " " + std::string(what) + (n == 1 ? "" : "s");
}

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

// NaN and minus infinity have no meaning as a cost.
bool valid_cost(double x) { return x > -kInfinity; }

std::uint64_t hash(const Classes& classes) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const std::uint32_t c : classes) h = (h ^ c) * 0x100000001b3u;
  return h;
}

}  // namespace

Matrix::Matrix(std::size_t r, std::size_t c, std::vector<double> d)
    : rows(r), cols(c), data(std::move(d)) {
  if (data.size() != rows * cols) {
    fail("a matrix of " + std::to_string(rows) + " x " + std::to_string(cols) + " was given " +
         plural(data.size(), "cost"));
  }
}

std::string Problem::describe(std::size_t node) const {
  std::string s = "node " + std::to_string(node);
  if (node < nodes_.size() && !nodes_[node].name.empty()) s += " (" + nodes_[node].name + ")";
  return s;
}

void Problem::check_node(std::size_t node) const {
  if (node >= nodes_.size()) {
    fail("node " + std::to_string(node) + " does not exist: the problem has " +
         plural(nodes_.size(), "node"));
  }
}

std::size_t Problem::add_node(std::vector<double> costs, std::vector<std::string> option_names,
                              std::string name) {
  const std::string who =
      "node " + std::to_string(nodes_.size()) + (name.empty() ? "" : " (" + name + ")");
  if (costs.empty()) fail(who + " has no options");
  if (costs.size() > std::numeric_limits<std::uint32_t>::max()) fail(who + " has too many options");
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (!valid_cost(costs[i])) {
      fail(who + ", option " + std::to_string(i) + ": the cost is " +
           (costs[i] != costs[i] ? "not a number" : "minus infinity"));
    }
  }
  if (!option_names.empty() && option_names.size() != costs.size()) {
    fail(who + " has " + plural(costs.size(), "option") + " but " +
         plural(option_names.size(), "option name"));
  }
  nodes_.push_back({std::move(costs), {}, std::move(option_names), std::move(name)});
  return nodes_.size() - 1;
}

void Problem::set_costs(std::size_t node, std::vector<double> costs) {
  check_node(node);
  if (costs.size() != option_count(node)) {
    fail(describe(node) + " has " + plural(option_count(node), "option") + " but was given " +
         plural(costs.size(), "cost"));
  }
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (!valid_cost(costs[i])) {
      fail(describe(node) + ", option " + std::to_string(i) + ": the cost is " +
           (costs[i] != costs[i] ? "not a number" : "minus infinity"));
    }
  }
  nodes_[node].costs = std::move(costs);
}

void Problem::set_weights(std::size_t node, std::vector<double> weights) {
  check_node(node);
  if (weights.size() != option_count(node)) {
    fail(describe(node) + " has " + plural(option_count(node), "option") + " but was given " +
         plural(weights.size(), "weight"));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0.0 && weights[i] < kInfinity)) {
      fail(describe(node) + ", option " + std::to_string(i) +
           ": a weight must be finite and not negative");
    }
  }
  nodes_[node].weights = std::move(weights);
  has_weights_ = true;
}

std::size_t Problem::add_edge(std::size_t u, std::size_t v, std::vector<double> costs) {
  check_node(u);
  check_node(v);
  if (costs.size() != option_count(u) * option_count(v)) {
    fail("the edge from " + describe(u) + " to " + describe(v) + " needs " +
         std::to_string(option_count(u)) + " x " + std::to_string(option_count(v)) +
         " costs but was given " + std::to_string(costs.size()));
  }
  Matrix m;
  m.rows = option_count(u);
  m.cols = option_count(v);
  m.data = std::move(costs);
  return add_edge(u, v, std::move(m));
}

std::size_t Problem::add_edge(std::size_t u, std::size_t v, Matrix matrix) {
  check_node(u);
  check_node(v);
  const auto who = [&] { return "the edge from " + describe(u) + " to " + describe(v); };
  if (matrix.rows != option_count(u) || matrix.cols != option_count(v) ||
      matrix.data.size() != matrix.rows * matrix.cols) {
    fail(who() + " needs a matrix of " + std::to_string(option_count(u)) + " x " +
         std::to_string(option_count(v)) + " but was given " + std::to_string(matrix.rows) + " x " +
         std::to_string(matrix.cols) + " with " + plural(matrix.data.size(), "cost"));
  }
  for (std::size_t i = 0; i < matrix.data.size(); ++i) {
    if (!valid_cost(matrix.data[i])) {
      fail(who() + ", row " + std::to_string(i / matrix.cols) + ", column " +
           std::to_string(i % matrix.cols) + ": the cost is " +
           (matrix.data[i] != matrix.data[i] ? "not a number" : "minus infinity"));
    }
  }
  edges_.push_back({u, v, nullptr, nullptr, std::move(matrix)});
  return edges_.size() - 1;
}

std::size_t Problem::add_class_edge(std::size_t u, const Classes& row_class, std::size_t v,
                                    const Classes& col_class, Matrix matrix) {
  check_node(u);
  check_node(v);
  const auto who = [&] { return "the class edge from " + describe(u) + " to " + describe(v); };
  const auto check_map = [&](std::size_t node, const Classes& classes, std::size_t count) {
    if (classes.size() != option_count(node)) {
      fail(who() + ": " + describe(node) + " has " + plural(option_count(node), "option") +
           " but was given classes for " + std::to_string(classes.size()));
    }
    for (std::size_t i = 0; i < classes.size(); ++i) {
      if (classes[i] >= count) {
        fail(who() + ": option " + std::to_string(i) + " of " + describe(node) + " has class " +
             std::to_string(classes[i]) + ", but the matrix knows " + std::to_string(count));
      }
    }
  };
  check_map(u, row_class, matrix.rows);
  check_map(v, col_class, matrix.cols);
  if (matrix.data.size() != matrix.rows * matrix.cols) {
    fail(who() + ": a matrix of " + std::to_string(matrix.rows) + " x " +
         std::to_string(matrix.cols) + " was given " + plural(matrix.data.size(), "cost"));
  }
  for (std::size_t i = 0; i < matrix.data.size(); ++i) {
    if (!valid_cost(matrix.data[i])) {
      fail(who() + ", row " + std::to_string(i / matrix.cols) + ", column " +
           std::to_string(i % matrix.cols) + ": the cost is " +
           (matrix.data[i] != matrix.data[i] ? "not a number" : "minus infinity"));
    }
  }
  auto rows = intern(row_class);
  auto cols = intern(col_class);
  edges_.push_back({u, v, std::move(rows), std::move(cols), std::move(matrix)});
  return edges_.size() - 1;
}

std::shared_ptr<const Classes> Problem::intern(const Classes& classes) {
  auto& bucket = maps_[hash(classes)];
  for (const auto& known : bucket) {
    if (*known == classes) return known;
  }
  bucket.push_back(std::make_shared<const Classes>(classes));
  return bucket.back();
}

void Problem::check_assignment(std::span<const std::size_t> assignment) const {
  if (assignment.size() != nodes_.size()) {
    fail("the assignment has " + plural(assignment.size(), "option") + " but the problem has " +
         plural(nodes_.size(), "node"));
  }
  for (std::size_t v = 0; v < nodes_.size(); ++v) {
    if (assignment[v] >= option_count(v)) {
      fail(describe(v) + " has no option " + std::to_string(assignment[v]) + ", only " +
           std::to_string(option_count(v)));
    }
  }
}

double Problem::cost(std::span<const std::size_t> assignment) const {
  check_assignment(assignment);
  detail::ExactSum sum;
  for (std::size_t v = 0; v < nodes_.size(); ++v) sum.add(nodes_[v].costs[assignment[v]]);
  for (const Edge& e : edges_) sum.add(e.cost(assignment[e.u], assignment[e.v]));
  return sum.value();
}

double Problem::weight(std::span<const std::size_t> assignment) const {
  check_assignment(assignment);
  detail::ExactSum sum;
  for (std::size_t v = 0; v < nodes_.size(); ++v) {
    if (!nodes_[v].weights.empty()) sum.add(nodes_[v].weights[assignment[v]]);
  }
  return sum.value();
}

std::string_view to_string(Status status) {
  switch (status) {
    case Status::kOptimal:
      return "optimal";
    case Status::kFeasible:
      return "feasible";
    case Status::kInfeasible:
      return "infeasible";
    case Status::kLimit:
      break;
  }
  return "limit";
}

double Result::gap() const {
  if (upper == lower) return 0.0;
  return (upper - lower) / std::abs(upper);
}

}  // namespace pbqp
