// pbqp: an exact solver for partitioned Boolean quadratic problems.
//
// A problem is a graph. Each node has a vector of costs, one per option; each edge has a matrix of
// costs, one per pair of options of its ends. One option is to be chosen per node so that
//
//   sum over nodes v of c_v[x_v]  +  sum over edges (u, v) of C_uv[x_u][x_v]
//
// is least (Scholz and Eckstein, LCTES 2002). Infinity forbids an option or a pair. The same
// problem is known as a weighted constraint satisfaction problem with unary and binary cost
// functions, and as energy minimisation in a pairwise Markov random field.
//
// The library depends on the C++20 standard library only, keeps no global state (two threads may
// solve at once), prints nothing and never aborts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#pragma GCC visibility push(default)  // exported by the shared library
namespace pbqp {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One option per node, in the order of the nodes.
using Assignment = std::vector<std::size_t>;

/// The class of each option of a node, as seen by one edge.
using Classes = std::vector<std::uint32_t>;

/// Costs in row-major order. `Matrix(r, c)` is zero; `Matrix(r, c, data)` throws
/// std::invalid_argument unless data has r * c entries.
struct Matrix {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::vector<double> data;

  Matrix() = default;
  Matrix(std::size_t r, std::size_t c) : rows(r), cols(c), data(r * c, 0.0) {}
  Matrix(std::size_t r, std::size_t c, std::vector<double> d);

  double& operator()(std::size_t i, std::size_t j) { return data[i * cols + j]; }
  double operator()(std::size_t i, std::size_t j) const { return data[i * cols + j]; }
};

/// An edge as it was added. The cost of options (i, j) is matrix(row_class[i], col_class[j]), where
/// a null class map stands for the identity.
struct Edge {
  std::size_t u = 0;
  std::size_t v = 0;
  std::shared_ptr<const Classes> row_class;
  std::shared_ptr<const Classes> col_class;
  Matrix matrix;

  double cost(std::size_t i, std::size_t j) const {
    return matrix(row_class ? (*row_class)[i] : i, col_class ? (*col_class)[j] : j);
  }
};

/// A PBQP instance. What is wrong with an argument is found when it is added: every function that
/// adds throws std::invalid_argument, with one sentence that names the node, on NaN, on minus
/// infinity, on dimensions that do not fit, and on nodes that do not exist, and then changes
/// nothing. Parallel edges are allowed, and add up; so are self-loops, which count their diagonal.
class Problem {
 public:
  /// Adds a node and returns its number (0, 1, ...). A node has at least one option; `option_names`
  /// is empty or as long as `costs`.
  std::size_t add_node(std::vector<double> costs, std::vector<std::string> option_names = {},
                       std::string name = {});

  /// Adds an edge; `matrix` has a row per option of u and a column per option of v. Returns its
  /// number.
  std::size_t add_edge(std::size_t u, std::size_t v, Matrix matrix);

  /// The same with the costs in row-major order.
  std::size_t add_edge(std::size_t u, std::size_t v, std::vector<double> costs);

  /// Adds an edge whose cost depends on the classes of the options only: the cost of options (i, j)
  /// is matrix(row_class[i], col_class[j]). It is never expanded. Equal class vectors are stored
  /// once.
  std::size_t add_class_edge(std::size_t u, const Classes& row_class, std::size_t v,
                             const Classes& col_class, Matrix matrix);

  /// Gives each option of a node a weight (finite, not negative), for `Limits::capacity` and
  /// `pareto`. A node without weights weighs nothing.
  void set_weights(std::size_t node, std::vector<double> weights);

  /// Replaces the costs of a node: as many as it has options.
  void set_costs(std::size_t node, std::vector<double> costs);

  std::size_t node_count() const { return nodes_.size(); }
  std::size_t edge_count() const { return edges_.size(); }
  std::size_t option_count(std::size_t node) const { return nodes_[node].costs.size(); }
  const std::vector<double>& costs(std::size_t node) const { return nodes_[node].costs; }
  const Edge& edge(std::size_t e) const { return edges_[e]; }
  /// Empty if the node has none.
  const std::vector<double>& weights(std::size_t node) const { return nodes_[node].weights; }
  bool has_weights() const { return has_weights_; }
  /// Empty if the node has none.
  const std::string& name(std::size_t node) const { return nodes_[node].name; }
  const std::vector<std::string>& option_names(std::size_t node) const {
    return nodes_[node].option_names;
  }
  /// "node 3" or "node 3 (conv2)": for messages.
  std::string describe(std::size_t node) const;

  /// The cost of an assignment: the exact sum, rounded once to double. Throws std::invalid_argument
  /// if it has the wrong length or an option that does not exist.
  double cost(std::span<const std::size_t> assignment) const;
  /// The weight of an assignment, likewise.
  double weight(std::span<const std::size_t> assignment) const;

 private:
  struct Node {
    std::vector<double> costs;
    std::vector<double> weights;
    std::vector<std::string> option_names;
    std::string name;
  };

  void check_node(std::size_t node) const;
  void check_assignment(std::span<const std::size_t> assignment) const;
  std::shared_ptr<const Classes> intern(const Classes& classes);

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  // Class maps seen so far by hash, so that equal ones are shared.
  std::unordered_map<std::uint64_t, std::vector<std::shared_ptr<const Classes>>> maps_;
  bool has_weights_ = false;
};

enum class Status {
  kOptimal,   ///< the assignment is proven optimal: upper == lower
  kFeasible,  ///< a limit stopped the proof: lower <= optimum <= upper, the assignment costs upper
  kInfeasible,  ///< proven: every assignment costs infinity (or weighs more than the capacity)
  kLimit,       ///< a limit stopped the search before any finite assignment was found
};

/// "optimal", "feasible", "infeasible", "limit".
std::string_view to_string(Status status);

/// What may stop a solve early, and what it is to produce.
struct Limits {
  /// Wall time from the call on; the best assignment and lower bound so far are returned soon
  /// after.
  double seconds = kInfinity;
  /// Memory for tables and search beyond the problem and its reduced copy.
  std::size_t memory_bytes = std::size_t{1} << 30;
  /// Stop when upper - lower <= gap * |upper|.
  double gap = 0.0;
  /// 0: sums are exact, whatever the costs. A power of two q > 0: costs are rounded to the nearest
  /// multiple of q first, which can be faster; bounds and proof then hold for the rounded costs
  /// only, and the result is reported as kFeasible with `lower` reduced by the rounding.
  double quantum = 0.0;
  /// The sum of the chosen options' weights must not exceed this.
  double capacity = kInfinity;
  /// Write a certificate into the result.
  bool certificate = false;
  /// Shrink the core of an infeasible problem until no node can be left out (for small cores).
  bool minimise_core = true;
  /// If not null: stop, as at the time limit, soon after this becomes true.
  const std::atomic<bool>* stop = nullptr;
};

/// What the solver did. Nodes are counted after classes: a node with two class maps is two parts.
struct Statistics {
  std::size_t nodes = 0;          ///< of the problem
  std::size_t edges = 0;          ///< of the problem
  std::size_t options = 0;        ///< of the problem, all nodes
  std::size_t parts = 0;          ///< nodes after splitting by class
  std::size_t part_options = 0;   ///< options after merging equal and dominated ones
  std::size_t dropped_edges = 0;  ///< zero or independent
  std::size_t r0 = 0;             ///< parts reduced at degree 0
  std::size_t r1 = 0;             ///< parts reduced at degree 1
  std::size_t r2 = 0;             ///< parts reduced at degree 2
  std::size_t eliminated = 0;     ///< parts eliminated at a higher degree, exactly
  std::size_t searched = 0;       ///< parts solved by branch and bound
  std::size_t cut_options = 0;    ///< options excluded by bounds before the search
  std::size_t blocks = 0;         ///< biconnected blocks of what R0, RI and RII left
  std::size_t branches = 0;       ///< nodes of the search trees
  std::size_t width = 0;          ///< largest degree at which a part was reduced or searched
  int number_bits = 0;            ///< width of the integers the sums were made with
  double quantum = 0.0;           ///< their unit; every cost is a multiple of it
  double seconds = 0.0;

  /// True if R0, RI and RII alone solved the problem.
  bool reduced_only() const { return eliminated == 0 && searched == 0; }
};

struct Result {
  Status status = Status::kLimit;
  /// Empty if infeasible or if none was found.
  Assignment assignment;
  /// Cost of the assignment; infinite if there is none.
  double upper = kInfinity;
  /// No assignment costs less; infinite if infeasible.
  double lower = -kInfinity;
  /// If infeasible: nodes that admit no finite assignment among themselves (capacity aside),
  /// sorted.
  std::vector<std::size_t> core;
  /// If asked for: a proof of `lower` for `check` (see README.md for its form).
  std::string certificate;
  Statistics statistics;

  bool optimal() const { return status == Status::kOptimal; }
  bool has_assignment() const { return status == Status::kOptimal || status == Status::kFeasible; }
  /// (upper - lower) / |upper|, 0 if they are equal.
  double gap() const;
};

/// Finds the cheapest assignment. Among options of equal cost the lowest index is preferred; the
/// same problem gives the same result, time limits aside. An empty problem is optimal at cost 0.
/// Throws std::invalid_argument for limits that make no sense and std::bad_alloc.
Result solve(const Problem& problem, const Limits& limits = {});

}  // namespace pbqp
#pragma GCC visibility pop
