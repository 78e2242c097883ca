// Emitted layers of every kind that a network can have, with all values of their enumerations: the
// program computes the bits of the executor. Networks are built by hand here, since no one file
// format has all operations.
#include <algorithm>
#include <cmath>
#include <set>

#include "convprim/emit.hpp"
#include "convprim/error.hpp"
#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "convprim/select.hpp"
#include "convprim/tensor_file.hpp"
#include "emit_util.hpp"
#include "selector/report.hpp"
#include "small_net.hpp"

using namespace convprim;
using test::TemporaryFolder;

namespace {

/// A network in the making: every tensor that a layer makes is an output.
struct Collection {
  Network net;

  TensorId tensor(const std::string& name, const Shape& shape = {}) {
    net.tensors.push_back({name, shape});
    return static_cast<TensorId>(net.tensors.size()) - 1;
  }
  TensorId input(const Shape& shape) {
    const std::string name = "in" + std::to_string(net.layers.size());
    const TensorId t = tensor(name, shape);
    net.layers.push_back({name, "Input", InputOp{shape}, {}, {t}, {}});
    return t;
  }
  TensorId add(Op op, std::vector<TensorId> inputs, std::size_t blobs = 0, int outputs = 1) {
    const std::string name = std::string(kind(op)) + "_" + std::to_string(net.layers.size());
    Layer layer{name, name, std::move(op), std::move(inputs), {}, {}};
    layer.blobs.resize(blobs);
    for (int i = 0; i < outputs; ++i) {
      layer.outputs.push_back(tensor(name + "." + std::to_string(i)));
      net.outputs.push_back(layer.outputs.back());
    }
    net.layers.push_back(std::move(layer));
    return net.layers.back().outputs[0];
  }
};

/// All values of an enumeration, from the first on.
template <class Enum>
std::vector<Enum> up_to(Enum last) {
  std::vector<Enum> all;
  for (int i = 0; i <= static_cast<int>(last); ++i) all.push_back(static_cast<Enum>(i));
  return all;
}

void add_arithmetic(Collection& c, TensorId x, TensorId y, TensorId pixel) {
  for (const auto kind : up_to(EltwiseOp::Kind::max))
    c.add(EltwiseOp{.kind = kind, .lo = -0.5F, .hi = 0.75F}, {x, y});
  c.add(EltwiseOp{.coeff = {1.5F, -0.1F}}, {x, y});
  for (const auto kind : up_to(BroadcastOp::Kind::pow))
    c.add(BroadcastOp{.kind = kind}, {x, pixel});
  for (const auto kind : up_to(ActivationOp::Kind::softplus)) {
    c.add(ActivationOp{.kind = kind,
                       .lo = -1,
                       .hi = 6,
                       .slope = 0.3F,
                       .scale = 0.7F,
                       .shift = 0.1F,
                       .exponent = 2.5F},
          {x});
  }
  for (const auto kind : up_to(ReduceOp::Kind::l2)) {
    const bool all = kind == ReduceOp::Kind::sum;
    c.add(ReduceOp{.kind = kind, .axes = {false, all, true, !all}, .coeff = 0.5F}, {x});
  }
  c.add(PReluOp{}, {x}, 1);
  c.add(AffineOp{}, {x}, 2);
  c.add(BatchNormOp{.eps = 1e-3F}, {x}, 3);
  c.add(BatchNormOp{}, {y}, 5);
}

void add_movements(Collection& c, TensorId x, TensorId y) {
  c.add(FlattenOp{}, {x});
  c.add(ReshapeOp{{0, 4, -1, 7}}, {x});
  c.add(PermuteOp{{0, 2, 3, 1}}, {x});
  c.add(SliceOp{.axis = 1, .points = {3, 5}}, {x}, 0, 3);
  c.add(SliceOp{.axis = 2}, {x}, 0, 2);
  c.add(CropOp{{0, 1, 2, 0}, {0, 5, 0, 3}, {1, 1, 1, 2}}, {x});
  for (const auto mode : up_to(PadOp::Mode::reflect))
    c.add(PadOp{{0, 0, 1, 2}, {0, 0, 2, 0}, mode, -0.25F}, {x});
  for (const auto method : up_to(ResizeOp::Method::bilinear)) {
    for (const auto coordinate : up_to(ResizeOp::Coordinate::align_corners))
      c.add(ResizeOp{.method = method, .coordinate = coordinate, .oh = 9, .ow = 13}, {x});
  }
  for (const auto round : up_to(ResizeOp::Round::prefer_ceil))
    c.add(ResizeOp{.coordinate = ResizeOp::Coordinate::half_pixel,
                   .round = round,
                   .scale_h = 1.5F,
                   .scale_w = 0.5F},
          {x});
  c.add(ShuffleOp{2}, {x});
  for (const int axis : {1, 2, 3}) c.add(ConcatOp{axis}, {x, y});
  const Shape constant{2, 3, 2, 2};
  c.add(ConstantOp{constant}, {}, 1);
  c.add(IdentityOp{}, {x}, 0, 2);
}

void add_layers_with_windows(Collection& c, TensorId x) {
  for (const auto method : up_to(PoolOp::Method::avg)) {
    c.add(PoolOp{.method = method, .kh = 3, .kw = 2, .sh = 2, .pt = 1, .ceil = false}, {x});
    c.add(PoolOp{.method = method, .global = true}, {x});
  }
  c.add(PoolOp{.kh = 2, .kw = 2, .sh = 2, .sw = 2, .dw = 2}, {x}, 0, 2);
  c.add(PoolOp{.method = PoolOp::Method::avg,
               .kh = 3,
               .kw = 3,
               .pt = 1,
               .pl = 1,
               .pb = 1,
               .pr = 1,
               .count_padding = false},
        {x});
  c.add(LrnOp{.size = 3, .alpha = 0.2F}, {x});
  c.add(LrnOp{.size = 3, .beta = 0.5F, .k = 2, .within_channel = true}, {x});
  for (const int axis : {1, 3}) c.add(SoftmaxOp{axis, axis == 3}, {x});
  c.add(NormalizeOp{}, {x}, 1);
  c.add(NormalizeOp{.across_spatial = true, .eps = 1e-6F}, {x}, 1);
  c.add(InnerProductOp{.m = 5, .lo = 0}, {x}, 2);
  c.add(InnerProductOp{.m = 4, .bias = false}, {x}, 1);
  c.add(DeconvOp{.m = 6,
                 .kh = 3,
                 .kw = 2,
                 .sh = 2,
                 .sw = 2,
                 .pt = 1,
                 .g = 2,
                 .extra_h = 1,
                 .lo = 0,
                 .hi = 6},
        {x}, 2);
  const TensorId a =
      c.add(ConvOp{.m = 8, .kh = 3, .kw = 3, .pt = 1, .pl = 1, .pb = 1, .pr = 1}, {x}, 2);
  c.add(ConvOp{.m = 8, .g = 2, .bias = false, .epilogue = {.residual = true, .lo = 0, .hi = 6}},
        {a, x}, 1);
}

/// Every kind of layer on an input of two images.
Network every_kind() {
  Collection c;
  const Shape shape{2, 8, 6, 7};
  const TensorId x = c.input(shape), y = c.input(shape), pixel = c.input({1, 8, 1, 1});
  add_arithmetic(c, x, y, pixel);
  add_movements(c, x, y);
  add_layers_with_windows(c, x);
  c.net.name = "every kind";
  sort_layers(c.net);
  infer_shapes(c.net);
  random_weights(c.net);
  return c.net;
}

Plan plan_of(const Network& net, std::uint64_t seed, int threads) {
  return select(net, {}, test::random_costs(seed), Machine::here(threads), false);
}

/// Runs the plan here and as a program of its own, on the same inputs; all outputs are compared.
void check_emitted(const Network& net, const Plan& plan) {
  const TemporaryFolder folder;
  const Executable executable(net, plan);
  auto context = executable.make_context();
  const auto inputs = fill_inputs(executable, context);
  executable.run(context);

  for (const EmittedFile& file : emit(net, plan)) folder.write(file.name, file.content);
  const std::string exe = test::compiled(folder, folder.path.string());
  REQUIRE_FALSE(exe.empty());
  const std::string out = folder.file("out");
  std::vector<std::string> arguments = {"--weights", folder.file("weights.bin"), "--output", out};
  for (const auto& values : inputs) {
    arguments.push_back(folder.write(
        "in" + std::to_string(arguments.size()) + ".bin",
        {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}));
  }
  const test::Outcome run = test::run_emitted(folder, exe, arguments);
  CAPTURE(run.err);
  REQUIRE(run.status == 0);
  const auto files = test::content(out);
  std::vector<std::string> names;
  for (TensorId t : net.outputs) names.push_back(net.tensors[static_cast<std::size_t>(t)].name);
  const auto file_names = npy_file_names(names);
  REQUIRE(files.size() == names.size());
  for (std::size_t o = 0; o < names.size(); ++o) {
    CAPTURE(names[o]);
    const Tensor& t = net.tensors[static_cast<std::size_t>(net.outputs[o])];
    CHECK(files.at(file_names[o]) == npy_bytes(file_dims(t.shape, t.rank), context.output(o)));
  }
}

}  // namespace

TEST_CASE("every kind of layer is emitted and computes the executor's bits") {
  const Network net = every_kind();
  std::set<std::size_t> seen;
  for (const Layer& layer : net.layers) seen.insert(layer.op.index());
  CHECK(seen.size() == std::variant_size_v<Op> - 1);  // all but the opaque one
  std::set<std::string> implementations;
  for (const auto& [seed, threads] : {std::pair{1, 1}, {2, 2}}) {
    CAPTURE(seed);
    const Plan plan = plan_of(net, static_cast<std::uint64_t>(seed), threads);
    check_emitted(net, plan);
    for (const PlanLayer& l : plan.layers) implementations.insert(l.implementation);
  }
  CHECK(implementations.size() > 40);
}

TEST_CASE("what cannot be run is not emitted: an opaque layer is named") {
  Collection c;
  const TensorId x = c.input({1, 2, 3, 4});
  c.add(OpaqueOp{"it has no meaning here", {{1, 2, 3, 4}}}, {x});
  infer_shapes(c.net);
  const Plan plan = plan_of(c.net, 1, 1);
  CHECK_THROWS_WITH_AS(emit(c.net, plan), doctest::Contains("opaque_1"), Error);
}

TEST_CASE("parts written in place and two threads are emitted") {
  Network net = import_network_text(test::kSmallNet, "test");
  random_weights(net);
  optimise(net);
  // Plans that have a concatenation without copies and conversions.
  int checked = 0;
  for (std::uint64_t seed = 1; seed <= 60 && checked < 2; ++seed) {
    const Plan plan = plan_of(net, seed, 1 + checked);
    const bool sliced = std::any_of(plan.layers.begin(), plan.layers.end(), [](const PlanLayer& l) {
      return l.implementation == "slices";
    });
    if (!sliced || plan.conversions.empty()) continue;
    CAPTURE(seed);
    check_emitted(net, plan);
    ++checked;
  }
  CHECK(checked == 2);
}
