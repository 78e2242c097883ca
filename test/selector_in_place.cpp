// Layers that write over an input: residual sums and element-wise layers, where nothing reads the
// input later and only there.
#include <cmath>
#include <random>

#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "convprim/reference.hpp"
#include "convprim/select.hpp"
#include "selector/report.hpp"
#include "test.hpp"

using namespace convprim;

namespace {

/// Residual blocks, one whose shortcut is read again, one whose block adds its own input; sums that
/// no convolution takes; activations.
constexpr const char* kBlocks = R"(
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 16 dim: 16 dim: 16 } } }
layer { name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "b1" type: "Convolution" bottom: "a" top: "b1" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "b2" type: "Convolution" bottom: "b1" top: "b2" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "s1" type: "Eltwise" bottom: "a" bottom: "b2" top: "s1" }
)";
constexpr const char* kMore = R"(
layer { name: "own" type: "Convolution" bottom: "s1" top: "own" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "s2" type: "Eltwise" bottom: "s1" bottom: "own" top: "s2" }
layer { name: "c1" type: "Convolution" bottom: "s2" top: "c1" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "c2" type: "Convolution" bottom: "c1" top: "c2" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "s3" type: "Eltwise" bottom: "s2" bottom: "c2" top: "s3" }
layer { name: "p1" type: "Pooling" bottom: "s3" top: "p1" pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 } }
layer { name: "p2" type: "Pooling" bottom: "s3" top: "p2" pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 1 } }
layer { name: "s4" type: "Eltwise" bottom: "p1" bottom: "p2" bottom: "s2" top: "s4" }
layer { name: "twice" type: "Eltwise" bottom: "s4" bottom: "s4" top: "twice" eltwise_param { operation: PROD } }
layer { name: "t" type: "TanH" bottom: "twice" top: "t" }
layer { name: "u" type: "Sigmoid" bottom: "t" top: "u" }
layer { name: "s5" type: "Eltwise" bottom: "t" bottom: "u" top: "s5" }
)";

CostFunction random_costs(std::uint64_t seed) {
  return [seed](const CostKey& key) {
    std::mt19937_64 rng(std::hash<std::string>()(key.problem + "/" + key.implementation) * 31 +
                        seed);
    const double u = static_cast<double>(rng() % 100'000 + 1) * 1e-5;
    return key.kind == CostKind::conversion ? u * 0.3 : u;
  };
}

}  // namespace

TEST_CASE("a residual sum is written over its shortcut when nothing reads that later") {
  Network net = import_network_text(kBlocks, "test");
  random_weights(net);
  optimise(net);
  Filter filter;
  for (const char* layer : {"a", "b1", "b2"}) filter.force.push_back({layer, "direct-sum2d"});
  const Plan plan = select(net, filter, random_costs(1), Machine::here(1), false);
  const Executable executable(net, plan);
  // The input, and two more at any step: b2 is written over a.
  constexpr std::size_t kTensor = 16 * 16 * 16 * sizeof(float);
  CHECK(executable.live_bytes() == 3 * kTensor);
  CHECK(executable.arena_bytes() == 3 * kTensor);
}

TEST_CASE("whatever is written in place, the outputs are the reference's") {
  const std::string text = std::string(kBlocks) + kMore;
  Network original = import_network_text(text, "test");
  random_weights(original);
  Network net = original;
  optimise(net);
  std::vector<std::vector<double>> reference;
  for (int seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const Plan plan = select(net, {}, random_costs(static_cast<std::uint64_t>(seed)),
                             Machine::here(1 + seed % 2), false);
    const Executable executable(net, plan);
    auto context = executable.make_context();
    const auto inputs = fill_inputs(executable, context);
    if (reference.empty()) reference = evaluate_reference(original, inputs, 2);
    for (int run = 0; run < 2; ++run) {
      executable.run(context);
      double error = 0, largest = 0;
      for (std::size_t i = 0; i < reference[0].size(); ++i) {
        error =
            std::max(error, std::abs(static_cast<double>(context.output(0)[i]) - reference[0][i]));
        largest = std::max(largest, std::abs(reference[0][i]));
      }
      CHECK(error < 1e-4 * largest);
    }
  }
}
