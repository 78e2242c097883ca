#include "selector/candidates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "convprim/error.hpp"

namespace convprim {
namespace {

template <class List, class Value>
bool contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool all_known(const Network& net, const Layer& layer) {
  const auto is_known = [&](TensorId t) {
    return known(net.tensors[static_cast<std::size_t>(t)].shape);
  };
  return std::all_of(layer.inputs.begin(), layer.inputs.end(), is_known) &&
         std::all_of(layer.outputs.begin(), layer.outputs.end(), is_known);
}

/// Whether the parts of a concatenation start and end at whole blocks.
bool aligned_parts(const Network& net, const Layer& layer, Layout layout) {
  for (std::size_t i = 0; i + 1 < layer.inputs.size(); ++i) {
    if (net.tensors[static_cast<std::size_t>(layer.inputs[i])].shape.c % block(layout) != 0)
      return false;
  }
  return true;
}

/// The first rule on primitives that leaves this one out.
Rule rule_of(const Filter& filter, const Primitive& p) {
  if (!filter.families.empty() && !contains(filter.families, p.family)) return Rule::families;
  if (contains(filter.exclude_families, p.family)) return Rule::exclude_family;
  if (contains(filter.exclude, p.name)) return Rule::exclude;
  if (p.error_scale * kErrorUnit > filter.max_error) return Rule::max_error;
  return Rule::none;
}

/// The same for a layer that is no convolution. No limit leaves out what is as exact as a float
/// sum.
Rule rule_of(const Filter& filter, const LayerImpl& impl) {
  if (contains(filter.exclude, impl.name)) return Rule::exclude;
  const bool rough = impl.error_scale > 1 && impl.error_scale * kErrorUnit > filter.max_error;
  return rough ? Rule::max_error : Rule::none;
}

bool limits_memory(const Filter& filter) {
  return filter.max_workspace != kNoLimit || filter.max_memory != kNoLimit;
}

/// The implementation that the filter forces on a layer of that name, or nullptr.
const std::string* forced_for(const Filter& filter, const std::string& layer) {
  for (const Forced& f : filter.force) {
    if (f.layer == layer) return &f.implementation;
  }
  return nullptr;
}

/// Throws Error unless the layer is there, can be computed that way, and is forced to one thing
/// only.
void check_forced(const Network& net, const Filter& filter, const Forced& f) {
  const std::string option = fmt::format("--force {}={}", f.layer, f.implementation);
  if (*forced_for(filter, f.layer) != f.implementation) {
    throw Error(fmt::format("{}: the layer is forced to {} already; force it once", option,
                            *forced_for(filter, f.layer)));
  }
  bool layer_there = false, named = false;
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    if (net.layers[static_cast<std::size_t>(id)].name != f.layer) continue;
    layer_there = true;
    for (const Candidate& c : candidates(net, id, filter)) {
      if (c.choice.name != f.implementation) continue;
      named = true;
      if (c.rule == Rule::shape)
        throw Error(fmt::format("layer \"{}\": {} cannot be: {}", f.layer, option, c.why));
    }
  }
  if (!layer_there) {
    throw Error(fmt::format(
        "{}: the network has no layer of that name after its passes; the report names its layers",
        option));
  }
  if (!named) {
    throw Error(fmt::format(
        "layer \"{}\": {}: no implementation of that name computes layers of this kind; "
        "--explain {} lists them",
        f.layer, option, f.layer));
  }
}

}  // namespace

bool Filter::allows(const Primitive& primitive) const {
  return rule_of(*this, primitive) == Rule::none;
}

std::vector<Candidate> candidates(const Network& net, LayerId id, const Filter& filter) {
  const Layer& layer = net.layers[static_cast<std::size_t>(id)];
  std::vector<Candidate> all;
  if (std::holds_alternative<InputOp>(layer.op) || std::holds_alternative<OpaqueOp>(layer.op) ||
      !all_known(net, layer)) {
    return all;
  }
  const int sweep = layer.blobs.empty() ? 0 : sweep_megabytes(net);
  const std::string* forced = forced_for(filter, layer.name);
  const auto add = [&](Choice choice, Rule rule, const char* why) {
    if (rule == Rule::none && forced != nullptr && *forced != choice.name) rule = Rule::force;
    all.push_back({std::move(choice), rule, why != nullptr ? why : ""});
  };
  if (std::holds_alternative<ConvOp>(layer.op)) {
    const Scenario s = scenario_of(net, id);
    const std::string problem = convolution_problem(net, id);
    for (const Primitive* p : primitives()) {
      const char* why = p->reject(s);
      add({.primitive = p,
           .in = p->in,
           .out = p->out,
           .key = {CostKind::convolution, problem, std::string(p->name), sweep},
           .name = std::string(p->name)},
          why != nullptr ? Rule::shape : rule_of(filter, *p), why);
    }
    return all;
  }
  const LayerProblem problem = layer_problem(net, id, 1);
  const std::string problem_text = str(problem);
  for (const LayerImpl* impl : layer_impls()) {
    if (impl->kind != kind(layer.op)) continue;
    const char* why = impl->reject(problem);
    add({.impl = impl,
         .in = impl->in,
         .out = impl->out,
         .key = {CostKind::layer, problem_text, std::string(impl->name), sweep},
         .name = std::string(impl->name)},
        why != nullptr ? Rule::shape : rule_of(filter, *impl), why);
  }
  const auto* concat = std::get_if<ConcatOp>(&layer.op);
  if (concat != nullptr && concat->axis == 1) {
    for (Layout layout : kLayouts) {
      if (!aligned_parts(net, layer, layout)) continue;
      add({.slices = true, .in = layout, .out = layout, .key = {}, .name = "slices"}, Rule::none,
          nullptr);
    }
  }
  return all;
}

void apply_costs(std::vector<Candidate>& all, const Filter& filter, const CostFunction& costs,
                 const SizeFunction& sizes) {
  for (Candidate& c : all) {
    if (c.choice.free()) {
      c.choice.sizes = Sizes{};
      continue;
    }
    if (sizes) c.choice.sizes = sizes(c.choice.key);
    if (c.rule != Rule::none) continue;
    if (c.choice.sizes && c.choice.sizes->workspace > filter.max_workspace) {
      c.rule = Rule::max_workspace;
    } else if (costs(c.choice.key) == std::numeric_limits<double>::infinity() ||
               (!c.choice.sizes && limits_memory(filter))) {
      c.rule = Rule::cost;
    }
  }
}

std::string bytes_text(std::size_t bytes) {
  for (const auto& [shift, letter] : {std::pair{30, 'G'}, {20, 'M'}, {10, 'K'}}) {
    const std::size_t unit = std::size_t{1} << shift;
    if (bytes >= unit && bytes % unit == 0) return fmt::format("{}{}", bytes / unit, letter);
  }
  return fmt::format("{}", bytes);
}

std::string option_text(Rule rule, const Filter& filter, const std::string& layer) {
  const auto names = [](const std::vector<Family>& families) {
    std::vector<std::string_view> all;
    for (Family f : families) all.push_back(name(f));
    return fmt::format("{}", fmt::join(all, ","));
  };
  switch (rule) {
    case Rule::none:
    case Rule::shape:
      return "the layer's shape";
    case Rule::families:
      return "--families " + names(filter.families);
    case Rule::exclude_family:
      return "--exclude-family " + names(filter.exclude_families);
    case Rule::exclude: {  // a pattern may stand for many
      constexpr std::size_t kMost = 5;
      const auto shown = std::min(kMost, filter.exclude.size());
      const auto end = filter.exclude.begin() + static_cast<std::ptrdiff_t>(shown);
      return fmt::format("--exclude {}{}", fmt::join(filter.exclude.begin(), end, ","),
                         end == filter.exclude.end()
                             ? ""
                             : fmt::format(" and {} more", filter.exclude.size() - shown));
    }
    case Rule::max_error:
      return fmt::format("{}--max-error {}",
                         filter.max_error == kDefaultMaxError ? "the default " : "",
                         filter.max_error);
    case Rule::force:
      return fmt::format("--force {}={}", layer, *forced_for(filter, layer));
    case Rule::max_workspace:
      return "--max-workspace " + bytes_text(filter.max_workspace);
    case Rule::cost:
      return "having a measured cost";
  }
  return "";
}

void refuse_layer(const Network& net, LayerId id, const Filter& filter,
                  const std::vector<Candidate>& all) {
  const Layer& layer = net.layers[static_cast<std::size_t>(id)];
  std::string rules;
  std::size_t left = all.size();
  for (const Rule rule : {Rule::shape, Rule::families, Rule::exclude_family, Rule::exclude,
                          Rule::max_error, Rule::force, Rule::max_workspace, Rule::cost}) {
    const auto dropped = static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [&](const Candidate& c) { return c.rule == rule; }));
    if (dropped == 0) continue;
    left -= dropped;
    rules += fmt::format("{}{} leaves {}", rules.empty() ? "" : ", ",
                         option_text(rule, filter, layer.name), left);
  }
  throw Error(fmt::format("layer \"{}\": no implementation left: of {} for {} layers, {}",
                          layer.name, all.size(), kind(layer.op), rules));
}

void check(const Network& net, const Filter& filter) {
  for (const Forced& f : filter.force) check_forced(net, filter, f);
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    const auto all = candidates(net, id, filter);
    const auto is = [](Rule rule) { return [rule](const Candidate& c) { return c.rule == rule; }; };
    // What nothing computes whatever the filter is another matter: uncomputable().
    if (std::none_of(all.begin(), all.end(), is(Rule::none)) &&
        !std::all_of(all.begin(), all.end(), is(Rule::shape))) {
      refuse_layer(net, id, filter, all);
    }
  }
}

std::vector<Choice> choices(const Network& net, LayerId id, const Filter& filter) {
  std::vector<Choice> all;
  if (std::holds_alternative<InputOp>(net.layers[static_cast<std::size_t>(id)].op)) {
    all.push_back({.key = {}, .name = "input"});
    return all;
  }
  for (Candidate& c : candidates(net, id, filter)) {
    if (c.rule == Rule::none) all.push_back(std::move(c.choice));
  }
  if (all.empty()) all.push_back({.key = {}, .name = "cut"});
  return all;
}

std::vector<std::string> uncomputable(const Network& net) {
  std::vector<std::string> layers;
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    const Layer& layer = net.layers[static_cast<std::size_t>(id)];
    if (choices(net, id, {})[0].name == "cut") {
      layers.push_back(fmt::format("\"{}\" ({})", layer.name, layer.type));
    }
  }
  return layers;
}

Layout input_layout(const Choice& choice, std::size_t i) {
  return choice.primitive != nullptr && i > 0 ? choice.out : choice.in;
}

std::vector<int> use_counts(const Network& net) {
  std::vector<int> uses(net.tensors.size());
  for (const Layer& layer : net.layers) {
    for (TensorId t : layer.inputs) ++uses[static_cast<std::size_t>(t)];
  }
  for (TensorId t : net.outputs) ++uses[static_cast<std::size_t>(t)];
  return uses;
}

LayerProblem layer_problem(const Network& net, LayerId id, int threads) {
  const Layer& layer = net.layers[static_cast<std::size_t>(id)];
  LayerProblem problem;
  problem.op = &layer.op;
  problem.blobs = layer.blobs;
  problem.threads = threads;
  for (TensorId t : layer.inputs)
    problem.in.push_back(net.tensors[static_cast<std::size_t>(t)].shape);
  for (TensorId t : layer.outputs)
    problem.out.push_back(net.tensors[static_cast<std::size_t>(t)].shape);
  return problem;
}

LayerProblem copy_problem(const Shape& part, int threads) {
  static const Op concat = ConcatOp{};
  LayerProblem problem;
  problem.op = &concat;
  problem.in = {part};
  problem.out = {part};
  problem.threads = threads;
  return problem;
}

const LayerImpl* copy_impl(Layout layout) {
  for (const LayerImpl* impl : layer_impls()) {
    if (impl->kind == "concat" && impl->in == layout && impl->out == layout) return impl;
  }
  return nullptr;
}

ChannelSlice concat_slice(const Network& net, LayerId id, std::size_t i) {
  const Layer& layer = net.layers[static_cast<std::size_t>(id)];
  ChannelSlice slice;
  for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
    const Index c = net.tensors[static_cast<std::size_t>(layer.inputs[k])].shape.c;
    if (k < i) slice.begin += c;
    slice.channels += c;
  }
  return slice;
}

bool joined(Layout a, Layout b, const Shape& part, const ChannelSlice& slice) {
  Shape whole = part;
  whole.c = slice.channels;
  return a == b || (same_memory(a, b, part) && same_memory(a, b, whole) &&
                    slice.begin % block(a) == 0 && slice.begin % block(b) == 0);
}

std::string convolution_problem(const Network& net, LayerId id) {
  const auto& op = std::get<ConvOp>(net.layers[static_cast<std::size_t>(id)].op);
  return scenario_of(net, id).str() + (op.epilogue.residual ? "+sum" : "") +
         (reads_network_input(net, id) ? "+input" : "");
}

bool reads_network_input(const Network& net, LayerId id) {
  const TensorId read = net.layers[static_cast<std::size_t>(id)].inputs.at(0);
  return std::any_of(net.layers.begin(), net.layers.end(), [&](const Layer& l) {
    return std::holds_alternative<InputOp>(l.op) && contains(l.outputs, read);
  });
}

namespace {

/// Floats that a layer's packed weights take, as a good plan keeps them: filters of 3x3 or more
/// transformed, matrices in 24 bits.
double packed_weights(const Layer& layer) {
  double count = 0;
  for (const Blob& b : layer.blobs) count += static_cast<double>(b.count());
  if (std::holds_alternative<InnerProductOp>(layer.op)) return 0.75 * count;
  const auto* conv = std::get_if<ConvOp>(&layer.op);
  const bool transformed =
      conv != nullptr && conv->kh >= 3 && conv->kw >= 3 && conv->sh == 1 && conv->sw == 1;
  return transformed ? 2 * count : count;
}

}  // namespace

int sweep_megabytes(const Network& net) {
  double weights = 0, tensor = 0;
  for (const Layer& layer : net.layers) weights += packed_weights(layer);
  for (const Tensor& t : net.tensors) {
    if (known(t.shape)) tensor = std::max(tensor, static_cast<double>(t.shape.count()));
  }
  const double bytes = sizeof(float) * (weights + 2 * tensor);
  int megabytes = 4;
  for (const int step : {6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512}) {
    if (bytes > 1048576.0 * std::sqrt(static_cast<double>(step) * megabytes)) megabytes = step;
  }
  return megabytes;
}

std::string text(const Shape& shape) {
  return fmt::format("mb{}c{}h{}w{}", shape.n, shape.c, shape.h, shape.w);
}

CostKey conversion_key(const Shape& shape, const Conversion& conversion) {
  return {CostKind::conversion, text(shape), std::string(conversion.name), 0};
}

}  // namespace convprim
