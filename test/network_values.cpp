// Networks as values: order, shapes, scenarios, random weights.
#include <algorithm>
#include <cmath>

#include "convprim/error.hpp"
#include "convprim/network.hpp"
#include "test.hpp"

using namespace convprim;

namespace {

/// Puts networks together by hand.
struct Maker {
  Network net;
  TensorId tensor(const std::string& name) {
    net.tensors.push_back({name, {}, 4});
    return static_cast<TensorId>(net.tensors.size()) - 1;
  }
  TensorId add(const std::string& name, Op op, std::vector<TensorId> in) {
    const TensorId out = tensor(name);
    net.layers.push_back({name, "", std::move(op), std::move(in), {out}, {}, 0});
    return out;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> n;
    for (const Layer& l : net.layers) n.push_back(l.name);
    return n;
  }
};

std::string message_of(Network net, void (*f)(Network&)) {
  try {
    f(net);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Shape of the output of one operation on inputs of these shapes.
Shape shape_of(const Op& op, const std::vector<Shape>& inputs, std::size_t output = 0,
               std::size_t outputs = 1) {
  Maker m;
  std::vector<TensorId> in;
  for (const Shape& s : inputs) in.push_back(m.add("in", InputOp{s}, {}));
  m.add("op", op, in);
  while (m.net.layers.back().outputs.size() < outputs) {
    m.net.layers.back().outputs.push_back(m.tensor("more"));
  }
  infer_shapes(m.net);
  return m.net.tensors[static_cast<std::size_t>(m.net.layers.back().outputs[output])].shape;
}

bool refuses(const Op& op, const std::vector<Shape>& inputs, std::size_t outputs = 1) {
  try {
    shape_of(op, inputs, 0, outputs);
  } catch (const Error& e) {
    CAPTURE(e.what());
    CHECK(has(e.what(), "layer \"op\""));
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("layers are put into an order that keeps the file's where it can") {
  Maker m;
  const TensorId x = m.add("x", InputOp{{1, 1, 4, 4}}, {});
  const TensorId a = m.add("a", ActivationOp{}, {x});
  const TensorId b = m.add("b", ActivationOp{}, {x});
  m.add("c", EltwiseOp{}, {a, b});
  SUBCASE("sorted already") {
    sort_layers(m.net);
    CHECK(m.names() == std::vector<std::string>{"x", "a", "b", "c"});
  }
  SUBCASE("backwards") {
    std::reverse(m.net.layers.begin(), m.net.layers.end());
    sort_layers(m.net);
    CHECK(m.names() == std::vector<std::string>{"x", "a", "b", "c"});
  }
  SUBCASE("one late") {
    std::swap(m.net.layers[1], m.net.layers[3]);  // x c b a
    sort_layers(m.net);
    CHECK(m.names() == std::vector<std::string>{"x", "a", "b", "c"});
  }
}

TEST_CASE("producers and consumers") {
  Maker m;
  const TensorId x = m.add("x", InputOp{{1, 1, 4, 4}}, {});
  const TensorId a = m.add("a", ActivationOp{}, {x});
  m.add("sum", EltwiseOp{}, {a, a});
  m.tensor("nobody");
  CHECK(producers(m.net) == std::vector<LayerId>{0, 1, 2, -1});
  const auto readers = consumers(m.net);
  CHECK(readers[0] == std::vector<LayerId>{1});
  CHECK(readers[1] == std::vector<LayerId>{2, 2});
  CHECK(readers[2].empty());
}

TEST_CASE("cycles and tensors made twice or never are errors that name the layers") {
  Maker m;
  m.net.file = "net.txt";
  const TensorId x = m.add("x", InputOp{{1, 1, 4, 4}}, {});
  const TensorId a = m.add("a", EltwiseOp{}, {x, x});
  const TensorId b = m.add("b", ActivationOp{}, {a});
  m.add("c", ActivationOp{}, {b});
  SUBCASE("cycle") {
    m.net.layers[1].inputs[1] = b;
    const std::string text = message_of(m.net, sort_layers);
    CHECK(has(text, "net.txt"));
    CHECK(has(text, "\"a\", \"b\""));
    CHECK(!has(text, "\"c\""));
  }
  SUBCASE("loop") {
    m.net.layers[1].inputs[1] = a;
    CHECK(has(message_of(m.net, sort_layers), "\"a\""));
  }
  SUBCASE("twice") {
    m.net.layers[3].outputs[0] = b;
    const std::string text = message_of(m.net, sort_layers);
    CHECK(has(text, "layer \"c\""));
    CHECK(has(text, "layer \"b\""));
  }
  SUBCASE("never") {
    m.net.layers[3].inputs[0] = m.tensor("ghost");
    CHECK(has(message_of(m.net, sort_layers), "\"ghost\""));
  }
  SUBCASE("no such tensor") {
    m.net.layers[3].inputs[0] = 99;
    CHECK(has(message_of(m.net, sort_layers), "99"));
  }
}

TEST_CASE("convolutions round down, pooling as Caffe does") {
  const Shape image{2, 6, 18, 17};
  CHECK(shape_of(
            ConvOp{.m = 4, .kh = 3, .kw = 5, .sh = 2, .sw = 3, .pt = 1, .pl = 2, .pb = 0, .pr = 1},
            {image}) == Shape{2, 4, 9, 6});
  CHECK(shape_of(ConvOp{.m = 4, .kh = 3, .kw = 3, .dh = 4, .dw = 2}, {image}) ==
        Shape{2, 4, 10, 13});
  const auto pool = [](Index size, Index k, Index s, Index p, bool ceil) {
    const PoolOp op{
        .kh = k, .kw = k, .sh = s, .sw = s, .pt = p, .pl = p, .pb = p, .pr = p, .ceil = ceil};
    return shape_of(op, {{1, 1, size, size}}).h;
  };
  CHECK(pool(112, 3, 2, 0, true) == 56);
  CHECK(pool(112, 3, 2, 0, false) == 55);
  CHECK(pool(54, 3, 2, 0, true) == 27);
  CHECK(pool(112, 3, 2, 1, true) == 57);
  CHECK(pool(112, 3, 2, 1, false) == 56);
  CHECK(pool(4, 2, 4, 1, true) == 2);  // the third window would start beyond image and padding
  CHECK(pool(3, 1, 4, 0, true) == 2);  // clipped only where padded
  CHECK(pool(1, 2, 2, 0, true) == 1);  // a window larger than the image
  CHECK(pool(1, 1, 1, 0, false) == 1);
  CHECK(shape_of(PoolOp{.global = true}, {image}) == Shape{2, 6, 1, 1});
  CHECK(shape_of(DeconvOp{.m = 6,
                          .kh = 4,
                          .kw = 4,
                          .sh = 2,
                          .sw = 2,
                          .pt = 1,
                          .pl = 1,
                          .pb = 1,
                          .pr = 1,
                          .g = 6,
                          .extra_w = 1},
                 {image}) == Shape{2, 6, 36, 35});
}

TEST_CASE("shapes of the other operations") {
  const Shape s{2, 6, 4, 3};
  CHECK(shape_of(InnerProductOp{.m = 7}, {s}) == Shape{2, 7, 1, 1});
  CHECK(shape_of(FlattenOp{}, {s}) == Shape{2, 72, 1, 1});
  CHECK(shape_of(ConcatOp{}, {s, {2, 1, 4, 3}}) == Shape{2, 7, 4, 3});
  CHECK(shape_of(ConcatOp{.axis = 3}, {s, {2, 6, 4, 5}}) == Shape{2, 6, 4, 8});
  CHECK(shape_of(BroadcastOp{}, {s, {2, 6, 1, 1}}) == s);
  CHECK(shape_of(BroadcastOp{}, {{1, 6, 1, 3}, {2, 1, 4, 1}}) == s);
  CHECK(shape_of(ReshapeOp{{0, -1, 2, 2}}, {s}) == Shape{2, 18, 2, 2});
  CHECK(shape_of(PermuteOp{{0, 2, 3, 1}}, {s}) == Shape{2, 4, 3, 6});
  CHECK(shape_of(SliceOp{.axis = 1, .points = {1, 4}}, {s}, 1, 3) == Shape{2, 3, 4, 3});
  CHECK(shape_of(SliceOp{.axis = 1, .points = {}}, {s}, 2, 3) == Shape{2, 2, 4, 3});
  CHECK(shape_of(CropOp{.begin = {0, 1, 1, 0}, .extent = {0, 2, 0, 0}, .step = {1, 2, 2, 1}},
                 {s}) == Shape{2, 2, 2, 3});
  CHECK(shape_of(PadOp{.before = {0, 0, 1, 2}, .after = {0, 1, 0, 3}}, {s}) == Shape{2, 7, 5, 8});
  CHECK(shape_of(ResizeOp{.oh = 9, .scale_w = 2.5F}, {s}) == Shape{2, 6, 9, 7});
  CHECK(shape_of(ReduceOp{}, {s}) == Shape{2, 6, 1, 1});
  CHECK(shape_of(ShuffleOp{3}, {s}) == s);
  CHECK(shape_of(OpaqueOp{"", {{1, 2, 3, 4}}}, {s}) == Shape{1, 2, 3, 4});
  CHECK(!known(shape_of(OpaqueOp{}, {s})));
}

TEST_CASE("what does not fit is refused") {
  const Shape s{1, 6, 4, 4};
  CHECK(refuses(ConvOp{.m = 4, .kh = 7, .kw = 1}, {s}));
  CHECK(refuses(ConvOp{.m = 4, .g = 4}, {s}));
  CHECK(refuses(ConvOp{.m = 4, .g = 3}, {s}));
  CHECK(refuses(ConvOp{.m = 4, .sh = 0}, {s}));
  CHECK(refuses(ConvOp{.m = 0}, {s}));
  CHECK(refuses(ConvOp{.m = 4, .pt = -1}, {s}));
  CHECK(refuses(ConvOp{.m = Index{1} << 40}, {s}));
  CHECK(refuses(ConvOp{.m = 6, .epilogue = {.residual = true}}, {s, {1, 6, 4, 3}}));
  CHECK(refuses(ConvOp{.m = 6}, {s, s}));
  CHECK(refuses(DeconvOp{.m = 6, .pt = 3, .pb = 3}, {s}));
  CHECK(refuses(PoolOp{.kh = 9, .kw = 9}, {s}));
  CHECK(refuses(EltwiseOp{}, {s, {1, 6, 4, 3}}));
  CHECK(refuses(EltwiseOp{.coeff = {1}}, {s, s}));
  CHECK(refuses(ConcatOp{}, {s, {1, 6, 4, 3}}));
  CHECK(refuses(ConcatOp{.axis = 4}, {s}));
  CHECK(refuses(BroadcastOp{}, {s, {1, 5, 1, 1}}));
  CHECK(refuses(ReshapeOp{{0, 5, 1, -1}}, {s}));
  CHECK(refuses(ReshapeOp{{-1, -1, 1, 1}}, {s}));
  CHECK(refuses(PermuteOp{{0, 1, 1, 2}}, {s}));
  CHECK(refuses(SliceOp{.axis = 1, .points = {4, 4}}, {s}, 3));
  CHECK(refuses(SliceOp{.axis = 1, .points = {}}, {s}, 4));
  CHECK(refuses(CropOp{.begin = {0, 0, 2, 0}, .extent = {0, 0, 3, 0}}, {s}));
  CHECK(refuses(PadOp{.before = {0, 0, 4, 0}, .mode = PadOp::Mode::reflect}, {s}));
  CHECK(refuses(ResizeOp{.scale_h = 0.1F}, {s}));
  CHECK(refuses(ShuffleOp{4}, {s}));
  CHECK(refuses(SoftmaxOp{.axis = -1}, {s}));
  CHECK(refuses(InputOp{{1, 1 << 20, 1 << 10, 1 << 10}}, {}));
}

TEST_CASE("blobs get their shapes, and wrong ones are refused with both") {
  Maker m;
  m.net.file = "net.txt";
  const TensorId x = m.add("x", InputOp{{1, 6, 4, 4}}, {});
  m.add("conv", ConvOp{.m = 4, .kh = 3, .kw = 1, .g = 2}, {x});
  infer_shapes(m.net);
  REQUIRE(m.net.layers[1].blobs.size() == 2);
  CHECK(m.net.layers[1].blobs[0].dims == std::vector<Index>{4, 3, 3, 1});
  CHECK(m.net.layers[1].blobs[1].dims == std::vector<Index>{4});
  m.net.layers[1].blobs[0].dims = {4, 3, 1, 3};
  const std::string text = message_of(m.net, infer_shapes);
  CHECK(has(text, "4x3x1x3"));
  CHECK(has(text, "4x3x3x1"));
}

TEST_CASE("the scenario of a convolution") {
  Maker m;
  const TensorId x = m.add("x", InputOp{{2, 6, 18, 17}}, {});
  m.add("conv",
        ConvOp{.m = 4,
               .kh = 3,
               .kw = 5,
               .sh = 2,
               .sw = 3,
               .pt = 1,
               .pl = 2,
               .pb = 0,
               .pr = 1,
               .dh = 2,
               .g = 2},
        {x});
  infer_shapes(m.net);
  const Scenario s = scenario_of(m.net, 1);
  CHECK(s == Scenario::padded({2, 6, 18, 17}, 4, 3, 5, 2, 3, 1, 2, 0, 1, 2, 1, 2));
  CHECK_THROWS_AS(scenario_of(m.net, 0), Error);
}

TEST_CASE("random weights are the same each time and keep activations at their size") {
  Maker m;
  TensorId x = m.add("x", InputOp{{1, 64, 8, 8}}, {});
  x = m.add("conv", ConvOp{.m = 64, .kh = 3, .kw = 3}, {x});
  m.add("other", ConvOp{.m = 64, .kh = 3, .kw = 3}, {x});
  infer_shapes(m.net);
  Network again = m.net;
  Network seeded = m.net;
  random_weights(m.net);
  random_weights(again);
  random_weights(seeded, 2);
  const auto& w = *m.net.layers[1].blobs[0].data;
  CHECK(w == *again.layers[1].blobs[0].data);
  CHECK(w != *seeded.layers[1].blobs[0].data);
  CHECK(w != *m.net.layers[2].blobs[0].data);
  double sum = 0;
  double squares = 0;
  for (const float v : w) {
    sum += static_cast<double>(v);
    squares += static_cast<double>(v) * static_cast<double>(v);
  }
  const double count = static_cast<double>(w.size());
  CHECK(std::abs(sum / count) < 2e-3);
  CHECK(squares / count == doctest::Approx(2.0 / (64 * 9)).epsilon(0.02));
}

TEST_CASE("kinds have words") {
  CHECK(kind(InputOp{}) == "input");
  CHECK(kind(ConvOp{}) == "conv");
  CHECK(kind(InnerProductOp{}) == "fc");
  CHECK(kind(ActivationOp{}) == "act");
  CHECK(kind(ReduceOp{}) == "reduce");
  CHECK(kind(OpaqueOp{}) == "opaque");
}
