// Every layer implementation against the double-precision reference: each row of each kind on
// shapes that break things, with one to three threads, in slices, in place, into poisoned and
// fenced outputs, with NaN in the workspace.
#include "convprim/layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <set>

#include "buffer.hpp"
#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "convprim/reference.hpp"
#include "test.hpp"

namespace convprim {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kCanary = -12345.5F;

/// One layer, its inputs' shapes, and how far a result may be off:
///   relative * |result| + absolute + linear * (the result with all inputs and blobs positive),
/// three times as much where weights are kept in 20 bits.
struct Case {
  Op op;
  std::vector<Shape> in;
  int outputs = 1;
  int blobs = 0;          // beside those that the operation defines
  float lo = -2, hi = 2;  // range of the inputs
  double relative = 4e-7, absolute = 1e-30, linear = 0;
  /// Values for the blobs where the range -1..1 will not do.
  void (*fix)(Layer&) = nullptr;
};

/// The case as a network of its own, with inputs and what the reference makes of them.
struct Solved {
  Network net;
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<double>> want, slack;
  LayerProblem problem;
  const Layer& layer() const { return net.layers.back(); }
};

void add_layer(Network& net, const Case& c) {
  Layer layer;
  layer.name = "x";
  layer.op = c.op;
  for (const Shape& s : c.in) {
    Layer input;
    input.name = fmt::format("in{}", net.layers.size());
    input.op = InputOp{s};
    input.outputs = {static_cast<TensorId>(net.tensors.size())};
    net.tensors.push_back({input.name, s});
    layer.inputs.push_back(input.outputs[0]);
    net.layers.push_back(std::move(input));
  }
  for (int i = 0; i < c.outputs; ++i) {
    layer.outputs.push_back(static_cast<TensorId>(net.tensors.size()));
    net.outputs.push_back(layer.outputs.back());
    net.tensors.push_back({fmt::format("out{}", i), {}});
  }
  layer.blobs.resize(static_cast<std::size_t>(c.blobs));
  net.layers.push_back(std::move(layer));
}

Solved solve(const Case& c, unsigned seed) {
  Solved s;
  add_layer(s.net, c);
  infer_shapes(s.net);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(c.lo, c.hi), weight(-1, 1);
  for (const Shape& shape : c.in) {
    std::vector<float> v(static_cast<std::size_t>(shape.count()));
    for (float& x : v) x = value(random);
    s.inputs.push_back(std::move(v));
  }
  Layer& layer = s.net.layers.back();
  for (Blob& blob : layer.blobs) {
    std::vector<float> v(static_cast<std::size_t>(blob.count()));
    for (float& x : v) x = weight(random);
    blob.data = std::make_shared<const std::vector<float>>(std::move(v));
  }
  if (c.fix != nullptr) c.fix(layer);
  s.want = evaluate_reference(s.net, s.inputs, 1);
  for (const auto& w : s.want) {
    s.slack.emplace_back();
    for (double x : w) s.slack.back().push_back(c.relative * std::abs(x) + c.absolute);
  }
  if (c.linear > 0) {
    Network positive = s.net;
    for (Blob& blob : positive.layers.back().blobs) {
      std::vector<float> v = *blob.data;
      for (float& x : v) x = std::abs(x);
      blob.data = std::make_shared<const std::vector<float>>(std::move(v));
    }
    auto inputs = s.inputs;
    for (auto& v : inputs) {
      for (float& x : v) x = std::abs(x);
    }
    if (auto* fc = std::get_if<InnerProductOp>(&positive.layers.back().op)) fc->hi = INFINITY;
    if (auto* e = std::get_if<EltwiseOp>(&positive.layers.back().op)) {
      e->hi = INFINITY;
      for (float& x : e->coeff) x = std::abs(x);
    }
    if (auto* d = std::get_if<DeconvOp>(&positive.layers.back().op)) d->hi = INFINITY;
    const auto bound = evaluate_reference(positive, inputs, 1);
    for (std::size_t o = 0; o < bound.size(); ++o) {
      for (std::size_t i = 0; i < bound[o].size(); ++i) {
        s.slack[o][i] += c.linear * std::abs(bound[o][i]);
      }
    }
  }
  s.problem.op = &layer.op;
  s.problem.blobs = layer.blobs;
  for (TensorId t : layer.inputs)
    s.problem.in.push_back(s.net.tensors[static_cast<std::size_t>(t)].shape);
  for (TensorId t : layer.outputs)
    s.problem.out.push_back(s.net.tensors[static_cast<std::size_t>(t)].shape);
  return s;
}

/// body(index in (n, c, h, w) order, offset in memory) for each element.
template <class Body>
void for_elements(const Strides& st, const Shape& s, Body body) {
  std::size_t i = 0;
  for (Index n = 0; n < s.n; ++n)
    for (Index c = 0; c < s.c; ++c)
      for (Index h = 0; h < s.h; ++h)
        for (Index w = 0; w < s.w; ++w) body(i++, static_cast<std::size_t>(st.at(n, c, h, w)));
}

/// A tensor with a fence on both sides.
struct Fenced {
  static constexpr std::size_t kFence = 64;
  Buffer memory;
  std::size_t size;
  explicit Fenced(std::size_t n, float fill) : memory(n + 2 * kFence), size(n) {
    std::fill_n(memory.data(), memory.size(), kCanary);
    std::fill_n(data(), n, fill);
  }
  float* data() { return memory.data() + kFence; }
  bool intact() const {
    for (std::size_t i = 0; i < kFence; ++i) {
      if (memory[i] != kCanary || memory[kFence + size + i] != kCanary) return false;
    }
    return true;
  }
};

bool close(double got, double want, double slack) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= slack;
}

/// Runs one row and says what is wrong, or nothing.
std::string check(const LayerImpl& impl, const Solved& s, int threads, const ChannelSlice& slice,
                  bool in_place) {
  LayerProblem problem = s.problem;
  problem.threads = threads;
  problem.slice = slice;
  const auto prepared = impl.prepare(problem);
  std::vector<Fenced> in, out;
  std::vector<const float*> in_pointers;
  std::vector<float*> out_pointers;
  for (std::size_t i = 0; i < problem.in.size(); ++i) {
    in.emplace_back(static_cast<std::size_t>(element_count(impl.in, problem.in[i])), 0.0F);
    for_elements(strides(impl.in, problem.in[i]), problem.in[i],
                 [&](std::size_t k, std::size_t at) { in[i].data()[at] = s.inputs[i][k]; });
  }
  const std::vector<Fenced>& read_only = in;
  std::vector<std::vector<float>> before;
  for (Fenced& f : in) {
    in_pointers.push_back(f.data());
    before.emplace_back(f.data(), f.data() + f.size);
  }
  for (std::size_t o = 0; o < problem.out.size(); ++o) {
    Shape whole = problem.out[o];
    if (o == 0 && slice.sliced()) whole.c = slice.channels;
    out.emplace_back(static_cast<std::size_t>(element_count(impl.out, whole)), kNan);
    out_pointers.push_back(o == 0 && in_place ? in[0].data() : out[o].data());
  }
  Buffer workspace(prepared->workspace_bytes() / sizeof(float) + 64);
  std::fill_n(workspace.data(), workspace.size(), kNan);
  prepared->run({in_pointers.data(), out_pointers.data(), workspace.data()});
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!read_only[i].intact()) return "wrote beside an input";
    if (in_place && i == 0) continue;
    if (!std::equal(before[i].begin(), before[i].end(), in[i].data())) return "wrote to an input";
  }
  for (std::size_t o = 0; o < problem.out.size(); ++o) {
    if (!out[o].intact()) return "wrote beside an output";
    const Shape& shape = problem.out[o];
    const Strides st = strides(impl.out, shape, o == 0 ? slice : ChannelSlice{});
    std::vector<bool> own(out[o].size);
    std::string wrong;
    for_elements(st, shape, [&](std::size_t k, std::size_t at) {
      own[at] = true;
      const double got = static_cast<double>(out_pointers[o][at]);
      const double slack = s.slack[o][k] * (impl.error_scale > 8 ? 3 : 1);
      if (wrong.empty() && !close(got, s.want[o][k], slack)) {
        wrong = fmt::format("output {} element {}: {} instead of {} (+- {})", o, k, got,
                            s.want[o][k], slack);
      }
    });
    if (!wrong.empty()) return wrong;
    // Padding lanes are zeros, all else keeps its poison.
    Shape stored = shape;
    stored.c = stored_channels(impl.out, shape.c);
    for_elements(st, stored, [&](std::size_t, std::size_t at) {
      if (!own[at] && out_pointers[o][at] != 0 && wrong.empty()) {
        wrong = fmt::format("output {}: padding lane {}", o, out_pointers[o][at]);
      }
      own[at] = true;
    });
    if (!wrong.empty()) return wrong;
    if (in_place && o == 0) continue;
    for (std::size_t at = 0; at < out[o].size; ++at) {
      if (!own[at] && !std::isnan(out[o].data()[at])) return "wrote beside its slice";
    }
  }
  return "";
}

bool isa_usable() {
  try {
    isa();
    return true;
  } catch (const Error& e) {
    test::skip(e.what());
    return false;
  }
}

/// All rows of the case's kind in all variants; at least `rows` rows must take it, and `slicing` of
/// them a sliced output.
void check_all(const Case& c, int rows = 5, int slicing = 5) {
  static unsigned seed = 1;
  const Solved s = solve(c, seed++);
  INFO(str(s.problem), " seed ", seed - 1);
  int taken = 0, sliced = 0;
  for (const LayerImpl* impl : layer_impls()) {
    if (impl->kind != kind(c.op)) continue;
    LayerProblem p = s.problem;
    if (impl->reject(p) != nullptr) continue;
    ++taken;
    for (int threads : {1, 2, 3}) {
      INFO(impl->name, " threads ", threads);
      CHECK(check(*impl, s, threads, {}, false) == "");
      if (impl->in_place) {
        INFO("in place");
        CHECK(check(*impl, s, threads, {}, true) == "");
      }
      // A slice with room on both sides.
      p.slice = {stored_channels(Layout::chw16c, p.out[0].c) + 48, 16};
      p.threads = threads;
      if (impl->reject(p) != nullptr) continue;
      if (threads == 1) ++sliced;
      INFO("slice");
      CHECK(check(*impl, s, threads, p.slice, false) == "");
    }
  }
  CHECK(taken >= rows);
  CHECK(sliced >= slicing);
}

const std::vector<Shape> kShapes = {
    {1, 1, 1, 1},  {1, 3, 5, 7},    {2, 8, 6, 5},  {1, 16, 7, 7},
    {2, 17, 4, 9}, {1, 40, 13, 11}, {1, 64, 1, 1}, {1, 5, 19, 37},
};

constexpr double kLinear = 16 * 0x1p-24;

TEST_CASE("pooling") {
  if (!isa_usable()) return;
  for (const Shape& s : kShapes) {
    for (auto method : {PoolOp::Method::max, PoolOp::Method::avg}) {
      const auto run = [&](PoolOp op) {
        op.method = method;
        const Index h = s.h + op.pt + op.pb, w = s.w + op.pl + op.pr;
        if (h < (op.kh - 1) * op.dh + 1 || w < (op.kw - 1) * op.dw + 1) return;
        Case c{op, {s}};
        if (method == PoolOp::Method::avg) c.linear = kLinear;
        check_all(c);
      };
      PoolOp op;
      op.global = true;
      run(op);
      op = {};
      op.kh = op.kw = 2;
      op.sh = op.sw = 2;
      run(op);
      op.ceil = false;
      run(op);
      op = {};
      op.kh = op.kw = 3;
      op.sh = op.sw = 2;
      run(op);
      op.pt = op.pl = op.pb = op.pr = 1;
      run(op);
      op.count_padding = false;
      run(op);
      op.sh = op.sw = 1;
      run(op);
      op.count_padding = true;
      run(op);
      op = {};
      op.kh = 5;
      op.kw = 3;
      op.sh = 3;
      op.sw = 4;
      op.pt = 2;
      op.pl = 1;
      run(op);
      op = {};
      op.kh = 3;
      op.kw = 5;
      op.sh = 1;
      op.sw = 2;
      op.pl = 2;
      op.pr = 1;
      op.ceil = false;
      run(op);
      op = {};
      op.sh = op.sw = 2;  // subsampling
      run(op);
    }
    // Dilation, and positions of the maxima.
    PoolOp op;
    op.kh = op.kw = 2;
    op.dh = 2;
    op.dw = 3;
    op.pl = op.pr = 1;
    if (s.h > 2 && s.w > 3) check_all({op, {s}});
    op = {};
    op.kh = op.kw = 2;
    op.sh = op.sw = 2;
    if (s.h > 1) check_all({op, {s}, 2});
  }
}

TEST_CASE("pooling of minus infinity and of windows without elements") {
  if (!isa_usable()) return;
  // With padding as large as the window, the corner windows hold padding only.
  PoolOp op;
  op.kh = op.kw = 2;
  op.sh = op.sw = 2;
  op.pt = op.pl = op.pb = op.pr = 2;
  for (auto method : {PoolOp::Method::max, PoolOp::Method::avg}) {
    op.method = method;
    Case c{op, {{1, 17, 5, 6}}};
    c.hi = -1;  // 0 is larger than all elements
    c.linear = kLinear;
    check_all(c);
  }
}

TEST_CASE("local response normalisation") {
  if (!isa_usable()) return;
  for (const Shape& s : kShapes) {
    for (const LrnOp& op :
         {LrnOp{5, 1e-4F, 0.75F, 1, false}, LrnOp{5, 0.5F, 0.75F, 2, false},
          LrnOp{3, 2, 0.5F, 1, false}, LrnOp{9, 1, 1, 0.1F, false}, LrnOp{4, 1, 0.6F, 1, false},
          LrnOp{5, 1, 0.9F, 1, false}, LrnOp{3, 1, 0.75F, 1, true}, LrnOp{5, 1, 0.4F, 2, true}}) {
      Case c{op, {s}};
      c.lo = -100;
      c.hi = 100;
      c.relative = op.beta == 0.75F ? 1e-6 : 3e-6;
      check_all(c, 5, op.within_channel ? 4 : 5);
    }
  }
}

TEST_CASE("local response normalisation keeps small values beside large ones") {
  if (!isa_usable()) return;
  // A sum that slid past the large channel would carry its rounding error on.
  Case c{LrnOp{5, 1, 0.75F, 1, false}, {{1, 40, 3, 5}}};
  Solved s = solve(c, 7);
  for (Index i = 0; i < 40 * 15; ++i) {
    s.inputs[0][static_cast<std::size_t>(i)] = i / 15 == 8 ? 3e6F : 1e-3F;
  }
  s.want = evaluate_reference(s.net, s.inputs, 1);
  for (std::size_t i = 0; i < s.want[0].size(); ++i) s.slack[0][i] = 1e-6 * std::abs(s.want[0][i]);
  for (const LayerImpl* impl : layer_impls()) {
    if (impl->kind == "lrn") CHECK(check(*impl, s, 1, {}, false) == "");
  }
}

TEST_CASE("fully connected") {
  if (!isa_usable()) return;
  for (const Shape& s :
       {Shape{1, 3, 5, 7}, Shape{2, 8, 3, 2}, Shape{3, 17, 2, 2}, Shape{7, 40, 3, 3},
        Shape{1, 64, 1, 1}, Shape{5, 1000, 1, 1}, Shape{7, 1001, 1, 1}, Shape{2, 1, 1, 1}}) {
    for (Index m : {1, 10, 16, 17, 63, 130}) {
      InnerProductOp op;
      op.m = m;
      Case c{op, {s}};
      c.linear = kLinear;
      const int rows = s.h == 1 && s.w == 1 ? 3 : 15;
      check_all(c, rows, rows);
      op.bias = false;
      op.lo = 0;
      op.hi = 1;
      c.op = op;
      check_all(c, rows, rows);
    }
  }
}

TEST_CASE("weights of fewer bits are used where they are as good as promised, others elsewhere") {
  if (!isa_usable()) return;
  const Shape in{1, 100, 3, 3};
  constexpr Index kOutputs = 64, kSum = 900;
  constexpr std::size_t kOdd = 5 * kSum;  // of output 5
  InnerProductOp op;
  op.m = kOutputs;
  const LayerImpl *plain = find_layer_impl("fc-hwc"), *fixed = find_layer_impl("fc-hwc-fixed24"),
                  *blocks = find_layer_impl("fc-hwc-block20");
  REQUIRE(plain != nullptr);
  REQUIRE(fixed != nullptr);
  REQUIRE(blocks != nullptr);
  CHECK(fixed->error_scale > plain->error_scale);
  CHECK(blocks->error_scale > fixed->error_scale);

  struct Weights {
    const char* what;
    bool fixed, blocks;  // whether they serve these weights
    void (*fix)(std::vector<float>&);
  };
  for (const Weights& w : {
           Weights{"as drawn", true, true, [](std::vector<float>&) {}},
           Weights{"one of 30", true, true, [](std::vector<float>& v) { v[kOdd] = 30; }},
           Weights{"one of 5000", false, true, [](std::vector<float>& v) { v[kOdd] = -5000; }},
           Weights{"one in all", false, true,
                   [](std::vector<float>& v) {
                     std::fill_n(v.begin() + kOdd, kSum, 0.0F);
                     v[kOdd + 1] = 1;
                   }},
           Weights{"none in one output", true, true,
                   [](std::vector<float>& v) { std::fill_n(v.begin() + kOdd, kSum, 0.0F); }},
           Weights{"almost the next power of two", true, true,
                   [](std::vector<float>& v) { v[kOdd] = -0x1.fffffep0F; }},
           Weights{"infinity", false, false, [](std::vector<float>& v) { v[kOdd] = INFINITY; }},
           Weights{"NaN", false, false, [](std::vector<float>& v) { v[kOdd] = NAN; }},
           Weights{"tiny", false, false,
                   [](std::vector<float>& v) {
                     for (float& x : v) x *= 0x1p-100F;
                   }},
           Weights{"small", true, true,
                   [](std::vector<float>& v) {
                     for (float& x : v) x *= 0x1p-60F;
                   }},
           Weights{"large", true, true,
                   [](std::vector<float>& v) {
                     for (float& x : v) x *= 0x1p40F;
                   }},
           Weights{"eight tiny ones", true, true,
                   [](std::vector<float>& v) {
                     for (std::size_t k = 0; k < 8; ++k) v[kOdd + k] *= 0x1p-100F;
                   }},
           Weights{"huge", false, false,
                   [](std::vector<float>& v) {
                     for (float& x : v) x *= 0x1p100F;
                   }},
       }) {
    INFO(std::string(w.what));
    Case c{op, {in}};
    Solved s = solve(c, 7);
    std::vector<float> v = *s.net.layers.back().blobs[0].data;
    w.fix(v);
    s.net.layers.back().blobs[0].data = std::make_shared<const std::vector<float>>(v);
    s.problem.blobs = s.net.layers.back().blobs;
    const auto floats = plain->prepare(s.problem), as_fixed = fixed->prepare(s.problem),
               as_blocks = blocks->prepare(s.problem);
    constexpr std::size_t kBias = 4 * kOutputs;
    CHECK(floats->packed_bytes() == kOutputs * kSum * 4 + kBias);
    // A scale for each output; the last block is filled up.
    const std::size_t fixed_bytes = kOutputs * (kSum * 3 + 4) + kBias;
    CHECK(as_fixed->packed_bytes() == (w.fixed ? fixed_bytes : floats->packed_bytes()));
    CHECK(as_blocks->packed_bytes() ==
          (w.blocks ? kOutputs * (kSum + 4) / 8 * 20 + kBias : floats->packed_bytes()));

    const auto want = evaluate_reference(s.net, s.inputs, 1)[0];
    std::vector<double> scale(kOutputs, 0);
    for (std::size_t j = 0; j < scale.size(); ++j) {
      for (std::size_t k = 0; k < kSum; ++k)
        scale[j] +=
            std::abs(static_cast<double>(s.inputs[0][k]) * static_cast<double>(v[j * kSum + k]));
      scale[j] += std::abs(static_cast<double>((*s.problem.blobs[1].data)[j]));
    }
    Buffer x(kSum), y(kOutputs);
    const Strides st = strides(Layout::hwc, in);
    for_elements(st, in, [&](std::size_t i, std::size_t at) { x[at] = s.inputs[0][i]; });
    const float* inputs[] = {x.data()};
    float* outputs[] = {y.data()};
    LayerArgs args;
    args.in = inputs;
    args.out = outputs;
    const auto check_outputs = [&](const PreparedLayer& prepared, double error) {
      prepared.run(args);
      for (std::size_t j = 0; j < scale.size(); ++j) {
        CAPTURE(j);
        const double out = static_cast<double>(y[j]);
        if (!std::isfinite(want[j])) {
          CHECK(std::isnan(want[j]) == std::isnan(out));
          CHECK_FALSE(std::isfinite(out));
        } else {
          CHECK(std::abs(out - want[j]) <= error * scale[j]);
        }
      }
    };
    const bool drawn = std::string_view(w.what) == "as drawn";
    const auto promised = [](const LayerImpl& row) {
      return static_cast<double>(row.error_scale) * kErrorUnit;
    };
    // 24 bits round weights as drawn no more than a float sum is, 20 by some times as much.
    check_outputs(*as_fixed, drawn ? 6 * 0x1p-24 : promised(*fixed));
    check_outputs(*as_blocks, drawn ? 20 * 0x1p-24 : promised(*blocks));
  }
}

TEST_CASE("softmax") {
  if (!isa_usable()) return;
  for (const Shape& s : kShapes) {
    for (bool log : {false, true}) {
      for (int axis : {0, 1, 2, 3}) {
        Case c{SoftmaxOp{axis, log}, {s}};
        c.lo = -20;
        c.hi = 20;
        // x - max is up to 40, and rounded.
        c.relative = 40 * 0x1p-24 + 5e-7;
        c.absolute = log ? 4e-6 : 1e-37;
        check_all(c, axis == 1 ? 5 : 1, axis == 1 ? 5 : 1);
      }
    }
  }
  Case c{SoftmaxOp{}, {{1, 1000, 1, 1}}};
  c.lo = -90;
  c.hi = 90;
  c.relative = 180 * 0x1p-24 + 5e-7;
  c.absolute = 1e-37;
  check_all(c);
}

TEST_CASE("concatenation and slices") {
  if (!isa_usable()) return;
  for (const Shape& s : kShapes) {
    for (int axis : {0, 1, 2, 3}) {
      Shape second = s;
      (axis == 0 ? second.n : axis == 1 ? second.c : axis == 2 ? second.h : second.w) += 3;
      Case c{ConcatOp{axis}, {s, second, s}};
      c.relative = 0;
      c.absolute = 0;
      check_all(c);
      SliceOp op;
      op.axis = axis;
      const Index extent = axis == 0 ? s.n : axis == 1 ? s.c : axis == 2 ? s.h : s.w;
      if (extent < 3) continue;
      op.points = {1, extent - 1};
      c = {op, {s}, 3};
      c.relative = c.absolute = 0;
      check_all(c);
    }
  }
}

TEST_CASE("element-wise sum, product, maximum") {
  if (!isa_usable()) return;
  for (const Shape& s : kShapes) {
    for (auto k : {EltwiseOp::Kind::sum, EltwiseOp::Kind::prod, EltwiseOp::Kind::max}) {
      for (std::size_t inputs : {std::size_t{2}, std::size_t{3}, std::size_t{11}}) {
        Case c{EltwiseOp{k, {}}, std::vector<Shape>(inputs, s)};
        c.relative = 3e-6;
        c.absolute = 1e-37;
        c.linear = k == EltwiseOp::Kind::sum ? 2e-6 : 0;
        check_all(c);
        EltwiseOp clamped{k, {}};
        clamped.lo = 0.25F;
        clamped.hi = 1.5F;
        if (k == EltwiseOp::Kind::sum) {
          for (std::size_t i = 0; i < inputs; ++i) clamped.coeff.push_back(i % 2 ? -0.75F : 1.25F);
        }
        c.op = clamped;
        check_all(c);
      }
    }
  }
}

TEST_CASE("activations") {
  if (!isa_usable()) return;
  using Kind = ActivationOp::Kind;
  for (const Shape& s : kShapes) {
    const auto run = [&](Kind k, auto set, float lo = -6, float hi = 6, double absolute = 1e-37) {
      ActivationOp op;
      op.kind = k;
      set(op);
      Case c{op, {s}};
      c.lo = lo;
      c.hi = hi;
      c.relative = 1e-6;
      c.absolute = absolute;
      check_all(c);
    };
    const auto nothing = [](ActivationOp&) {};
    run(Kind::clamp, nothing);
    run(Kind::clamp, [](ActivationOp& op) {
      op.lo = 1;
      op.hi = 4;
    });
    run(Kind::leaky, [](ActivationOp& op) { op.slope = 0.1F; });
    run(Kind::sigmoid, nothing, -90, 90);
    run(Kind::tanh, nothing, -12, 12);
    run(Kind::tanh, nothing, -0.01F, 0.01F);
    run(Kind::elu, [](ActivationOp& op) {
      op.slope = 1.6732632F;
      op.scale = 1.0507009F;
    });
    run(
        Kind::swish, [](ActivationOp& op) { op.slope = 1; }, -80, 80);
    run(
        Kind::hard_sigmoid,
        [](ActivationOp& op) {
          op.slope = 0.2F;
          op.shift = 0.5F;
        },
        -6, 6, 1e-6);
    run(
        Kind::hard_swish,
        [](ActivationOp& op) {
          op.slope = 1.0F / 6;
          op.shift = 0.5F;
        },
        -6, 6, 3e-6);
    for (float y : {0.0F, 1.0F, 2.0F, 3.0F, -1.0F, -2.0F}) {
      run(
          Kind::power,
          [y](ActivationOp& op) {
            op.exponent = y;
            op.scale = 0.5F;
            op.shift = 4;
          },
          -6, 6);
    }
    run(Kind::power, [](ActivationOp& op) { op.exponent = 2; });
    for (float y : {0.5F, -0.5F, 0.3F, -1.7F, 2.5F}) {
      run(
          Kind::power, [y](ActivationOp& op) { op.exponent = y; }, 0.01F, 6, 1e-7);
    }
    run(
        Kind::exp,
        [](ActivationOp& op) {
          op.scale = 0.7F;
          op.shift = -0.3F;
        },
        -20, 20);
    run(
        Kind::log,
        [](ActivationOp& op) {
          op.scale = 2;
          op.shift = 0.5F;
        },
        0, 10, 1e-7);
    run(Kind::abs, nothing);
    run(Kind::softplus, nothing, -40, 40);
  }
}

TEST_CASE("activations at the ends of the range") {
  if (!isa_usable()) return;
  using Kind = ActivationOp::Kind;
  const std::vector<float> ends = {0.0F,  -0.0F,  1e-30F, -1e-30F, 1e-40F,    87.0F,
                                   88.5F, -87.3F, -95.0F, -103.0F, -104.5F,   89.0F,
                                   1e6F,  -1e6F,  1e30F,  -1e30F,  INFINITY,  -INFINITY,
                                   1e-6F, -1e-6F, 0.34F,  -0.35F,  0.693147F, 1.0F};
  for (auto k : {Kind::clamp, Kind::leaky, Kind::sigmoid, Kind::tanh, Kind::elu, Kind::exp,
                 Kind::log, Kind::abs, Kind::softplus}) {
    ActivationOp op;
    op.kind = k;
    op.slope = 0.5F;
    Case c{op, {{1, 1, 1, static_cast<Index>(ends.size())}}};
    Solved s = solve(c, 1);
    s.inputs[0] = ends;
    s.want = evaluate_reference(s.net, s.inputs, 1);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      // What a float cannot hold is an infinity there; denormals have fewer bits.
      if (std::abs(s.want[0][i]) > std::numeric_limits<float>::max()) {
        s.want[0][i] = std::copysign(INFINITY, s.want[0][i]);
      }
      // The sigmoid ends where exp(-x) does.
      s.slack[0][i] = 1e-6 * std::abs(s.want[0][i]) +
                      (k == Kind::sigmoid ? std::numeric_limits<float>::min() : 3e-45);
    }
    INFO(str(s.problem));
    for (const LayerImpl* impl : layer_impls()) {
      if (impl->kind == "act") CHECK(check(*impl, s, 1, {}, false) == "");
    }
  }
}

TEST_CASE("affine, batch normalisation, PReLU") {
  if (!isa_usable()) return;
  for (const Shape& s : kShapes) {
    Case c{AffineOp{}, {s}};
    c.blobs = 2;
    c.linear = 4e-7;
    check_all(c);
    c = {BatchNormOp{}, {s}};
    for (int blobs : {3, 5}) {
      c.blobs = blobs;
      c.absolute = 1e-5;
      c.relative = 1e-6;
      c.fix = [](Layer& layer) {
        std::vector<float> v = *layer.blobs[1].data;
        for (float& x : v) x = x * x + 0.1F;
        layer.blobs[1].data = std::make_shared<const std::vector<float>>(v);
        layer.blobs[2].data = std::make_shared<const std::vector<float>>(1, 0.7F);
      };
      check_all(c);
    }
    c = {PReluOp{}, {s}};
    c.blobs = 1;
    check_all(c);
    c.fix = [](Layer& layer) {
      layer.blobs[0].dims = {1};
      layer.blobs[0].data = std::make_shared<const std::vector<float>>(1, 0.25F);
    };
    check_all(c);
  }
}

TEST_CASE("flatten, reshape, permute, crop, pad, shuffle, identity, constant") {
  if (!isa_usable()) return;
  for (const Shape& s : kShapes) {
    const auto run = [&](Case c, int rows = 5, int slicing = 5) {
      c.relative = c.absolute = 0;
      check_all(c, rows, slicing);
    };
    run({FlattenOp{}, {s}});
    run({ReshapeOp{}, {s}});
    run({ReshapeOp{{-1, s.w, s.h, s.c}}, {s}}, 5, 0);
    for (const std::array<int, 4>& order : {std::array{0, 2, 3, 1}, std::array{0, 3, 1, 2},
                                            std::array{1, 0, 3, 2}, std::array{3, 2, 1, 0}}) {
      run({PermuteOp{order}, {s}});
    }
    if (s.h > 3 && s.w > 3 && s.c > 2) {
      run({CropOp{{0, 1, 1, 2}, {0, 0, s.h - 2, 0}, {1, 1, 1, 1}}, {s}});
      run({CropOp{{0, 0, 0, 1}, {0, 0, 0, 0}, {1, 2, 2, 3}}, {s}});
    }
    run({PadOp{{0, 0, 1, 2}, {0, 0, 3, 0}, PadOp::Mode::constant, 0.5F}, {s}});
    run({PadOp{{1, 2, 0, 0}, {0, 3, 0, 1}, PadOp::Mode::constant, 0}, {s}});
    run({PadOp{{0, 1, 2, 2}, {0, 0, 1, 0}, PadOp::Mode::edge, 0}, {s}});
    if (s.h > 2 && s.w > 2) {
      run({PadOp{{0, 0, 2, 1}, {0, 0, 1, 2}, PadOp::Mode::reflect, 0}, {s}});
    }
    for (Index g : {2, 4, 5}) {
      if (s.c % g == 0) run({ShuffleOp{g}, {s}});
    }
    run({IdentityOp{}, {s}});
    run({IdentityOp{}, {s}, 2});
    run({ConstantOp{s}, {}});
  }
}

TEST_CASE("broadcasting") {
  if (!isa_usable()) return;
  using Kind = BroadcastOp::Kind;
  for (const Shape& s : kShapes) {
    const Shape one = {1, 1, 1, 1}, factor = {s.n, s.c, 1, 1}, shared = {1, s.c, 1, 1};
    const Shape image = {1, 1, s.h, s.w}, row = {s.n, 1, 1, s.w}, column = {1, s.c, s.h, 1};
    for (auto k : {Kind::add, Kind::sub, Kind::mul, Kind::div, Kind::max, Kind::min, Kind::pow}) {
      for (const auto& [a, b] : {std::pair{s, factor},
                                 {factor, s},
                                 {s, shared},
                                 {s, one},
                                 {one, s},
                                 {s, image},
                                 {row, s},
                                 {s, column},
                                 {s, s},
                                 {row, column}}) {
        Case c{BroadcastOp{k}, {a, b}};
        c.lo = 0.2F;
        c.relative = 1e-6;
        c.absolute = k == Kind::sub ? 4e-7 : 1e-37;
        check_all(c);
      }
    }
  }
}

TEST_CASE("resizing") {
  if (!isa_usable()) return;
  using R = ResizeOp;
  for (const Shape& s : kShapes) {
    for (auto coordinate :
         {R::Coordinate::asymmetric, R::Coordinate::half_pixel, R::Coordinate::align_corners}) {
      for (const auto& [h, w] :
           {std::pair{2 * s.h, 2 * s.w}, {s.h + 3, 3 * s.w}, {Index{4}, Index{3}}}) {
        R op;
        op.coordinate = coordinate;
        op.oh = h;
        op.ow = w;
        op.method = R::Method::bilinear;
        Case c{op, {s}};
        c.absolute = 1e-6;
        check_all(c);
        for (auto round :
             {R::Round::floor, R::Round::ceil, R::Round::prefer_floor, R::Round::prefer_ceil}) {
          op.method = R::Method::nearest;
          op.round = round;
          c = {op, {s}};
          c.relative = c.absolute = 0;
          check_all(c);
        }
      }
    }
  }
}

TEST_CASE("reductions") {
  if (!isa_usable()) return;
  using Kind = ReduceOp::Kind;
  for (const Shape& s : kShapes) {
    for (auto k :
         {Kind::sum, Kind::mean, Kind::max, Kind::min, Kind::sum_square, Kind::l1, Kind::l2}) {
      for (const std::array<bool, 4>& axes :
           {std::array{false, false, true, true}, std::array{false, true, false, false},
            std::array{true, false, false, true}, std::array{true, true, true, true},
            std::array{false, false, true, false}}) {
        for (float coeff : {1.0F, -0.5F}) {
          Case c{ReduceOp{k, axes, coeff}, {s}};
          c.linear = kLinear;
          check_all(c);
        }
      }
    }
  }
}

TEST_CASE("normalisation to length 1") {
  if (!isa_usable()) return;
  for (const Shape& s : kShapes) {
    for (bool image : {false, true}) {
      for (int shared : {0, 1}) {
        Case c{NormalizeOp{image, 1e-10F}, {s}};
        c.relative = 1e-6;
        c.blobs = 1;
        if (shared == 1) {
          c.fix = [](Layer& layer) {
            layer.blobs[0].dims = {1};
            layer.blobs[0].data = std::make_shared<const std::vector<float>>(1, 20.0F);
          };
        }
        check_all(c, image ? 1 : 5, image ? 1 : 5);
      }
    }
  }
}

TEST_CASE("transposed convolution") {
  if (!isa_usable()) return;
  for (const Shape& s :
       {Shape{1, 1, 1, 1}, Shape{1, 3, 5, 7}, Shape{2, 8, 6, 5}, Shape{1, 20, 13, 11}}) {
    const auto run = [&](DeconvOp op) {
      Case c{op, {s}};
      c.linear = kLinear;
      check_all(c, 1, 1);
    };
    DeconvOp op;
    op.m = 5;
    op.kh = op.kw = 4;
    op.sh = op.sw = 2;
    run(op);
    op.pt = op.pl = op.pb = op.pr = 1;
    op.lo = 0;
    run(op);
    op.kh = 3;
    op.kw = 5;
    op.sh = 1;
    op.sw = 3;
    op.dh = op.dw = 2;
    op.extra_h = 1;
    op.extra_w = 2;
    op.bias = false;
    run(op);
    op = {};
    op.m = s.c;
    op.g = s.c;
    op.kh = op.kw = 16;
    op.sh = op.sw = 8;
    op.pt = op.pl = op.pb = op.pr = 4;
    run(op);
    if (s.c % 4 == 0) {
      op.g = 4;
      op.m = 12;
      run(op);
    }
  }
}

// BVLC/caffe 5398: one small product for each channel made bilinear upsampling ten times slower
// than its memory traffic asks for.
TEST_CASE("grouped bilinear transposed convolution is not far from a copy") {
  if (!isa_usable()) return;
  const Shape in{1, 96, 224, 224};
  DeconvOp op;
  op.m = op.g = in.c;
  op.kh = op.kw = 4;
  op.sh = op.sw = 2;
  op.pt = op.pl = op.pb = op.pr = 1;
  op.bias = false;
  const Op any = op;
  const Shape out{1, 96, 448, 448};
  LayerProblem problem;
  problem.op = &any;
  Blob filter;
  filter.data = std::make_shared<std::vector<float>>(static_cast<std::size_t>(96 * 16), 0.25F);
  problem.blobs = {&filter, 1};
  problem.in = {in};
  problem.out = {out};
  const auto rows = layer_impls();
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [](const LayerImpl* r) { return r->name == "deconv-chw"; });
  REQUIRE(row != rows.end());
  const auto layer = (*row)->prepare(problem);
  const Buffer from = Buffer::zeros(static_cast<std::size_t>(in.count()));
  Buffer to = Buffer::zeros(static_cast<std::size_t>(out.count()));
  Buffer copy = Buffer::zeros(to.size());
  Buffer workspace((layer->workspace_bytes() + 3) / 4);
  const float* ins[] = {from.data()};
  float* outs[] = {to.data()};
  const auto seconds = [](auto&& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // The least of interleaved runs: other programs only ever add, and may do so for a while.
  constexpr double kMost = 6;
  double deconv = 1e9, copied = 1e9;
  for (int i = 0; i < 7 || (i < 100 && deconv >= kMost * copied); ++i) {
    deconv = std::min(deconv, seconds([&] { layer->run({ins, outs, workspace.data()}); }));
    copied = std::min(copied, seconds([&] { std::memcpy(copy.data(), to.data(), to.bytes()); }));
  }
  MESSAGE("transposed convolution over copy of its output: " << deconv / copied);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose checks cost the time
  if (!emulated()) CHECK(deconv < kMost * copied);
#endif
}

TEST_CASE("every operation but those of convprim itself has a row") {
  std::set<std::string_view> kinds;
  for (const LayerImpl* impl : layer_impls()) kinds.insert(impl->kind);
  for (const char* k : {"deconv",    "pool",      "lrn",     "fc",     "softmax",  "concat",
                        "eltwise",   "broadcast", "act",     "prelu",  "affine",   "batchnorm",
                        "flatten",   "reshape",   "permute", "slice",  "crop",     "pad",
                        "normalize", "resize",    "shuffle", "reduce", "constant", "identity"}) {
    INFO(k);
    CHECK(kinds.contains(k));
  }
}

TEST_CASE("names are unique and rows complete") {
  std::set<std::string_view> names;
  for (const LayerImpl* impl : layer_impls()) {
    CHECK(names.insert(impl->name).second);
    CHECK(impl->name.starts_with(std::string(impl->kind) + "-"));
    CHECK((impl->reject_fn != nullptr));
    CHECK((impl->prepare_fn != nullptr));
  }
}

TEST_CASE("text of a problem") {
  PoolOp pool;
  pool.kh = pool.kw = 3;
  pool.sh = pool.sw = 2;
  Op op = pool;
  LayerProblem p;
  p.op = &op;
  p.in = {{1, 64, 112, 112}};
  p.out = {{1, 64, 56, 56}};
  CHECK(str(p) == "pool max k3s2p0 mb1c64h112w112 to mb1c64h56w56");
  p.slice = {256, 64};
  CHECK(str(p) == "pool max k3s2p0 mb1c64h112w112 to mb1c64h56w56 at64of256");
  op = LrnOp{5, 1e-4F, 0.75F, 1, false};
  p.out = p.in;
  p.slice = {};
  CHECK(str(p) == "lrn across5 alpha0.0001 beta0.75 k1 mb1c64h112w112");
  op = ConcatOp{};
  p.in = {{1, 3, 2, 2}, {1, 5, 2, 2}};
  p.out = {{1, 8, 2, 2}};
  CHECK(str(p) == "concat axis1 mb1c3h2w2+mb1c5h2w2 to mb1c8h2w2");
}

}  // namespace
}  // namespace convprim
