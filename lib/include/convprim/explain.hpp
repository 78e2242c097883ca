// Why a plan is what it is: everything that might compute a layer, and what it would cost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convprim/select.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// One implementation of the layer that is explained. Unknown costs are infinite.
struct ExplainedRow {
  std::string implementation;  ///< as in PlanLayer
  Layout in = Layout::chw;
  Layout out = Layout::chw;
  bool chosen = false;  ///< the plan has it
  double seconds = 0;   ///< its own cost
  /// What the layer's input and output tensors cost in conversions if all other layers stay as the
  /// plan has them; infinite if they cannot.
  double conversion_seconds = 0;
  /// The least cost of the whole network with this implementation forced: a min-marginal of the
  /// query. Infinite for a row that is left out.
  double network_seconds = 0;
  std::optional<Sizes> sizes;  ///< memory that it takes, where known
  std::string left_out;        ///< why it may not be chosen; empty if it may
};

/// All rows for one layer: those that may be chosen by the network's cost, then the others.
struct Explanation {
  std::string layer, kind, problem;
  std::vector<ExplainedRow> rows;
};

/// Explains some layers of a plan that select() made with the same arguments (filter.max_memory
/// aside, which is not looked at). Throws Error for a layer that the network has not, or that has
/// nothing to choose.
std::vector<Explanation> explain(const Network& net, const Filter& filter,
                                 const CostFunction& costs, const SizeFunction& sizes,
                                 const Plan& plan, const std::vector<std::string>& layers);

}  // namespace convprim
#pragma GCC visibility pop
