// What may be chosen for each layer: shared by profiling, the query, the plan and the executor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convprim/conversion.hpp"
#include "convprim/layer.hpp"
#include "convprim/select.hpp"

namespace convprim {

/// One way to compute a layer.
struct Choice {
  const Primitive* primitive = nullptr;  ///< for a convolution
  const LayerImpl* impl = nullptr;       ///< for any other layer that needs computing
  bool slices = false;                   ///< a concat that its producers, or copies, write in place
  Layout in = Layout::chw;
  Layout out = Layout::chw;
  CostKey key;  ///< its cost; an empty implementation: it costs nothing
  /// Name for the plan; "input", "slices" or "cut" where nothing is computed.
  std::string name;
  std::optional<Sizes> sizes = std::nullopt;  ///< memory that it takes, where known
  bool free() const { return key.implementation.empty(); }
};

/// Why a candidate may not be chosen, in the order in which the rules are applied.
enum class Rule {
  none,
  shape,     ///< the row does not compute this problem
  families,  ///< Filter::families, and so on
  exclude_family,
  exclude,
  max_error,
  force,
  max_workspace,
  cost  ///< there is no cost: not measured, or too large to be measured
};

/// A row that computes layers of this kind, and the rule that leaves it out, if one does.
struct Candidate {
  Choice choice;
  Rule rule = Rule::none;
  const char* why = "";  ///< for Rule::shape: the row's own reason
};

/// All rows for layer `id` under the rules that need no costs: up to Rule::force. Empty for inputs
/// and for what nothing can compute.
std::vector<Candidate> candidates(const Network& net, LayerId id, const Filter& filter);

/// Applies the rules that need costs to the candidates of `candidates()`, and notes their sizes.
void apply_costs(std::vector<Candidate>& all, const Filter& filter, const CostFunction& costs,
                 const SizeFunction& sizes);

/// The option that sets a rule: "--exclude-family fft,onednn".
std::string option_text(Rule rule, const Filter& filter, const std::string& layer);

/// The error for a layer whose candidates all have a rule: the layer, and what each rule leaves.
[[noreturn]] void refuse_layer(const Network& net, LayerId id, const Filter& filter,
                               const std::vector<Candidate>& all);

/// "64M" where that is exact, else the number: bytes as options take them.
std::string bytes_text(std::size_t bytes);

/// Everything that can compute layer `id`, never empty: a layer that nothing can compute has one
/// choice named "cut". Layers without computation (input) have one that is free.
std::vector<Choice> choices(const Network& net, LayerId id, const Filter& filter);

/// Layout in which a choice reads input i of its layer: `in`, but a convolution's residual comes in
/// `out`.
Layout input_layout(const Choice& choice, std::size_t i);

/// Number of readers of each tensor, the outside reading the network's outputs.
std::vector<int> use_counts(const Network& net);

/// The problem that layer `id`, not a convolution, poses to its implementations.
LayerProblem layer_problem(const Network& net, LayerId id, int threads);

/// The problem of a single tensor copied into a concatenation: one-input concat of that shape.
LayerProblem copy_problem(const Shape& part, int threads);

/// The concat implementation that copies in that layout, or nullptr.
const LayerImpl* copy_impl(Layout layout);

/// The slice of input i in the output of concat `id`.
ChannelSlice concat_slice(const Network& net, LayerId id, std::size_t i);

/// True if a part of a concatenation, of shape `part` and at that slice of it, lies the same in
/// both layouts.
bool joined(Layout a, Layout b, const Shape& part, const ChannelSlice& slice);

/// Text of a convolution's problem for its cost: the scenario, "+sum" if it adds a residual, and
/// "+input" if it reads the network's input.
std::string convolution_problem(const Network& net, LayerId id);

/// Whether a layer reads an input of the network: then nothing that it touches is in the caches.
bool reads_network_input(const Network& net, LayerId id);

/// MB that profiling reads before each run of a layer with weights of this network, so that they
/// are as cold as a pass over the rest of the network makes them: the size of all packed weights,
/// by a guess, and of a layer's input and output, rounded to a power of two or one and a half times
/// that, 4 to 512.
int sweep_megabytes(const Network& net);

/// Text of a shape: "mb1c64h56w56".
std::string text(const Shape& shape);

/// The key of a conversion's cost.
CostKey conversion_key(const Shape& shape, const Conversion& conversion);

}  // namespace convprim
