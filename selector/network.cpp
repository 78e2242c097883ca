// Networks as values: who makes and reads a tensor, order, shapes, scenarios, random weights.
#include "convprim/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "convprim/error.hpp"
#include "selector/network_graph.hpp"
#include "selector/network_infer.hpp"

namespace convprim {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

template <class... F>
Overloaded(F...) -> Overloaded<F...>;

constexpr Index kMaxField = Index{1} << 30;  // kernels, strides and the like: no product overflows

[[noreturn]] void fail(const std::string& clause) { throw Error(clause); }

void check_range(const char* what, Index value, Index low) {
  if (value < low || value > kMaxField) {
    fail(fmt::format("{} is {}; it must be between {} and 2^30", what, value, low));
  }
}

Shape checked(const Shape& s) {
  const Index dims[] = {s.n, s.c, s.h, s.w};
  const Index count = checked_count(dims);
  if (count < 1) {
    fail(fmt::format("the tensor of shape {} is empty or has 2^40 elements or more", str(s)));
  }
  return s;
}

const Shape& only(std::span<const Shape> in) {
  if (in.size() != 1) fail(fmt::format("it takes one input, not {}", in.size()));
  return in[0];
}

/// The fields that windows share: convolution, transposed convolution, pooling.
template <class Window>
void check_window(const Window& op) {
  check_range("the kernel's height", op.kh, 1);
  check_range("the kernel's width", op.kw, 1);
  check_range("the vertical stride", op.sh, 1);
  check_range("the horizontal stride", op.sw, 1);
  check_range("the top padding", op.pt, 0);
  check_range("the left padding", op.pl, 0);
  check_range("the bottom padding", op.pb, 0);
  check_range("the right padding", op.pr, 0);
  check_range("the vertical dilation", op.dh, 1);
  check_range("the horizontal dilation", op.dw, 1);
}

void check_channels(Index m, Index g, Index c) {
  check_range("the number of outputs", m, 1);
  check_range("the number of groups", g, 1);
  if (c % g != 0 || m % g != 0) {
    fail(fmt::format("{} groups do not divide {} input and {} output channels", g, c, m));
  }
}

Index conv_extent(const char* axis, Index in, Index before, Index after, Index k, Index d,
                  Index s) {
  const Index room = in + before + after - ((k - 1) * d + 1);
  if (room < 0) {
    fail(
        fmt::format("the kernel spans {} of {}, the padded image has only {}; check the kernel, "
                    "the padding and the input's size",
                    (k - 1) * d + 1, axis, in + before + after));
  }
  return room / s + 1;
}

Inferred infer_conv(const ConvOp& op, std::span<const Shape> in) {
  const std::size_t want = op.epilogue.residual ? 2 : 1;
  if (in.size() != want) fail(fmt::format("it takes {} inputs, not {}", want, in.size()));
  check_window(op);
  check_channels(op.m, op.g, in[0].c);
  const Shape out{in[0].n, op.m, conv_extent("rows", in[0].h, op.pt, op.pb, op.kh, op.dh, op.sh),
                  conv_extent("columns", in[0].w, op.pl, op.pr, op.kw, op.dw, op.sw)};
  if (want == 2 && in[1] != out) {
    fail(fmt::format("the tensor to add is {}, the output {}", str(in[1]), str(out)));
  }
  Inferred r{{out}, {{op.m, in[0].c / op.g, op.kh, op.kw}}};
  if (op.bias) r.blobs.push_back({op.m});
  return r;
}

Inferred infer_deconv(const DeconvOp& op, std::span<const Shape> in) {
  const Shape& s = only(in);
  check_window(op);
  check_channels(op.m, op.g, s.c);
  check_range("the added rows", op.extra_h, 0);
  check_range("the added columns", op.extra_w, 0);
  const Shape out{s.n, op.m,
                  (s.h - 1) * op.sh - op.pt - op.pb + (op.kh - 1) * op.dh + 1 + op.extra_h,
                  (s.w - 1) * op.sw - op.pl - op.pr + (op.kw - 1) * op.dw + 1 + op.extra_w};
  Inferred r{{out}, {{s.c, op.m / op.g, op.kh, op.kw}}};
  if (op.bias) r.blobs.push_back({op.m});
  return r;
}

Index pool_extent(const PoolOp& op, bool padded, const char* axis, Index in, Index before,
                  Index after, Index k, Index d, Index s) {
  const Index room = in + before + after - ((k - 1) * d + 1);
  // Rounding up, a window that is larger than the image by less than a stride still gives one
  // pixel.
  const Index up = room >= 0 ? (room + s - 1) / s : -(-room / s);
  Index out = (op.ceil ? up : room >= 0 ? room / s : -1) + 1;
  if (op.ceil && padded && (out - 1) * s >= in + before) --out;
  if (out < 1) {
    fail(
        fmt::format("the window spans {} of {}, the padded image has only {}; check the kernel, "
                    "the padding and the input's size",
                    (k - 1) * d + 1, axis, in + before + after));
  }
  return out;
}

Inferred infer_pool(const PoolOp& op, std::span<const Shape> in, std::size_t outputs) {
  const Shape& s = only(in);
  Shape out{s.n, s.c, 1, 1};
  if (!op.global) {
    check_window(op);
    const bool padded = op.pt != 0 || op.pl != 0 || op.pb != 0 || op.pr != 0;
    out.h = pool_extent(op, padded, "rows", s.h, op.pt, op.pb, op.kh, op.dh, op.sh);
    out.w = pool_extent(op, padded, "columns", s.w, op.pl, op.pr, op.kw, op.dw, op.sw);
  }
  return {std::vector<Shape>(outputs, out), {}};
}

Index extent_of(const Shape& s, int axis) {
  const Index dims[] = {s.n, s.c, s.h, s.w};
  return dims[axis];
}

Index& extent_of(Shape& s, int axis) {
  Index* const dims[] = {&s.n, &s.c, &s.h, &s.w};
  return *dims[axis];
}

void check_axis(int axis) {
  if (axis < 0 || axis > 3) fail(fmt::format("axis {} is none of 0 to 3", axis));
}

Inferred infer_concat(const ConcatOp& op, std::span<const Shape> in) {
  check_axis(op.axis);
  if (in.empty()) fail("it has nothing to concatenate");
  Shape out = in[0];
  for (const Shape& s : in.subspan(1)) {
    Shape rest = s;
    extent_of(rest, op.axis) = extent_of(out, op.axis);
    if (rest != out) {
      fail(fmt::format("inputs of shapes {} and {} differ beside axis {}", str(in[0]), str(s),
                       op.axis));
    }
    extent_of(out, op.axis) += extent_of(s, op.axis);
    checked(out);
  }
  return {{out}, {}};
}

Inferred infer_eltwise(const EltwiseOp& op, std::span<const Shape> in) {
  if (in.empty()) fail("it has no input");
  if (!op.coeff.empty() && op.coeff.size() != in.size()) {
    fail(fmt::format("it has {} coefficients for {} inputs", op.coeff.size(), in.size()));
  }
  for (const Shape& s : in) {
    if (s != in[0]) fail(fmt::format("inputs of shapes {} and {} differ", str(in[0]), str(s)));
  }
  return {{in[0]}, {}};
}

Inferred infer_broadcast(std::span<const Shape> in) {
  if (in.size() != 2) fail(fmt::format("it takes two inputs, not {}", in.size()));
  Shape out = in[0];
  for (int axis = 0; axis < 4; ++axis) {
    const Index a = extent_of(in[0], axis);
    const Index b = extent_of(in[1], axis);
    if (a != b && a != 1 && b != 1) {
      fail(fmt::format("shapes {} and {} do not broadcast", str(in[0]), str(in[1])));
    }
    extent_of(out, axis) = std::max(a, b);
  }
  return {{out}, {}};
}

Inferred infer_reshape(const ReshapeOp& op, const Shape& s) {
  Shape out;
  int inferred = -1;
  Index product = 1;
  for (int axis = 0; axis < 4; ++axis) {
    const Index d = op.dims[static_cast<std::size_t>(axis)];
    if (d < -1 || (d == -1 && inferred >= 0)) {
      fail("its new shape has a negative extent, or two that are left open");
    }
    if (d == -1) {
      inferred = axis;
      continue;
    }
    extent_of(out, axis) = d == 0 ? extent_of(s, axis) : d;
    const Index dims[] = {product, extent_of(out, axis)};
    product = checked_count(dims);
    if (product < 1) fail("its new shape has 2^40 elements or more");
  }
  if (inferred >= 0) extent_of(out, inferred) = s.count() / product;
  if (out.count() != s.count()) {
    fail(
        fmt::format("{} elements of shape {} do not fit the new shape {}; if the batch was "
                    "changed, the file may fix it here",
                    s.count(), str(s), str(out)));
  }
  return {{out}, {}};
}

Inferred infer_permute(const PermuteOp& op, const Shape& s) {
  Shape out;
  std::array<bool, 4> seen = {};
  for (int axis = 0; axis < 4; ++axis) {
    const int from = op.order[static_cast<std::size_t>(axis)];
    check_axis(from);
    if (seen[static_cast<std::size_t>(from)])
      fail(fmt::format("its order has axis {} twice", from));
    seen[static_cast<std::size_t>(from)] = true;
    extent_of(out, axis) = extent_of(s, from);
  }
  return {{out}, {}};
}

Inferred infer_slice(const SliceOp& op, const Shape& s, std::size_t outputs) {
  check_axis(op.axis);
  const Index extent = extent_of(s, op.axis);
  if (outputs == 0) fail("it has no output");
  const auto parts = static_cast<Index>(outputs);
  if (op.points.empty() ? extent % parts != 0 : op.points.size() + 1 != outputs) {
    fail(fmt::format("it cuts {} along axis {} at {} places into {} parts", str(s), op.axis,
                     op.points.size(), outputs));
  }
  Inferred r;
  Index begin = 0;
  for (Index i = 0; i < parts; ++i) {
    const Index end = op.points.empty() ? (i + 1) * (extent / parts)
                      : i + 1 < parts   ? op.points[static_cast<std::size_t>(i)]
                                        : extent;
    if (end <= begin || end > extent) {
      fail(fmt::format("slice point {} does not lie in {} to {}", end, begin + 1, extent));
    }
    Shape part = s;
    extent_of(part, op.axis) = end - begin;
    r.outputs.push_back(part);
    begin = end;
  }
  return r;
}

Inferred infer_crop(const CropOp& op, const Shape& s) {
  Shape out;
  for (int axis = 0; axis < 4; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    const Index extent = extent_of(s, axis);
    check_range("the beginning of the box", op.begin[i], 0);
    check_range("the box's extent", op.extent[i], 0);
    check_range("the box's step", op.step[i], 1);
    const Index room = extent - op.begin[i];
    const Index o = op.extent[i] != 0 ? op.extent[i] : (room + op.step[i] - 1) / op.step[i];
    if (o < 1 || (o - 1) * op.step[i] >= room) {
      fail(fmt::format("the box of {} from {} on axis {} leaves the input of shape {}", o,
                       op.begin[i], axis, str(s)));
    }
    extent_of(out, axis) = o;
  }
  return {{out}, {}};
}

Inferred infer_pad(const PadOp& op, const Shape& s) {
  Shape out;
  for (int axis = 0; axis < 4; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    check_range("the padding before", op.before[i], 0);
    check_range("the padding behind", op.after[i], 0);
    const Index extent = extent_of(s, axis);
    if (op.mode == PadOp::Mode::reflect && (op.before[i] >= extent || op.after[i] >= extent)) {
      fail(fmt::format("{} elements do not reflect into padding of {} and {}", extent, op.before[i],
                       op.after[i]));
    }
    extent_of(out, axis) = extent + op.before[i] + op.after[i];
  }
  return {{out}, {}};
}

Index resize_extent(Index given, Index in, float scale) {
  if (given > 0) return given;
  const double out = std::floor(static_cast<double>(in) * static_cast<double>(scale));
  if (!(out >= 1 && out < static_cast<double>(kMaxField))) {
    fail(fmt::format("{} elements times {} leave no valid extent", in, scale));
  }
  return static_cast<Index>(out);
}

Inferred infer_channels(const Shape& s, std::size_t blobs) {
  return {{s}, std::vector<std::vector<Index>>(blobs, {s.c})};
}

/// One factor for each channel, or one for all if the blob says so.
Inferred infer_factor(const Shape& s, std::span<const Blob> blobs) {
  const bool shared = !blobs.empty() && !blobs[0].dims.empty() && blobs[0].count() == 1;
  return {{s}, {{shared ? 1 : s.c}}};
}

}  // namespace

Index checked_count(std::span<const Index> dims) {
  Index product = 1;
  for (const Index d : dims) {
    if (d < 0 || (d != 0 && product > kMaxElements / d)) return -1;
    product *= d;
  }
  return product < kMaxElements ? product : -1;
}

std::string str(std::span<const Index> dims) { return fmt::format("{}", fmt::join(dims, "x")); }

std::string str(const Shape& s) { return fmt::format("{}x{}x{}x{}", s.n, s.c, s.h, s.w); }

std::string place(const Network& net, const Layer& layer) {
  std::string text = net.file;
  if (!text.empty() && layer.line > 0) text += fmt::format(":{}", layer.line);
  if (!text.empty()) text += ": ";
  text += fmt::format("layer \"{}\"", layer.name);
  if (!layer.type.empty()) text += fmt::format(" ({})", layer.type);
  return text;
}

Inferred infer(const Op& op, std::span<const Shape> in, std::size_t outputs,
               std::span<const Blob> blobs) {
  const auto same = [&]() -> Inferred { return {{only(in)}, {}}; };
  Inferred r =
      std::visit(Overloaded{[&](const InputOp& o) -> Inferred {
                              return {{o.shape}, {}};
                            },
                            [&](const ConvOp& o) { return infer_conv(o, in); },
                            [&](const DeconvOp& o) { return infer_deconv(o, in); },
                            [&](const PoolOp& o) { return infer_pool(o, in, outputs); },
                            [&](const LrnOp& o) {
                              check_range("the window's size", o.size, 1);
                              return same();
                            },
                            [&](const InnerProductOp& o) -> Inferred {
                              const Shape& s = only(in);
                              check_range("the number of outputs", o.m, 1);
                              Inferred fc{{{s.n, o.m, 1, 1}}, {{o.m, s.c * s.h * s.w}}};
                              if (o.bias) fc.blobs.push_back({o.m});
                              return fc;
                            },
                            [&](const SoftmaxOp& o) {
                              check_axis(o.axis);
                              return same();
                            },
                            [&](const ConcatOp& o) { return infer_concat(o, in); },
                            [&](const EltwiseOp& o) { return infer_eltwise(o, in); },
                            [&](const BroadcastOp&) { return infer_broadcast(in); },
                            [&](const ActivationOp&) { return same(); },
                            [&](const PReluOp&) { return infer_factor(only(in), blobs); },
                            [&](const AffineOp&) { return infer_channels(only(in), 2); },
                            [&](const BatchNormOp&) {
                              Inferred bn = infer_channels(only(in), blobs.size() == 5 ? 5 : 3);
                              bn.blobs[2] = {1};
                              return bn;
                            },
                            [&](const FlattenOp&) -> Inferred {
                              const Shape& s = only(in);
                              return {{{s.n, s.c * s.h * s.w, 1, 1}}, {}};
                            },
                            [&](const ReshapeOp& o) { return infer_reshape(o, only(in)); },
                            [&](const PermuteOp& o) { return infer_permute(o, only(in)); },
                            [&](const SliceOp& o) { return infer_slice(o, only(in), outputs); },
                            [&](const CropOp& o) { return infer_crop(o, only(in)); },
                            [&](const PadOp& o) { return infer_pad(o, only(in)); },
                            [&](const NormalizeOp&) { return infer_factor(only(in), blobs); },
                            [&](const ResizeOp& o) -> Inferred {
                              const Shape& s = only(in);
                              check_range("the output's height", o.oh, 0);
                              check_range("the output's width", o.ow, 0);
                              return {{{s.n, s.c, resize_extent(o.oh, s.h, o.scale_h),
                                        resize_extent(o.ow, s.w, o.scale_w)}},
                                      {}};
                            },
                            [&](const ShuffleOp& o) {
                              check_channels(only(in).c, o.g, only(in).c);
                              return same();
                            },
                            [&](const ReduceOp& o) -> Inferred {
                              Shape s = only(in);
                              for (int axis = 0; axis < 4; ++axis) {
                                if (o.axes[static_cast<std::size_t>(axis)]) extent_of(s, axis) = 1;
                              }
                              return {{s}, {}};
                            },
                            [&](const ConstantOp& o) -> Inferred {
                              return {{o.shape}, {{o.shape.n, o.shape.c, o.shape.h, o.shape.w}}};
                            },
                            [&](const IdentityOp&) -> Inferred {
                              return {std::vector<Shape>(outputs, only(in)), {}};
                            },
                            [&](const OpaqueOp& o) -> Inferred {
                              Inferred opaque{o.shapes, {}};
                              opaque.outputs.resize(outputs, Shape{0, 0, 0, 0});
                              return opaque;
                            }},
                 op);
  if (r.outputs.size() != outputs) {
    fail(fmt::format("it makes {} outputs, not {}", r.outputs.size(), outputs));
  }
  for (const Shape& s : r.outputs) {
    if (known(s) || !std::holds_alternative<OpaqueOp>(op)) checked(s);
  }
  for (const auto& dims : r.blobs) {
    if (checked_count(dims) < 1) {
      fail(fmt::format("parameters of shape {} are too many", str(dims)));
    }
  }
  return r;
}

std::string_view kind(const Op& op) {
  constexpr std::string_view kKinds[] = {
      "input",   "conv",    "deconv",    "pool",     "lrn",      "fc",     "softmax",
      "concat",  "eltwise", "broadcast", "act",      "prelu",    "affine", "batchnorm",
      "flatten", "reshape", "permute",   "slice",    "crop",     "pad",    "normalize",
      "resize",  "shuffle", "reduce",    "constant", "identity", "opaque"};
  static_assert(std::size(kKinds) == std::variant_size_v<Op>);
  return kKinds[op.index()];
}

std::vector<LayerId> producers(const Network& net) {
  std::vector<LayerId> made_by(net.tensors.size(), -1);
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    for (const TensorId t : net.layers[i].outputs) {
      made_by[static_cast<std::size_t>(t)] = static_cast<LayerId>(i);
    }
  }
  return made_by;
}

std::vector<std::vector<LayerId>> consumers(const Network& net) {
  std::vector<std::vector<LayerId>> readers(net.tensors.size());
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    for (const TensorId t : net.layers[i].inputs) {
      readers[static_cast<std::size_t>(t)].push_back(static_cast<LayerId>(i));
    }
  }
  return readers;
}

void sort_layers(Network& net) {
  std::vector<LayerId> made_by(net.tensors.size(), -1);
  const auto check_id = [&](const Layer& layer, TensorId t) {
    if (t < 0 || static_cast<std::size_t>(t) >= net.tensors.size()) {
      throw Error(fmt::format("{} uses tensor {}, which does not exist.", place(net, layer), t));
    }
  };
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    for (const TensorId t : net.layers[i].outputs) {
      check_id(net.layers[i], t);
      LayerId& maker = made_by[static_cast<std::size_t>(t)];
      if (maker >= 0) {
        throw Error(fmt::format("{} makes tensor \"{}\", which layer \"{}\" has made already.",
                                place(net, net.layers[i]),
                                net.tensors[static_cast<std::size_t>(t)].name,
                                net.layers[static_cast<std::size_t>(maker)].name));
      }
      maker = static_cast<LayerId>(i);
    }
  }
  for (const Layer& layer : net.layers) {
    for (const TensorId t : layer.inputs) {
      check_id(layer, t);
      if (made_by[static_cast<std::size_t>(t)] < 0) {
        throw Error(fmt::format("{} reads tensor \"{}\", which no layer makes.", place(net, layer),
                                net.tensors[static_cast<std::size_t>(t)].name));
      }
    }
  }
  const NetworkGraph graph = network_graph(net);
  const std::vector<LayerId> order = topological_order(graph);
  if (order.size() != net.layers.size()) {
    std::vector<std::string> names;
    for (const LayerId i : find_cycle(graph)) {
      names.push_back(fmt::format("\"{}\"", net.layers[static_cast<std::size_t>(i)].name));
    }
    throw Error(fmt::format("{}: the layers {} need each other's outputs, so none can run first.",
                            net.file.empty() ? net.name : net.file, fmt::join(names, ", ")));
  }
  std::vector<Layer> sorted;
  sorted.reserve(order.size());
  for (const LayerId i : order) {
    sorted.push_back(std::move(net.layers[static_cast<std::size_t>(i)]));
  }
  net.layers = std::move(sorted);
}

void infer_shapes(Network& net) {
  std::vector<Shape> inputs;
  for (Layer& layer : net.layers) {
    inputs.clear();
    bool all_known = true;
    for (const TensorId t : layer.inputs) {
      inputs.push_back(net.tensors[static_cast<std::size_t>(t)].shape);
      all_known = all_known && known(inputs.back());
    }
    if (!all_known && !std::holds_alternative<OpaqueOp>(layer.op)) {
      for (const TensorId t : layer.outputs) {
        net.tensors[static_cast<std::size_t>(t)].shape = {0, 0, 0, 0};
      }
      continue;
    }
    Inferred r;
    try {
      r = infer(layer.op, inputs, layer.outputs.size(), layer.blobs);
    } catch (const Error& e) {
      throw Error(fmt::format("{}: {}.", place(net, layer), e.what()));
    }
    for (std::size_t i = 0; i < layer.outputs.size(); ++i) {
      net.tensors[static_cast<std::size_t>(layer.outputs[i])].shape = r.outputs[i];
    }
    if (layer.blobs.size() > r.blobs.size()) {
      throw Error(fmt::format("{}: it has {} parameter blobs, the operation takes {}.",
                              place(net, layer), layer.blobs.size(), r.blobs.size()));
    }
    layer.blobs.resize(r.blobs.size());
    for (std::size_t i = 0; i < r.blobs.size(); ++i) {
      Blob& blob = layer.blobs[i];
      if (blob.dims.empty()) blob.dims = r.blobs[i];
      const bool filled =
          blob.data == nullptr || static_cast<Index>(blob.data->size()) == blob.count();
      if (blob.dims != r.blobs[i] || !filled) {
        throw Error(fmt::format("{}: parameter blob {} has shape {}{}, the layer needs {}.",
                                place(net, layer), i, str(blob.dims),
                                filled ? "" : " but another number of values", str(r.blobs[i])));
      }
    }
  }
}

Scenario scenario_of(const Network& net, LayerId id) {
  const Layer& layer = net.layers.at(static_cast<std::size_t>(id));
  const auto* op = std::get_if<ConvOp>(&layer.op);
  if (op == nullptr) throw Error(fmt::format("{} is no convolution.", place(net, layer)));
  const Shape& in = net.tensors[static_cast<std::size_t>(layer.inputs.at(0))].shape;
  const Shape& out = net.tensors[static_cast<std::size_t>(layer.outputs.at(0))].shape;
  Scenario s;
  s.n = in.n;
  s.g = op->g;
  s.c = in.c;
  s.h = in.h;
  s.w = in.w;
  s.m = op->m;
  s.oh = out.h;
  s.ow = out.w;
  s.kh = op->kh;
  s.kw = op->kw;
  s.sh = op->sh;
  s.sw = op->sw;
  s.pt = op->pt;
  s.pl = op->pl;
  s.dh = op->dh;
  s.dw = op->dw;
  return s;
}

namespace {

/// splitmix64 (Steele, Lea, Flood 2014): a counter through a mixing function, so that value i of a
/// blob does not depend on the others.
std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

/// FNV-1a of a name.
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325U;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return h;
}

struct Range {
  double low, high;
};

/// The interval of a blob's random values. Uniform in +-sqrt(6/fan_in) has He's variance 2/fan_in.
Range random_range(const Op& op, const Blob& blob, std::size_t i) {
  if (std::holds_alternative<BatchNormOp>(op)) {
    constexpr Range kBatchNorm[] = {{-0.1, 0.1}, {0.5, 1.5}, {1, 1}, {0.8, 1.2}, {-0.1, 0.1}};
    return kBatchNorm[std::min<std::size_t>(i, 4)];
  }
  if (i == 1) return {-0.1, 0.1};
  if (std::holds_alternative<PReluOp>(op)) return {0.1, 0.4};
  if (blob.dims.size() < 2) return {0.8, 1.2};
  double fan_in = static_cast<double>(blob.count()) / static_cast<double>(blob.dims[0]);
  if (const auto* deconv = std::get_if<DeconvOp>(&op)) {
    // Each output pixel gathers 1/(stride^2) of the taps, from the channels of its group.
    fan_in = static_cast<double>(blob.dims[0] * deconv->kh * deconv->kw) /
             static_cast<double>(deconv->g * deconv->sh * deconv->sw);
  }
  const double a = std::sqrt(6 / std::max(1.0, fan_in));
  return {-a, a};
}

/// Layers whose weights are to be smaller: where tensors are added, variances add up, and dozens of
/// residual blocks would make the outputs of a network one large number and many zeros.
std::vector<bool> feeds_sum(const Network& net) {
  std::vector<bool> marked(net.layers.size(), false);
  const std::vector<LayerId> made_by = producers(net);
  const auto mark = [&](TensorId t) {
    while (true) {
      const LayerId id = made_by[static_cast<std::size_t>(t)];
      if (id < 0) return;
      const Layer& layer = net.layers[static_cast<std::size_t>(id)];
      if (std::holds_alternative<ConvOp>(layer.op)) marked[static_cast<std::size_t>(id)] = true;
      const bool passes_on = std::holds_alternative<AffineOp>(layer.op) ||
                             std::holds_alternative<BatchNormOp>(layer.op) ||
                             std::holds_alternative<IdentityOp>(layer.op);
      if (!passes_on || layer.inputs.empty()) return;
      t = layer.inputs[0];
    }
  };
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    const Layer& layer = net.layers[i];
    const auto* sum = std::get_if<EltwiseOp>(&layer.op);
    const auto* conv = std::get_if<ConvOp>(&layer.op);
    if (sum != nullptr && sum->kind == EltwiseOp::Kind::sum && layer.inputs.size() > 1) {
      for (const TensorId t : layer.inputs) mark(t);
    } else if (conv != nullptr && conv->epilogue.residual) {
      marked[i] = true;
      mark(layer.inputs.at(1));
    }
  }
  return marked;
}

}  // namespace

void random_weights(Network& net, std::uint64_t seed) {
  std::map<std::string, std::shared_ptr<const std::vector<float>>> shared;
  const std::vector<bool> halved = feeds_sum(net);
  for (std::size_t l = 0; l < net.layers.size(); ++l) {
    Layer& layer = net.layers[l];
    for (std::size_t i = 0; i < layer.blobs.size(); ++i) {
      Blob& blob = layer.blobs[i];
      if (blob.data != nullptr) continue;
      if (const auto it = shared.find(blob.name);
          it != shared.end() && static_cast<Index>(it->second->size()) == blob.count()) {
        blob.data = it->second;
        continue;
      }
      Range range = random_range(layer.op, blob, i);
      if (halved[l] && i == 0) range = {range.low / 2, range.high / 2};
      const std::uint64_t key =
          mix(seed + mix(hash(blob.name.empty() ? layer.name : blob.name) + i));
      std::vector<float> values(static_cast<std::size_t>(blob.count()));
      for (std::size_t j = 0; j < values.size(); ++j) {
        const double unit = static_cast<double>(mix(key + j) >> 11) * 0x1p-53;
        values[j] = static_cast<float>(range.low + (range.high - range.low) * unit);
      }
      blob.data = std::make_shared<const std::vector<float>>(std::move(values));
      if (!blob.name.empty()) shared[blob.name] = blob.data;
    }
  }
}

}  // namespace convprim
