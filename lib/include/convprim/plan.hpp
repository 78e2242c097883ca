// A plan: the answer of the selector, as a value that can be kept, compared and run.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convprim/costs.hpp"
#include "convprim/network.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// How one layer is computed.
struct PlanLayer {
  std::string layer;    ///< name in the network
  std::string kind;     ///< kind(op): "conv", "pool"
  std::string problem;  ///< Scenario::str() of a convolution, the layer problem's text otherwise
  std::string implementation;  ///< primitive or layer implementation; "slices" for a concat whose
                               ///< producers write into place; "cut" where there is none
  Layout in =
      Layout::chw;  ///< layout of all inputs, except a convolution's residual, which is in `out`
  Layout out = Layout::chw;  ///< layout of all outputs
  double seconds = 0;        ///< measured cost
};

/// One conversion routine applied to a tensor, in the order in which they run. Layouts that lie the
/// same in memory need none.
struct PlanConversion {
  TensorId tensor = -1;
  Layout from = Layout::chw;
  Layout to = Layout::chw;
  std::string routine;
  double seconds = 0;
};

/// What the solver says about a plan.
struct SolverReport {
  double objective_seconds = 0;  ///< cost of the plan: all layers and conversions
  double lower_bound_seconds = 0;
  bool proven_optimal = false;
  double solve_seconds = 0;
  std::size_t nodes = 0, edges = 0, options = 0;
  std::size_t r0 = 0, r1 = 0, r2 = 0, eliminated = 0, searched = 0, width = 0;
};

/// A whole-network alternative and what it is predicted to take with the same costs.
struct Strategy {
  std::string name;  ///< "sum2d", "best direct", "local-optimal chw", "pbqp"
  double seconds = 0;
};

/// What a limit of memory made of a plan. Bytes that an executable and one context take: the arena
/// (activations and workspaces) and packed weights.
struct MemoryReport {
  std::size_t limit = 0;
  std::size_t arena = 0, packed = 0;  ///< of this plan
  double unlimited_seconds = 0;       ///< predicted for the best plan without the limit,
  std::size_t unlimited_bytes = 0;    ///< and what that takes
};

/// A plan for one network on one machine.
struct Plan {
  std::string network;
  std::string file;
  Machine machine;
  std::vector<PlanLayer> layers;  ///< one for each layer of the network, in its order
  std::vector<PlanConversion> conversions;
  SolverReport solver;
  std::vector<Strategy> strategies;  ///< cheapest last is not implied
  std::vector<std::string>
      cut;  ///< layers without any implementation: such a plan predicts but cannot run
  std::optional<MemoryReport> memory;  ///< if Filter::max_memory was asked for
};

/// 16 hexadecimal digits that stand for a network's operations, shapes and wiring; names and
/// weights do not count. The network must be sorted, with shapes.
std::string fingerprint(const Network& net);

/// The plan as JSON, one line a layer and a conversion, in a fixed order; see docs/plans.md. `net`
/// is the optimised network that the plan was made for. Throws Error if the plan has cut layers.
std::string save_plan(const Plan& plan, const Network& net);

/// Reads what save_plan() wrote, or what a person made of it. Needs no costs and no weights.
/// `name` stands for the text in messages. The plan returned fits `net`: the network is the one
/// that the plan was made for, each layer has an implementation of this build that computes it,
/// and each tensor exists in the layouts in which it is read. Its machine may be another one than
/// this: see machine_difference(). Throws Error with one sentence that says what does not fit.
Plan load_plan(std::string_view text, const Network& net, const std::string& name = "plan");

/// Why a plan made for one machine should not be used on another: "it was made for 2 threads, not
/// for 1"; empty if they are the same.
std::string machine_difference(const Machine& planned, const Machine& here);

}  // namespace convprim
#pragma GCC visibility pop
