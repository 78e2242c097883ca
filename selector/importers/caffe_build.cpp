// Caffe layers to operations, one function for each type of layer, with Caffe's shape rules.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "convprim/error.hpp"
#include "selector/importers/caffe.hpp"
#include "selector/importers/net_builder.hpp"
#include "selector/network_infer.hpp"

namespace convprim::caffe {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Builder : NetBuilder {
 public:
  Builder(const Parsed& parsed, const std::string& file, const ImportOptions& options)
      : NetBuilder(file, options), parsed_(parsed) {
    net_.name = parsed.net.name();
    net_.remarks = parsed.remarks;
  }

  Built run();

 private:
  struct Row {
    std::string_view type;
    void (Builder::*make)();
  };
  static const Row* find_row(std::string_view type);

  // --- the network's inputs ---
  void net_inputs();
  void data_layer();
  Dims data_dims(const LayerParameter& p, int top) const;
  TensorId lazy_data(const std::string& name);
  struct LazyTop {
    const LayerParameter* layer;
    int line;
    int top;
  };

  // --- adding layers ---
  /// Makes `layer` the one at hand.
  void take(const LayerParameter* layer, int line) {
    p_ = layer;
    current_ = {layer->name(), layer->type(), line};
  }
  /// The layer at hand as one operation, from all its bottoms to all its tops.
  LayerId simple(Op op, int rank = 0, std::vector<Blob> blobs = {}) {
    return add(std::move(op), in_, tops(), rank, std::move(blobs));
  }
  void opaque(const std::string& why, const std::vector<Dims>& dims = {}) {
    add_opaque(why, in_, tops(), dims);
  }
  std::vector<std::string> tops() const { return {p_->top().begin(), p_->top().end()}; }
  std::string inner(const char* suffix) const { return fmt::format("{}/{}", p_->top(0), suffix); }
  void slot(std::size_t blob, std::size_t source_blob, bool transpose = false);
  void slots(std::size_t count);
  void need_inputs(std::size_t least, std::size_t most) const;

  // --- layers ---
  template <class Window>
  bool window(const ConvolutionParameter& c, Window& op);
  void convolution();
  void deconvolution();
  void pooling();
  void spp();
  void inner_product();
  void lrn();
  void batch_norm();
  void bn();
  void scale();
  void bias();
  void scale_or_bias(Index axis, Index num_axes, bool is_scale, bool bias_term);
  void eltwise();
  void axpy();
  void concat();
  void slice();
  void crop();
  void softmax();
  void flatten();
  void reshape();
  void permute();
  void tile();
  void reduction();
  void argmax();
  void relu();
  void relu6();
  void prelu();
  void activation(ActivationOp op) { simple(op); }
  void sigmoid() { activation({.kind = ActivationOp::Kind::sigmoid}); }
  void tanh() { activation({.kind = ActivationOp::Kind::tanh}); }
  void abs() { activation({.kind = ActivationOp::Kind::abs}); }
  void bnll() { activation({.kind = ActivationOp::Kind::softplus}); }
  void elu() { activation({.kind = ActivationOp::Kind::elu, .slope = p_->elu_param().alpha()}); }
  void selu() {
    // Klambauer et al., arXiv 1706.02515.
    activation({.kind = ActivationOp::Kind::elu,
                .slope = 1.6732632423543772F,
                .scale = 1.0507009873554805F});
  }
  void swish() {
    activation({.kind = ActivationOp::Kind::swish, .slope = p_->swish_param().beta()});
  }
  void clip();
  void power();
  void exp();
  void log();
  void identity() { simple(IdentityOp{}); }
  void padding();
  void normalize();
  void interp();
  void upsample();
  void shuffle();
  void parameter();
  void prior_box();
  void detection() { opaque("detection layers are not run"); }
  void proposal();
  void roi_pooling();
  void psroi_pooling();
  void reorg();
  void recurrent();
  void embed();
  void continuation();
  void same_shape();
  void unknown_type();

  const Parsed& parsed_;
  std::vector<Slot> slots_;
  std::map<std::string, LazyTop> lazy_;  // tops of data layers that nobody has read yet
  std::set<TensorId> silenced_;
  std::map<std::string, int> readers_;  // layers that read each name
  std::vector<std::string> cut_;        // layers behind an unknown shape
  std::vector<std::string> dropped_;    // losses and the like

  // The layer at hand.
  const LayerParameter* p_ = nullptr;
  std::vector<TensorId> in_;
};

// ---------------------------------------------------------------- tools

void Builder::need_inputs(std::size_t least, std::size_t most) const {
  if (in_.size() < least || in_.size() > most) {
    const std::string range =
        least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
    fail(fmt::format("it has {} bottoms, the type takes {}", in_.size(), range));
  }
}

void Builder::slot(std::size_t blob, std::size_t source_blob, bool transpose) {
  const auto id = static_cast<LayerId>(net_.layers.size()) - 1;
  slots_.push_back({id, blob, p_->name(), source_blob, transpose});
  const auto param = static_cast<int>(source_blob);
  if (param < p_->param_size() && !p_->param(param).name().empty()) {
    net_.layers.back().blobs[blob].name = p_->param(param).name();
  }
}

void Builder::slots(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) slot(i, i);
}

// ---------------------------------------------------------------- inputs

void Builder::net_inputs() {
  const NetParameter& net = parsed_.net;
  std::map<std::string, bool> own_layer;  // tops of data layers; true if the layer has a shape
  for (const LayerParameter& layer : net.layer()) {
    if (layer.bottom_size() > 0) continue;
    for (const std::string& top : layer.top()) {
      own_layer[top] = layer.input_param().shape_size() > 0;
    }
  }
  for (int i = 0; i < net.input_size(); ++i) {
    const std::string& name = net.input(i);
    const auto own = own_layer.find(name);
    if (own != own_layer.end() && own->second) continue;
    Dims dims;
    if (i < net.input_shape_size()) {
      dims.assign(net.input_shape(i).dim().begin(), net.input_shape(i).dim().end());
    } else if (net.input_dim_size() >= 4 * (i + 1)) {
      dims.assign(net.input_dim().begin() + 4 * i, net.input_dim().begin() + 4 * (i + 1));
    } else if (own != own_layer.end()) {
      continue;
    } else if (!options_.shapes.contains(name)) {
      throw Error(
          fmt::format("{}: the input \"{}\" has no shape in the file; give one with "
                      "--input-shape {}=N,C,H,W.",
                      net_.file, name, name));
    }
    feed(name, dims, "Input", 0);
  }
}

Dims Builder::data_dims(const LayerParameter& p, int top) const {
  const auto pick = [&](const google::protobuf::RepeatedField<google::protobuf::int64>& values) {
    return values.empty() ? 0 : values.Get(std::min(top, values.size() - 1));
  };
  if (p.input_param().shape_size() > 0) {
    const auto& shape = p.input_param().shape(std::min(top, p.input_param().shape_size() - 1));
    return {shape.dim().begin(), shape.dim().end()};
  }
  const DummyDataParameter& dummy = p.dummy_data_param();
  if (dummy.shape_size() > 0) {
    const auto& shape = dummy.shape(std::min(top, dummy.shape_size() - 1));
    return {shape.dim().begin(), shape.dim().end()};
  }
  if (dummy.num_size() > 0) {
    return {pick(dummy.num()), pick(dummy.channels()), pick(dummy.height()), pick(dummy.width())};
  }
  if (top > 0) return {};  // labels
  const MemoryDataParameter& memory = p.memory_data_param();
  if (memory.has_height()) {
    return {memory.batch_size(), memory.channels(), memory.height(), memory.width()};
  }
  Index batch = 1;
  Index crop = p.transform_param().crop_size();
  Index h = p.transform_param().resize_param().height();
  Index w = p.transform_param().resize_param().width();
  if (p.has_data_param()) {
    batch = std::max<Index>(1, p.data_param().batch_size());
    if (p.data_param().crop_size() > 0) crop = p.data_param().crop_size();
  }
  if (p.has_image_data_param()) {
    const ImageDataParameter& image = p.image_data_param();
    if (image.batch_size() > 0) batch = image.batch_size();
    if (image.crop_size() > 0) crop = image.crop_size();
    if (image.new_height() > 0) {
      h = image.new_height();
      w = image.new_width();
    }
  }
  if (p.has_window_data_param()) {
    batch = std::max<Index>(1, p.window_data_param().batch_size());
    if (p.window_data_param().crop_size() > 0) crop = p.window_data_param().crop_size();
  }
  if (crop > 0) return {batch, 3, crop, crop};
  if (h > 0 && w > 0) return {batch, 3, h, w};
  return {};
}

void Builder::data_layer() {
  // Labels and unused images do not count as inputs: a top is fed when a layer reads it.
  for (int i = 0; i < p_->top_size(); ++i) {
    tensors_.erase(p_->top(i));
    lazy_[p_->top(i)] = {p_, current_.line, i};
    if (p_->type() == "Input") lazy_data(p_->top(i));
  }
}

TensorId Builder::lazy_data(const std::string& name) {
  const auto it = lazy_.find(name);
  if (it == lazy_.end()) return -1;
  const LazyTop top = it->second;
  lazy_.erase(it);
  Dims dims = data_dims(*top.layer, top.top);
  const bool given = options_.shapes.contains(name);
  const LayerParameter* const outer = p_;
  const int outer_line = current_.line;
  take(top.layer, top.line);
  if (dims.empty() && !given) {
    if (top.top == 0) {
      fail(
          fmt::format("the file does not say the shape of \"{}\"; give it with "
                      "--input-shape {}=N,C,H,W",
                      name, name));
    }
    add(OpaqueOp{"a second output of data, whose shape the file does not say", {}}, {}, {name});
  } else {
    if (!given && p_->type() != "Input" && p_->type() != "DummyData" &&
        p_->type() != "MemoryData") {
      remark(fmt::format("assumed 3 channels: \"{}\" is {}; --input-shape {}=N,C,H,W changes it",
                         name, str(dims), name));
    }
    feed(name, dims, p_->type(), top.line);
  }
  if (outer != nullptr) take(outer, outer_line);
  return tensors_.at(name);
}

// ---------------------------------------------------------------- convolution

/// Kernel, stride, padding and dilation of one axis (0: rows, 1: columns) from the repeated field
/// or the field of that axis.
Index per_axis(const google::protobuf::RepeatedField<google::protobuf::int64>& values, bool has_own,
               Index own, int axis, Index otherwise) {
  if (has_own) return own;
  if (values.empty()) return otherwise;
  return values.Get(std::min(axis, values.size() - 1));
}

template <class Window>
bool Builder::window(const ConvolutionParameter& c, Window& op) {
  if (c.kernel_size_size() > 2 || c.stride_size() > 2 || c.pad_size() > 2 ||
      c.dilation_size() > 2) {
    opaque("convolutions over more than two axes are not supported");
    return false;
  }
  if (c.axis() != 1) {
    opaque(fmt::format("channels on axis {} are not supported", c.axis()));
    return false;
  }
  if (!c.has_num_output()) fail("num_output is missing");
  op.m = c.num_output();
  op.g = c.group();
  op.kh = per_axis(c.kernel_size(), c.has_kernel_h(), c.kernel_h(), 0, 0);
  op.kw = per_axis(c.kernel_size(), c.has_kernel_w(), c.kernel_w(), 1, 0);
  if (op.kh == 0 || op.kw == 0) fail("kernel_size is missing");
  op.sh = per_axis(c.stride(), c.has_stride_h(), c.stride_h(), 0, 1);
  op.sw = per_axis(c.stride(), c.has_stride_w(), c.stride_w(), 1, 1);
  op.pt = op.pb = per_axis(c.pad(), c.has_pad_h(), c.pad_h(), 0, 0);
  op.pl = op.pr = per_axis(c.pad(), c.has_pad_w(), c.pad_w(), 1, 0);
  const auto& dilation = c.dilation_size() > 0 ? c.dilation() : c.hole();
  op.dh = per_axis(dilation, c.has_hole_h(), c.hole_h(), 0, 1);
  op.dw = per_axis(dilation, c.has_hole_w(), c.hole_w(), 1, 1);
  op.bias = c.bias_term();
  return true;
}

void Builder::convolution() {
  const ConvolutionParameter& c = p_->convolution_param();
  if (in_.size() != at(p_->top_size())) {
    fail(fmt::format("it has {} bottoms and {} tops, which must be as many", in_.size(),
                     p_->top_size()));
  }
  ConvOp op;
  if (!window(c, op)) return;
  if (p_->type() != "Convolution" && !c.has_group() && !in_.empty()) op.g = shape(in_[0]).c;
  // Several bottoms go through the same filter, each into its own top.
  const std::vector<TensorId> bottoms = in_;
  for (std::size_t i = 0; i < bottoms.size(); ++i) {
    add(op, {bottoms[i]}, {p_->top(static_cast<int>(i))}, 4);
    slots(op.bias ? 2 : 1);
    if (bottoms.size() == 1) continue;
    for (std::size_t b = 0; b < net_.layers.back().blobs.size(); ++b) {
      std::string& name = net_.layers.back().blobs[b].name;
      if (name.empty()) name = fmt::format("{}/{}", p_->name(), b);
    }
  }
}

void Builder::deconvolution() {
  need_inputs(1, 1);
  DeconvOp op;
  if (!window(p_->convolution_param(), op)) return;
  simple(op, 4);
  slots(op.bias ? 2 : 1);
}

void Builder::pooling() {
  need_inputs(1, 1);
  const PoolingParameter& p = p_->pooling_param();
  PoolOp op;
  op.method = p.pool() == PoolingParameter::AVE ? PoolOp::Method::avg : PoolOp::Method::max;
  if (p.pool() == PoolingParameter::STOCHASTIC) {
    fail("stochastic pooling has no defined result; use MAX or AVE");
  }
  op.global = p.global_pooling();
  op.kh = p.has_kernel_h() ? p.kernel_h() : p.kernel_size();
  op.kw = p.has_kernel_w() ? p.kernel_w() : p.kernel_size();
  if (!op.global && (op.kh == 0 || op.kw == 0)) fail("kernel_size is missing");
  const Index stride = p.has_stride() ? p.stride() : 1;
  op.sh = p.has_stride_h() ? p.stride_h() : stride;
  op.sw = p.has_stride_w() ? p.stride_w() : stride;
  op.pt = op.pb = p.has_pad_h() ? p.pad_h() : p.pad();
  op.pl = op.pr = p.has_pad_w() ? p.pad_w() : p.pad();
  op.ceil = p.has_ceil_mode() ? p.ceil_mode() : p.round_mode() == PoolingParameter::CEIL;
  if (p_->top_size() > 2 || (p_->top_size() == 2 && op.method == PoolOp::Method::avg)) {
    fail("only MAX pooling has a second top, its mask");
  }
  if (p_->top_size() == 2 && readers_[p_->top(1)] == 0) {
    add(op, in_, {p_->top(0)}, 4);
    return;
  }
  simple(op, 4);
}

void Builder::spp() {
  // Spatial pyramid pooling (He et al., arXiv 1406.4729): level i has 2^i x 2^i bins of
  // ceil(extent / 2^i), padded to fit, flattened and put behind one another.
  need_inputs(1, 1);
  const SPPParameter& p = p_->spp_param();
  if (p.pyramid_height() < 1 || p.pyramid_height() > 10) {
    fail(fmt::format("pyramid_height is {}; it must be 1 to 10", p.pyramid_height()));
  }
  const Shape s = shape(in_[0]);
  std::vector<TensorId> parts;
  for (Index level = 0; level < p.pyramid_height(); ++level) {
    const Index bins = Index{1} << level;
    PoolOp op;
    op.method = p.pool() == SPPParameter::AVE ? PoolOp::Method::avg : PoolOp::Method::max;
    op.kh = op.sh = (s.h + bins - 1) / bins;
    op.kw = op.sw = (s.w + bins - 1) / bins;
    op.pt = op.pb = (op.kh * bins - s.h + 1) / 2;
    op.pl = op.pr = (op.kw * bins - s.w + 1) / 2;
    add(op, {in_[0]}, {inner("pool")}, 4);
    add(FlattenOp{}, {last()}, {inner("flat")}, 2);
    parts.push_back(last());
  }
  add(ConcatOp{}, parts, {p_->top(0)}, 2);
}

void Builder::inner_product() {
  need_inputs(1, 1);
  const InnerProductParameter& p = p_->inner_product_param();
  if (!p.has_num_output()) fail("num_output is missing");
  const InnerProductOp op{.m = p.num_output(), .bias = p.bias_term()};
  const int axis = axis_of(p.axis(), rank(in_[0]), "axis");
  const Dims from = dims(in_[0]);
  if (axis == 1) {
    simple(op, 2);
  } else {
    Index rows = 1;
    Index row = 1;
    for (std::size_t i = 0; i < from.size(); ++i) {
      (static_cast<int>(i) < axis ? rows : row) *= from[i];
    }
    add(op, {reshaped(in_[0], {rows, row}, inner("rows"))}, {inner("product")}, 2);
  }
  slot(0, 0, p.transpose());
  if (op.bias) slot(1, 1);
  if (axis != 1) {
    Dims to(from.begin(), from.begin() + axis);
    to.push_back(op.m);
    reshaped(last(), to, p_->top(0));
  }
}

void Builder::lrn() {
  need_inputs(1, 1);
  const LRNParameter& p = p_->lrn_param();
  if (p.local_size() < 1 || p.local_size() % 2 == 0) {
    fail(fmt::format("local_size is {}; it must be odd", p.local_size()));
  }
  const bool within = p.norm_region() == LRNParameter::WITHIN_CHANNEL;
  simple(LrnOp{.size = p.local_size(),
               .alpha = p.alpha(),
               .beta = p.beta(),
               .k = within ? 1 : p.k(),  // Caffe leaves k out there
               .within_channel = within});
}

void Builder::batch_norm() {
  need_inputs(1, 1);
  const BatchNormParameter& p = p_->batch_norm_param();
  if (p.has_use_global_stats() && !p.use_global_stats() && !options_.train) {
    remark("use_global_stats is false, which is for training; used the stored statistics");
  }
  const std::size_t count = p.scale_bias() ? 5 : 3;
  simple(BatchNormOp{p.eps()}, 0, std::vector<Blob>(count));
  slots(count);
}

void Builder::bn() {
  // The dialects of SegNet, PSPNet and TSN store slope and bias first, then mean and variance.
  need_inputs(1, 1);
  const BNParameter& p = p_->bn_param();
  simple(BatchNormOp{p.has_eps()       ? p.eps()
                     : p.has_var_eps() ? p.var_eps()
                                       : 1e-5F},
         0, std::vector<Blob>(5));
  net_.layers.back().blobs[2] = constant(1, 1);
  slot(0, 2);
  slot(1, 3);
  slot(3, 0);
  slot(4, 1);
}

void Builder::scale_or_bias(Index axis_field, Index num_axes, bool is_scale, bool bias_term) {
  need_inputs(1, 2);
  const Dims from = dims(in_[0]);
  const int axis = axis_of(axis_field, rank(in_[0]), "axis");
  const auto kind = is_scale ? BroadcastOp::Kind::mul : BroadcastOp::Kind::add;
  if (in_.size() == 1 && axis == 1 && num_axes == 1) {
    simple(AffineOp{});
    Layer& layer = net_.layers.back();
    if (!is_scale) layer.blobs[0] = constant(from[1], 1);
    if (is_scale && !bias_term) layer.blobs[1] = constant(from[1], 0);
    if (is_scale) slot(0, 0);
    if (!is_scale || bias_term) slot(1, is_scale ? 1 : 0);
    return;
  }
  // The factor covers the axes from `axis` on; the axes before and behind are broadcast.
  Dims factor(from.size(), 1);
  if (in_.size() == 2) {
    const Dims other = dims(in_[1]);
    if (other.size() + at(axis) > from.size() && checked_count(other) != 1) {
      fail(
          fmt::format("the second bottom's {} axes do not fit behind axis {}", other.size(), axis));
    }
    std::copy_n(other.begin(), std::min(other.size(), from.size() - at(axis)),
                factor.begin() + axis);
    const TensorId second = factor == other ? in_[1] : reshaped(in_[1], factor, inner("factor"));
    add(BroadcastOp{kind}, {in_[0], second}, {bias_term ? inner("scaled") : p_->top(0)},
        rank(in_[0]));
  } else {
    const Index count =
        num_axes == -1 ? static_cast<Index>(from.size()) - axis : std::max<Index>(0, num_axes);
    if (axis + count > static_cast<Index>(from.size())) {
      fail(fmt::format("{} axes from axis {} leave an input of {} axes", count, axis, from.size()));
    }
    std::copy_n(from.begin() + axis, count, factor.begin() + axis);
    add(ConstantOp{to_shape(factor)}, {}, {inner("factor")}, rank(in_[0]));
    slot(0, 0);
    const TensorId second = last();
    add(BroadcastOp{kind}, {in_[0], second}, {bias_term ? inner("scaled") : p_->top(0)},
        rank(in_[0]));
  }
  if (bias_term) {
    const TensorId scaled = last();
    add(ConstantOp{to_shape(factor)}, {}, {inner("bias")}, rank(in_[0]));
    slot(0, in_.size() == 2 ? 0 : 1);
    const TensorId bias = last();
    add(BroadcastOp{BroadcastOp::Kind::add}, {scaled, bias}, {p_->top(0)}, rank(in_[0]));
  }
}

void Builder::scale() {
  const ScaleParameter& p = p_->scale_param();
  scale_or_bias(p.axis(), p.num_axes(), true, p.bias_term());
}

void Builder::bias() {
  const BiasParameter& p = p_->bias_param();
  scale_or_bias(p.axis(), p.num_axes(), false, false);
}

void Builder::eltwise() {
  const EltwiseParameter& p = p_->eltwise_param();
  EltwiseOp op;
  op.kind = p.operation() == EltwiseParameter::PROD  ? EltwiseOp::Kind::prod
            : p.operation() == EltwiseParameter::MAX ? EltwiseOp::Kind::max
                                                     : EltwiseOp::Kind::sum;
  const bool plain =
      std::all_of(p.coeff().begin(), p.coeff().end(), [](float c) { return c == 1; });
  if (op.kind == EltwiseOp::Kind::sum && !plain)
    op.coeff.assign(p.coeff().begin(), p.coeff().end());
  simple(op);
}

void Builder::axpy() {
  // out = a * x + y with one factor a for each channel (squeeze and excitation).
  need_inputs(3, 3);
  const Shape s = shape(in_[0]);
  const TensorId factor = s.h == 1 && s.w == 1
                              ? in_[0]
                              : reshaped(in_[0], {s.n, s.c * s.h * s.w, 1, 1}, inner("factor"));
  add(BroadcastOp{BroadcastOp::Kind::mul}, {in_[1], factor}, {inner("scaled")}, rank(in_[1]));
  add(EltwiseOp{}, {last(), in_[2]}, {p_->top(0)}, rank(in_[1]));
}

void Builder::concat() {
  const ConcatParameter& p = p_->concat_param();
  if (in_.empty()) fail("it has no bottom");
  const Index axis = p.has_axis() || !p.has_concat_dim() ? p.axis() : p.concat_dim();
  simple(ConcatOp{axis_of(axis, rank(in_[0]), "axis")});
}

void Builder::slice() {
  need_inputs(1, 1);
  const SliceParameter& p = p_->slice_param();
  const Index axis = p.has_axis() || !p.has_slice_dim() ? p.axis() : p.slice_dim();
  SliceOp op;
  op.axis = axis_of(axis, rank(in_[0]), "axis");
  op.points.assign(p.slice_point().begin(), p.slice_point().end());
  simple(op);
}

void Builder::crop() {
  need_inputs(2, 2);
  const CropParameter& p = p_->crop_param();
  const int axis = axis_of(p.axis(), rank(in_[0]), "axis");
  const Dims reference = dims(in_[1]);
  CropOp op;
  for (int i = axis; i < rank(in_[0]); ++i) {
    const int o = std::min(i - axis, p.offset_size() - 1);
    op.begin[at(i)] = o < 0 ? 0 : p.offset(o);
    if (i >= static_cast<int>(reference.size())) fail("the second bottom has too few axes");
    op.extent[at(i)] = reference[at(i)];
  }
  add(op, {in_[0]}, {p_->top(0)});
}

void Builder::softmax() {
  need_inputs(1, 1);
  simple(SoftmaxOp{.axis = axis_of(p_->softmax_param().axis(), rank(in_[0]), "axis")});
}

void Builder::flatten() {
  need_inputs(1, 1);
  const FlattenParameter& p = p_->flatten_param();
  const Dims from = dims(in_[0]);
  const int begin = axis_of(p.axis(), rank(in_[0]), "axis");
  const int end = axis_of(p.end_axis(), rank(in_[0]), "end_axis");
  if (end < begin) fail(fmt::format("end_axis {} lies before axis {}", p.end_axis(), p.axis()));
  Dims to(from.begin(), from.begin() + begin);
  Index product = 1;
  for (int i = begin; i <= end; ++i) product *= from[at(i)];
  to.push_back(product);
  to.insert(to.end(), from.begin() + end + 1, from.end());
  if (begin == 1 && end + 1 == rank(in_[0])) {
    simple(FlattenOp{}, 2);
  } else {
    reshaped(in_[0], to, p_->top(0));
  }
}

void Builder::reshape() {
  need_inputs(1, 1);
  const ReshapeParameter& p = p_->reshape_param();
  const Dims from = dims(in_[0]);
  const auto r = static_cast<Index>(from.size());
  const Index begin = p.axis() >= 0 ? p.axis() : p.axis() + r + 1;
  const Index end = p.num_axes() == -1 ? r : begin + p.num_axes();
  if (begin < 0 || begin > r || end < begin || end > r) {
    fail(fmt::format("axis {} and num_axes {} leave an input of {} axes", p.axis(), p.num_axes(),
                     r));
  }
  Dims to(from.begin(), from.begin() + begin);
  Index known = 1;
  std::ptrdiff_t open = -1;
  for (int i = 0; i < p.shape().dim_size(); ++i) {
    Index d = p.shape().dim(i);
    if (d == 0) {
      if (begin + i >= r) fail("it copies an axis that the input does not have");
      d = from[at(begin + i)];
    } else if (d == -1 && open < 0) {
      open = static_cast<std::ptrdiff_t>(to.size());
      d = 1;
    } else if (d < 0) {
      fail("its shape has a negative extent, or two that are left open");
    }
    to.push_back(d);
  }
  to.insert(to.end(), from.begin() + end, from.end());
  known = checked_count(to);
  if (known < 1) fail("its shape is too large");
  const Index count = shape(in_[0]).count();
  if (open >= 0) to[at(open)] = count / known;
  if (checked_count(to) != count) {
    fail(
        fmt::format("{} elements of shape {} do not fit shape {}; if the batch was changed, the "
                    "file may fix it here",
                    count, str(from), str(to)));
  }
  if (to.size() > 4) {
    opaque(fmt::format("shapes of {} axes are not supported", to.size()), {to});
    return;
  }
  if (to.empty()) to = {1};
  reshaped(in_[0], to, p_->top(0));
}

void Builder::permute() {
  need_inputs(1, 1);
  const PermuteParameter& p = p_->permute_param();
  PermuteOp op;
  std::size_t next = 0;
  std::array<bool, 4> used = {};
  for (const Index axis : p.order()) {
    const int from = axis_of(axis, rank(in_[0]), "axis");
    if (used[at(from)]) fail(fmt::format("axis {} occurs twice in its order", axis));
    used[at(from)] = true;
    op.order[next++] = from;
  }
  for (int axis = 0; axis < 4; ++axis) {
    if (!used[at(axis)]) op.order[next++] = axis;
  }
  simple(op);
}

void Builder::tile() {
  need_inputs(1, 1);
  const TileParameter& p = p_->tile_param();
  constexpr Index kMost = 1024;
  if (p.tiles() < 1 || p.tiles() > kMost) {
    fail(fmt::format("tiles is {}; it must be 1 to {}", p.tiles(), kMost));
  }
  const int axis = axis_of(p.axis(), rank(in_[0]), "axis");
  add(ConcatOp{axis}, std::vector<TensorId>(at(p.tiles()), in_[0]), {p_->top(0)});
}

void Builder::reduction() {
  need_inputs(1, 1);
  const ReductionParameter& p = p_->reduction_param();
  const int axis = axis_of(p.axis(), rank(in_[0]), "axis");
  ReduceOp op;
  op.coeff = p.coeff();
  op.kind = p.operation() == ReductionParameter::ASUM    ? ReduceOp::Kind::l1
            : p.operation() == ReductionParameter::SUMSQ ? ReduceOp::Kind::sum_square
            : p.operation() == ReductionParameter::MEAN  ? ReduceOp::Kind::mean
                                                         : ReduceOp::Kind::sum;
  for (int i = 0; i < 4; ++i) op.axes[at(i)] = i >= axis;
  simple(op, std::max(1, axis));
}

void Builder::argmax() {
  need_inputs(1, 1);
  const ArgMaxParameter& p = p_->argmax_param();
  Dims to = dims(in_[0]);
  if (p.has_axis()) {
    to[at(axis_of(p.axis(), rank(in_[0]), "axis"))] = p.top_k();
  } else {
    to = {to[0], p.out_max_val() ? 2 : 1, p.top_k()};
  }
  opaque("positions of maxima are not supported", {to});
}

// ---------------------------------------------------------------- element by element

void Builder::relu() {
  const float slope = p_->relu_param().negative_slope();
  if (slope == 0) {
    activation({.kind = ActivationOp::Kind::clamp});
  } else {
    activation({.kind = ActivationOp::Kind::leaky, .slope = slope});
  }
}

void Builder::relu6() { activation({.kind = ActivationOp::Kind::clamp, .lo = 0, .hi = 6}); }

void Builder::clip() {
  const ClipParameter& p = p_->clip_param();
  activation({.kind = ActivationOp::Kind::clamp,
              .lo = p.has_min() ? p.min() : -kInfinity,
              .hi = p.has_max() ? p.max() : kInfinity});
}

void Builder::prelu() {
  need_inputs(1, 1);
  std::vector<Blob> blobs(1);
  if (p_->prelu_param().channel_shared()) blobs[0].dims = {1};
  simple(PReluOp{}, 0, blobs);
  slots(1);
}

void Builder::power() {
  const PowerParameter& p = p_->power_param();
  if (p.power() == 1 && p.scale() == 1 && p.shift() == 0) {
    identity();
    return;
  }
  activation({.kind = ActivationOp::Kind::power,
              .scale = p.scale(),
              .shift = p.shift(),
              .exponent = p.power()});
}

void Builder::exp() {
  const ExpParameter& p = p_->exp_param();
  if (p.base() != -1 && !(p.base() > 0)) fail(fmt::format("base {} is not positive", p.base()));
  const float factor = p.base() == -1 ? 1 : std::log(p.base());
  activation(
      {.kind = ActivationOp::Kind::exp, .scale = p.scale() * factor, .shift = p.shift() * factor});
}

void Builder::log() {
  need_inputs(1, 1);
  const ExpParameter& p = p_->log_param();
  const ActivationOp op{.kind = ActivationOp::Kind::log, .scale = p.scale(), .shift = p.shift()};
  if (p.base() == -1) {
    activation(op);
    return;
  }
  if (!(p.base() > 0) || p.base() == 1) fail(fmt::format("base {} has no logarithm", p.base()));
  add(op, in_, {inner("log")});
  add(ActivationOp{.kind = ActivationOp::Kind::power, .scale = 1 / std::log(p.base())}, {last()},
      {p_->top(0)});
}

// ---------------------------------------------------------------- types of forks

void Builder::padding() {
  // Folded into the convolutions that read it (upgrade()); nobody else may.
  if (readers_[p_->top(0)] > 0) fail("only convolutions may follow a padding layer");
}

void Builder::normalize() {
  need_inputs(1, 1);
  const NormalizeParameter& p = p_->norm_param();
  std::vector<Blob> blobs(1);
  if (p.channel_shared()) blobs[0].dims = {1};
  simple(NormalizeOp{.across_spatial = p.across_spatial(), .eps = p.eps()}, 0, blobs);
  slots(1);
}

void Builder::interp() {
  need_inputs(1, 2);
  const InterpParameter& p = p_->interp_param();
  const Shape s = shape(in_[0]);
  if (p.pad_beg() > 0 || p.pad_end() > 0) fail("pad_beg and pad_end must not be positive");
  const auto extent = [&](Index in, Index given) {
    in += p.pad_beg() + p.pad_end();
    if (given > 0) return given;
    if (p.shrink_factor() < 1 || p.zoom_factor() < 1) fail("its factors must be positive");
    in = (in - 1) / p.shrink_factor() + 1;
    return in + (in - 1) * (p.zoom_factor() - 1);
  };
  ResizeOp op{.method = ResizeOp::Method::bilinear,
              .coordinate = ResizeOp::Coordinate::align_corners,
              .oh = extent(s.h, p.height()),
              .ow = extent(s.w, p.width())};
  if (in_.size() == 2) {
    op.oh = shape(in_[1]).h;
    op.ow = shape(in_[1]).w;
  }
  TensorId from = in_[0];
  if (p.pad_beg() != 0 || p.pad_end() != 0) {
    const Index cut = -(p.pad_beg() + p.pad_end());
    if (s.h <= cut || s.w <= cut) fail("its padding cuts the whole image off");
    CropOp crop;
    crop.begin = {0, 0, -p.pad_beg(), -p.pad_beg()};
    crop.extent = {0, 0, s.h - cut, s.w - cut};
    add(crop, {from}, {inner("crop")});
    from = last();
  }
  add(op, {from}, {p_->top(0)}, 4);
}

void Builder::upsample() {
  need_inputs(1, 2);
  const UpsampleParameter& p = p_->upsample_param();
  const Shape s = shape(in_[0]);
  if (p.scale() < 1 || p.scale() > 1024) fail("its scale must be 1 to 1024");
  ResizeOp op;
  op.oh = p.has_upsample_h() ? p.upsample_h() : s.h * (p.has_scale_h() ? p.scale_h() : p.scale());
  op.ow = p.has_upsample_w() ? p.upsample_w() : s.w * (p.has_scale_w() ? p.scale_w() : p.scale());
  if (in_.size() == 2) {
    opaque("unpooling with a mask is not supported", {{s.n, s.c, op.oh, op.ow}});
    return;
  }
  simple(op, 4);
}

void Builder::shuffle() {
  need_inputs(1, 1);
  simple(ShuffleOp{p_->shuffle_channel_param().group()});
}

void Builder::parameter() {
  need_inputs(0, 0);
  const auto& dim = p_->parameter_param().shape().dim();
  const Dims to(dim.begin(), dim.end());
  if (to.empty() || to.size() > 4) {
    opaque(fmt::format("parameters of {} axes are not supported", to.size()));
    return;
  }
  simple(ConstantOp{to_shape(to)}, static_cast<int>(to.size()));
  slots(1);
}

void Builder::prior_box() {
  need_inputs(2, 2);
  const PriorBoxParameter& p = p_->prior_box_param();
  std::vector<float> ratios = {1};
  for (const float r : p.aspect_ratio()) {
    const auto same = [&](float x) { return std::abs(x - r) < 1e-6F; };
    if (std::any_of(ratios.begin(), ratios.end(), same)) continue;
    ratios.push_back(r);
    if (p.flip()) ratios.push_back(1 / r);
  }
  const Index boxes = static_cast<Index>(ratios.size()) * p.min_size_size() + p.max_size_size();
  const Shape s = shape(in_[0]);
  opaque("detection layers are not run", {{1, 2, s.h * s.w * boxes * 4}});
}

void Builder::proposal() {
  const Index regions = p_->proposal_param().post_nms_topn();
  if (!p_->has_proposal_param()) {
    remark("assumed 300 regions, the usual number in the test phase");
  }
  opaque("proposal layers are not run", {{regions, 5}, {regions, 1}});
}

void Builder::roi_pooling() {
  need_inputs(2, 2);
  const RoiPoolingParameter& p = p_->roi_pooling_param();
  opaque("pooling of regions is not run",
         {{shape(in_[1]).n, shape(in_[0]).c, p.pooled_h(), p.pooled_w()}});
}

void Builder::psroi_pooling() {
  need_inputs(2, 2);
  const PsRoiPoolingParameter& p = p_->psroi_pooling_param();
  opaque("pooling of regions is not run",
         {{shape(in_[1]).n, p.output_dim(), p.group_size(), p.group_size()}});
}

void Builder::reorg() {
  need_inputs(1, 1);
  const Index stride = p_->reorg_param().stride();
  const Shape s = shape(in_[0]);
  if (stride < 1 || stride > 1024) fail("its stride must be 1 to 1024");
  if (p_->reorg_param().reverse()) {
    opaque("its order of elements is that of one fork only",
           {{s.n, s.c / (stride * stride), s.h * stride, s.w * stride}});
  } else {
    opaque("its order of elements is that of one fork only",
           {{s.n, s.c * stride * stride, s.h / stride, s.w / stride}});
  }
}

void Builder::recurrent() {
  if (in_.empty()) fail("it has no bottom");
  const Dims from = dims(in_[0]);
  if (from.size() < 2) fail("its input has no time and batch axes");
  opaque("recurrent layers are not supported",
         {{from[0], from[1], p_->recurrent_param().num_output()}});
}

void Builder::embed() {
  need_inputs(1, 1);
  Dims to = dims(in_[0]);
  to.push_back(p_->embed_param().num_output());
  opaque("embeddings are not supported", {to});
}

void Builder::continuation() {
  const ContinuationParameter& p = p_->continuation_indicator_param();
  opaque("recurrent layers are not supported", {{p.time_step(), p.batch_size()}});
}

void Builder::same_shape() {
  need_inputs(1, 1);
  opaque(fmt::format("layers of type {} are not supported", p_->type()), {dims(in_[0])});
}

void Builder::unknown_type() {
  // A Python layer that proposes regions is part of every Faster R-CNN.
  const std::string& python = p_->python_param().layer();
  if (p_->type() == "Python" && python.find("Proposal") != std::string::npos) {
    proposal();
    return;
  }
  const std::string what = p_->type() == "Python"
                               ? fmt::format("its code is in Python ({})", python)
                           : p_->type().empty() ? std::string("it has no type")
                                                : fmt::format("the type {} is unknown", p_->type());
  std::vector<Dims> shapes;
  if (p_->top_size() == 1 && !in_.empty() && p_->bottom(0) == p_->top(0)) {
    shapes.push_back(dims(in_[0]));  // what works in place keeps the shape
  }
  opaque(what, shapes);
}

// ---------------------------------------------------------------- the table

const Builder::Row* Builder::find_row(std::string_view type) {
  static constexpr auto kRows = std::to_array<Row>({
      {"AbsVal", &Builder::abs},
      {"ArgMax", &Builder::argmax},
      {"Axpy", &Builder::axpy},
      {"BN", &Builder::bn},
      {"BNLL", &Builder::bnll},
      {"BatchNorm", &Builder::batch_norm},
      {"Bias", &Builder::bias},
      {"Clip", &Builder::clip},
      {"Concat", &Builder::concat},
      {"ContinuationIndicator", &Builder::continuation},
      {"Convolution", &Builder::convolution},
      {"ConvolutionDepthwise", &Builder::convolution},
      {"Crop", &Builder::crop},
      {"Deconvolution", &Builder::deconvolution},
      {"DepthwiseConvolution", &Builder::convolution},
      {"DetectionOutput", &Builder::detection},
      {"Dropout", &Builder::identity},
      {"ELU", &Builder::elu},
      {"Eltwise", &Builder::eltwise},
      {"Embed", &Builder::embed},
      {"Exp", &Builder::exp},
      {"Flatten", &Builder::flatten},
      {"InnerProduct", &Builder::inner_product},
      {"Interp", &Builder::interp},
      {"LRN", &Builder::lrn},
      {"LSTM", &Builder::recurrent},
      {"Log", &Builder::log},
      {"MVN", &Builder::same_shape},
      {"Normalize", &Builder::normalize},
      {"PReLU", &Builder::prelu},
      {"PSROIPooling", &Builder::psroi_pooling},
      {"Padding", &Builder::padding},
      {"Parameter", &Builder::parameter},
      {"Permute", &Builder::permute},
      {"Pooling", &Builder::pooling},
      {"Power", &Builder::power},
      {"PriorBox", &Builder::prior_box},
      {"Proposal", &Builder::proposal},
      {"RNN", &Builder::recurrent},
      {"ROIPooling", &Builder::roi_pooling},
      {"ReLU", &Builder::relu},
      {"ReLU6", &Builder::relu6},
      {"Reduction", &Builder::reduction},
      {"Reorg", &Builder::reorg},
      {"Reshape", &Builder::reshape},
      {"SPP", &Builder::spp},
      {"Scale", &Builder::scale},
      {"SeLu", &Builder::selu},
      {"SeLuDropout", &Builder::identity},
      {"ShuffleChannel", &Builder::shuffle},
      {"Sigmoid", &Builder::sigmoid},
      {"Slice", &Builder::slice},
      {"Softmax", &Builder::softmax},
      {"Split", &Builder::identity},
      {"Swish", &Builder::swish},
      {"TanH", &Builder::tanh},
      {"Threshold", &Builder::same_shape},
      {"Tile", &Builder::tile},
      {"Upsample", &Builder::upsample},
  });
  static_assert(std::is_sorted(kRows.begin(), kRows.end(),
                               [](const Row& a, const Row& b) { return a.type < b.type; }));
  const auto it = std::lower_bound(kRows.begin(), kRows.end(), type,
                                   [](const Row& row, std::string_view t) { return row.type < t; });
  return it != kRows.end() && it->type == type ? &*it : nullptr;
}

/// Layers that only judge or store what the network computes.
bool is_judge(std::string_view type) {
  return type.ends_with("Loss") || type == "SoftmaxWithLoss" || type.ends_with("Accuracy") ||
         type == "HDF5Output" || type == "MatWrite" || type == "DetectionEvaluate";
}

// ---------------------------------------------------------------- all layers

Built Builder::run() {
  const NetParameter& net = parsed_.net;
  for (const LayerParameter& layer : net.layer()) {
    if (is_judge(layer.type()) || layer.type() == "Silence") continue;
    for (const std::string& bottom : layer.bottom()) ++readers_[bottom];
  }
  net_inputs();
  for (int i = 0; i < net.layer_size(); ++i) {
    take(&net.layer(i), parsed_.lines[at(i)]);
    if (is_judge(p_->type())) {
      dropped_.push_back(p_->name());
      continue;
    }
    const Row* const row = find_row(p_->type());
    if (p_->bottom_size() == 0 && p_->top_size() > 0 && row == nullptr) {
      data_layer();
      continue;
    }
    in_.clear();
    bool all_known = true;
    for (const std::string& bottom : p_->bottom()) {
      TensorId t = lazy_.contains(bottom) ? lazy_data(bottom) : -1;
      if (t < 0) {
        const auto it = tensors_.find(bottom);
        if (it == tensors_.end() && options_.shapes.contains(bottom)) {
          feed(bottom, {}, "Input", 0);  // its data layer belongs to the other phase
        } else if (it == tensors_.end()) {
          fail(fmt::format(
              "its bottom \"{}\" is made by no layer before it in this phase; check the "
              "spelling, or feed it with --input-shape {}=N,C,H,W",
              bottom, bottom));
        }
        t = tensors_.at(bottom);
      }
      in_.push_back(t);
      all_known = all_known && known(shape(t));
    }
    if (p_->type() == "Silence") {
      silenced_.insert(in_.begin(), in_.end());
      continue;
    }
    if (p_->top_size() == 0) {
      remark("it has no top, so it was left out");
      continue;
    }
    if (row == nullptr) {
      unknown_type();
    } else if (!all_known && row->make != &Builder::proposal) {
      OpaqueOp op;
      op.why = "it needs a tensor whose shape is unknown";
      simple(op, 4);
      cut_.push_back(p_->name());
    } else {
      (this->*row->make)();
    }
  }
  // Outputs are what nobody reads, beside what is fed or silenced.
  const auto readers = consumers(net_);
  for (const Layer& layer : net_.layers) {
    if (layer.inputs.empty()) continue;
    for (const TensorId t : layer.outputs) {
      if (readers[at(t)].empty() && !silenced_.contains(t)) net_.outputs.push_back(t);
    }
  }
  remark_list("layers that judge or store results were left out", dropped_);
  remark_list("layers cannot be run as they follow a tensor of unknown shape", cut_);
  finish();
  return {std::move(net_), std::move(slots_)};
}

}  // namespace

Built build(const Parsed& parsed, const std::string& file, const ImportOptions& options) {
  return Builder(parsed, file, options).run();
}

}  // namespace convprim::caffe
