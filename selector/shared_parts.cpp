#include "selector/shared_parts.hpp"

#include <algorithm>

namespace convprim {
namespace {

const Shape& shape(const Network& net, TensorId t) {
  return net.tensors[static_cast<std::size_t>(t)].shape;
}

bool joins_channels(const Layer& layer) {
  const auto* concat = std::get_if<ConcatOp>(&layer.op);
  return concat != nullptr && concat->axis == 1;
}

/// A tensor's place in the first concatenation that reads it.
struct Part {
  LayerId concat = -1;
  std::size_t input = 0;
};

std::vector<Part> first_concats(const Network& net) {
  std::vector<Part> all(net.tensors.size());
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    const Layer& layer = net.layers[static_cast<std::size_t>(id)];
    if (!joins_channels(layer)) continue;
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      Part& part = all[static_cast<std::size_t>(layer.inputs[i])];
      if (part.concat < 0) part = {id, i};
    }
  }
  return all;
}

/// Whether the part begins at a cache line in that layout, as every tensor must; and the whole in a
/// further whole.
bool aligned(const Network& net, const std::vector<Part>& parts, TensorId t, Layout layout) {
  for (Part p = parts[static_cast<std::size_t>(t)]; p.concat >= 0;
       p = parts[static_cast<std::size_t>(t)]) {
    const Index begin = concat_slice(net, p.concat, p.input).begin;
    if (begin % block(layout) != 0 || begin * shape(net, t).h * shape(net, t).w % 16 != 0)
      return false;
    t = net.layers[static_cast<std::size_t>(p.concat)].outputs[0];
  }
  return true;
}

/// Whether everything that makes output 0 of the layer in that layout can write a slice.
bool sliceable(const Network& net, LayerId maker, Layout layout, const ChannelSlice& slice) {
  const Layer& layer = net.layers[static_cast<std::size_t>(maker)];
  if (std::holds_alternative<ConvOp>(layer.op)) return true;
  LayerProblem problem = layer_problem(net, maker, 1);
  for (const LayerImpl* impl : layer_impls()) {
    if (impl->kind != kind(layer.op) || impl->out != layout) continue;
    problem.slice = {};
    if (impl->reject(problem) != nullptr) continue;
    problem.slice = slice;
    if (impl->reject(problem) != nullptr) return false;
  }
  return true;
}

bool fits(const Network& net, const std::vector<Part>& parts, TensorId t, LayerId maker,
          Layout layout) {
  const Shape& s = shape(net, t);
  if (layout == Layout::hcw || layout == Layout::hwc || s.c % block(layout) != 0) return false;
  // Else the part may be read as something that it was not written as.
  for (Layout other : kLayouts) {
    if (other != layout && same_memory(layout, other, s)) return false;
  }
  const Part& part = parts[static_cast<std::size_t>(t)];
  return aligned(net, parts, t, layout) &&
         sliceable(net, maker, layout, concat_slice(net, part.concat, part.input));
}

}  // namespace

SharedParts::SharedParts(const Network& net) {
  const auto parts = first_concats(net);
  const auto makers = producers(net);
  const auto uses = use_counts(net);
  for (TensorId t = 0; t < static_cast<TensorId>(net.tensors.size()); ++t) {
    const auto i = static_cast<std::size_t>(t);
    const auto [concat, input] = parts[i];
    if (concat < 0 || uses[i] < 2 || makers[i] < 0 || !known(shape(net, t)) || shape(net, t).n != 1)
      continue;
    const auto& inputs = net.layers[static_cast<std::size_t>(concat)].inputs;
    const Layer& maker = net.layers[static_cast<std::size_t>(makers[i])];
    const bool output = std::find(net.outputs.begin(), net.outputs.end(), t) != net.outputs.end();
    if (output || std::count(inputs.begin(), inputs.end(), t) > 1 || maker.outputs[0] != t ||
        std::holds_alternative<InputOp>(maker.op) || std::holds_alternative<OpaqueOp>(maker.op))
      continue;
    unsigned layouts = 0;
    for (Layout layout : kLayouts) {
      if (fits(net, parts, t, makers[i], layout)) layouts |= 1U << static_cast<unsigned>(layout);
    }
    if (layouts == 0) continue;
    layouts_[{concat, input}] = layouts;
    hosts_[t] = concat;
  }
}

}  // namespace convprim
