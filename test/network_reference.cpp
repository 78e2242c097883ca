// The reference evaluator: each operation against numbers worked out by hand, or against another
// way to compute it.
#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <random>

#include "convprim/error.hpp"
#include "convprim/reference.hpp"
#include "reference.hpp"
#include "test.hpp"

using namespace convprim;

namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

Blob blob(std::vector<Index> dims, Floats values) {
  Blob b;
  b.dims = std::move(dims);
  b.data = std::make_shared<const Floats>(std::move(values));
  return b;
}

/// All outputs of one operation.
std::vector<Doubles> apply(const Op& op, const std::vector<Shape>& shapes,
                           const std::vector<Floats>& in, std::vector<Blob> blobs = {},
                           std::size_t outputs = 1) {
  Network net;
  Layer layer;
  layer.name = "op";
  layer.op = op;
  layer.blobs = std::move(blobs);
  const auto tensor = [&] {
    net.tensors.push_back({"t", {}, 4});
    return static_cast<TensorId>(net.tensors.size()) - 1;
  };
  for (const Shape& s : shapes) {
    const TensorId t = tensor();
    net.layers.push_back({"in", "", InputOp{s}, {}, {t}, {}, 0});
    layer.inputs.push_back(t);
  }
  for (std::size_t i = 0; i < outputs; ++i) layer.outputs.push_back(tensor());
  net.outputs = layer.outputs;
  net.layers.push_back(layer);
  infer_shapes(net);
  return evaluate_reference(net, in);
}

Doubles apply1(const Op& op, const Shape& s, const Floats& in, std::vector<Blob> blobs = {}) {
  return apply(op, {s}, {in}, std::move(blobs))[0];
}

void check_near(const Doubles& got, const Doubles& want, double tolerance = 1e-6) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == doctest::Approx(want[i]).epsilon(tolerance));
  }
}

Floats random_floats(Index count, std::mt19937& engine) {
  std::uniform_real_distribution<float> u(-1, 1);
  Floats x(static_cast<std::size_t>(count));
  for (float& v : x) v = u(engine);
  return x;
}

/// 1, 2, 3, ...
Floats ramp(Index count) {
  Floats x(static_cast<std::size_t>(count));
  std::iota(x.begin(), x.end(), 1.0F);
  return x;
}

}  // namespace

TEST_CASE("convolution agrees with the core's reference on shapes that break things") {
  std::mt19937 engine(1);
  struct Case {
    Shape in;
    ConvOp op;
  };
  const Case cases[] = {
      {{2, 6, 7, 9}, {.m = 4, .kh = 3, .kw = 3, .pt = 1, .pl = 1, .pb = 1, .pr = 1}},
      {{1, 6, 14, 14}, {.m = 12, .kh = 3, .kw = 3, .pt = 1, .pl = 1, .pb = 1, .pr = 1, .g = 3}},
      {{1, 3, 17, 40},
       {.m = 8, .kh = 3, .kw = 5, .sh = 2, .sw = 1, .pt = 1, .pl = 2, .pb = 1, .pr = 2}},
      {{1, 3, 23, 23}, {.m = 5, .kh = 11, .kw = 11, .sh = 4, .sw = 4}},
      {{1, 4, 5, 5},
       {.m = 4, .kh = 3, .kw = 3, .pt = 2, .pl = 2, .pb = 2, .pr = 2, .dh = 2, .dw = 2, .g = 4}},
      {{3, 8, 1, 1}, {.m = 8, .kh = 3, .kw = 3, .pt = 1, .pl = 1, .pb = 1, .pr = 1, .g = 8}},
      {{1, 5, 6, 7}, {.m = 3, .bias = false}},
      {{1, 5, 6, 7}, {.m = 3, .sh = 2, .sw = 2}},
      {{1, 1, 1, 16}, {.m = 2, .kh = 1, .kw = 8, .pl = 7, .pr = 7}},
      {{1, 4, 32, 32}, {.m = 4, .kh = 3, .kw = 3, .pt = 1, .pl = 3, .pb = 1, .pr = 3}},
      {{1, 2, 4, 4}, {.m = 2, .kh = 2, .kw = 2, .pt = 5, .pl = 5, .pb = 4, .pr = 3}},
      {{1, 2, 8, 8}, {.m = 2, .kh = 3, .kw = 3, .sh = 2, .sw = 2, .pl = 0, .pb = 1, .pr = 1}},
  };
  for (const Case& c : cases) {
    for (const bool residual : {false, true}) {
      ConvOp op = c.op;
      op.epilogue.residual = residual;
      if (residual) op.epilogue.lo = 0;
      const Scenario s = Scenario::padded(c.in, op.m, op.kh, op.kw, op.sh, op.sw, op.pt, op.pl,
                                          op.pb, op.pr, op.dh, op.dw, op.g);
      CAPTURE(s.str());
      const Floats in = random_floats(c.in.count(), engine);
      const Floats filter = random_floats(s.filter_count(), engine);
      const Floats bias = random_floats(s.m, engine);
      const Floats add = random_floats(s.out().count(), engine);
      std::vector<Blob> blobs = {blob({s.m, s.cg(), s.kh, s.kw}, filter)};
      if (op.bias) blobs.push_back(blob({s.m}, bias));
      std::vector<Shape> shapes = {c.in};
      std::vector<Floats> inputs = {in};
      if (residual) {
        shapes.push_back(s.out());
        inputs.push_back(add);
      }
      const ReferenceOutput want =
          reference_convolution(s, in.data(), {filter.data(), op.bias ? bias.data() : nullptr},
                                op.epilogue, residual ? add.data() : nullptr, 1);
      check_near(apply(op, shapes, inputs, blobs)[0], want.value, 1e-12);
    }
  }
}

TEST_CASE("a transposed convolution is the convolution's transpose") {
  // <conv(x), y> = <x, deconv(y)> for any x and y: the definition of the adjoint.
  std::mt19937 engine(2);
  struct Case {
    Shape in;
    ConvOp op;
    Index extra_h, extra_w;
  };
  const Case cases[] = {
      {{1, 4, 8, 8},
       {.m = 6, .kh = 4, .kw = 4, .sh = 2, .sw = 2, .pt = 1, .pl = 1, .pb = 1, .pr = 1},
       0,
       0},
      {{2, 4, 9, 7},
       {.m = 6, .kh = 3, .kw = 2, .sh = 1, .sw = 3, .pt = 0, .pl = 1, .pb = 1, .pr = 0, .g = 2},
       0,
       0},
      {{1, 3, 10, 11},
       {.m = 3,
        .kh = 3,
        .kw = 3,
        .sh = 2,
        .sw = 2,
        .pt = 1,
        .pl = 1,
        .pb = 1,
        .pr = 1,
        .dh = 1,
        .dw = 2,
        .g = 3},
       1,
       0},
  };
  for (const Case& c : cases) {
    ConvOp conv = c.op;
    conv.bias = false;
    const Scenario s = Scenario::padded(c.in, conv.m, conv.kh, conv.kw, conv.sh, conv.sw, conv.pt,
                                        conv.pl, conv.pb, conv.pr, conv.dh, conv.dw, conv.g);
    CAPTURE(s.str());
    const DeconvOp deconv{.m = c.in.c,
                          .kh = conv.kh,
                          .kw = conv.kw,
                          .sh = conv.sh,
                          .sw = conv.sw,
                          .pt = conv.pt,
                          .pl = conv.pl,
                          .pb = conv.pb,
                          .pr = conv.pr,
                          .dh = conv.dh,
                          .dw = conv.dw,
                          .g = conv.g,
                          .extra_h = c.extra_h,
                          .extra_w = c.extra_w,
                          .bias = false};
    const Floats x = random_floats(c.in.count(), engine);
    const Floats y = random_floats(s.out().count(), engine);
    const Blob filter = blob({s.m, s.cg(), s.kh, s.kw}, random_floats(s.filter_count(), engine));
    const Doubles ax = apply1(conv, c.in, x, {filter});
    const Doubles aty = apply1(deconv, s.out(), y, {filter});
    REQUIRE(aty.size() == x.size());
    double left = 0;
    double right = 0;
    for (std::size_t i = 0; i < ax.size(); ++i) left += ax[i] * static_cast<double>(y[i]);
    for (std::size_t i = 0; i < aty.size(); ++i) right += aty[i] * static_cast<double>(x[i]);
    CHECK(left == doctest::Approx(right).epsilon(1e-9));
  }
  // bias and clamp come last
  const DeconvOp one{.m = 1, .kh = 2, .kw = 2, .sh = 2, .sw = 2, .lo = 0};
  check_near(apply1(one, {1, 1, 1, 1}, {2}, {blob({1, 1, 2, 2}, {1, -1, 3, -4}), blob({1}, {1})}),
             {3, 0, 7, 0});
}

TEST_CASE("pooling: borders, divisors, masks") {
  const Floats x = ramp(9);  // 1 2 3 / 4 5 6 / 7 8 9
  const Shape s{1, 1, 3, 3};
  const PoolOp max{.kh = 2, .kw = 2, .sh = 2, .sw = 2};
  check_near(apply1(max, s, x), {5, 6, 8, 9});  // rounds up
  PoolOp avg = max;
  avg.method = PoolOp::Method::avg;
  check_near(apply1(avg, s, x), {3, 4.5, 7.5, 9});  // divides by what lies in the image
  const PoolOp padded{
      .method = PoolOp::Method::avg, .kh = 3, .kw = 3, .pt = 1, .pl = 1, .pb = 1, .pr = 1};
  check_near(apply1(padded, s, x),
             {12 / 9.0, 21 / 9.0, 16 / 9.0, 27 / 9.0, 5, 33 / 9.0, 24 / 9.0, 39 / 9.0, 28 / 9.0});
  PoolOp real = padded;
  real.count_padding = false;
  check_near(apply1(real, s, x), {3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7});
  check_near(apply1(PoolOp{.method = PoolOp::Method::avg, .global = true}, s, x), {5});
  const PoolOp dilated{.kh = 2, .kw = 2, .dh = 2, .dw = 2};
  check_near(apply1(dilated, s, x), {9});
  const auto masked = apply(max, {{1, 1, 3, 3}}, {{1, 7, 7, 1, 1, 1, -3, -2, -9}}, {}, 2);
  check_near(masked[0], {7, 7, -2, -9});
  check_near(masked[1], {1, 2, 7, 8});
  // Negative values survive padding, which max does not see.
  const PoolOp corner{.kh = 2, .kw = 2, .sh = 2, .sw = 2, .pt = 1, .pl = 1, .pb = 1, .pr = 1};
  check_near(apply1(corner, {1, 1, 2, 2}, {-1, -2, -3, -4}), {-1, -2, -3, -4});
}

TEST_CASE("local response normalisation") {
  const Floats x = {1, 2, 3, 4};
  const LrnOp across{.size = 3, .alpha = 3, .beta = 1, .k = 2};
  check_near(apply1(across, {1, 4, 1, 1}, x), {1.0 / 7, 2.0 / 16, 3.0 / 31, 4.0 / 27});
  const LrnOp within{.size = 3, .alpha = 9, .beta = 0.5F, .k = 1, .within_channel = true};
  check_near(apply1(within, {1, 1, 2, 2}, x),
             {1 / std::sqrt(31.0), 2 / std::sqrt(31.0), 3 / std::sqrt(31.0), 4 / std::sqrt(31.0)});
}

TEST_CASE("fully connected, softmax, concat, eltwise, broadcast") {
  check_near(apply1(InnerProductOp{.m = 2, .lo = 0}, {1, 2, 1, 2}, {1, 2, 3, 4},
                    {blob({2, 4}, {1, 0, 0, 1, -1, -1, 0, 0}), blob({2}, {0.5F, 1})}),
             {5.5, 0});
  const double e = std::exp(1.0);
  check_near(apply1(SoftmaxOp{}, {1, 2, 1, 2}, {1000, 3, 1001, 3}),
             {1 / (1 + e), 0.5, e / (1 + e), 0.5});
  check_near(apply1(SoftmaxOp{.axis = 3, .log = true}, {1, 1, 1, 2}, {1, 1}),
             {-std::log(2.0), -std::log(2.0)});
  check_near(
      apply(ConcatOp{}, {{2, 1, 1, 2}, {2, 2, 1, 2}}, {ramp(4), {5, 6, 7, 8, 9, 10, 11, 12}})[0],
      {1, 2, 5, 6, 7, 8, 3, 4, 9, 10, 11, 12});
  check_near(apply(ConcatOp{.axis = 3}, {{1, 1, 2, 1}, {1, 1, 2, 2}}, {{1, 2}, {3, 4, 5, 6}})[0],
             {1, 3, 4, 2, 5, 6});
  const Shape two{1, 1, 1, 2};
  using E = EltwiseOp::Kind;
  check_near(apply(EltwiseOp{.coeff = {1, -2, 0.5F}, .lo = -3}, {two, two, two},
                   {{1, 2}, {3, 4}, {4, 4}})[0],
             {-3, -3});
  check_near(apply(EltwiseOp{.kind = E::prod}, {two, two}, {{2, 3}, {4, -5}})[0], {8, -15});
  check_near(apply(EltwiseOp{.kind = E::max}, {two, two}, {{-2, 3}, {-4, 5}})[0], {-2, 5});
  using B = BroadcastOp::Kind;
  const Shape a{1, 2, 1, 2};
  const Shape b{1, 2, 1, 1};
  const std::vector<Floats> ab = {{1, 2, 3, 4}, {2, 4}};
  check_near(apply(BroadcastOp{B::add}, {a, b}, ab)[0], {3, 4, 7, 8});
  check_near(apply(BroadcastOp{B::sub}, {a, b}, ab)[0], {-1, 0, -1, 0});
  check_near(apply(BroadcastOp{B::mul}, {a, b}, ab)[0], {2, 4, 12, 16});
  check_near(apply(BroadcastOp{B::div}, {b, a}, {ab[1], ab[0]})[0], {2, 1, 4 / 3.0, 1});
  check_near(apply(BroadcastOp{B::max}, {a, b}, ab)[0], {2, 2, 4, 4});
  check_near(apply(BroadcastOp{B::min}, {a, b}, ab)[0], {1, 2, 3, 4});
  check_near(apply(BroadcastOp{B::pow}, {a, b}, ab)[0], {1, 4, 81, 256});
}

TEST_CASE("element-wise functions") {
  using K = ActivationOp::Kind;
  const Shape s{1, 1, 1, 4};
  const Floats x = {-2, -0.5F, 0.5F, 8};
  const auto act = [&](const ActivationOp& op) { return apply1(op, s, x); };
  check_near(act({.kind = K::clamp}), {0, 0, 0.5, 8});
  check_near(act({.kind = K::clamp, .lo = -1, .hi = 6}), {-1, -0.5, 0.5, 6});
  check_near(act({.kind = K::leaky, .slope = 0.25F}), {-0.5, -0.125, 0.5, 8});
  check_near(act({.kind = K::sigmoid}), {0.1192029220, 0.3775406688, 0.6224593312, 0.9996646499});
  check_near(act({.kind = K::tanh}), {-0.9640275801, -0.4621171573, 0.4621171573, 0.9999997749});
  check_near(act({.kind = K::elu, .slope = 2, .scale = 3}), {-5.1879883, -2.3608161, 1.5, 24});
  check_near(act({.kind = K::swish, .slope = 1}),
             {-0.2384058440, -0.1887703344, 0.3112296656, 7.9973171994});
  check_near(act({.kind = K::hard_sigmoid, .slope = 0.25F, .shift = 0.5F}), {0, 0.375, 0.625, 1});
  check_near(act({.kind = K::hard_swish, .slope = 0.25F, .shift = 0.5F}), {0, -0.1875, 0.3125, 8});
  check_near(act({.kind = K::power, .scale = 2, .shift = 1, .exponent = 2}), {9, 0, 4, 289});
  check_near(act({.kind = K::exp, .scale = 2, .shift = 1}),
             {std::exp(-3.0), 1, std::exp(2.0), std::exp(17.0)});
  check_near(act({.kind = K::log, .scale = 1, .shift = 3}),
             {0, std::log(2.5), std::log(3.5), std::log(11.0)});
  check_near(act({.kind = K::abs}), {2, 0.5, 0.5, 8});
  check_near(act({.kind = K::softplus}), {0.1269280110, 0.4740769842, 0.9740769842, 8.0003354064});
  const Shape channels{1, 2, 1, 2};
  check_near(apply1(PReluOp{}, channels, {-1, 1, -1, 1}, {blob({2}, {0.5F, 3})}), {-0.5, 1, -3, 1});
  check_near(apply1(PReluOp{}, channels, {-1, 1, -1, 1}, {blob({1}, {0.5F})}), {-0.5, 1, -0.5, 1});
  check_near(apply1(AffineOp{}, channels, ramp(4), {blob({2}, {2, -1}), blob({2}, {1, 0})}),
             {3, 5, -3, -4});
}

TEST_CASE("moving elements about") {
  const Shape s{1, 2, 2, 3};
  const Floats x = ramp(12);
  check_near(apply1(FlattenOp{}, s, x), Doubles(x.begin(), x.end()));
  check_near(apply1(PermuteOp{{0, 2, 3, 1}}, s, x), {1, 7, 2, 8, 3, 9, 4, 10, 5, 11, 6, 12});
  const auto parts = apply(SliceOp{.axis = 3, .points = {1}}, {s}, {x}, {}, 2);
  check_near(parts[0], {1, 4, 7, 10});
  check_near(parts[1], {2, 3, 5, 6, 8, 9, 11, 12});
  check_near(
      apply1(CropOp{.begin = {0, 1, 0, 0}, .extent = {0, 0, 1, 0}, .step = {1, 1, 1, 2}}, s, x),
      {7, 9});
  const Shape row{1, 1, 1, 3};
  using M = PadOp::Mode;
  const auto pad = [&](M mode) {
    return apply1(PadOp{.before = {0, 0, 0, 2}, .after = {0, 0, 0, 1}, .mode = mode, .value = 9},
                  row, {1, 2, 3});
  };
  check_near(pad(M::constant), {9, 9, 1, 2, 3, 9});
  check_near(pad(M::edge), {1, 1, 1, 2, 3, 3});
  check_near(pad(M::reflect), {3, 2, 1, 2, 3, 2});
  check_near(apply1(ShuffleOp{2}, {1, 6, 1, 1}, ramp(6)), {1, 4, 2, 5, 3, 6});
}

TEST_CASE("normalisation, reduction, resizing") {
  check_near(apply1(NormalizeOp{.across_spatial = false, .eps = 0}, {1, 2, 1, 2}, {3, 0, 4, 5},
                    {blob({2}, {10, 1})}),
             {6, 0, 0.8, 1});
  check_near(apply1(NormalizeOp{.across_spatial = true, .eps = 0}, {1, 2, 1, 2}, {1, 1, 1, 1},
                    {blob({1}, {2})}),
             {1, 1, 1, 1});
  using R = ReduceOp::Kind;
  const auto reduce = [](R kind, std::array<bool, 4> axes, float coeff = 1) {
    return apply1(ReduceOp{kind, axes, coeff}, {1, 2, 1, 2}, {1, -2, 3, 4});
  };
  check_near(reduce(R::mean, {false, false, true, true}), {-0.5, 3.5});
  check_near(reduce(R::sum, {false, true, false, false}, 2), {8, 4});
  check_near(reduce(R::max, {true, true, true, true}), {4});
  check_near(reduce(R::min, {false, false, true, true}), {-2, 3});
  check_near(reduce(R::l1, {false, false, true, true}), {3, 7});
  check_near(reduce(R::l2, {false, false, true, true}), {std::sqrt(5.0), 5});
  check_near(reduce(R::sum_square, {false, false, true, true}), {5, 25});
  using Z = ResizeOp;
  const Shape row{1, 1, 1, 2};
  check_near(apply1(Z{.scale_w = 2}, row, {1, 3}), {1, 1, 3, 3});
  check_near(
      apply1(Z{.method = Z::Method::bilinear, .coordinate = Z::Coordinate::align_corners, .ow = 5},
             row, {1, 3}),
      {1, 1.5, 2, 2.5, 3});
  check_near(
      apply1(Z{.method = Z::Method::bilinear, .coordinate = Z::Coordinate::half_pixel, .ow = 4},
             row, {1, 3}),
      {1, 1.5, 2.5, 3});
  check_near(apply1(Z{.method = Z::Method::bilinear, .ow = 4}, row, {1, 3}), {1, 2, 3, 3});
  check_near(
      apply1(Z{.coordinate = Z::Coordinate::half_pixel, .round = Z::Round::prefer_floor, .ow = 3},
             {1, 1, 1, 6}, ramp(6)),
      {1, 3, 5});
}

TEST_CASE("what cannot be computed is refused, the rest is not") {
  Network net;
  net.name = "net";
  for (int i = 0; i < 4; ++i) net.tensors.push_back({fmt::format("t{}", i), {}, 4});
  net.layers.push_back({"in", "", InputOp{{1, 1, 1, 1}}, {}, {0}, {}, 0});
  net.layers.push_back({"odd", "", OpaqueOp{"no idea", {{1, 1, 1, 1}}}, {0}, {1}, {}, 0});
  net.layers.push_back({"behind", "", ActivationOp{}, {1}, {2}, {}, 0});
  net.layers.push_back({"beside", "", ActivationOp{}, {0}, {3}, {}, 0});
  infer_shapes(net);
  net.outputs = {3};
  CHECK(evaluate_reference(net, {{5}})[0] == Doubles{5});
  CHECK_THROWS_AS(evaluate_reference(net, {{5, 6}}), Error);
  CHECK_THROWS_AS(evaluate_reference(net, {}), Error);
  const auto tensors = evaluate_reference_tensors(net, {{5}});
  CHECK(tensors[2].empty());
  CHECK(tensors[3] == Doubles{5});
  net.outputs = {2};
  CHECK_THROWS_AS(evaluate_reference(net, {{5}}), Error);
  net.outputs = {3};
  net.layers[3].op = ConvOp{.m = 1};
  infer_shapes(net);
  CHECK_THROWS_AS(evaluate_reference(net, {{5}}), Error);
}
