#include "selector/candidates.hpp"

#include <fmt/format.h>

#include <algorithm>

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

}  // namespace

bool Filter::allows(const Primitive& primitive) const {
  if (!families.empty() && !contains(families, primitive.family)) return false;
  if (primitive.error_scale * kErrorUnit > max_error) return false;
  return !contains(exclude_families, primitive.family) && !contains(exclude, primitive.name);
}

std::vector<Choice> choices(const Network& net, LayerId id, const Filter& filter) {
  const Layer& layer = net.layers[static_cast<std::size_t>(id)];
  std::vector<Choice> all;
  const int sweep = layer.blobs.empty() ? 0 : sweep_megabytes(net);
  if (std::holds_alternative<InputOp>(layer.op)) {
    all.push_back({.key = {}, .name = "input"});
    return all;
  }
  if (!std::holds_alternative<OpaqueOp>(layer.op) && all_known(net, layer)) {
    if (std::holds_alternative<ConvOp>(layer.op)) {
      const Scenario s = scenario_of(net, id);
      const std::string problem = convolution_problem(net, id);
      for (const Primitive* p : primitives()) {
        if (!filter.allows(*p) || p->reject(s) != nullptr) continue;
        all.push_back({.primitive = p,
                       .in = p->in,
                       .out = p->out,
                       .key = {CostKind::convolution, problem, std::string(p->name), sweep},
                       .name = std::string(p->name)});
      }
    } else {
      const LayerProblem problem = layer_problem(net, id, 1);
      const std::string problem_text = str(problem);
      for (const LayerImpl* impl : layer_impls()) {
        if (impl->kind != kind(layer.op) || impl->reject(problem) != nullptr) continue;
        all.push_back({.impl = impl,
                       .in = impl->in,
                       .out = impl->out,
                       .key = {CostKind::layer, problem_text, std::string(impl->name), sweep},
                       .name = std::string(impl->name)});
      }
      const auto* concat = std::get_if<ConcatOp>(&layer.op);
      if (concat != nullptr && concat->axis == 1) {
        for (Layout layout : kLayouts) {
          if (!aligned_parts(net, layer, layout)) continue;
          all.push_back({.slices = true, .in = layout, .out = layout, .key = {}, .name = "slices"});
        }
      }
    }
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

std::string convolution_problem(const Network& net, LayerId id) {
  const auto& op = std::get<ConvOp>(net.layers[static_cast<std::size_t>(id)].op);
  return scenario_of(net, id).str() + (op.epilogue.residual ? "+sum" : "");
}

int sweep_megabytes(const Network& net) {
  double bytes = 0;
  for (const Layer& layer : net.layers) {
    for (const Blob& b : layer.blobs) bytes += sizeof(float) * static_cast<double>(b.count());
  }
  int megabytes = 4;
  while (megabytes < 128 && megabytes * 1048576.0 < bytes) megabytes *= 2;
  return megabytes;
}

std::string text(const Shape& shape) {
  return fmt::format("mb{}c{}h{}w{}", shape.n, shape.c, shape.h, shape.w);
}

CostKey conversion_key(const Shape& shape, const Conversion& conversion) {
  return {CostKind::conversion, text(shape), std::string(conversion.name), 0};
}

}  // namespace convprim
