// All steps but convolutions as calls of cuDNN and copies.
#include "gpu/cudnn/kernels.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "gpu/merge.hpp"

namespace convprim::ios {
namespace {

constexpr float kOne = 1, kZero = 0;

std::size_t at(int i) { return static_cast<std::size_t>(i); }
int narrow(Index i) { return static_cast<int>(i); }
std::size_t bytes(Index floats) { return static_cast<std::size_t>(floats) * sizeof(float); }

/// Copies of rows: concatenations, slices, and what only passes its input on.
class CopyKernel final : public Kernel {
 public:
  /// `width` floats, `height` times, from input to output.
  struct Part {
    std::size_t in = 0, out = 0;
    Index from = 0, from_pitch = 0, to = 0, to_pitch = 0, width = 0, height = 1;
  };
  explicit CopyKernel(std::vector<Part> parts) : parts_(std::move(parts)) {}
  void launch(const Launch& where, const float* const* in, float* const* out) const override {
    for (const Part& p : parts_) {
      must(
          cudaMemcpy2DAsync(out[p.out] + p.to, bytes(p.to_pitch), in[p.in] + p.from,
                            bytes(p.from_pitch), bytes(p.width), static_cast<std::size_t>(p.height),
                            cudaMemcpyDeviceToDevice, where.stream),
          "a copy");
    }
  }

 private:
  std::vector<Part> parts_;
};

/// Extents before, on and behind an axis of (n, c, h, w).
struct Extents {
  Index outer = 1, own = 1, inner = 1;
};
Extents extents(const Shape& s, int axis) {
  const std::array<Index, 4> dims = {s.n, s.c, s.h, s.w};
  Extents e;
  for (int i = 0; i < 4; ++i) (i < axis ? e.outer : i == axis ? e.own : e.inner) *= dims[at(i)];
  return e;
}

std::unique_ptr<Kernel> make_concat(const Network& net, const Step& step, const ConcatOp& op) {
  const Layer& layer = net.layers[at(step.layers[0])];
  const Extents whole = extents(step.shape, op.axis);
  std::vector<CopyKernel::Part> parts;
  Index to = 0;
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const Shape& s = net.tensors[at(layer.inputs[i])].shape;
    const Extents e = extents(s, op.axis);
    const View& v = step.in[i];
    // A slice of a merged output lies among other channels.
    const Index from_pitch = op.axis == 1 ? v.channels * e.inner : e.own * e.inner;
    parts.push_back({i, 0, op.axis == 1 ? v.begin * e.inner : 0, from_pitch, to * e.inner,
                     whole.own * e.inner, e.own * e.inner, e.outer});
    to += e.own;
  }
  return std::make_unique<CopyKernel>(std::move(parts));
}

std::unique_ptr<Kernel> make_slice(const Network& net, const Step& step, const SliceOp& op) {
  const Layer& layer = net.layers[at(step.layers[0])];
  const Extents whole = extents(net.tensors[at(layer.inputs[0])].shape, op.axis);
  std::vector<CopyKernel::Part> parts;
  Index from = 0;
  for (std::size_t i = 0; i < layer.outputs.size(); ++i) {
    const Extents e = extents(net.tensors[at(layer.outputs[i])].shape, op.axis);
    parts.push_back(
        {0, i, from * e.inner, whole.own * e.inner, 0, e.own * e.inner, e.own * e.inner, e.outer});
    from += e.own;
  }
  return std::make_unique<CopyKernel>(std::move(parts));
}

class PoolKernel final : public Kernel {
 public:
  PoolKernel(const PoolOp& op, const Shape& in, const Shape& out, const std::string& layer)
      : x_(describe(in)), y_(describe(out)) {
    const bool avg = op.method == PoolOp::Method::avg;
    const Index kh = op.global ? in.h : op.kh, kw = op.global ? in.w : op.kw;
    const Index pt = op.global ? 0 : op.pt, pl = op.global ? 0 : op.pl;
    const Index sh = op.global ? 1 : op.sh, sw = op.global ? 1 : op.sw;
    if (op.dh != 1 || op.dw != 1)
      throw Error(fmt::format("layer \"{}\": cuDNN knows no dilated pooling", layer));
    // cuDNN divides by the whole window, also where it hangs over the padded image.
    const bool over =
        (out.h - 1) * sh + kh > in.h + 2 * pt || (out.w - 1) * sw + kw > in.w + 2 * pl;
    if (avg && op.count_padding && over) {
      throw Error(fmt::format(
          "layer \"{}\": cuDNN cannot average windows that hang over the padded image", layer));
    }
    const auto mode = !avg               ? CUDNN_POOLING_MAX
                      : op.count_padding ? CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
                                         : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING;
    must(cudnnSetPooling2dDescriptor(pool_, mode, CUDNN_PROPAGATE_NAN, narrow(kh), narrow(kw),
                                     narrow(pt), narrow(pl), narrow(sh), narrow(sw)),
         "describing a pooling");
  }
  void launch(const Launch& where, const float* const* in, float* const* out) const override {
    must(cudnnPoolingForward(where.handle, pool_, &kOne, x_, in[0], &kZero, y_, out[0]),
         "a pooling");
  }

 private:
  TensorDescriptor x_, y_;
  PoolDescriptor pool_;
};

class ActivationKernel final : public Kernel {
 public:
  ActivationKernel(const Shape& s, ActivationDescriptor activation)
      : x_(describe(s)), activation_(std::move(activation)) {}
  void launch(const Launch& where, const float* const* in, float* const* out) const override {
    must(cudnnActivationForward(where.handle, activation_, &kOne, x_, in[0], &kZero, x_, out[0]),
         "an activation");
  }

 private:
  TensorDescriptor x_;
  ActivationDescriptor activation_;
};

ActivationDescriptor activation(const ActivationOp& op, const std::string& layer) {
  using Kind = ActivationOp::Kind;
  ActivationDescriptor d;
  const auto set = [&](cudnnActivationMode_t mode, double coefficient) {
    must(cudnnSetActivationDescriptor(d, mode, CUDNN_PROPAGATE_NAN, coefficient),
         "describing an activation");
  };
  if (op.kind == Kind::clamp) {
    Clamp clamp = clamp_of(op.lo, op.hi, layer);
    if (clamp.any) return std::move(clamp.descriptor);
  } else if (op.kind == Kind::sigmoid) {
    set(CUDNN_ACTIVATION_SIGMOID, 0);
    return d;
  } else if (op.kind == Kind::tanh) {
    set(CUDNN_ACTIVATION_TANH, 0);
    return d;
  } else if (op.kind == Kind::elu && op.scale == 1) {
    set(CUDNN_ACTIVATION_ELU, static_cast<double>(op.slope));
    return d;
  } else if (op.kind == Kind::swish) {
    set(CUDNN_ACTIVATION_SWISH, 0);
    must(cudnnSetActivationDescriptorSwishBeta(d, static_cast<double>(op.slope)),
         "describing an activation");
    return d;
  }
  throw Error(fmt::format("layer \"{}\": the cuDNN back end has no such activation", layer));
}

/// out = op(a * in0, b * in1), then with each further input, then clamped.
class EltwiseKernel final : public Kernel {
 public:
  EltwiseKernel(cudnnOpTensorOp_t op, const Shape& s, const std::vector<Shape>& inputs,
                std::vector<float> coefficients, Clamp clamp)
      : y_(describe(s)), coefficients_(std::move(coefficients)), clamp_(std::move(clamp)) {
    for (const Shape& in : inputs) x_.push_back(describe(in));
    must(cudnnSetOpTensorDescriptor(op_, op, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN),
         "describing an element-wise operation");
  }
  void launch(const Launch& where, const float* const* in, float* const* out) const override {
    const auto apply = [&](const float* scale, const TensorDescriptor& d, const float* a,
                           std::size_t i) {
      must(cudnnOpTensor(where.handle, op_, scale, d, a, &coefficients_[i], x_[i], in[i], &kZero,
                         y_, out[0]),
           "an element-wise operation");
    };
    apply(&coefficients_[0], x_[0], in[0], 1);
    for (std::size_t i = 2; i < x_.size(); ++i) apply(&kOne, y_, out[0], i);
    if (clamp_.any) {
      must(cudnnActivationForward(where.handle, clamp_.descriptor, &kOne, y_, out[0], &kZero, y_,
                                  out[0]),
           "an activation");
    }
  }

 private:
  TensorDescriptor y_;
  std::vector<TensorDescriptor> x_;
  OpDescriptor op_;
  std::vector<float> coefficients_;
  Clamp clamp_;
};

std::unique_ptr<Kernel> make_eltwise(const EltwiseOp& op, const Shape& s,
                                     const std::vector<Shape>& inputs, const std::string& layer) {
  using Kind = EltwiseOp::Kind;
  if (inputs.size() < 2)
    throw Error(fmt::format("layer \"{}\": has a single input to combine", layer));
  auto coefficients = op.coeff;
  if (coefficients.empty() || op.kind != Kind::sum) coefficients.assign(inputs.size(), 1.0F);
  const auto kind = op.kind == Kind::sum    ? CUDNN_OP_TENSOR_ADD
                    : op.kind == Kind::prod ? CUDNN_OP_TENSOR_MUL
                                            : CUDNN_OP_TENSOR_MAX;
  return std::make_unique<EltwiseKernel>(kind, s, inputs, std::move(coefficients),
                                         clamp_of(op.lo, op.hi, layer));
}

std::unique_ptr<Kernel> make_broadcast(const BroadcastOp& op, const Shape& s,
                                       const std::vector<Shape>& inputs, const std::string& layer) {
  using Kind = BroadcastOp::Kind;
  const std::map<Kind, cudnnOpTensorOp_t> known = {{Kind::add, CUDNN_OP_TENSOR_ADD},
                                                   {Kind::sub, CUDNN_OP_TENSOR_ADD},
                                                   {Kind::mul, CUDNN_OP_TENSOR_MUL},
                                                   {Kind::max, CUDNN_OP_TENSOR_MAX},
                                                   {Kind::min, CUDNN_OP_TENSOR_MIN}};
  const auto it = known.find(op.kind);
  if (it == known.end() || !(inputs[0] == s)) {
    throw Error(
        fmt::format("layer \"{}\": the cuDNN back end has no such element-wise operation", layer));
  }
  return std::make_unique<EltwiseKernel>(
      it->second, s, inputs, std::vector<float>{1, op.kind == Kind::sub ? -1.0F : 1.0F}, Clamp{});
}

/// Scale and shift of each channel.
class AffineKernel final : public Kernel {
 public:
  AffineKernel(const Shape& s, const Layer& layer)
      : x_(describe(s)),
        channel_(describe({1, s.c, 1, 1})),
        scale_(*layer.blobs[0].data),
        shift_(*layer.blobs[1].data) {
    must(cudnnSetOpTensorDescriptor(multiply_, CUDNN_OP_TENSOR_MUL, CUDNN_DATA_FLOAT,
                                    CUDNN_PROPAGATE_NAN),
         "describing a multiplication");
  }
  void load(const Loader&) override {
    device_scale_ = DeviceMemory(std::span<const float>(scale_));
    device_shift_ = DeviceMemory(std::span<const float>(shift_));
  }
  void launch(const Launch& where, const float* const* in, float* const* out) const override {
    must(cudnnOpTensor(where.handle, multiply_, &kOne, x_, in[0], &kOne, channel_,
                       device_scale_.data(), &kZero, x_, out[0]),
         "scaling channels");
    must(cudnnAddTensor(where.handle, &kOne, channel_, device_shift_.data(), &kOne, x_, out[0]),
         "shifting channels");
  }

 private:
  TensorDescriptor x_, channel_;
  OpDescriptor multiply_;
  std::vector<float> scale_, shift_;
  DeviceMemory device_scale_, device_shift_;
};

class SoftmaxKernel final : public Kernel {
 public:
  SoftmaxKernel(const SoftmaxOp& op, const Shape& s)
      : x_(describe(s)), algorithm_(op.log ? CUDNN_SOFTMAX_LOG : CUDNN_SOFTMAX_ACCURATE) {}
  void launch(const Launch& where, const float* const* in, float* const* out) const override {
    must(cudnnSoftmaxForward(where.handle, algorithm_, CUDNN_SOFTMAX_MODE_CHANNEL, &kOne, x_, in[0],
                             &kZero, x_, out[0]),
         "a softmax");
  }

 private:
  TensorDescriptor x_;
  cudnnSoftmaxAlgorithm_t algorithm_;
};

class LrnKernel final : public Kernel {
 public:
  LrnKernel(const LrnOp& op, const Shape& s) : x_(describe(s)) {
    must(cudnnSetLRNDescriptor(lrn_, static_cast<unsigned>(op.size), static_cast<double>(op.alpha),
                               static_cast<double>(op.beta), static_cast<double>(op.k)),
         "describing a local response normalisation");
  }
  void launch(const Launch& where, const float* const* in, float* const* out) const override {
    must(cudnnLRNCrossChannelForward(where.handle, lrn_, CUDNN_LRN_CROSS_CHANNEL_DIM1, &kOne, x_,
                                     in[0], &kZero, x_, out[0]),
         "a local response normalisation");
  }

 private:
  TensorDescriptor x_;
  LrnDescriptor lrn_;
};

const std::vector<float>& values(const Layer& layer, std::size_t blob) {
  if (blob >= layer.blobs.size() || !layer.blobs[blob].data) {
    throw Error(
        fmt::format("layer \"{}\": has no weights; load them or make random ones", layer.name));
  }
  return *layer.blobs[blob].data;
}

std::unique_ptr<Kernel> make_conv(const Network& net, const Step& step, bool tf32) {
  ConvProblem p;
  const MergedConv merged = merge(net, step.layers);
  MergedWeights weights = merged_weights(net, step.layers, merged);
  p.scenario = merged.scenario;
  p.epilogue = merged.op.epilogue;
  p.filter = std::move(weights.filter);
  p.bias = std::move(weights.bias);
  p.tf32 = tf32;
  p.name = net.layers[at(step.layers[0])].name;
  return legacy_convolutions().make(std::move(p));
}

std::unique_ptr<Kernel> make_fc(const Layer& layer, const InnerProductOp& op, const Shape& in,
                                bool tf32) {
  ConvProblem p;
  const Index k = in.c * in.h * in.w;
  p.scenario = Scenario::padded({in.n, k, 1, 1}, op.m, 1, 1, 1, 1, 0, 0, 0, 0);
  p.epilogue.lo = op.lo;
  p.epilogue.hi = op.hi;
  p.filter = values(layer, 0);
  if (op.bias) p.bias = values(layer, 1);
  p.tf32 = tf32;
  p.name = layer.name;
  return legacy_convolutions().make(std::move(p));
}

std::unique_ptr<Kernel> make_layer(const Network& net, const Step& step, bool tf32) {
  const Layer& layer = net.layers[at(step.layers[0])];
  std::vector<Shape> in;
  for (TensorId t : layer.inputs) in.push_back(net.tensors[at(t)].shape);
  const Shape& out = step.shape;
  if (const auto* op = std::get_if<InnerProductOp>(&layer.op))
    return make_fc(layer, *op, in[0], tf32);
  if (const auto* op = std::get_if<PoolOp>(&layer.op); op != nullptr && layer.outputs.size() == 1)
    return std::make_unique<PoolKernel>(*op, in[0], out, layer.name);
  if (const auto* op = std::get_if<ConcatOp>(&layer.op)) return make_concat(net, step, *op);
  if (const auto* op = std::get_if<SliceOp>(&layer.op)) return make_slice(net, step, *op);
  if (const auto* op = std::get_if<EltwiseOp>(&layer.op))
    return make_eltwise(*op, out, in, layer.name);
  if (const auto* op = std::get_if<BroadcastOp>(&layer.op))
    return make_broadcast(*op, out, in, layer.name);
  if (const auto* op = std::get_if<ActivationOp>(&layer.op))
    return std::make_unique<ActivationKernel>(out, activation(*op, layer.name));
  if (std::holds_alternative<AffineOp>(layer.op)) {
    values(layer, 0);
    values(layer, 1);
    return std::make_unique<AffineKernel>(out, layer);
  }
  if (const auto* op = std::get_if<SoftmaxOp>(&layer.op); op != nullptr && op->axis == 1)
    return std::make_unique<SoftmaxKernel>(*op, out);
  if (const auto* op = std::get_if<LrnOp>(&layer.op); op != nullptr && !op->within_channel)
    return std::make_unique<LrnKernel>(*op, out);
  if (std::holds_alternative<FlattenOp>(layer.op) || std::holds_alternative<ReshapeOp>(layer.op) ||
      std::holds_alternative<IdentityOp>(layer.op)) {
    const Index count = out.count();
    return std::make_unique<CopyKernel>(
        std::vector<CopyKernel::Part>{{0, 0, 0, count, 0, count, count, 1}});
  }
  throw Error(fmt::format("layer \"{}\": the cuDNN back end cannot compute this {}", layer.name,
                          kind(layer.op)));
}

}  // namespace

TensorDescriptor describe(const Shape& s) {
  TensorDescriptor d;
  must(cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, narrow(s.n), narrow(s.c),
                                  narrow(s.h), narrow(s.w)),
       "describing a tensor");
  return d;
}

Clamp clamp_of(float lo, float hi, const std::string& layer) {
  Clamp clamp;
  if (std::isinf(lo) && std::isinf(hi)) return clamp;
  if (lo != 0) {
    throw Error(fmt::format(
        "layer \"{}\": the cuDNN back end can clamp to 0 and above only, not to {}", layer, lo));
  }
  clamp.any = true;
  const bool relu = std::isinf(hi);
  must(cudnnSetActivationDescriptor(clamp.descriptor,
                                    relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_CLIPPED_RELU,
                                    CUDNN_PROPAGATE_NAN, relu ? 0.0 : static_cast<double>(hi)),
       "describing a clamp");
  return clamp;
}

std::unique_ptr<Kernel> make_kernel(const OperatorGraph& graph, const Step& step, bool tf32) {
  const Network& net = graph.net;
  if (step.kind == Step::Kind::copy) {
    const View& v = step.in[0];
    const Index pixels = step.shape.h * step.shape.w, count = step.shape.c * pixels;
    return std::make_unique<CopyKernel>(std::vector<CopyKernel::Part>{
        {0, 0, v.begin * pixels, v.channels * pixels, 0, count, count, step.shape.n}});
  }
  if (std::holds_alternative<ConvOp>(net.layers[at(step.layers[0])].op))
    return make_conv(net, step, tf32);
  return make_layer(net, step, tf32);
}

}  // namespace convprim::ios
