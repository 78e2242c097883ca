// Plans as C++ programs: the steps and buffers of a program (see program.hpp), spelt out as calls
// of the public interface. What no network changes is in emit_text.hpp.
#include "convprim/emit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "convprim/tensor_file.hpp"
#include "selector/arena.hpp"
#include "selector/emit_text.hpp"
#include "selector/program.hpp"

namespace convprim {
namespace {

// Values as C++ spells them.

std::string cpp(bool value) { return value ? "true" : "false"; }
std::string cpp(int value) { return fmt::format("{}", value); }
std::string cpp(Index value) { return fmt::format("{}", value); }
std::string cpp(float value) {
  if (std::isnan(value)) return "std::numeric_limits<float>::quiet_NaN()";
  if (std::isinf(value)) return value > 0 ? "kInf" : "-kInf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "F";
}
std::string cpp(const Shape& s) { return fmt::format("{{{}, {}, {}, {}}}", s.n, s.c, s.h, s.w); }
template <class List>
std::string cpp_list(const List& list) {
  std::string text;
  for (const auto& value : list) text += (text.empty() ? "" : ", ") + cpp(value);
  return "{" + text + "}";
}
template <class T>
std::string cpp(const std::vector<T>& list) {
  return cpp_list(list);
}
template <class T, std::size_t N>
std::string cpp(const std::array<T, N>& list) {
  return cpp_list(list);
}

/// A string literal. Everything that is not plain is an octal escape of three digits.
std::string literal(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 32 || u > 126 || c == '"' || c == '\\' || c == '?') {
      out += fmt::format("\\{:03o}", u);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

/// Text for a comment of one line.
std::string comment(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 32 || c == '\\' || c == '?') c = ' ';
  }
  return out;
}

std::string enumerator(PoolOp::Method v) {
  return v == PoolOp::Method::max ? "PoolOp::Method::max" : "PoolOp::Method::avg";
}
std::string enumerator(EltwiseOp::Kind v) {
  static constexpr const char* kNames[] = {"sum", "prod", "max"};
  return fmt::format("EltwiseOp::Kind::{}", kNames[static_cast<int>(v)]);
}
std::string enumerator(BroadcastOp::Kind v) {
  static constexpr const char* kNames[] = {"add", "sub", "mul", "div", "max", "min", "pow"};
  return fmt::format("BroadcastOp::Kind::{}", kNames[static_cast<int>(v)]);
}
std::string enumerator(ActivationOp::Kind v) {
  static constexpr const char* kNames[] = {"clamp", "leaky",        "sigmoid",    "tanh",  "elu",
                                           "swish", "hard_sigmoid", "hard_swish", "power", "exp",
                                           "log",   "abs",          "softplus"};
  return fmt::format("ActivationOp::Kind::{}", kNames[static_cast<int>(v)]);
}
std::string enumerator(PadOp::Mode v) {
  static constexpr const char* kNames[] = {"constant", "edge", "reflect"};
  return fmt::format("PadOp::Mode::{}", kNames[static_cast<int>(v)]);
}
std::string enumerator(ResizeOp::Method v) {
  static constexpr const char* kNames[] = {"nearest", "bilinear"};
  return fmt::format("ResizeOp::Method::{}", kNames[static_cast<int>(v)]);
}
std::string enumerator(ResizeOp::Coordinate v) {
  static constexpr const char* kNames[] = {"asymmetric", "half_pixel", "align_corners"};
  return fmt::format("ResizeOp::Coordinate::{}", kNames[static_cast<int>(v)]);
}
std::string enumerator(ResizeOp::Round v) {
  static constexpr const char* kNames[] = {"floor", "ceil", "prefer_floor", "prefer_ceil"};
  return fmt::format("ResizeOp::Round::{}", kNames[static_cast<int>(v)]);
}
std::string enumerator(ReduceOp::Kind v) {
  static constexpr const char* kNames[] = {"sum", "mean", "max", "min", "sum_square", "l1", "l2"};
  return fmt::format("ReduceOp::Kind::{}", kNames[static_cast<int>(v)]);
}

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}
template <class T>
bool same(const T& a, const T& b) {
  return a == b;
}

/// A braced initialiser with the members that differ from their defaults, in the order of their
/// declaration.
class Members {
 public:
  explicit Members(std::string type) : type_(std::move(type)) {}
  template <class T>
  Members& operator()(const char* name, const T& value, const T& standard) {
    if (same(value, standard)) return *this;
    if constexpr (std::is_enum_v<T>) {
      add(name, enumerator(value));
    } else {
      add(name, cpp(value));
    }
    return *this;
  }
  void add(const char* name, const std::string& value) {
    text_ += fmt::format("{}.{} = {}", text_.empty() ? "" : ", ", name, value);
  }
  operator std::string() const { return type_ + "{" + text_ + "}"; }

 private:
  std::string type_, text_;
};

/// An operation as an initialiser.
struct OpText {
  std::string operator()(const DeconvOp& o) const {
    const DeconvOp d;
    return Members("DeconvOp")("m", o.m, d.m)("kh", o.kh, d.kh)("kw", o.kw, d.kw)("sh", o.sh, d.sh)(
        "sw", o.sw, d.sw)("pt", o.pt, d.pt)("pl", o.pl, d.pl)("pb", o.pb, d.pb)("pr", o.pr, d.pr)(
        "dh", o.dh, d.dh)("dw", o.dw, d.dw)("g", o.g, d.g)("extra_h", o.extra_h, d.extra_h)(
        "extra_w", o.extra_w, d.extra_w)("bias", o.bias, d.bias)("lo", o.lo, d.lo)("hi", o.hi,
                                                                                   d.hi);
  }
  std::string operator()(const PoolOp& o) const {
    const PoolOp d;
    return Members("PoolOp")("method", o.method, d.method)("global", o.global, d.global)(
        "kh", o.kh, d.kh)("kw", o.kw, d.kw)("sh", o.sh, d.sh)("sw", o.sw, d.sw)("pt", o.pt, d.pt)(
        "pl", o.pl, d.pl)("pb", o.pb, d.pb)("pr", o.pr, d.pr)("dh", o.dh, d.dh)("dw", o.dw, d.dw)(
        "ceil", o.ceil, d.ceil)("count_padding", o.count_padding, d.count_padding);
  }
  std::string operator()(const LrnOp& o) const {
    const LrnOp d;
    return Members("LrnOp")("size", o.size, d.size)("alpha", o.alpha, d.alpha)(
        "beta", o.beta, d.beta)("k", o.k, d.k)("within_channel", o.within_channel,
                                               d.within_channel);
  }
  std::string operator()(const InnerProductOp& o) const {
    const InnerProductOp d;
    return Members("InnerProductOp")("m", o.m, d.m)("bias", o.bias, d.bias)("lo", o.lo, d.lo)(
        "hi", o.hi, d.hi);
  }
  std::string operator()(const SoftmaxOp& o) const {
    const SoftmaxOp d;
    return Members("SoftmaxOp")("axis", o.axis, d.axis)("log", o.log, d.log);
  }
  std::string operator()(const ConcatOp& o) const {
    return Members("ConcatOp")("axis", o.axis, ConcatOp().axis);
  }
  std::string operator()(const EltwiseOp& o) const {
    const EltwiseOp d;
    return Members("EltwiseOp")("kind", o.kind, d.kind)("coeff", o.coeff, d.coeff)(
        "lo", o.lo, d.lo)("hi", o.hi, d.hi);
  }
  std::string operator()(const BroadcastOp& o) const {
    return Members("BroadcastOp")("kind", o.kind, BroadcastOp().kind);
  }
  std::string operator()(const ActivationOp& o) const {
    const ActivationOp d;
    return Members("ActivationOp")("kind", o.kind, d.kind)("lo", o.lo, d.lo)("hi", o.hi, d.hi)(
        "slope", o.slope, d.slope)("scale", o.scale, d.scale)("shift", o.shift, d.shift)(
        "exponent", o.exponent, d.exponent);
  }
  std::string operator()(const BatchNormOp& o) const {
    return Members("BatchNormOp")("eps", o.eps, BatchNormOp().eps);
  }
  std::string operator()(const ReshapeOp& o) const {
    return Members("ReshapeOp")("dims", o.dims, ReshapeOp().dims);
  }
  std::string operator()(const PermuteOp& o) const {
    return Members("PermuteOp")("order", o.order, PermuteOp().order);
  }
  std::string operator()(const SliceOp& o) const {
    const SliceOp d;
    return Members("SliceOp")("axis", o.axis, d.axis)("points", o.points, d.points);
  }
  std::string operator()(const CropOp& o) const {
    const CropOp d;
    return Members("CropOp")("begin", o.begin, d.begin)("extent", o.extent, d.extent)(
        "step", o.step, d.step);
  }
  std::string operator()(const PadOp& o) const {
    const PadOp d;
    return Members("PadOp")("before", o.before, d.before)("after", o.after, d.after)(
        "mode", o.mode, d.mode)("value", o.value, d.value);
  }
  std::string operator()(const NormalizeOp& o) const {
    const NormalizeOp d;
    return Members("NormalizeOp")("across_spatial", o.across_spatial, d.across_spatial)(
        "eps", o.eps, d.eps);
  }
  std::string operator()(const ResizeOp& o) const {
    const ResizeOp d;
    return Members("ResizeOp")("method", o.method, d.method)(
        "coordinate", o.coordinate, d.coordinate)("round", o.round, d.round)("oh", o.oh, d.oh)(
        "ow", o.ow, d.ow)("scale_h", o.scale_h, d.scale_h)("scale_w", o.scale_w, d.scale_w);
  }
  std::string operator()(const ShuffleOp& o) const {
    return Members("ShuffleOp")("g", o.g, ShuffleOp().g);
  }
  std::string operator()(const ReduceOp& o) const {
    const ReduceOp d;
    return Members("ReduceOp")("kind", o.kind, d.kind)("axes", o.axes, d.axes)("coeff", o.coeff,
                                                                               d.coeff);
  }
  std::string operator()(const ConstantOp& o) const {
    return Members("ConstantOp")("shape", o.shape, Shape());
  }
  std::string operator()(const PReluOp&) const { return "PReluOp{}"; }
  std::string operator()(const AffineOp&) const { return "AffineOp{}"; }
  std::string operator()(const FlattenOp&) const { return "FlattenOp{}"; }
  std::string operator()(const IdentityOp&) const { return "IdentityOp{}"; }
  // None of these is a layer's step.
  std::string operator()(const InputOp&) const { return "InputOp{}"; }
  std::string operator()(const ConvOp&) const { return "ConvOp{}"; }
  std::string operator()(const OpaqueOp&) const { return "OpaqueOp{}"; }
};

std::string slice_text(const ChannelSlice& s) {
  return s.sliced() ? fmt::format("{{{}, {}}}", s.channels, s.begin) : "{}";
}

std::string options_text(const Options& o) {
  const Epilogue d;
  Members epilogue("");
  epilogue("residual", o.epilogue.residual, d.residual)("lo", o.epilogue.lo, d.lo)(
      "hi", o.epilogue.hi, d.hi);
  return fmt::format("{{kThreads, {}, {}}}", std::string(epilogue), slice_text(o.slice));
}

/// Identifiers made of names, all different. All have a letter in front and "_" behind or a layout,
/// so that none is a keyword.
class Identifiers {
 public:
  std::string make(std::string_view name, const std::string& end = "_") {
    std::string id;
    for (char c : name) {
      const auto u = static_cast<unsigned char>(c);
      if (u < 128 && std::isalnum(u) != 0) {
        id += c;
      } else if (!id.empty() && id.back() != '_') {
        id += '_';
      }
    }
    while (id.ends_with('_')) id.pop_back();
    if (id.empty() || std::isdigit(static_cast<unsigned char>(id[0])) != 0) id.insert(0, "n");
    std::string unique = id + end;
    for (int i = 2; !taken_.insert(unique).second; ++i) unique = fmt::format("{}_{}{}", id, i, end);
    return unique;
  }

 private:
  std::set<std::string> taken_;
};

/// The parameters of all layers, equal ones once.
class Parameters {
 public:
  /// The number of a parameter.
  std::size_t add(const Blob& blob, const std::string& layer) {
    const std::vector<float>& values = *blob.data;
    const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                 values.size() * sizeof(float));
    const auto [it, added] = known_.emplace(bytes, owners_.size());
    if (added) {
      owners_.push_back(layer);
      order_.push_back(bytes);
    }
    return it->second;
  }
  std::string content() const {
    std::string all;
    for (std::string_view bytes : order_) all += bytes;
    return all;
  }
  std::string counts() const {
    std::string text = "constexpr std::size_t kCounts[] = {\n";
    for (std::size_t i = 0; i < order_.size(); ++i) {
      text += fmt::format("    {},  // {}: {}\n", order_[i].size() / sizeof(float), i,
                          comment(owners_[i]));
    }
    if (order_.empty()) text += "    0\n";
    return text + "};\n";
  }

 private:
  std::map<std::string_view, std::size_t> known_;
  std::vector<std::string_view> order_;
  std::vector<std::string> owners_;
};

/// Writes one program.
class Emitter {
 public:
  Emitter(const Network& net, const Plan& plan)
      : net_(net), plan_(plan), program_(lay_out(net, plan)), ready_(prepare_all(net, program_)) {
    arena_ = place_buffers(program_);
    for (const std::string& name : program_.names) buffers_.push_back(ids_.make(name, ""));
    for (std::size_t i = 0; i < program_.steps.size(); ++i) add_step(i);
  }

  std::string header() const {
    return fmt::format(
        "// The network {}.\n#pragma once\n\n#include <convprim/conversion.hpp>\n"
        "#include <convprim/layer.hpp>\n#include <convprim/primitive.hpp>\n\n#include <cstddef>\n"
        "#include <memory>\n#include <new>\n#include <string>\n\nnamespace emitted {{\n\n"
        "/// A tensor that the network is fed or run for, in (n, c, h, w) order.\nstruct Port {{\n"
        "  const char* name;\n  const char* file;  // for its values\n  convprim::Shape shape;\n"
        "  int rank;            // axes that count, from the front\n"
        "  std::size_t offset;  // in the arena, in floats\n}};\n\n"
        "{}\n{}\n/// Floats of activations and workspaces of one run.\n"
        "constexpr std::size_t kArenaFloats = {};\n\n"
        "struct FreeArena {{\n  void operator()(float* p) const {{\n"
        "    ::operator delete[](p, std::align_val_t{{64}});\n  }}\n}};\n"
        "using Arena = std::unique_ptr<float[], FreeArena>;\n\n"
        "/// The memory of one run, zeroed.\ninline Arena make_arena() {{\n"
        "  return Arena(new (std::align_val_t{{64}}) float[kArenaFloats]());\n}}\n\n"
        "/// Immutable: several threads may run it, each with an arena of its own.\n"
        "class Net {{\n public:\n"
        "  /// Reads and packs the weights. Throws convprim::Error.\n"
        "  explicit Net(const std::string& weights);\n\n"
        "  /// Computes the outputs in the arena from the inputs there. Allocates nothing.\n"
        "  void run(float* arena) const noexcept;\n\n private:\n{}}};\n\n}}  // namespace "
        "emitted\n",
        comment(net_.name), ports("kInputs", program_.inputs), ports("kOutputs", program_.outputs),
        std::max<std::size_t>(arena_.bytes / sizeof(float), 16), members_);
  }

  std::string source() const {
    const Machine& m = plan_.machine;
    std::string offsets;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      offsets += fmt::format("[[maybe_unused]] constexpr std::size_t {} = {};\n", buffers_[i],
                             arena_.offsets[i] / sizeof(float));
    }
    return fmt::format(
        "// {}: a step is prepared in the constructor and called in run().\n"
        "// Made by convprim {} from a plan for {}, {}, {} thread{}.\n"
        "#include \"net.hpp\"\n\n#include <convprim/error.hpp>\n\n#include <fstream>\n"
        "#include <initializer_list>\n#include <limits>\n#include <string_view>\n"
        "#include <utility>\n#include <vector>\n\nnamespace emitted {{\nnamespace {{\n\n"
        "using namespace convprim;\n\nconstexpr int kThreads = {};\n"
        "[[maybe_unused]] constexpr float kInf = std::numeric_limits<float>::infinity();\n\n"
        "// Where each buffer lies in the arena, in floats. Buffers that are never in use "
        "together\n"
        "// share memory.\n{}\n// Numbers in each parameter of weights.bin, and the first layer "
        "that "
        "has it.\n{}{}\n}}  // namespace\n\n"
        "Net::Net(const std::string& weights) {{\n"
        "  [[maybe_unused]] const Parameters p = read_parameters(weights);\n{}}}\n\n"
        "void Net::run(float* arena) const noexcept {{\n{}}}\n\n}}  // namespace emitted\n",
        comment(net_.name), version(), comment(m.cpu), m.isa, m.threads, m.threads == 1 ? "" : "s",
        m.threads, offsets, parameters_.counts(), emitted::kHelpers, prepares_,
        runs_.empty() ? "  (void)arena;\n" : runs_);
  }

  std::string meson() const {
    return fmt::format(
        "project('{}', 'cpp', default_options: ['cpp_std=c++20', 'buildtype=release'])\n"
        "executable('net', 'main.cpp', 'net.cpp', dependencies: dependency('convprim'),\n"
        "  cpp_args: '-DWEIGHTS=\"' + meson.current_source_dir() / 'weights.bin' + '\"')\n",
        project());
  }

  std::string readme() const {
    std::string inputs;
    for (const ProgramPort& port : program_.inputs) {
      const Tensor& t = tensor(port.tensor);
      inputs += fmt::format("{}`{}` {}", inputs.empty() ? "" : ", ", comment(t.name),
                            shape_text(std::array{t.shape.n, t.shape.c, t.shape.h, t.shape.w}));
    }
    const Machine& m = plan_.machine;
    return fmt::format(
        "# {0}\n\nA network as convprim {1} planned it for {2}, {3}, {4} thread{5}.\n"
        "Build, with convprim installed: `meson setup build && ninja -C build`.\n"
        "Run: `build/net FILE.npy`, with `--output FOLDER` to keep the outputs; inputs: {6}, "
        "float32.\n`net.cpp` has the network, a call a step; `weights.bin` its parameters, raw "
        "float32 in the order of `kCounts`.\n",
        project(), version(), comment(m.cpu), m.isa, m.threads, m.threads == 1 ? "" : "s", inputs);
  }

  std::string weights() const { return parameters_.content(); }

 private:
  const Tensor& tensor(TensorId t) const { return net_.tensors[static_cast<std::size_t>(t)]; }
  const Layer& layer(LayerId id) const { return net_.layers[static_cast<std::size_t>(id)]; }
  std::string project() const { return net_.name.empty() ? "net" : safe_file_name(net_.name); }

  std::string at(int buffer) const {
    return buffer == kNoBuffer ? "nullptr"
                               : "arena + " + buffers_[static_cast<std::size_t>(buffer)];
  }
  std::string at_all(const std::vector<int>& buffers) const {
    std::vector<std::string> all;
    for (int b : buffers) all.push_back(at(b));
    return fmt::format("{{{}}}", fmt::join(all, ", "));
  }
  std::size_t workspace(const ProgramStep& step) const {
    return step.workspace == kNoBuffer
               ? 0
               : program_.buffers[static_cast<std::size_t>(step.workspace)].bytes;
  }

  std::string ports(const char* name, const std::vector<ProgramPort>& all) const {
    std::vector<std::string> names;
    for (const ProgramPort& port : all) names.push_back(tensor(port.tensor).name);
    const auto files = npy_file_names(names);
    std::string text = fmt::format("constexpr Port {}[] = {{\n", name);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Tensor& t = tensor(all[i].tensor);
      text += fmt::format("    {{{}, {}, {}, {}, {}}},\n", literal(t.name), literal(files[i]),
                          cpp(t.shape), file_dims(t.shape, t.rank).size(),
                          arena_.offsets[static_cast<std::size_t>(all[i].buffer)] / sizeof(float));
    }
    return text + "};\n";
  }

  void add_step(std::size_t i) {
    const ProgramStep& step = program_.steps[i];
    const std::string what = fmt::format("  // {}", comment(step.info.name));
    if (step.conversion != nullptr) {
      const std::string& id = conversion(step.conversion);
      runs_ += fmt::format("{}\n  {}->run({}, {}, {}, {}, kThreads);\n", what, id, cpp(step.shape),
                           at(step.in[0]), at(step.out[0]), slice_text(step.slice));
      return;
    }
    const std::string id = ids_.make(step.info.name);
    if (step.primitive != nullptr) {
      add_convolution(step, id);
      runs_ +=
          fmt::format("{}: {}\n  {}->run({{{}, {}, {}, {}}});\n", what, step.scenario.str(), id,
                      at(step.in[0]), at(step.out[0]), at(step.residual), at(step.workspace));
    } else {
      add_layer(step, id);
      runs_ +=
          fmt::format("{}: {}\n  run_layer(*{}, {}, {}, {});\n", what, comment(str(step.problem)),
                      id, at_all(step.in), at_all(step.out), at(step.workspace));
    }
  }

  void add_convolution(const ProgramStep& step, const std::string& id) {
    const Layer& l = layer(step.layer);
    std::vector<std::string> weights;
    for (const Blob& blob : l.blobs)
      weights.push_back(fmt::format("p[{}]->data()", parameters_.add(blob, l.name)));
    members_ += fmt::format("  std::unique_ptr<convprim::Convolution> {};\n", id);
    prepares_ += fmt::format("  {} = convolution({}, {},\n      {{{}}}, {}, {});\n", id,
                             literal(step.primitive->name), literal(step.scenario.str()),
                             fmt::join(weights, ", "), options_text(step.options), workspace(step));
  }

  void add_layer(const ProgramStep& step, const std::string& id) {
    const LayerProblem& problem = step.problem;
    std::vector<std::string> blobs;
    for (const Blob& blob : problem.blobs) {
      blobs.push_back(fmt::format("{{{}, p[{}]}}", cpp(blob.dims),
                                  parameters_.add(blob, layer(step.layer).name)));
    }
    members_ += fmt::format("  std::unique_ptr<convprim::PreparedLayer> {};\n", id);
    prepares_ += fmt::format("  {} = layer({}, {},\n      {}, {}, {{{}}}, {}, {});\n", id,
                             literal(step.impl->name), std::visit(OpText{}, *problem.op),
                             cpp(problem.in), cpp(problem.out), fmt::join(blobs, ", "),
                             slice_text(problem.slice), workspace(step));
  }

  /// The member that holds a routine.
  const std::string& conversion(const Conversion* routine) {
    auto [it, added] = conversions_.emplace(routine, "");
    if (added) {
      it->second = ids_.make(routine->name);
      members_ += fmt::format("  const convprim::Conversion* {};\n", it->second);
      prepares_ += fmt::format("  {} = conversion({});\n", it->second, literal(routine->name));
    }
    return it->second;
  }

  const Network& net_;
  const Plan& plan_;
  Program program_;
  std::vector<PreparedStep> ready_;  // made for the sizes of their workspaces
  ArenaPlan arena_;
  Identifiers ids_;
  std::vector<std::string> buffers_;  // identifier of each
  std::map<const Conversion*, std::string> conversions_;
  Parameters parameters_;
  std::string members_, prepares_, runs_;
};

}  // namespace

std::vector<EmittedFile> emit(const Network& net, const Plan& plan) {
  check_plan(net, plan);
  const Emitter emitter(net, plan);
  std::vector<EmittedFile> files;
  const std::string contents[] = {emitter.readme(), emitter.meson(),  emitted::kMain,
                                  emitter.source(), emitter.header(), emitter.weights()};
  const auto names = emitted_names();
  for (std::size_t i = 0; i < names.size(); ++i) files.push_back({names[i], contents[i]});
  return files;
}

std::vector<std::string> emitted_names() {
  return {"README.md", "meson.build", "main.cpp", "net.cpp", "net.hpp", "weights.bin"};
}

}  // namespace convprim
