// See passes.hpp.
#include "selector/passes.hpp"

#include <algorithm>
#include <cmath>

#include "selector/network_infer.hpp"

namespace convprim {
namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

using Values = std::shared_ptr<const std::vector<float>>;

Values make_values(const std::vector<double>& v) {
  return std::make_shared<const std::vector<float>>(v.begin(), v.end());
}

bool is_output(const Network& net, TensorId t) {
  return std::find(net.outputs.begin(), net.outputs.end(), t) != net.outputs.end();
}

/// Who makes and reads what; rebuilt after each change of the graph.
struct View {
  explicit View(const Network& net) : made_by(producers(net)), readers(consumers(net)) {}
  std::vector<LayerId> made_by;
  std::vector<std::vector<LayerId>> readers;
};

/// The layer that makes t, if t is read once and is no output, so that it may be merged with its
/// reader; else nullptr.
Layer* sole_maker(Network& net, const View& view, TensorId t) {
  const LayerId maker = view.made_by[at(t)];
  if (maker < 0 || view.readers[at(t)].size() != 1 || is_output(net, t)) return nullptr;
  return &net.layers[at(maker)];
}

/// Removes layers by their marks.
void erase(Network& net, const std::vector<bool>& gone) {
  std::vector<Layer> kept;
  kept.reserve(net.layers.size());
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    if (!gone[i]) kept.push_back(std::move(net.layers[i]));
  }
  net.layers = std::move(kept);
}

bool changes_nothing(const Network& net, const Layer& layer) {
  if (std::holds_alternative<IdentityOp>(layer.op)) return true;
  if (layer.inputs.size() != 1 || layer.outputs.size() != 1) return false;
  const Shape& in = net.tensors[at(layer.inputs[0])].shape;
  const Shape& out = net.tensors[at(layer.outputs[0])].shape;
  if (std::holds_alternative<ConcatOp>(layer.op)) return true;
  if (std::holds_alternative<FlattenOp>(layer.op) || std::holds_alternative<ReshapeOp>(layer.op)) {
    return in == out;
  }
  if (const auto* op = std::get_if<EltwiseOp>(&layer.op)) {
    return (op->coeff.empty() || op->coeff[0] == 1) && std::isinf(op->lo) && std::isinf(op->hi);
  }
  if (const auto* op = std::get_if<ActivationOp>(&layer.op)) {
    using Kind = ActivationOp::Kind;
    if (op->kind == Kind::clamp) return std::isinf(op->lo) && std::isinf(op->hi);
    return op->kind == Kind::power && op->scale == 1 && op->shift == 0 && op->exponent == 1;
  }
  return false;
}

/// The affine function of each channel, in double until it is folded.
struct Affine {
  std::vector<double> scale, shift;
};

Affine affine_of(const Layer& layer) {
  const auto& scale = *layer.blobs[0].data;
  const auto& shift = *layer.blobs[1].data;
  return {{scale.begin(), scale.end()}, {shift.begin(), shift.end()}};
}

bool has_values(const Layer& layer) {
  return std::all_of(layer.blobs.begin(), layer.blobs.end(),
                     [](const Blob& b) { return b.data != nullptr; });
}

/// Makes an AffineOp of the layer.
void set_affine(Layer& layer, const Affine& f) {
  const auto c = static_cast<Index>(f.scale.size());
  layer.op = AffineOp{};
  layer.blobs = {Blob{.dims = {c}, .data = make_values(f.scale)},
                 Blob{.dims = {c}, .data = make_values(f.shift)}};
}

/// Multiplies the filter's values by a factor that depends on the output channel m and on the input
/// channel i of its group, and sets the bias.
template <class Factor>
void scale_filter(Layer& layer, bool& bias, Index m, Index inputs,
                  const std::vector<double>& new_bias, Factor factor) {
  const std::vector<float>& from = *layer.blobs[0].data;
  std::vector<float> filter(from.size());
  const std::size_t taps = from.size() / at(m) / at(inputs);
  for (std::size_t k = 0; k < at(m); ++k) {
    for (std::size_t i = 0; i < at(inputs); ++i) {
      const double f = factor(k, i);
      const std::size_t row = (k * at(inputs) + i) * taps;
      for (std::size_t t = 0; t < taps; ++t) {
        filter[row + t] = static_cast<float>(static_cast<double>(from[row + t]) * f);
      }
    }
  }
  layer.blobs[0].data = std::make_shared<const std::vector<float>>(std::move(filter));
  layer.blobs[0].name.clear();  // no longer the shared parameter
  layer.blobs.resize(2);
  layer.blobs[1] = Blob{.dims = {m}, .data = make_values(new_bias)};
  bias = true;
}

std::vector<double> bias_of(const Layer& layer, bool bias, Index m) {
  if (!bias) return std::vector<double>(at(m), 0.0);
  return {layer.blobs[1].data->begin(), layer.blobs[1].data->end()};
}

/// out = f(conv(x)): each output channel's filter and bias scaled.
bool fold_behind(Layer& layer, const Affine& f) {
  const auto apply = [&](bool& bias, Index m, Index inputs) {
    std::vector<double> b = bias_of(layer, bias, m);
    for (std::size_t k = 0; k < b.size(); ++k) b[k] = b[k] * f.scale[k] + f.shift[k];
    scale_filter(layer, bias, m, inputs, b, [&](std::size_t k, std::size_t) { return f.scale[k]; });
    return true;
  };
  if (auto* op = std::get_if<ConvOp>(&layer.op)) {
    if (op->epilogue.clamps() || op->epilogue.residual) return false;
    return apply(op->bias, op->m, layer.blobs[0].dims[1]);
  }
  if (auto* op = std::get_if<InnerProductOp>(&layer.op)) {
    if (!std::isinf(op->lo) || !std::isinf(op->hi)) return false;
    return apply(op->bias, op->m, layer.blobs[0].dims[1]);
  }
  if (auto* op = std::get_if<DeconvOp>(&layer.op)) {
    // The filter is [c][m/g][kh][kw]: here the input channel is outermost.
    if (!std::isinf(op->lo) || !std::isinf(op->hi)) return false;
    const Index c = layer.blobs[0].dims[0];
    const std::size_t mg = at(op->m / op->g);
    const std::size_t cg = at(c / op->g);
    std::vector<double> b = bias_of(layer, op->bias, op->m);
    for (std::size_t k = 0; k < b.size(); ++k) b[k] = b[k] * f.scale[k] + f.shift[k];
    bool bias = true;
    scale_filter(layer, bias, c, op->m / op->g, b,
                 [&](std::size_t from, std::size_t k) { return f.scale[from / cg * mg + k]; });
    layer.blobs[1].dims = {op->m};
    op->bias = true;
    return true;
  }
  return false;
}

/// out = conv(f(x)) where every output reads whole windows of f(x): no padding, or no shift.
bool fold_before(Layer& layer, const Affine& f, const Shape& in) {
  const bool shifts = std::any_of(f.shift.begin(), f.shift.end(), [](double s) { return s != 0; });
  if (auto* op = std::get_if<ConvOp>(&layer.op)) {
    const bool padded = op->pt > 0 || op->pl > 0 || op->pb > 0 || op->pr > 0;
    if (shifts && padded) return false;
    const std::vector<float>& filter = *layer.blobs[0].data;
    const std::size_t cg = at(in.c / op->g);
    const std::size_t mg = at(op->m / op->g);
    const std::size_t taps = at(op->kh * op->kw);
    std::vector<double> b = bias_of(layer, op->bias, op->m);
    for (std::size_t k = 0; k < b.size(); ++k) {
      for (std::size_t i = 0; i < cg; ++i) {
        for (std::size_t t = 0; t < taps; ++t) {
          b[k] += static_cast<double>(filter[(k * cg + i) * taps + t]) * f.shift[k / mg * cg + i];
        }
      }
    }
    scale_filter(layer, op->bias, op->m, in.c / op->g, b,
                 [&](std::size_t k, std::size_t i) { return f.scale[k / mg * cg + i]; });
    return true;
  }
  if (auto* op = std::get_if<InnerProductOp>(&layer.op)) {
    const std::vector<float>& filter = *layer.blobs[0].data;
    const std::size_t pixels = at(in.h * in.w);
    const std::size_t row = at(in.c) * pixels;
    std::vector<double> b = bias_of(layer, op->bias, op->m);
    for (std::size_t k = 0; k < b.size(); ++k) {
      for (std::size_t i = 0; i < row; ++i) {
        b[k] += static_cast<double>(filter[k * row + i]) * f.shift[i / pixels];
      }
    }
    scale_filter(layer, op->bias, op->m, in.c, b,
                 [&](std::size_t, std::size_t i) { return f.scale[i]; });
    return true;
  }
  return false;
}

/// Clamps that a layer's own operation can take over; nullptr if it cannot.
struct Clamps {
  float* lo = nullptr;
  float* hi = nullptr;
};

Clamps clamps_of(Op& op) {
  if (auto* o = std::get_if<ConvOp>(&op)) return {&o->epilogue.lo, &o->epilogue.hi};
  if (auto* o = std::get_if<DeconvOp>(&op)) return {&o->lo, &o->hi};
  if (auto* o = std::get_if<InnerProductOp>(&op)) return {&o->lo, &o->hi};
  if (auto* o = std::get_if<EltwiseOp>(&op)) return {&o->lo, &o->hi};
  if (auto* o = std::get_if<ActivationOp>(&op); o && o->kind == ActivationOp::Kind::clamp) {
    return {&o->lo, &o->hi};
  }
  return {};
}

/// Lets `maker` make the output of its only reader, which is then gone.
void take_over(Layer& maker, TensorId from, const Layer& reader) {
  std::replace(maker.outputs.begin(), maker.outputs.end(), from, reader.outputs[0]);
}

}  // namespace

int remove_identities(Network& net) {
  std::vector<TensorId> stands_for(net.tensors.size());
  for (std::size_t i = 0; i < stands_for.size(); ++i) stands_for[i] = static_cast<TensorId>(i);
  std::vector<bool> gone(net.layers.size(), false);
  const std::vector<LayerId> made_by = producers(net);
  int count = 0;
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    Layer& layer = net.layers[i];
    for (TensorId& t : layer.inputs) t = stands_for[at(t)];
    if (!changes_nothing(net, layer)) continue;
    // An input that is an output at once stays apart from it: callers own both.
    const TensorId from = layer.inputs[0];
    const Layer& maker = net.layers[at(made_by[at(from)])];
    const bool fed =
        std::holds_alternative<InputOp>(maker.op) || std::holds_alternative<ConstantOp>(maker.op);
    const auto is_out = [&](TensorId t) { return is_output(net, t); };
    const bool output = std::any_of(layer.outputs.begin(), layer.outputs.end(), is_out);
    if (output && (fed || is_out(from) || layer.outputs.size() > 1)) continue;
    for (const TensorId t : layer.outputs) {
      stands_for[at(t)] = from;
      if (!is_out(t)) continue;
      std::replace(net.outputs.begin(), net.outputs.end(), t, from);
      net.tensors[at(from)].name = net.tensors[at(t)].name;
      net.tensors[at(from)].rank = net.tensors[at(t)].rank;
    }
    gone[i] = true;
    ++count;
  }
  erase(net, gone);
  return count;
}

int lower_to_affine(Network& net) {
  int count = 0;
  for (Layer& layer : net.layers) {
    if (!has_values(layer)) continue;
    if (const auto* op = std::get_if<BatchNormOp>(&layer.op)) {
      const double divisor = static_cast<double>((*layer.blobs[2].data)[0]);
      const double factor = divisor == 0 ? 0 : 1 / divisor;
      const bool dialect = layer.blobs.size() == 5;
      Affine f;
      const std::size_t c = layer.blobs[0].data->size();
      for (std::size_t i = 0; i < c; ++i) {
        const double mean = static_cast<double>((*layer.blobs[0].data)[i]) * factor;
        const double variance = static_cast<double>((*layer.blobs[1].data)[i]) * factor;
        const double gamma = dialect ? static_cast<double>((*layer.blobs[3].data)[i]) : 1;
        const double beta = dialect ? static_cast<double>((*layer.blobs[4].data)[i]) : 0;
        const double scale = gamma / std::sqrt(variance + static_cast<double>(op->eps));
        f.scale.push_back(scale);
        f.shift.push_back(beta - mean * scale);
      }
      set_affine(layer, f);
      ++count;
    } else if (const auto* power = std::get_if<ActivationOp>(&layer.op);
               power != nullptr && power->kind == ActivationOp::Kind::power &&
               power->exponent == 1 && layer.inputs.size() == 1) {
      const Shape& s = net.tensors[at(layer.inputs[0])].shape;
      if (!known(s)) continue;
      const Affine f{std::vector<double>(at(s.c), static_cast<double>(power->scale)),
                     std::vector<double>(at(s.c), static_cast<double>(power->shift))};
      set_affine(layer, f);
      ++count;
    }
  }
  return count;
}

int fold_affine(Network& net) {
  std::vector<bool> gone(net.layers.size(), false);
  int count = 0;
  View view(net);
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    Layer& layer = net.layers[i];
    if (!std::holds_alternative<AffineOp>(layer.op) || !has_values(layer)) continue;
    const TensorId from = layer.inputs[0];
    Layer* const maker = sole_maker(net, view, from);
    if (maker == nullptr || !has_values(*maker)) continue;
    const Affine f = affine_of(layer);
    if (std::holds_alternative<AffineOp>(maker->op)) {
      Affine g = affine_of(*maker);
      for (std::size_t c = 0; c < g.scale.size(); ++c) {
        g.scale[c] *= f.scale[c];
        g.shift[c] = g.shift[c] * f.scale[c] + f.shift[c];
      }
      set_affine(*maker, g);
    } else if (!fold_behind(*maker, f)) {
      continue;
    }
    take_over(*maker, from, layer);
    view.made_by[at(layer.outputs[0])] = view.made_by[at(from)];
    gone[i] = true;
    ++count;
  }
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    Layer& layer = net.layers[i];
    if (gone[i] || layer.inputs.empty() || !has_values(layer)) continue;
    Layer* const maker = sole_maker(net, view, layer.inputs[0]);
    if (maker == nullptr || !std::holds_alternative<AffineOp>(maker->op) || !has_values(*maker)) {
      continue;
    }
    const Shape& in = net.tensors[at(layer.inputs[0])].shape;
    if (!fold_before(layer, affine_of(*maker), in)) continue;
    gone[at(view.made_by[at(layer.inputs[0])])] = true;
    layer.inputs[0] = maker->inputs[0];
    ++count;
  }
  erase(net, gone);
  return count;
}

int fuse_activations(Network& net) {
  std::vector<bool> gone(net.layers.size(), false);
  int count = 0;
  View view(net);
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    Layer& layer = net.layers[i];
    const auto* op = std::get_if<ActivationOp>(&layer.op);
    if (op == nullptr || op->kind != ActivationOp::Kind::clamp) continue;
    const TensorId from = layer.inputs[0];
    Layer* const maker = sole_maker(net, view, from);
    if (maker == nullptr) continue;
    const Clamps clamps = clamps_of(maker->op);
    if (clamps.lo == nullptr) continue;
    // One clamp behind another is a clamp: both its bounds go through the second.
    *clamps.lo = std::min(std::max(*clamps.lo, op->lo), op->hi);
    *clamps.hi = std::min(std::max(*clamps.hi, op->lo), op->hi);
    take_over(*maker, from, layer);
    view.made_by[at(layer.outputs[0])] = view.made_by[at(from)];
    gone[i] = true;
    ++count;
  }
  erase(net, gone);
  return count;
}

int fuse_residuals(Network& net) {
  std::vector<bool> gone(net.layers.size(), false);
  int count = 0;
  View view(net);
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    Layer& layer = net.layers[i];
    const auto* sum = std::get_if<EltwiseOp>(&layer.op);
    if (sum == nullptr || sum->kind != EltwiseOp::Kind::sum || layer.inputs.size() != 2) continue;
    // Of two convolutions the later one adds: the other's output is there by then.
    LayerId chosen = -1;
    std::size_t side = 0;
    for (std::size_t s = 0; s < 2; ++s) {
      const Layer* const maker = sole_maker(net, view, layer.inputs[s]);
      if (maker == nullptr) continue;
      const auto* conv = std::get_if<ConvOp>(&maker->op);
      if (conv == nullptr || conv->epilogue.residual || conv->epilogue.clamps()) continue;
      const bool plain = sum->coeff.empty() || sum->coeff[1 - s] == 1;
      const bool scaled = !sum->coeff.empty() && sum->coeff[s] != 1;
      if (!plain || (scaled && !has_values(*maker))) continue;
      if (view.made_by[at(layer.inputs[s])] > chosen) {
        chosen = view.made_by[at(layer.inputs[s])];
        side = s;
      }
    }
    if (chosen < 0) continue;
    Layer& maker = net.layers[at(chosen)];
    auto& conv = std::get<ConvOp>(maker.op);
    if (!sum->coeff.empty() && sum->coeff[side] != 1) {
      fold_behind(maker, {std::vector<double>(at(conv.m), static_cast<double>(sum->coeff[side])),
                          std::vector<double>(at(conv.m), 0.0)});
    }
    conv.epilogue.residual = true;
    conv.epilogue.lo = sum->lo;
    conv.epilogue.hi = sum->hi;
    maker.inputs.push_back(layer.inputs[1 - side]);
    take_over(maker, layer.inputs[side], layer);
    // The other operand is read by the convolution now, its other readers stay.
    auto& readers = view.readers[at(layer.inputs[1 - side])];
    std::replace(readers.begin(), readers.end(), static_cast<LayerId>(i), chosen);
    view.made_by[at(layer.outputs[0])] = chosen;
    gone[i] = true;
    ++count;
  }
  erase(net, gone);
  if (count > 0) sort_layers(net);
  return count;
}

int remove_dead(Network& net) {
  std::vector<bool> needed(net.tensors.size(), false);
  for (const TensorId t : net.outputs) needed[at(t)] = true;
  std::vector<bool> gone(net.layers.size(), false);
  int count = 0;
  for (std::size_t i = net.layers.size(); i-- > 0;) {
    const Layer& layer = net.layers[i];
    const bool live = std::holds_alternative<InputOp>(layer.op) ||
                      std::any_of(layer.outputs.begin(), layer.outputs.end(),
                                  [&](TensorId t) { return needed[at(t)]; });
    if (live) {
      for (const TensorId t : layer.inputs) needed[at(t)] = true;
    } else {
      gone[i] = true;
      ++count;
    }
  }
  erase(net, gone);
  return count;
}

PassCounts optimise(Network& net) {
  PassCounts counts;
  sort_layers(net);
  infer_shapes(net);
  counts.dead = remove_dead(net);
  counts.identities = remove_identities(net);
  lower_to_affine(net);
  counts.folded = fold_affine(net);
  counts.activations = fuse_activations(net);
  counts.residuals = fuse_residuals(net);
  counts.activations += fuse_activations(net);
  sort_layers(net);
  infer_shapes(net);
  return counts;
}

}  // namespace convprim
