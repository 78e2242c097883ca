// Merged convolutions against separate ones, on the library's own primitives.
#include <cmath>
#include <random>

#include "buffer.hpp"
#include "convprim/primitive.hpp"
#include "gpu/merge.hpp"
#include "gpu/operators.hpp"
#include "reference.hpp"
#include "test.hpp"

using namespace convprim;
using namespace convprim::ios;

namespace {

struct Part {
  Index m, kh, kw, pt, pl, pb, pr;
};

/// A network of convolutions that read one input.
Network side_by_side(const Shape& in, const std::vector<Part>& parts, Index stride, bool relu) {
  Network net;
  net.tensors.push_back({"data", {}});
  net.layers.push_back({"data", "Input", InputOp{in}, {}, {0}, {}});
  for (const Part& p : parts) {
    ConvOp op;
    op.m = p.m, op.kh = p.kh, op.kw = p.kw, op.sh = op.sw = stride;
    op.pt = p.pt, op.pl = p.pl, op.pb = p.pb, op.pr = p.pr;
    if (relu) op.epilogue.lo = 0;
    op.bias = net.layers.size() % 2 == 1;  // some have one, some not
    const auto t = static_cast<TensorId>(net.tensors.size());
    const std::string name = "conv" + std::to_string(t);
    net.tensors.push_back({name, {}});
    net.layers.push_back({name, "Convolution", op, {0}, {t}, {}});
    net.outputs.push_back(t);
  }
  infer_shapes(net);
  random_weights(net);
  return net;
}

std::vector<LayerId> layers_of(const Network& net) {
  std::vector<LayerId> layers;
  for (LayerId id = 1; id < static_cast<LayerId>(net.layers.size()); ++id) layers.push_back(id);
  return layers;
}

std::vector<float> convolve(const Scenario& s, const float* filter, const float* bias,
                            const Epilogue& epilogue, const std::vector<float>& input) {
  const Primitive* p = find_primitive("direct-sum2d");
  REQUIRE(p != nullptr);
  REQUIRE(p->reject(s) == nullptr);
  Options options;
  options.epilogue = epilogue;
  const auto conv = p->prepare(s, {filter, bias}, options);
  Buffer in(input.size()), out(static_cast<std::size_t>(s.out().count())),
      workspace(conv->workspace_bytes() / sizeof(float) + 1);
  std::copy(input.begin(), input.end(), in.begin());
  conv->run({in.data(), out.data(), nullptr, workspace.data()});
  return {out.begin(), out.end()};
}

void check_merge(const Network& net) {
  const auto layers = layers_of(net);
  REQUIRE(cannot_merge(net, layers) == nullptr);
  const MergedConv merged = merge(net, layers);
  merged.scenario.check();
  const MergedWeights w = merged_weights(net, layers, merged);
  std::mt19937 random(7);
  std::vector<float> input(static_cast<std::size_t>(merged.scenario.in().count()));
  for (float& x : input) x = static_cast<float>(random() % 2001) / 1000 - 1;
  const auto whole = convolve(merged.scenario, w.filter.data(),
                              w.bias.empty() ? nullptr : w.bias.data(), merged.op.epilogue, input);
  const Shape out = merged.scenario.out();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = net.layers[static_cast<std::size_t>(layers[i])];
    const auto& op = std::get<ConvOp>(layer.op);
    const Scenario s = scenario_of(net, layers[i]);
    const auto part = convolve(s, layer.blobs[0].data->data(),
                               op.bias ? layer.blobs[1].data->data() : nullptr, op.epilogue, input);
    const auto image = static_cast<std::size_t>(s.m * s.oh * s.ow);
    for (std::size_t n = 0; n < static_cast<std::size_t>(s.n); ++n) {
      for (std::size_t k = 0; k < image; ++k) {
        const std::size_t at =
            (n * static_cast<std::size_t>(out.c) + static_cast<std::size_t>(merged.begin[i])) *
                static_cast<std::size_t>(s.oh * s.ow) +
            k;
        // The same products in the same order, zeros between: a few roundings at most.
        REQUIRE(std::abs(whole[at] - part[n * image + k]) < 1e-5);
      }
    }
  }
}

}  // namespace

TEST_CASE("a 1x3 and a 3x1 convolution merge into a 3x3 one") {
  check_merge(side_by_side({2, 5, 8, 8}, {{6, 1, 3, 0, 1, 0, 1}, {7, 3, 1, 1, 0, 1, 0}}, 1, true));
}

TEST_CASE("1x1, 3x3 and 5x5 kernels with their usual padding merge") {
  check_merge(side_by_side({1, 4, 9, 7},
                           {{3, 1, 1, 0, 0, 0, 0}, {5, 3, 3, 1, 1, 1, 1}, {2, 5, 5, 2, 2, 2, 2}}, 1,
                           false));
}

TEST_CASE("kernels off the centre of the merged one") {
  // 2 in 3 with its padding behind: offset 1, where centring says 0.
  check_merge(side_by_side({1, 3, 9, 9}, {{4, 3, 3, 1, 1, 1, 1}, {4, 2, 2, 0, 0, 1, 1}}, 1, true));
  // 3 in 5 with all its padding in front: offset 0, not 1.
  check_merge(side_by_side({1, 3, 6, 9}, {{4, 5, 5, 2, 2, 2, 2}, {4, 3, 3, 2, 2, 0, 0}}, 1, true));
  // Stride 2, 2 in 4: offset 0, not 1.
  check_merge(side_by_side({1, 3, 8, 8}, {{4, 4, 4, 1, 1, 1, 1}, {3, 2, 2, 1, 1, 0, 0}}, 2, true));
}

TEST_CASE("every admissible pair of one axis keeps its outputs, and no other is taken") {
  int taken = 0, off_centre = 0;
  for (Index size = 5; size <= 8; ++size) {
    for (Index stride = 1; stride <= 2; ++stride) {
      for (Index ka = 1; ka <= 5; ++ka) {
        for (Index kb = 1; kb <= ka; ++kb) {
          for (Index pa = 0; pa < ka; ++pa) {
            for (Index pb = 0; pb < kb; ++pb) {
              const std::vector<Part> parts = {{2, ka, 1, pa, 0, pa, 0}, {1, kb, 1, pb, 0, pb, 0}};
              if (size + 2 * pa < ka || size + 2 * pb < kb) continue;
              const Network net = side_by_side({1, 1, size, 1}, parts, stride, false);
              const auto layers = layers_of(net);
              const bool same = net.tensors[1].shape.h == net.tensors[2].shape.h;
              const bool fits = 0 <= pa - pb && pa - pb <= ka - kb;
              CHECK((cannot_merge(net, layers) == nullptr) == (same && fits));
              if (!same || !fits) continue;
              ++taken;
              off_centre += (ka - kb) / 2 != pa - pb ? 1 : 0;
              check_merge(net);
            }
          }
        }
      }
    }
  }
  CHECK(taken > 100);
  CHECK(off_centre > 10);
}

TEST_CASE("what cannot be merged says why") {
  Network net = side_by_side({1, 4, 8, 8}, {{3, 3, 3, 1, 1, 1, 1}, {3, 3, 3, 1, 1, 1, 1}}, 1, true);
  const auto layers = layers_of(net);
  REQUIRE(cannot_merge(net, layers) == nullptr);
  auto& second = std::get<ConvOp>(net.layers[2].op);
  second.epilogue.lo = -1;
  CHECK(std::string(cannot_merge(net, layers)) == "their activations differ");
  second.epilogue.lo = 0;
  second.g = 2;
  CHECK(std::string(cannot_merge(net, layers)) == "one has groups");
  second.g = 1;
  second.kh = 1;
  second.pt = second.pb = 0;
  CHECK(cannot_merge(net, layers) == nullptr);
  // Both give 4 rows of 8, but the smaller kernel's window starts above the larger one's.
  const Network apart =
      side_by_side({1, 2, 8, 8}, {{3, 3, 3, 0, 0, 1, 1}, {3, 2, 2, 1, 1, 0, 0}}, 2, true);
  CHECK(std::string(cannot_merge(apart, layers)) == "their kernels do not fit into the largest");
}
