#include "gpu/merge.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "convprim/error.hpp"

namespace convprim::ios {
namespace {

const Layer& layer_at(const Network& net, LayerId id) {
  return net.layers[static_cast<std::size_t>(id)];
}
const ConvOp& conv_at(const Network& net, LayerId id) {
  return std::get<ConvOp>(layer_at(net, id).op);
}

/// One axis of a kernel: its extent and the padding before it.
struct Axis {
  Index k, p;
};

/// The axis of the merged kernel: the largest kernel's.
Axis widest(std::span<const Axis> parts) {
  Axis most = parts[0];
  for (const Axis& a : parts) {
    if (a.k > most.k) most = a;
  }
  return most;
}

bool fits(std::span<const Axis> parts) {
  const Axis most = widest(parts);
  return std::all_of(parts.begin(), parts.end(), [&](const Axis& a) {
    return 0 <= most.p - a.p && most.p - a.p <= most.k - a.k;
  });
}

std::vector<Axis> axes(const Network& net, std::span<const LayerId> layers, bool rows) {
  std::vector<Axis> all;
  for (LayerId id : layers) {
    const ConvOp& op = conv_at(net, id);
    all.push_back(rows ? Axis{op.kh, op.pt} : Axis{op.kw, op.pl});
  }
  return all;
}

}  // namespace

const char* cannot_merge(const Network& net, std::span<const LayerId> layers) {
  if (layers.size() < 2) return nullptr;
  for (LayerId id : layers) {
    if (!std::holds_alternative<ConvOp>(layer_at(net, id).op)) return "one is no convolution";
  }
  const Layer& first = layer_at(net, layers[0]);
  const ConvOp& a = conv_at(net, layers[0]);
  const Scenario sa = scenario_of(net, layers[0]);
  for (LayerId id : layers) {
    const ConvOp& b = conv_at(net, id);
    const Scenario sb = scenario_of(net, id);
    if (layer_at(net, id).inputs[0] != first.inputs[0]) return "they read different tensors";
    if (b.g != 1) return "one has groups";
    if (b.dh != 1 || b.dw != 1) return "one is dilated";
    if (b.epilogue.residual) return "one adds a residual";
    if (b.sh != a.sh || b.sw != a.sw) return "their strides differ";
    if (!(b.epilogue == a.epilogue)) return "their activations differ";
    if (sb.oh != sa.oh || sb.ow != sa.ow) return "their outputs have different sizes";
  }
  if (!fits(axes(net, layers, true)) || !fits(axes(net, layers, false)))
    return "their kernels do not fit into the largest";
  return nullptr;
}

const char* cannot_merge(const OperatorGraph& graph, std::span<const int> operators) {
  std::vector<LayerId> layers;
  for (int i : operators) {
    const Operator& op = graph.operators[static_cast<std::size_t>(i)];
    if (op.layers.size() != 1 && operators.size() > 1) return "one is no single convolution";
    layers.push_back(op.layers.back());
  }
  return cannot_merge(graph.net, layers);
}

MergedConv merge(const Network& net, std::span<const LayerId> layers) {
  MergedConv merged;
  merged.op = conv_at(net, layers[0]);
  merged.scenario = scenario_of(net, layers[0]);
  merged.op.m = 0;
  merged.op.bias = false;
  for (LayerId id : layers) {
    merged.begin.push_back(merged.op.m);
    merged.op.m += conv_at(net, id).m;
    merged.op.bias = merged.op.bias || conv_at(net, id).bias;
  }
  const Axis h = widest(axes(net, layers, true)), w = widest(axes(net, layers, false));
  Scenario& s = merged.scenario;
  s.m = merged.op.m;
  s.kh = merged.op.kh = h.k;
  s.kw = merged.op.kw = w.k;
  s.pt = merged.op.pt = h.p;
  s.pl = merged.op.pl = w.p;
  merged.op.pb = s.pb();
  merged.op.pr = s.pr();
  return merged;
}

MergedWeights merged_weights(const Network& net, std::span<const LayerId> layers,
                             const MergedConv& merged) {
  const Scenario& s = merged.scenario;
  const auto plane = static_cast<std::size_t>(s.kh * s.kw);
  MergedWeights w;
  w.filter.assign(static_cast<std::size_t>(s.filter_count()), 0.0F);
  if (merged.op.bias) w.bias.assign(static_cast<std::size_t>(s.m), 0.0F);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layer_at(net, layers[i]);
    const ConvOp& op = std::get<ConvOp>(layer.op);
    if (layer.blobs.empty() || !layer.blobs[0].data || (op.bias && !layer.blobs[1].data)) {
      throw Error(
          fmt::format("layer \"{}\": has no weights; load them or make random ones", layer.name));
    }
    const float* from = layer.blobs[0].data->data();
    const auto first = static_cast<std::size_t>(merged.begin[i]);
    const auto corner = static_cast<std::size_t>((s.pt - op.pt) * s.kw + s.pl - op.pl);
    float* to = w.filter.data() + first * static_cast<std::size_t>(s.cg()) * plane + corner;
    for (Index mc = 0; mc < op.m * s.cg(); ++mc, to += plane) {
      for (Index y = 0; y < op.kh; ++y, from += op.kw) std::copy_n(from, op.kw, to + y * s.kw);
    }
    if (op.bias) {
      const auto& bias = *layer.blobs[1].data;
      std::copy(bias.begin(), bias.end(), w.bias.begin() + merged.begin[i]);
    }
  }
  return w;
}

}  // namespace convprim::ios
