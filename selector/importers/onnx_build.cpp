// ONNX nodes to operations, one function for each operator. Shapes that the graph computes (Shape,
// Gather, Concat, ... before a Reshape) are known at import and folded; so are constants that nodes
// make from constants.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "convprim/error.hpp"
#include "selector/importers/lift.hpp"
#include "selector/importers/net_builder.hpp"
#include "selector/importers/onnx.hpp"
#include "selector/importers/onnx_tensor.hpp"

namespace convprim::onnx {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Thrown by a node's function: the node becomes opaque.
struct Unsupported {
  std::string why;
  bool cut = false;  ///< only because of what comes before
};

using Kind = ActivationOp::Kind;

class Builder : NetBuilder {
 public:
  Builder(const ModelProto& model, std::span<const std::string_view> values,
          const std::string& file, const ImportOptions& options,
          const std::map<std::string, Constant>& parameters)
      : NetBuilder(file, options),
        model_(model),
        graph_(model.graph()),
        values_(values),
        parameters_(parameters) {
    net_.name = graph_.name();
  }

  Network run();

 private:
  struct Row {
    std::string_view type;
    void (Builder::*make)();
    Kind kind = Kind::clamp;  // of element-wise functions without parameters
  };
  static const Row* find_row(std::string_view type);
  static bool folds(std::string_view type);

  // --- the node at hand ---
  const AttributeProto* attribute(const char* name) const;
  Index integer(const char* name, Index otherwise) const;
  float real(const char* name, float otherwise) const;
  std::string text(const char* name, const char* otherwise) const;
  std::optional<Dims> integers(const char* name) const;
  bool has_input(int i) const { return i < n_->input_size() && !n_->input(i).empty(); }
  const std::string& out() const { return n_->output(0); }
  /// The outputs that have a name: the others are not wanted.
  std::vector<std::string> outs() const {
    std::vector<std::string> names(n_->output().begin(), n_->output().end());
    std::erase(names, std::string());
    return names;
  }
  std::string inner(const char* suffix) const { return fmt::format("{}/{}", out(), suffix); }

  // --- its inputs ---
  /// A tensor of the network: made by a node, fed, or a constant made a layer.
  TensorId data(int i);
  /// A constant of the file, or nullptr.
  const Constant* constant(int i) const;
  /// A constant that the node cannot do without.
  const Constant& parameter(int i, const char* what) const;
  std::optional<Dims> integers_or_input(const char* name, int i) const;
  float scalar_input(int i, float otherwise) const;
  Blob blob(const Constant& c, Dims dims);
  Blob blob(std::vector<float> values, Dims dims);

  // --- adding ---
  void unary(Op op, int rank = 0, std::vector<Blob> blobs = {}) {
    add(std::move(op), {data(0)}, {out()}, rank, std::move(blobs));
  }
  TensorId aligned(TensorId t, int rank, const char* suffix);
  TensorId broadcast(BroadcastOp::Kind kind, TensorId a, TensorId b, const std::string& name);
  TensorId constant_layer(const Constant& c, const std::string& name);
  Dims reshape_dims(const Dims& from, Dims to, bool allow_zero) const;
  Dims value_info(const std::string& name) const;
  void make_opaque(const std::string& why);

  // --- folding ---
  bool fold();
  void set(Constant c) { constants_[out()] = std::move(c); }
  std::optional<Constant> folded();
  std::optional<Constant> fold_shape();
  std::optional<Constant> fold_elementwise() const;
  std::optional<Constant> fold_gather() const;
  std::optional<Constant> fold_concat() const;
  std::optional<Constant> fold_slice() const;
  std::optional<Constant> fold_reshape() const;
  std::optional<Constant> fold_transpose() const;

  // --- operators ---
  struct Spatial {
    int axes;  // 1 or 2
    std::array<Index, 2> kernel, stride, dilation, before, after;
    bool same = false;
  };
  Spatial spatial(const Shape& s, int rank, const Dims& kernel) const;
  template <class Window>
  static void set_window(const Spatial& w, Window& op);
  void conv();
  void conv_transpose();
  void pool();
  void global_pool();
  void batch_normalization();
  void instance_normalization();
  void lrn();
  void gemm();
  void mat_mul();
  void concat();
  void arithmetic();
  void variadic();
  void activation();
  void clip();
  void leaky_relu();
  void prelu();
  void hard_sigmoid();
  void elu();
  void power();
  void softsign();
  void identity();
  void cast();
  void reshape();
  void flatten();
  void squeeze();
  void unsqueeze();
  void transpose();
  void slice();
  void split();
  void gather();
  void pad();
  void resize();
  void softmax();
  void reduce();
  void expand();
  void tile();

  const ModelProto& model_;
  const GraphProto& graph_;
  std::span<const std::string_view> values_;  // of initialisers, taken out of the model
  const std::map<std::string, Constant>& parameters_;
  std::map<std::string, Constant> constants_;
  std::map<std::string, const ValueInfoProto*> inputs_;  // graph inputs that nobody has read yet
  std::map<std::string, const ValueInfoProto*> infos_;
  std::set<std::string> wanted_;  // names that a node reads, and outputs
  std::vector<std::string> cut_;
  Index opset_ = 0;
  Index filled_ = 0;  // elements made by ConstantOfShape

  const NodeProto* n_ = nullptr;
  const Row* row_ = nullptr;
};

// ---------------------------------------------------------------- the node at hand

const AttributeProto* Builder::attribute(const char* name) const {
  for (const AttributeProto& a : n_->attribute()) {
    if (a.name() == name) return &a;
  }
  return nullptr;
}

Index Builder::integer(const char* name, Index otherwise) const {
  const AttributeProto* const a = attribute(name);
  return a != nullptr ? a->i() : otherwise;
}

float Builder::real(const char* name, float otherwise) const {
  const AttributeProto* const a = attribute(name);
  return a != nullptr ? a->f() : otherwise;
}

std::string Builder::text(const char* name, const char* otherwise) const {
  const AttributeProto* const a = attribute(name);
  return a != nullptr ? a->s() : otherwise;
}

std::optional<Dims> Builder::integers(const char* name) const {
  const AttributeProto* const a = attribute(name);
  if (a == nullptr) return std::nullopt;
  return Dims(a->ints().begin(), a->ints().end());
}

std::optional<Dims> Builder::integers_or_input(const char* name, int i) const {
  if (has_input(i)) return parameter(i, name).ints;
  return integers(name);
}

float Builder::scalar_input(int i, float otherwise) const {
  if (!has_input(i)) return otherwise;
  const Constant& c = parameter(i, "scalar");
  if (c.count() != 1) throw Unsupported{"a scalar input has several elements"};
  return c.integer ? static_cast<float>(c.ints[0]) : (*c.floats)[0];
}

const Constant* Builder::constant(int i) const {
  if (!has_input(i)) return nullptr;
  const auto it = constants_.find(n_->input(i));
  return it == constants_.end() ? nullptr : &it->second;
}

const Constant& Builder::parameter(int i, const char* what) const {
  if (!has_input(i)) fail(fmt::format("its input {} ({}) is missing", i, what));
  if (const Constant* const c = constant(i)) return *c;
  const auto it = parameters_.find(n_->input(i));
  if (it != parameters_.end()) return it->second;
  throw Unsupported{
      fmt::format("its {} \"{}\" is computed when the network runs", what, n_->input(i))};
}

Blob Builder::blob(const Constant& c, Dims dims) {
  if (c.integer) throw Unsupported{"its parameters are integers"};
  if (c.count() != checked_count(dims)) {
    fail(fmt::format("its parameter has shape {}, it needs {}", str(std::span<const Index>(c.dims)),
                     str(std::span<const Index>(dims))));
  }
  return Blob{.dims = std::move(dims), .data = c.floats};
}

Blob Builder::blob(std::vector<float> values, Dims dims) {
  return Blob{.dims = std::move(dims),
              .data = std::make_shared<const std::vector<float>>(std::move(values))};
}

TensorId Builder::constant_layer(const Constant& c, const std::string& name) {
  if (c.dims.size() > 4) throw Unsupported{"a constant has more than four axes"};
  std::shared_ptr<const std::vector<float>> values = c.floats;
  if (c.integer) {
    values = std::make_shared<const std::vector<float>>(c.ints.begin(), c.ints.end());
  }
  if (values->empty()) throw Unsupported{"a constant is empty"};
  add(ConstantOp{to_shape(c.dims)}, {}, {name}, std::max(1, static_cast<int>(c.dims.size())),
      {Blob{.dims = {}, .data = std::move(values)}});
  return last();
}

TensorId Builder::data(int i) {
  if (!has_input(i)) fail(fmt::format("its input {} is missing", i));
  const std::string& name = n_->input(i);
  if (!tensors_.contains(name)) {
    if (const Constant* const c = constant(i)) {
      constant_layer(*c, name);
    } else if (const auto input = inputs_.find(name); input != inputs_.end()) {
      const int type = input->second->type().tensor_type().elem_type();
      if (type != TensorProto::FLOAT) {
        throw Unsupported{fmt::format("the input \"{}\" holds no floats", name)};
      }
      feed(name, value_info(name), "Input", 0);
      inputs_.erase(input);
    } else {
      fail(fmt::format("its input \"{}\" is made by no node before it; the model is broken", name));
    }
  }
  const TensorId t = tensors_.at(name);
  if (!known(shape(t))) throw Unsupported{"it needs a tensor whose shape is unknown", true};
  return t;
}

/// The declared shape of a tensor, symbolic extents being chosen; empty if there is none.
Dims Builder::value_info(const std::string& name) const {
  const auto it = infos_.find(name);
  if (it == infos_.end()) return {};
  Dims dims;
  const bool is_input = inputs_.contains(name);
  for (const auto& d : it->second->type().tensor_type().shape().dim()) {
    const bool first = dims.empty();
    if (d.dim_value() > 0) {
      dims.push_back(d.dim_value());
    } else if (is_input && first) {
      dims.push_back(options_.batch > 0 ? options_.batch : 1);
    } else if (is_input && !options_.shapes.contains(name)) {
      throw Error(
          fmt::format("{}: the input \"{}\" leaves axis {}{} open; give its shape with "
                      "--input-shape {}=N,C,H,W.",
                      net_.file, name, dims.size(),
                      d.dim_param().empty() ? "" : fmt::format(" ({})", d.dim_param()), name));
    } else if (!is_input) {
      return {};
    } else {
      dims.push_back(1);  // the option's shape goes before it
    }
  }
  if (is_input && dims.empty()) dims.push_back(1);
  return dims;
}

TensorId Builder::aligned(TensorId t, int rank, const char* suffix) {
  const Dims from = dims(t);
  if (static_cast<int>(from.size()) == rank) return t;
  Dims to(at(rank) - from.size(), 1);
  to.insert(to.end(), from.begin(), from.end());
  if (to_shape(to) == shape(t)) return t;
  return reshaped(t, to, inner(suffix));
}

TensorId Builder::broadcast(BroadcastOp::Kind kind, TensorId a, TensorId b,
                            const std::string& name) {
  const int r = std::max(rank(a), rank(b));
  const bool same = shape(a) == shape(b) && rank(a) == rank(b);
  if (same && kind == BroadcastOp::Kind::add) {
    add(EltwiseOp{}, {a, b}, {name}, r);
  } else if (same && kind == BroadcastOp::Kind::mul) {
    add(EltwiseOp{.kind = EltwiseOp::Kind::prod}, {a, b}, {name}, r);
  } else if (same && kind == BroadcastOp::Kind::max) {
    add(EltwiseOp{.kind = EltwiseOp::Kind::max}, {a, b}, {name}, r);
  } else {
    const TensorId left = aligned(a, r, "left");
    const TensorId right = aligned(b, r, "right");
    add(BroadcastOp{kind}, {left, right}, {name}, r);
  }
  return last();
}

void Builder::make_opaque(const std::string& why) {
  std::vector<TensorId> in;
  for (const std::string& name : n_->input()) {
    if (const auto it = tensors_.find(name); it != tensors_.end()) in.push_back(it->second);
  }
  std::vector<Dims> shapes;
  for (const std::string& name : outs()) {
    shapes.push_back(value_info(name));
    if (shapes.back().empty()) shapes.back() = {0};
  }
  add_opaque(why, in, outs(), shapes);
}

// ---------------------------------------------------------------- folding

bool Builder::folds(std::string_view type) {
  constexpr auto kTypes = std::to_array<std::string_view>(
      {"Add",   "Cast",   "Ceil",     "Concat", "Constant",  "ConstantOfShape", "Div",
       "Floor", "Gather", "Identity", "Mul",    "Range",     "Reshape",         "Shape",
       "Size",  "Slice",  "Squeeze",  "Sub",    "Transpose", "Unsqueeze"});
  static_assert(std::is_sorted(kTypes.begin(), kTypes.end()));
  return std::binary_search(kTypes.begin(), kTypes.end(), type);
}

bool Builder::fold() {
  if (!folds(n_->op_type()) || n_->output_size() != 1) return false;
  if (std::optional<Constant> c = folded()) {
    set(std::move(*c));
    return true;
  }
  return false;
}

std::optional<Constant> Builder::folded() {
  const std::string& type = n_->op_type();
  if (type == "Constant") {
    if (const AttributeProto* const a = attribute("value")) return to_constant(a->t(), net_.file);
    Constant c;
    if (const AttributeProto* const a = attribute("value_float")) {
      c.floats = std::make_shared<const std::vector<float>>(1, a->f());
    } else if (const AttributeProto* const b = attribute("value_floats")) {
      c.floats = std::make_shared<const std::vector<float>>(b->floats().begin(), b->floats().end());
      c.dims = {b->floats_size()};
    } else if (const AttributeProto* const i = attribute("value_int")) {
      c.integer = true;
      c.ints = {i->i()};
    } else if (const AttributeProto* const j = attribute("value_ints")) {
      c.integer = true;
      c.ints.assign(j->ints().begin(), j->ints().end());
      c.dims = {j->ints_size()};
    } else {
      throw Unsupported{"its value is no tensor of numbers"};
    }
    return c;
  }
  if (type == "Shape" || type == "Size") return fold_shape();
  if (type == "ConstantOfShape") {
    const Constant* const shape = constant(0);
    if (shape == nullptr) return std::nullopt;
    Constant c;
    c.dims = shape->ints;
    constexpr Index kMost = (Index{1} << 28) - 1;  // 1 GiB, whatever a small file asks for
    const Index count = checked_count(c.dims);
    if (count < 0 || filled_ + count > kMost) {
      fail(fmt::format("it fills {} elements, which is too much",
                       str(std::span<const Index>(c.dims))));
    }
    filled_ += count;
    Constant value;
    value.dims = {1};
    value.floats = std::make_shared<const std::vector<float>>(1, 0.0F);
    if (const AttributeProto* const a = attribute("value")) value = to_constant(a->t(), net_.file);
    if (value.count() != 1) fail("its value is no single number");
    c.integer = value.integer;
    if (c.integer) {
      c.ints.assign(at(count), value.ints[0]);
    } else {
      c.floats = std::make_shared<const std::vector<float>>(at(count), (*value.floats)[0]);
    }
    return c;
  }
  for (int i = 0; i < n_->input_size(); ++i) {
    if (constant(i) == nullptr) return std::nullopt;
  }
  if (n_->input_size() == 0) return std::nullopt;
  if (type == "Identity") return *constant(0);
  if (type == "Cast") {
    Constant c = *constant(0);
    const Index to = integer("to", 0);
    const bool to_float =
        to == TensorProto::FLOAT || to == TensorProto::DOUBLE || to == TensorProto::FLOAT16;
    if (c.integer && to_float) {
      c.floats = std::make_shared<const std::vector<float>>(c.ints.begin(), c.ints.end());
      c.ints.clear();
      c.integer = false;
    } else if (!c.integer && !to_float) {
      for (const float v : *c.floats) c.ints.push_back(static_cast<Index>(v));
      c.floats = nullptr;
      c.integer = true;
    }
    return c;
  }
  if (type == "Gather") return fold_gather();
  if (type == "Concat") return fold_concat();
  if (type == "Slice") return fold_slice();
  if (type == "Reshape" || type == "Squeeze" || type == "Unsqueeze") return fold_reshape();
  if (type == "Transpose") return fold_transpose();
  return fold_elementwise();
}

std::optional<Constant> Builder::fold_shape() {
  if (!has_input(0)) return std::nullopt;
  Dims from;
  const std::string& name = n_->input(0);
  if (const Constant* const c = constant(0)) {
    from = c->dims;
  } else if (const auto it = tensors_.find(name); it != tensors_.end()) {
    if (!known(shape(it->second))) return std::nullopt;
    from = dims(it->second);
  } else {
    data(0);  // an input that is only measured is an input still
    from = dims(tensors_.at(name));
  }
  Constant c;
  c.integer = true;
  if (n_->op_type() == "Size") {
    c.ints = {checked_count(from)};
    return c;
  }
  const auto r = static_cast<Index>(from.size());
  const auto bound = [&](const char* what, Index otherwise) {
    const Index v = integer(what, otherwise);
    return std::clamp<Index>(v < 0 ? v + r : v, 0, r);
  };
  const Index begin = bound("start", 0);
  const Index end = std::max(begin, bound("end", r));
  c.ints.assign(from.begin() + begin, from.begin() + end);
  c.dims = {end - begin};
  return c;
}

/// Strides of dims broadcast to `to` (aligned at the last axis): 0 along repeated axes.
Dims broadcast_strides(const Dims& dims, const Dims& to) {
  Dims strides(to.size(), 0);
  Index stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    const std::size_t axis = i + to.size() - dims.size();
    if (dims[i] != 1) strides[axis] = stride;
    stride *= dims[i];
  }
  return strides;
}

std::optional<Constant> Builder::fold_elementwise() const {
  const std::string& type = n_->op_type();
  const Constant& a = *constant(0);
  if (type == "Floor" || type == "Ceil") {
    if (a.integer) return a;
    std::vector<float> values = *a.floats;
    for (float& v : values) v = type == "Floor" ? std::floor(v) : std::ceil(v);
    Constant c = a;
    c.floats = std::make_shared<const std::vector<float>>(std::move(values));
    return c;
  }
  if (n_->input_size() != 2) return std::nullopt;
  const Constant& b = *constant(1);
  if (a.integer != b.integer) return std::nullopt;
  Constant c;
  c.integer = a.integer;
  c.dims.assign(std::max(a.dims.size(), b.dims.size()), 1);
  for (const Constant* x : {&a, &b}) {
    for (std::size_t i = 0; i < x->dims.size(); ++i) {
      Index& d = c.dims[i + c.dims.size() - x->dims.size()];
      if (d != x->dims[i] && d != 1 && x->dims[i] != 1) fail("its constants do not broadcast");
      if (x->dims[i] != 1) d = x->dims[i];
    }
  }
  const Index count = checked_count(c.dims);
  if (count < 0 || count > (Index{1} << 24)) return std::nullopt;
  const Dims sa = broadcast_strides(a.dims, c.dims);
  const Dims sb = broadcast_strides(b.dims, c.dims);
  std::vector<float> floats;
  const auto apply = [&](auto x, auto y) -> decltype(x) {
    if (type == "Add") return x + y;
    if (type == "Sub") return x - y;
    if (type == "Mul") return x * y;
    if constexpr (std::is_integral_v<decltype(x)>) {
      if (y == 0) fail("it divides by zero");
    }
    return x / y;
  };
  Dims index(c.dims.size(), 0);
  for (Index i = 0; i < count; ++i) {
    Index ia = 0;
    Index ib = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) {
      ia += index[axis] * sa[axis];
      ib += index[axis] * sb[axis];
    }
    if (c.integer) {
      c.ints.push_back(apply(a.ints[at(ia)], b.ints[at(ib)]));
    } else {
      floats.push_back(apply((*a.floats)[at(ia)], (*b.floats)[at(ib)]));
    }
    for (std::size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < c.dims[axis]) break;
      index[axis] = 0;
    }
  }
  if (!c.integer) c.floats = std::make_shared<const std::vector<float>>(std::move(floats));
  return c;
}

std::optional<Constant> Builder::fold_gather() const {
  const Constant& from = *constant(0);
  const Constant& where = *constant(1);
  if (from.dims.size() != 1 || !from.integer || !where.integer) return std::nullopt;
  Constant c;
  c.integer = true;
  c.dims = where.dims;
  for (Index i : where.ints) {
    if (i < 0) i += from.dims[0];
    if (i < 0 || i >= from.dims[0]) fail(fmt::format("index {} does not exist", i));
    c.ints.push_back(from.ints[at(i)]);
  }
  return c;
}

std::optional<Constant> Builder::fold_concat() const {
  Constant c;
  c.integer = true;
  for (int i = 0; i < n_->input_size(); ++i) {
    const Constant& from = *constant(i);
    if (!from.integer || from.dims.size() != 1) return std::nullopt;
    c.ints.insert(c.ints.end(), from.ints.begin(), from.ints.end());
  }
  c.dims = {static_cast<Index>(c.ints.size())};
  return c;
}

std::optional<Constant> Builder::fold_slice() const {
  const Constant& from = *constant(0);
  if (from.dims.size() != 1 || !from.integer) return std::nullopt;
  const std::optional<Dims> starts = integers_or_input("starts", 1);
  const std::optional<Dims> ends = integers_or_input("ends", 2);
  const std::optional<Dims> steps =
      has_input(4) ? std::optional(parameter(4, "steps").ints) : std::nullopt;
  if (!starts || !ends || starts->size() != 1 || ends->size() != 1) return std::nullopt;
  const Index n = from.dims[0];
  const Index step = steps && !steps->empty() ? (*steps)[0] : 1;
  if (step < 1) return std::nullopt;
  const auto bound = [&](Index v) { return std::clamp<Index>(v < 0 ? v + n : v, 0, n); };
  Constant c;
  c.integer = true;
  for (Index i = bound((*starts)[0]); i < bound((*ends)[0]); i += step)
    c.ints.push_back(from.ints[at(i)]);
  c.dims = {static_cast<Index>(c.ints.size())};
  return c;
}

std::optional<Constant> Builder::fold_reshape() const {
  Constant c = *constant(0);
  const std::string& type = n_->op_type();
  if (type == "Reshape") {
    const std::optional<Dims> to = integers_or_input("shape", 1);
    if (!to) return std::nullopt;
    c.dims = reshape_dims(c.dims, *to, integer("allowzero", 0) != 0);
    return c;
  }
  const std::optional<Dims> axes = integers_or_input("axes", 1);
  if (type == "Squeeze") {
    Dims to;
    for (std::size_t i = 0; i < c.dims.size(); ++i) {
      bool drop = !axes && c.dims[i] == 1;
      for (const Index a : axes.value_or(Dims{})) {
        drop = drop || at(a < 0 ? a + static_cast<Index>(c.dims.size()) : a) == i;
      }
      if (!drop) to.push_back(c.dims[i]);
    }
    if (checked_count(to) != checked_count(c.dims)) fail("it drops an axis that is not 1");
    c.dims = to;
    return c;
  }
  if (!axes) return std::nullopt;
  Dims sorted = *axes;
  const auto r = static_cast<Index>(c.dims.size() + sorted.size());
  for (Index& a : sorted) {
    if (a < 0) a += r;
    if (a < 0 || a >= r) fail(fmt::format("axis {} does not exist", a));
  }
  std::sort(sorted.begin(), sorted.end());
  for (const Index a : sorted) {
    if (at(a) > c.dims.size()) fail("its axes do not exist");
    c.dims.insert(c.dims.begin() + a, 1);
  }
  return c;
}

std::optional<Constant> Builder::fold_transpose() const {
  Constant c = *constant(0);
  const Dims perm = integers("perm").value_or(Dims{1, 0});
  if (c.integer || c.dims.size() != 2 || perm != Dims{1, 0}) return std::nullopt;
  const Index rows = c.dims[0];
  const Index columns = c.dims[1];
  std::vector<float> turned;
  turned.reserve(c.floats->size());
  for (Index j = 0; j < columns; ++j) {
    for (Index i = 0; i < rows; ++i) turned.push_back((*c.floats)[at(i * columns + j)]);
  }
  c.dims = {columns, rows};
  c.floats = std::make_shared<const std::vector<float>>(std::move(turned));
  return c;
}

// ---------------------------------------------------------------- windows

/// kernel_shape, strides, dilations and the padding that pads or auto_pad ask for, for images with
/// one or two axes.
Builder::Spatial Builder::spatial(const Shape& s, int rank, const Dims& kernel) const {
  Spatial w{};
  w.axes = rank - 2;
  if (w.axes < 1 || w.axes > 2) {
    throw Unsupported{fmt::format("images of {} axes are not supported", w.axes)};
  }
  if (kernel.size() != at(w.axes)) fail("its kernel has another number of axes than its input");
  const auto ints = [&](const char* name, std::size_t count, Index otherwise) {
    Dims v = integers(name).value_or(Dims(count, otherwise));
    if (v.empty()) v.assign(count, otherwise);
    if (v.size() != count)
      fail(fmt::format("{} has {} values, it needs {}", name, v.size(), count));
    return v;
  };
  const Dims strides = ints("strides", kernel.size(), 1);
  const Dims dilations = ints("dilations", kernel.size(), 1);
  const Dims pads = ints("pads", 2 * kernel.size(), 0);
  const std::string auto_pad = text("auto_pad", "NOTSET");
  const bool lower = auto_pad == "SAME_LOWER";
  w.same = lower || auto_pad == "SAME_UPPER";
  w.kernel = w.stride = w.dilation = {1, 1};
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    w.kernel[i] = kernel[i];
    w.stride[i] = strides[i];
    w.dilation[i] = dilations[i];
    if (kernel[i] < 1 || strides[i] < 1 || dilations[i] < 1) {
      fail("its kernel, strides and dilations must be positive");
    }
    if (auto_pad == "NOTSET") {
      w.before[i] = pads[i];
      w.after[i] = pads[i + kernel.size()];
      if (w.before[i] < 0 || w.after[i] < 0) throw Unsupported{"negative padding is not supported"};
    } else if (w.same) {
      const Index extent = i == 0 ? s.h : s.w;
      const Index out = (extent + strides[i] - 1) / strides[i];
      const Index total =
          std::max<Index>(0, (out - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - extent);
      w.before[i] = lower ? total - total / 2 : total / 2;
      w.after[i] = total - w.before[i];
    }
  }
  return w;
}

template <class Window>
void Builder::set_window(const Spatial& w, Window& op) {
  op.kh = w.kernel[0];
  op.kw = w.kernel[1];
  op.sh = w.stride[0];
  op.sw = w.stride[1];
  op.dh = w.dilation[0];
  op.dw = w.dilation[1];
  op.pt = w.before[0];
  op.pl = w.before[1];
  op.pb = w.after[0];
  op.pr = w.after[1];
}

void Builder::conv() {
  const TensorId x = data(0);
  const Constant& filter = parameter(1, "filter");
  const int r = rank(x);
  if (filter.dims.size() != at(r) || r < 3)
    throw Unsupported{fmt::format("convolutions of {} axes are not supported", filter.dims.size())};
  ConvOp op;
  set_window(spatial(shape(x), r, Dims(filter.dims.begin() + 2, filter.dims.end())), op);
  op.m = filter.dims[0];
  op.g = integer("group", 1);
  op.bias = has_input(2);
  if (op.g < 1 || filter.dims[1] * op.g != shape(x).c) {
    fail(fmt::format("its filter of shape {} and {} groups do not fit an input of {} channels",
                     str(std::span<const Index>(filter.dims)), op.g, shape(x).c));
  }
  std::vector<Blob> blobs = {blob(filter, {op.m, filter.dims[1], op.kh, op.kw})};
  if (op.bias) blobs.push_back(blob(parameter(2, "bias"), {op.m}));
  add(op, {x}, {out()}, r, blobs);
}

void Builder::conv_transpose() {
  const TensorId x = data(0);
  const Constant& filter = parameter(1, "filter");
  const int r = rank(x);
  if (filter.dims.size() != at(r) || r < 3)
    throw Unsupported{"its filter has another number of axes than its input"};
  DeconvOp op;
  const Spatial w = spatial(shape(x), r, Dims(filter.dims.begin() + 2, filter.dims.end()));
  set_window(w, op);
  op.g = integer("group", 1);
  op.m = filter.dims[1] * op.g;
  op.bias = has_input(2);
  if (filter.dims[0] != shape(x).c) fail("its filter does not fit the input's channels");
  const Dims extra = integers("output_padding").value_or(Dims(at(w.axes), 0));
  const std::optional<Dims> given = integers("output_shape");
  const Index in[] = {shape(x).h, shape(x).w};
  Index* const before[] = {&op.pt, &op.pl};
  Index* const after[] = {&op.pb, &op.pr};
  Index* const more[] = {&op.extra_h, &op.extra_w};
  for (std::size_t i = 0; i < at(w.axes); ++i) {
    *more[i] = i < extra.size() ? extra[i] : 0;
    if (!given && !w.same) continue;
    const Index want = given ? given->at(given->size() - at(w.axes) + i) : in[i] * w.stride[i];
    const Index total =
        (in[i] - 1) * w.stride[i] + *more[i] + (w.kernel[i] - 1) * w.dilation[i] + 1 - want;
    if (total < 0) {
      *before[i] = *after[i] = 0;
      *more[i] -= total;
      continue;
    }
    const bool upper = text("auto_pad", "NOTSET") == "SAME_UPPER";
    *before[i] = upper ? total / 2 : total - total / 2;
    *after[i] = total - *before[i];
  }
  std::vector<Blob> blobs = {blob(filter, {filter.dims[0], filter.dims[1], op.kh, op.kw})};
  if (op.bias) blobs.push_back(blob(parameter(2, "bias"), {op.m}));
  add(op, {x}, {out()}, r, blobs);
}

void Builder::pool() {
  const TensorId x = data(0);
  const std::optional<Dims> kernel = integers("kernel_shape");
  if (!kernel) fail("kernel_shape is missing");
  PoolOp op;
  op.method = n_->op_type() == "MaxPool" ? PoolOp::Method::max : PoolOp::Method::avg;
  set_window(spatial(shape(x), rank(x), *kernel), op);
  op.ceil = integer("ceil_mode", 0) != 0;
  op.count_padding = integer("count_include_pad", 0) != 0;
  const bool indices = n_->output_size() > 1 && wanted_.contains(n_->output(1));
  // The standard counts positions in the whole tensor, the mask in one channel.
  if (indices && (shape(x).n * shape(x).c != 1 || integer("storage_order", 0) != 0)) {
    throw Unsupported{"positions of maxima are only known for one channel"};
  }
  add(op, {x}, indices ? outs() : std::vector<std::string>{out()}, rank(x));
}

void Builder::global_pool() {
  const TensorId x = data(0);
  if (rank(x) < 3) throw Unsupported{"its input is no image"};
  PoolOp op;
  op.global = true;
  op.method = n_->op_type() == "GlobalMaxPool" ? PoolOp::Method::max : PoolOp::Method::avg;
  add(op, {x}, {out()}, rank(x));
}

void Builder::batch_normalization() {
  const TensorId x = data(0);
  if (integer("training_mode", 0) != 0) throw Unsupported{"its training mode is not supported"};
  if (integer("spatial", 1) == 0) throw Unsupported{"spatial = 0 is not supported"};
  const Index c = shape(x).c;
  const auto channels = [&](int i, const char* what) { return blob(parameter(i, what), {c}); };
  add(BatchNormOp{real("epsilon", 1e-5F)}, {x}, {out()}, 0,
      {channels(3, "mean"), channels(4, "variance"), NetBuilder::constant(1, 1),
       channels(1, "scale"), channels(2, "bias")});
}

void Builder::instance_normalization() {
  // scale * (x - mean) / sqrt(variance + epsilon) + bias, statistics over each channel of each
  // image
  const TensorId x = data(0);
  if (rank(x) < 3) throw Unsupported{"its input is no image"};
  const Index c = shape(x).c;
  const Blob scale = blob(parameter(1, "scale"), {c});
  const Blob bias = blob(parameter(2, "bias"), {c});
  add(ReduceOp{}, {x}, {inner("mean")});
  add(BroadcastOp{BroadcastOp::Kind::sub}, {x, last()}, {inner("centred")});
  const TensorId centred = last();
  add(ActivationOp{.kind = Kind::power, .exponent = 2}, {centred}, {inner("squares")});
  add(ReduceOp{}, {last()}, {inner("variance")});
  add(ActivationOp{.kind = Kind::power, .shift = real("epsilon", 1e-5F), .exponent = -0.5F},
      {last()}, {inner("inverse")});
  add(BroadcastOp{BroadcastOp::Kind::mul}, {centred, last()}, {inner("normal")});
  add(AffineOp{}, {last()}, {out()}, 0, {scale, bias});
}

void Builder::lrn() {
  unary(LrnOp{.size = integer("size", 1),
              .alpha = real("alpha", 1e-4F),
              .beta = real("beta", 0.75F),
              .k = real("bias", 1)});
}

// ---------------------------------------------------------------- matrices

void Builder::gemm() {
  TensorId a = data(0);
  const Constant& b = parameter(1, "matrix");
  if (rank(a) != 2 || b.dims.size() != 2 || b.integer)
    throw Unsupported{"its operands are no matrices"};
  if (integer("transA", 0) != 0) {
    add(PermuteOp{{1, 0, 2, 3}}, {a}, {inner("transposed")});
    a = last();
  }
  const bool transposed = integer("transB", 0) != 0;
  const float alpha = real("alpha", 1);
  const float beta = real("beta", 1);
  const Index m = transposed ? b.dims[0] : b.dims[1];
  const Index k = transposed ? b.dims[1] : b.dims[0];
  std::vector<Blob> blobs;
  if (transposed && alpha == 1) {
    blobs.push_back(blob(b, {m, k}));
  } else {
    std::vector<float> values(b.floats->size());
    for (Index i = 0; i < m; ++i) {
      for (Index j = 0; j < k; ++j) {
        values[at(i * k + j)] = alpha * (*b.floats)[at(transposed ? i * k + j : j * m + i)];
      }
    }
    blobs.push_back(blob(std::move(values), {m, k}));
  }
  InnerProductOp op{.m = m, .bias = false};
  const Constant* c = nullptr;
  if (has_input(2)) {
    c = &parameter(2, "bias");
    if (c->integer) throw Unsupported{"its bias has integers"};
    const Index last_dim = c->dims.empty() ? 1 : c->dims.back();
    op.bias = c->count() == last_dim && (last_dim == m || last_dim == 1);
  }
  if (op.bias) {
    std::vector<float> bias(at(m));
    for (std::size_t i = 0; i < bias.size(); ++i)
      bias[i] = beta * (*c->floats)[c->count() == 1 ? 0 : i];
    blobs.push_back(blob(std::move(bias), {m}));
  }
  const bool later = c != nullptr && !op.bias;
  add(op, {a}, {later ? inner("product") : out()}, 2, blobs);
  if (later) {
    Constant scaled = *c;
    std::vector<float> values = *c->floats;
    for (float& v : values) v *= beta;
    scaled.floats = std::make_shared<const std::vector<float>>(std::move(values));
    const TensorId product = last();
    broadcast(BroadcastOp::Kind::add, product, constant_layer(scaled, inner("bias")), out());
  }
}

void Builder::mat_mul() {
  const TensorId a = data(0);
  const Constant& b = parameter(1, "matrix");
  if (b.dims.size() != 2 || b.integer || rank(a) < 2)
    throw Unsupported{"its second operand is no constant matrix"};
  const Index k = b.dims[0];
  const Index m = b.dims[1];
  Dims to = dims(a);
  if (to.back() != k)
    fail(fmt::format("a row of {} does not fit a matrix of {} rows", to.back(), k));
  std::vector<float> values(b.floats->size());
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < k; ++j) values[at(i * k + j)] = (*b.floats)[at(j * m + i)];
  }
  const bool plain = rank(a) == 2;
  const TensorId rows = plain ? a : reshaped(a, {shape(a).count() / k, k}, inner("rows"));
  add(InnerProductOp{.m = m, .bias = false}, {rows}, {plain ? out() : inner("product")}, 2,
      {blob(std::move(values), {m, k})});
  to.back() = m;
  if (!plain) reshaped(last(), to, out());
}

// ---------------------------------------------------------------- element by element

void Builder::activation() { unary(ActivationOp{.kind = row_->kind}); }

void Builder::clip() {
  if (opset_ < 11) {
    unary(ActivationOp{.lo = real("min", -kInfinity), .hi = real("max", kInfinity)});
  } else {
    unary(ActivationOp{.lo = scalar_input(1, -kInfinity), .hi = scalar_input(2, kInfinity)});
  }
}

void Builder::leaky_relu() {
  unary(ActivationOp{.kind = Kind::leaky, .slope = real("alpha", 0.01F)});
}

void Builder::hard_sigmoid() {
  if (n_->op_type() == "HardSwish") {
    unary(ActivationOp{.kind = Kind::hard_swish, .slope = 1.0F / 6, .shift = 0.5F});
  } else {
    unary(ActivationOp{
        .kind = Kind::hard_sigmoid, .slope = real("alpha", 0.2F), .shift = real("beta", 0.5F)});
  }
}

void Builder::elu() {
  ActivationOp op{.kind = Kind::elu, .slope = real("alpha", 1)};
  if (n_->op_type() == "Selu") {
    op.slope = real("alpha", 1.67326319217681884765625F);
    op.scale = real("gamma", 1.05070102214813232421875F);
  }
  unary(op);
}

void Builder::softsign() {
  // x / (1 + |x|)
  const TensorId x = data(0);
  add(ActivationOp{.kind = Kind::abs}, {x}, {inner("abs")});
  add(ActivationOp{.kind = Kind::power, .shift = 1, .exponent = -1}, {last()}, {inner("inverse")});
  broadcast(BroadcastOp::Kind::mul, x, last(), out());
}

void Builder::prelu() {
  const TensorId x = data(0);
  const Constant& slope = parameter(1, "slope");
  const auto axes = static_cast<Index>(slope.dims.size());
  const Index c = shape(x).c;
  // One slope for each channel: [c, 1, ..., 1] aligned at the last axis, or [c] of old.
  const bool channels = slope.count() == c && axes > 0 && slope.dims[0] == c &&
                        (axes == rank(x) - 1 || (axes == 1 && (rank(x) == 2 || opset_ < 7)));
  if (slope.count() == 1 || channels) {
    add(PReluOp{}, {x}, {out()}, 0, {blob(slope, {slope.count()})});
    return;
  }
  add(ActivationOp{}, {x}, {inner("positive")});
  const TensorId positive = last();
  add(ActivationOp{.lo = -kInfinity, .hi = 0}, {x}, {inner("negative")});
  const TensorId negative = last();
  const TensorId factor = constant_layer(slope, inner("slope"));
  const TensorId scaled = broadcast(BroadcastOp::Kind::mul, negative, factor, inner("scaled"));
  broadcast(BroadcastOp::Kind::add, positive, scaled, out());
}

void Builder::arithmetic() {
  using B = BroadcastOp::Kind;
  const std::string& type = n_->op_type();
  const B kind = type == "Add"   ? B::add
                 : type == "Sub" ? B::sub
                 : type == "Mul" ? B::mul
                 : type == "Div" ? B::div
                                 : B::pow;
  // A constant operand: a scalar is a power, one value for each channel an affine function.
  for (int i = 0; i < 2; ++i) {
    const Constant* const c = constant(i);
    if (c == nullptr || (c->integer && kind != B::pow) || constant(1 - i) != nullptr) continue;
    if (i == 0 && (kind == B::div || kind == B::pow)) continue;
    const TensorId x = data(1 - i);
    const bool scalar = c->count() == 1 && static_cast<int>(c->dims.size()) <= rank(x);
    if (scalar) {
      const float v = c->integer ? static_cast<float>(c->ints[0]) : (*c->floats)[0];
      ActivationOp op{.kind = Kind::power};
      if (kind == B::add) op.shift = v;
      if (kind == B::sub) op.shift = i == 1 ? -v : v;
      if (kind == B::sub && i == 0) op.scale = -1;
      if (kind == B::mul) op.scale = v;
      if (kind == B::div) op.scale = 1 / v;
      if (kind == B::pow) op.exponent = v;
      add(op, {x}, {out()});
      return;
    }
    const Index channels = shape(x).c;
    const auto ahead =
        static_cast<Index>(c->dims.size()) - (rank(x) - 1);  // axes before the channels
    const bool per_channel = kind != B::pow && ahead >= 0 && ahead <= 1 && c->count() == channels &&
                             c->dims[at(ahead)] == channels;
    if (!per_channel) break;
    std::vector<float> scale(at(channels), 1.0F);
    std::vector<float> shift(at(channels), 0.0F);
    for (std::size_t k = 0; k < scale.size(); ++k) {
      const float v = (*c->floats)[k];
      if (kind == B::add) shift[k] = v;
      if (kind == B::sub) shift[k] = i == 1 ? -v : v;
      if (kind == B::sub && i == 0) scale[k] = -1;
      if (kind == B::mul) scale[k] = v;
      if (kind == B::div) scale[k] = 1 / v;
    }
    add(AffineOp{}, {x}, {out()}, 0,
        {blob(std::move(scale), {channels}), blob(std::move(shift), {channels})});
    return;
  }
  const TensorId a = data(0);
  TensorId b = data(1);
  if (const AttributeProto* const axis = attribute("axis"); axis != nullptr && opset_ < 7) {
    Dims to = dims(b);  // the old rule: b's axes start at `axis` of a
    const Index behind = rank(a) - axis->i() - rank(b);
    if (behind < 0 || axis->i() < 0) fail("its axis does not exist");
    to.insert(to.end(), at(behind), 1);
    b = reshaped(b, to, inner("right"));
  }
  broadcast(kind, a, b, out());
}

void Builder::variadic() {
  using B = BroadcastOp::Kind;
  const std::string& type = n_->op_type();
  std::vector<TensorId> in;
  bool same = true;
  for (int i = 0; i < n_->input_size(); ++i) {
    in.push_back(data(i));
    same = same && shape(in[0]) == shape(in.back()) && rank(in[0]) == rank(in.back());
  }
  const float share = 1.0F / static_cast<float>(in.size());
  if (in.size() == 1) {
    add(IdentityOp{}, in, {out()});
  } else if (same && type != "Min") {
    EltwiseOp op;
    if (type == "Max") op.kind = EltwiseOp::Kind::max;
    if (type == "Mean") op.coeff.assign(in.size(), share);
    add(op, in, {out()});
  } else {
    const B kind = type == "Max" ? B::max : type == "Min" ? B::min : B::add;
    TensorId sum = in[0];
    for (std::size_t i = 1; i < in.size(); ++i) {
      const bool done = i + 1 == in.size() && type != "Mean";
      sum = broadcast(kind, sum, in[i], done ? out() : inner("partial"));
    }
    if (type == "Mean") add(ActivationOp{.kind = Kind::power, .scale = share}, {sum}, {out()});
  }
}

void Builder::identity() {
  if (n_->op_type() == "Dropout" && has_input(2)) {
    const Constant& training = parameter(2, "mode");
    if (!training.ints.empty() && training.ints[0] != 0)
      throw Unsupported{"its training mode is not supported"};
  }
  unary(IdentityOp{});
  if (n_->output_size() > 1 && wanted_.contains(n_->output(1))) {
    add_opaque("masks of Dropout are not supported", {}, {n_->output(1)});
  }
}

void Builder::cast() {
  const Index to = integer("to", 0);
  if (to != TensorProto::FLOAT) throw Unsupported{"only casts to float are supported"};
  unary(IdentityOp{});
}

// ---------------------------------------------------------------- shapes

Dims Builder::reshape_dims(const Dims& from, Dims to, bool allow_zero) const {
  std::optional<std::size_t> open;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] == 0 && !allow_zero) {
      if (i >= from.size()) fail("it copies an axis that its input does not have");
      to[i] = from[i];
    } else if (to[i] == -1 && !open) {
      open = i;
    } else if (to[i] < 0) {
      fail("its shape has a negative extent, or two that are left open");
    }
  }
  const Index count = checked_count(from);
  if (open) {
    to[*open] = 1;
    const Index rest = checked_count(to);
    to[*open] = rest > 0 ? count / rest : 0;
  }
  if (checked_count(to) != count) {
    fail(
        fmt::format("{} elements of shape {} do not fit shape {}; if the batch was changed, the "
                    "file may fix it here",
                    count, str(std::span<const Index>(from)), str(std::span<const Index>(to))));
  }
  return to;
}

void Builder::reshape() {
  const TensorId x = data(0);
  const std::optional<Dims> shape = integers_or_input("shape", 1);
  if (!shape) fail("its shape is missing");
  const Dims to = reshape_dims(dims(x), *shape, integer("allowzero", 0) != 0);
  if (to.size() > 4)
    throw Unsupported{fmt::format("shapes of {} axes are not supported", to.size())};
  if (to.size() == 2 && rank(x) > 1 && to[0] == this->shape(x).n) {
    add(FlattenOp{}, {x}, {out()}, 2);
  } else {
    reshaped(x, to, out());
  }
}

void Builder::flatten() {
  const TensorId x = data(0);
  const Dims from = dims(x);
  const Index r = rank(x);
  Index axis = integer("axis", 1);
  if (axis < 0) axis += r;
  if (axis < 0 || axis > r) fail(fmt::format("axis {} does not exist", axis));
  Dims to = {1, 1};
  for (Index i = 0; i < r; ++i) to[i < axis ? 0 : 1] *= from[at(i)];
  if (axis == 1) {
    add(FlattenOp{}, {x}, {out()}, 2);
  } else {
    reshaped(x, to, out());
  }
}

void Builder::squeeze() {
  const TensorId x = data(0);
  const Dims from = dims(x);
  const std::optional<Dims> axes = integers_or_input("axes", 1);
  std::array<bool, 4> drop = {};
  for (std::size_t i = 0; i < from.size(); ++i) drop[i] = !axes && from[i] == 1;
  for (const Index a : axes.value_or(Dims{})) {
    const int axis = axis_of(a, rank(x), "axis");
    if (from[at(axis)] != 1)
      fail(fmt::format("axis {} has {} elements, not 1", axis, from[at(axis)]));
    drop[at(axis)] = true;
  }
  Dims to;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!drop[i]) to.push_back(from[i]);
  }
  reshaped(x, to, out());
}

void Builder::unsqueeze() {
  const TensorId x = data(0);
  const std::optional<Dims> axes = integers_or_input("axes", 1);
  if (!axes) fail("its axes are missing");
  Dims to = dims(x);
  Dims sorted = *axes;
  const int r = rank(x) + static_cast<int>(sorted.size());
  if (r > 4) throw Unsupported{fmt::format("shapes of {} axes are not supported", r)};
  for (Index& a : sorted) a = axis_of(a, r, "axis");
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    fail("an axis occurs twice");
  for (const Index a : sorted) to.insert(to.begin() + a, 1);
  reshaped(x, to, out());
}

void Builder::transpose() {
  const TensorId x = data(0);
  const int r = rank(x);
  PermuteOp op;
  const std::optional<Dims> perm = integers("perm");
  if (perm && static_cast<int>(perm->size()) != r)
    fail("perm has another number of axes than its input");
  for (int i = 0; i < r; ++i) {
    op.order[at(i)] = perm ? axis_of((*perm)[at(i)], r, "axis") : r - 1 - i;
  }
  add(op, {x}, {out()});
}

void Builder::slice() {
  const TensorId x = data(0);
  const Dims from = dims(x);
  const std::optional<Dims> starts = integers_or_input("starts", 1);
  const std::optional<Dims> ends = integers_or_input("ends", 2);
  if (!starts || !ends || starts->size() != ends->size()) fail("its starts and ends do not match");
  const std::optional<Dims> axes = integers_or_input("axes", 3);
  const std::optional<Dims> steps = integers_or_input("steps", 4);
  CropOp op;
  for (std::size_t i = 0; i < starts->size(); ++i) {
    if ((axes && i >= axes->size()) || (steps && i >= steps->size()))
      fail("its axes or steps are too few");
    const int axis = axis_of(axes ? (*axes)[i] : static_cast<Index>(i), rank(x), "axis");
    const Index n = from[at(axis)];
    const Index step = steps ? (*steps)[i] : 1;
    if (step < 1) throw Unsupported{"steps backwards are not supported"};
    const auto bound = [&](Index v) { return std::clamp<Index>(v < 0 ? v + n : v, 0, n); };
    const Index begin = bound((*starts)[i]);
    const Index end = bound((*ends)[i]);
    if (end <= begin) throw Unsupported{"nothing is left of its input"};
    op.begin[at(axis)] = begin;
    op.step[at(axis)] = step;
    op.extent[at(axis)] = (end - begin + step - 1) / step;
  }
  add(op, {x}, {out()});
}

void Builder::split() {
  const TensorId x = data(0);
  SliceOp op;
  op.axis = axis_of(integer("axis", 0), rank(x), "axis");
  const std::optional<Dims> sizes = integers_or_input("split", 1);
  if (sizes) {
    if (sizes->size() != at(n_->output_size()))
      fail("it has another number of sizes than of outputs");
    Index end = 0;
    for (std::size_t i = 0; i + 1 < sizes->size(); ++i) op.points.push_back(end += (*sizes)[i]);
    if (std::find(sizes->begin(), sizes->end(), 0) != sizes->end())
      throw Unsupported{"a part is empty"};
  }
  add(op, {x}, outs(), rank(x));
}

void Builder::gather() {
  const TensorId x = data(0);
  const Constant& where = parameter(1, "indices");
  const int axis = axis_of(integer("axis", 0), rank(x), "axis");
  if (!where.integer || where.count() != 1 || where.dims.size() > 1)
    throw Unsupported{"only one constant index is supported"};
  Dims to = dims(x);
  const Index index = where.ints[0] < 0 ? where.ints[0] + to[at(axis)] : where.ints[0];
  if (index < 0 || index >= to[at(axis)]) fail(fmt::format("index {} does not exist", index));
  CropOp op;
  op.begin[at(axis)] = index;
  op.extent[at(axis)] = 1;
  const bool drop = where.dims.empty();
  add(op, {x}, {drop ? inner("slice") : out()});
  if (!drop) return;
  to.erase(to.begin() + axis);
  reshaped(last(), to, out());
}

void Builder::pad() {
  const TensorId x = data(0);
  std::optional<Dims> pads =
      opset_ < 11 ? integers("pads") : std::optional(parameter(1, "pads").ints);
  if (!pads) pads = integers("paddings");
  if (!pads) fail("its pads are missing");
  const std::optional<Dims> axes =
      has_input(3) ? std::optional(parameter(3, "axes").ints) : std::nullopt;
  const std::size_t count = axes ? axes->size() : at(rank(x));
  if (pads->size() != 2 * count)
    fail(fmt::format("it has {} pads, it needs {}", pads->size(), 2 * count));
  PadOp op;
  const std::string mode = text("mode", "constant");
  op.mode = mode == "reflect" ? PadOp::Mode::reflect
            : mode == "edge"  ? PadOp::Mode::edge
                              : PadOp::Mode::constant;
  op.value = opset_ < 11 ? real("value", 0) : scalar_input(2, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const int axis = axis_of(axes ? (*axes)[i] : static_cast<Index>(i), rank(x), "axis");
    op.before[at(axis)] = (*pads)[i];
    op.after[at(axis)] = (*pads)[i + count];
    if ((*pads)[i] < 0 || (*pads)[i + count] < 0)
      throw Unsupported{"negative padding is not supported"};
  }
  add(op, {x}, {out()});
}

void Builder::resize() {
  const TensorId x = data(0);
  if (rank(x) != 4) throw Unsupported{"only images are resized"};
  const Shape s = shape(x);
  const bool modern = n_->op_type() == "Resize" && opset_ >= 11;
  std::vector<float> scales;
  Dims sizes;
  const int scale_input = modern ? 2 : 1;
  if (has_input(scale_input)) {
    const Constant& c = parameter(scale_input, "scales");
    if (!c.integer) scales = *c.floats;
  } else if (const AttributeProto* const a = attribute("scales")) {
    scales.assign(a->floats().begin(), a->floats().end());
  }
  if (modern && has_input(3)) sizes = parameter(3, "sizes").ints;
  const Index in[] = {s.n, s.c, s.h, s.w};
  if (sizes.empty()) {
    if (scales.size() != 4) throw Unsupported{"it has no scale for each axis"};
    for (std::size_t i = 0; i < 4; ++i) {
      const double want = static_cast<double>(in[i]) * static_cast<double>(scales[i]);
      if (!(want >= 1 && want < 1e9)) fail(fmt::format("its scale {} leaves nothing", scales[i]));
      sizes.push_back(static_cast<Index>(std::floor(want)));
      // Where the scale and the extents differ, the standard goes by the scale.
      if (static_cast<double>(sizes.back()) != want) {
        throw Unsupported{"scales that give no whole extent are not supported"};
      }
    }
  }
  if (sizes.size() != 4 || sizes[0] != s.n || sizes[1] != s.c)
    throw Unsupported{"only height and width are resized"};
  ResizeOp op;
  op.oh = sizes[2];
  op.ow = sizes[3];
  const std::string mode = text("mode", "nearest");
  const std::string coordinate =
      modern ? text("coordinate_transformation_mode", "half_pixel") : "asymmetric";
  const std::string nearest = modern ? text("nearest_mode", "round_prefer_floor") : "floor";
  using C = ResizeOp::Coordinate;
  using R = ResizeOp::Round;
  if (mode == "linear" || mode == "bilinear") {
    op.method = ResizeOp::Method::bilinear;
  } else if (mode != "nearest") {
    throw Unsupported{fmt::format("the mode {} is not supported", mode)};
  }
  const bool pytorch = coordinate == "pytorch_half_pixel" && op.oh > 1 && op.ow > 1;
  if (coordinate == "half_pixel" || pytorch) {
    op.coordinate = C::half_pixel;
  } else if (coordinate == "align_corners") {
    op.coordinate = C::align_corners;
  } else if (coordinate == "asymmetric") {
    op.coordinate = C::asymmetric;
  } else {
    throw Unsupported{fmt::format("the coordinates {} are not supported", coordinate)};
  }
  op.round = nearest == "floor"               ? R::floor
             : nearest == "ceil"              ? R::ceil
             : nearest == "round_prefer_ceil" ? R::prefer_ceil
                                              : R::prefer_floor;
  add(op, {x}, {out()});
}

void Builder::expand() {
  const TensorId x = data(0);
  const Constant& to = parameter(1, "shape");
  const Index count = checked_count(to.ints);
  if (to.ints.size() > 4) throw Unsupported{"shapes of more than 4 axes are not supported"};
  if (count < 1) throw Unsupported{"nothing is left of its input"};
  Constant ones;
  ones.dims = to.ints;
  const Blob values = NetBuilder::constant(count, 1);
  ones.floats = values.data;
  broadcast(BroadcastOp::Kind::mul, x, constant_layer(ones, inner("ones")), out());
}

void Builder::tile() {
  TensorId x = data(0);
  const Dims repeats = parameter(1, "repeats").ints;
  if (static_cast<int>(repeats.size()) != rank(x))
    fail("it has another number of repeats than of axes");
  for (std::size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i] < 1 || repeats[i] > 1024) throw Unsupported{"1 to 1024 repeats are supported"};
    if (repeats[i] == 1) continue;
    add(ConcatOp{static_cast<int>(i)}, std::vector<TensorId>(at(repeats[i]), x), {inner("tile")});
    x = last();
  }
  add(IdentityOp{}, {x}, {out()});
}

void Builder::concat() {
  std::vector<TensorId> in;
  for (int i = 0; i < n_->input_size(); ++i) in.push_back(data(i));
  if (in.empty()) fail("it has no input");
  add(ConcatOp{axis_of(integer("axis", 1), rank(in[0]), "axis")}, in, {out()});
}

void Builder::softmax() {
  const TensorId x = data(0);
  const Dims from = dims(x);
  const int r = rank(x);
  const int axis = axis_of(integer("axis", opset_ < 13 ? 1 : -1), r, "axis");
  const bool log = n_->op_type() == "LogSoftmax";
  Index behind = 1;
  for (int i = axis + 1; i < r; ++i) behind *= from[at(i)];
  if (opset_ >= 13 || behind == 1) {
    add(SoftmaxOp{.axis = axis, .log = log}, {x}, {out()});
    return;
  }
  // Before opset 13 all axes from `axis` on are one.
  const Index row = from[at(axis)] * behind;
  add(SoftmaxOp{.axis = 1, .log = log}, {reshaped(x, {shape(x).count() / row, row}, inner("rows"))},
      {inner("softmax")});
  reshaped(last(), from, out());
}

void Builder::reduce() {
  const TensorId x = data(0);
  const std::string_view type = n_->op_type();
  using R = ReduceOp::Kind;
  struct Form {
    std::string_view type;
    R kind;
  };
  constexpr Form kForms[] = {{"ReduceL1", R::l1},      {"ReduceL2", R::l2},
                             {"ReduceLogSum", R::sum}, {"ReduceMax", R::max},
                             {"ReduceMean", R::mean},  {"ReduceMin", R::min},
                             {"ReduceSum", R::sum},    {"ReduceSumSquare", R::sum_square}};
  ReduceOp op;
  for (const Form& f : kForms) {
    if (f.type == type) op.kind = f.kind;
  }
  std::optional<Dims> axes = integers_or_input("axes", 1);
  if (axes && axes->empty()) axes.reset();
  if (!axes && integer("noop_with_empty_axes", 0) != 0) {
    add(IdentityOp{}, {x}, {out()});
    return;
  }
  Dims to = dims(x);
  op.axes = {false, false, false, false};
  for (int i = 0; i < rank(x); ++i) op.axes[at(i)] = !axes;
  for (const Index a : axes.value_or(Dims{})) op.axes[at(axis_of(a, rank(x), "axis"))] = true;
  const bool keep = integer("keepdims", 1) != 0;
  const bool log = type == "ReduceLogSum";
  add(op, {x}, {keep && !log ? out() : inner("reduced")});
  if (log) add(ActivationOp{.kind = Kind::log}, {last()}, {keep ? out() : inner("log")});
  if (keep) return;
  Dims kept;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (!op.axes[i]) kept.push_back(to[i]);
  }
  reshaped(last(), kept, out());
}

// ---------------------------------------------------------------- the table

const Builder::Row* Builder::find_row(std::string_view type) {
  static constexpr auto kRows = std::to_array<Row>({
      {"Abs", &Builder::activation, Kind::abs},
      {"Add", &Builder::arithmetic},
      {"AveragePool", &Builder::pool},
      {"BatchNormalization", &Builder::batch_normalization},
      {"Cast", &Builder::cast},
      {"Clip", &Builder::clip},
      {"Concat", &Builder::concat},
      {"Conv", &Builder::conv},
      {"ConvTranspose", &Builder::conv_transpose},
      {"Div", &Builder::arithmetic},
      {"Dropout", &Builder::identity},
      {"Elu", &Builder::elu},
      {"Exp", &Builder::activation, Kind::exp},
      {"Expand", &Builder::expand},
      {"Flatten", &Builder::flatten},
      {"Gather", &Builder::gather},
      {"Gemm", &Builder::gemm},
      {"GlobalAveragePool", &Builder::global_pool},
      {"GlobalMaxPool", &Builder::global_pool},
      {"HardSigmoid", &Builder::hard_sigmoid},
      {"HardSwish", &Builder::hard_sigmoid},
      {"Identity", &Builder::identity},
      {"InstanceNormalization", &Builder::instance_normalization},
      {"LRN", &Builder::lrn},
      {"LeakyRelu", &Builder::leaky_relu},
      {"Log", &Builder::activation, Kind::log},
      {"LogSoftmax", &Builder::softmax},
      {"MatMul", &Builder::mat_mul},
      {"Max", &Builder::variadic},
      {"MaxPool", &Builder::pool},
      {"Mean", &Builder::variadic},
      {"Min", &Builder::variadic},
      {"Mul", &Builder::arithmetic},
      {"Neg", &Builder::power},
      {"PRelu", &Builder::prelu},
      {"Pad", &Builder::pad},
      {"Pow", &Builder::arithmetic},
      {"Reciprocal", &Builder::power},
      {"ReduceL1", &Builder::reduce},
      {"ReduceL2", &Builder::reduce},
      {"ReduceLogSum", &Builder::reduce},
      {"ReduceMax", &Builder::reduce},
      {"ReduceMean", &Builder::reduce},
      {"ReduceMin", &Builder::reduce},
      {"ReduceSum", &Builder::reduce},
      {"ReduceSumSquare", &Builder::reduce},
      {"Relu", &Builder::activation, Kind::clamp},
      {"Reshape", &Builder::reshape},
      {"Resize", &Builder::resize},
      {"Selu", &Builder::elu},
      {"Sigmoid", &Builder::activation, Kind::sigmoid},
      {"Slice", &Builder::slice},
      {"Softmax", &Builder::softmax},
      {"Softplus", &Builder::activation, Kind::softplus},
      {"Softsign", &Builder::softsign},
      {"Split", &Builder::split},
      {"Sqrt", &Builder::power},
      {"Squeeze", &Builder::squeeze},
      {"Sub", &Builder::arithmetic},
      {"Sum", &Builder::variadic},
      {"Tanh", &Builder::activation, Kind::tanh},
      {"Tile", &Builder::tile},
      {"Transpose", &Builder::transpose},
      {"Unsqueeze", &Builder::unsqueeze},
      {"Upsample", &Builder::resize},
  });
  static_assert(std::is_sorted(kRows.begin(), kRows.end(),
                               [](const Row& a, const Row& b) { return a.type < b.type; }));
  const auto it = std::lower_bound(kRows.begin(), kRows.end(), type,
                                   [](const Row& row, std::string_view t) { return row.type < t; });
  return it != kRows.end() && it->type == type ? &*it : nullptr;
}

void Builder::power() {
  ActivationOp op{.kind = Kind::power};
  if (n_->op_type() == "Neg") op.scale = -1;
  if (n_->op_type() == "Sqrt") op.exponent = 0.5F;
  if (n_->op_type() == "Reciprocal") op.exponent = -1;
  unary(op);
}

// ---------------------------------------------------------------- all nodes

Network Builder::run() {
  for (const auto& set : model_.opset_import()) {
    if (set.domain().empty() || set.domain() == "ai.onnx")
      opset_ = std::max<Index>(opset_, set.version());
  }
  if (opset_ < 7 || opset_ > 17) {
    net_.remarks.push_back(
        fmt::format("{}: operator set {} is not one of 7 to 17, for which the "
                    "importer is written.",
                    net_.file, opset_));
  }
  for (const TensorProto& t : graph_.initializer())
    constants_[t.name()] = to_constant(t, net_.file, values_);
  for (const ValueInfoProto& v : graph_.value_info()) infos_[v.name()] = &v;
  for (const ValueInfoProto& v : graph_.output()) infos_[v.name()] = &v;
  for (const ValueInfoProto& v : graph_.input()) {
    infos_[v.name()] = &v;
    if (!constants_.contains(v.name())) inputs_[v.name()] = &v;
  }
  for (const NodeProto& node : graph_.node())
    wanted_.insert(node.input().begin(), node.input().end());
  for (const ValueInfoProto& v : graph_.output()) wanted_.insert(v.name());
  for (const NodeProto& node : graph_.node()) {
    n_ = &node;
    if (outs().empty()) continue;
    current_ = {node.name().empty() ? outs()[0] : node.name(), node.op_type(), 0};
    row_ = find_row(node.op_type());
    const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
    try {
      if (node.output(0).empty()) throw Unsupported{"its first output is not wanted"};
      if (standard && fold()) continue;
      if (row_ == nullptr || !standard) {
        throw Unsupported{fmt::format("the operator {}{}{} is not supported", node.domain(),
                                      node.domain().empty() ? "" : ".", node.op_type())};
      }
      (this->*row_->make)();
    } catch (const Unsupported& u) {
      if (u.cut) {
        OpaqueOp op;
        op.why = u.why;
        add(op, {}, outs(), 4);
        cut_.push_back(current_.name);
      } else {
        make_opaque(u.why);
      }
    }
  }
  for (const ValueInfoProto& v : graph_.output()) {
    current_ = {v.name(), "output", 0};
    if (!tensors_.contains(v.name())) {
      const auto c = constants_.find(v.name());
      if (c == constants_.end()) fail("no node makes this output; the model is broken");
      try {
        constant_layer(c->second, v.name());
      } catch (const Unsupported& u) {
        fail(fmt::format("this output cannot be given: {}", u.why));
      }
    }
    net_.outputs.push_back(tensors_.at(v.name()));
  }
  remark_list("nodes cannot be run as they follow a tensor of unknown shape", cut_);
  finish();
  return std::move(net_);
}

}  // namespace

namespace {

/// Where the raw data of initialisers lies.
constexpr LiftField kRawData[] = {
    {0, 7, 1},                  // ModelProto.graph
    {1, 5, 2},                  // GraphProto.initializer
    {2, 9, LiftField::kTaken},  // TensorProto.raw_data
};

}  // namespace

std::vector<std::string> input_names(std::string_view bytes) {
  ModelProto model;
  std::vector<std::string> names;
  if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return names;
  for (const ValueInfoProto& v : model.graph().input()) {
    const auto& initialisers = model.graph().initializer();
    if (std::none_of(initialisers.begin(), initialisers.end(),
                     [&](const TensorProto& t) { return t.name() == v.name(); })) {
      names.push_back(v.name());
    }
  }
  return names;
}

std::optional<Network> import_model(std::string_view bytes, const std::string& file,
                                    const ImportOptions& options,
                                    const std::map<std::string, Constant>& parameters) {
  constexpr std::size_t kMost = std::size_t{1} << 31;  // of protobuf
  if (bytes.size() >= kMost) return std::nullopt;
  const auto lifted = lift(bytes, kRawData);
  ModelProto model;
  if (!lifted || !model.ParseFromString(lifted->message) || model.graph().node_size() == 0 ||
      model.graph().output_size() == 0) {
    return std::nullopt;
  }
  if (!options.weights.empty()) {
    throw Error(fmt::format("{}: an ONNX model holds its own weights; leave --weights out.", file));
  }
  return Builder(model, lifted->values, file, options, parameters).run();
}

}  // namespace convprim::onnx
