// The canonical text of a layer problem: kind, parameters that matter, shapes, slice.
#include <fmt/format.h>

#include <iterator>

#include "convprim/layer.hpp"

namespace convprim {
namespace {

std::string text(const Shape& s) { return fmt::format("mb{}c{}h{}w{}", s.n, s.c, s.h, s.w); }

std::string text(float lo, float hi) {
  constexpr float kNone = std::numeric_limits<float>::infinity();
  std::string r;
  if (lo != -kNone) r += fmt::format(" lo{}", lo);
  if (hi != kNone) r += fmt::format(" hi{}", hi);
  return r;
}

/// "3", or "3x5" where height and width differ.
std::string pair(Index h, Index w) {
  return h == w ? fmt::format("{}", h) : fmt::format("{}x{}", h, w);
}

std::string padding(Index t, Index l, Index b, Index r) {
  if (t == b && l == r) return pair(t, l);
  return fmt::format("{}+{}x{}+{}", t, b, l, r);
}

template <class List>
std::string joined(const List& list) {
  return fmt::format("{}", fmt::join(list, ","));
}

/// The parameters of each operation, with a space in front of each word.
struct Parameters {
  std::string operator()(const PoolOp& op) const {
    std::string r = op.method == PoolOp::Method::max ? " max" : " avg";
    if (op.global) return r + " global";
    r += fmt::format(" k{}s{}p{}", pair(op.kh, op.kw), pair(op.sh, op.sw),
                     padding(op.pt, op.pl, op.pb, op.pr));
    if (op.dh != 1 || op.dw != 1) r += fmt::format("d{}", pair(op.dh, op.dw));
    if (op.method == PoolOp::Method::avg && !op.count_padding) r += " real";
    return r;
  }
  std::string operator()(const LrnOp& op) const {
    return fmt::format(" {}{} alpha{} beta{} k{}", op.within_channel ? "within" : "across", op.size,
                       op.alpha, op.beta, op.k);
  }
  std::string operator()(const InnerProductOp& op) const {
    return fmt::format(" m{}{}", op.m, op.bias ? "" : " nobias") + text(op.lo, op.hi);
  }
  std::string operator()(const SoftmaxOp& op) const {
    return fmt::format("{} axis{}", op.log ? " log" : "", op.axis);
  }
  std::string operator()(const ConcatOp& op) const { return fmt::format(" axis{}", op.axis); }
  std::string operator()(const EltwiseOp& op) const {
    static constexpr const char* kNames[] = {"sum", "prod", "max"};
    std::string r = fmt::format(" {}", kNames[static_cast<int>(op.kind)]);
    if (!op.coeff.empty()) r += fmt::format(" coeff{}", joined(op.coeff));
    return r + text(op.lo, op.hi);
  }
  std::string operator()(const BroadcastOp& op) const {
    static constexpr const char* kNames[] = {"add", "sub", "mul", "div", "max", "min", "pow"};
    return fmt::format(" {}", kNames[static_cast<int>(op.kind)]);
  }
  std::string operator()(const ActivationOp& op) const {
    static constexpr const char* kNames[] = {"clamp", "leaky",        "sigmoid",    "tanh",  "elu",
                                             "swish", "hard_sigmoid", "hard_swish", "power", "exp",
                                             "log",   "abs",          "softplus"};
    std::string r = fmt::format(" {}", kNames[static_cast<int>(op.kind)]);
    if (op.kind == ActivationOp::Kind::clamp) r += text(op.lo, op.hi);
    if (op.slope != 0) r += fmt::format(" slope{}", op.slope);
    if (op.scale != 1) r += fmt::format(" scale{}", op.scale);
    if (op.shift != 0) r += fmt::format(" shift{}", op.shift);
    if (op.exponent != 1) r += fmt::format(" exponent{}", op.exponent);
    return r;
  }
  std::string operator()(const DeconvOp& op) const {
    return fmt::format(" m{}k{}s{}p{}d{}g{}{}", op.m, pair(op.kh, op.kw), pair(op.sh, op.sw),
                       padding(op.pt, op.pl, op.pb, op.pr), pair(op.dh, op.dw), op.g,
                       op.bias ? "" : " nobias") +
           text(op.lo, op.hi);
  }
  std::string operator()(const PermuteOp& op) const { return fmt::format(" {}", joined(op.order)); }
  std::string operator()(const SliceOp& op) const {
    return fmt::format(" axis{} at{}", op.axis, joined(op.points));
  }
  std::string operator()(const CropOp& op) const {
    std::string r = " from" + joined(op.begin);
    if (op.step != std::array<Index, 4>{1, 1, 1, 1}) r += fmt::format(" step{}", joined(op.step));
    return r;
  }
  std::string operator()(const PadOp& op) const {
    static constexpr const char* kNames[] = {"constant", "edge", "reflect"};
    std::string r = fmt::format(" {} before{} after{}", kNames[static_cast<int>(op.mode)],
                                joined(op.before), joined(op.after));
    return op.value != 0 ? r + fmt::format(" value{}", op.value) : r;
  }
  std::string operator()(const NormalizeOp& op) const {
    return fmt::format(" {} eps{}", op.across_spatial ? "image" : "pixel", op.eps);
  }
  std::string operator()(const ResizeOp& op) const {
    static constexpr const char* kCoordinates[] = {"asymmetric", "half_pixel", "align_corners"};
    static constexpr const char* kRounds[] = {"floor", "ceil", "prefer_floor", "prefer_ceil"};
    if (op.method == ResizeOp::Method::bilinear) {
      return fmt::format(" bilinear {}", kCoordinates[static_cast<int>(op.coordinate)]);
    }
    return fmt::format(" nearest {} {}", kCoordinates[static_cast<int>(op.coordinate)],
                       kRounds[static_cast<int>(op.round)]);
  }
  std::string operator()(const ShuffleOp& op) const { return fmt::format(" g{}", op.g); }
  std::string operator()(const ReduceOp& op) const {
    static constexpr const char* kNames[] = {"sum", "mean", "max", "min", "sum_square", "l1", "l2"};
    std::string r = fmt::format(" {} axes", kNames[static_cast<int>(op.kind)]);
    for (int a = 0; a < 4; ++a) {
      if (op.axes[static_cast<std::size_t>(a)]) r += "nchw"[a];
    }
    return op.coeff != 1 ? r + fmt::format(" coeff{}", op.coeff) : r;
  }
  std::string operator()(const BatchNormOp& op) const { return fmt::format(" eps{}", op.eps); }
  template <class Other>
  std::string operator()(const Other&) const {
    return "";
  }
};

}  // namespace

std::string str(const LayerProblem& problem) {
  std::string r{kind(*problem.op)};
  r += std::visit(Parameters{}, *problem.op);
  std::string shapes;
  for (const Shape& s : problem.in)
    shapes += fmt::format("{}{}", shapes.empty() ? " " : "+", text(s));
  r += shapes;
  // Only outputs of another shape than the first input's.
  const bool same =
      problem.out.size() == 1 && !problem.in.empty() && problem.out[0] == problem.in[0];
  if (!same) {
    for (std::size_t i = 0; i < problem.out.size(); ++i) {
      r += fmt::format("{}{}", i == 0 ? " to " : "+", text(problem.out[i]));
    }
  }
  if (problem.slice.sliced()) {
    r += fmt::format(" at{}of{}", problem.slice.begin, problem.slice.channels);
  }
  return r;
}

}  // namespace convprim
