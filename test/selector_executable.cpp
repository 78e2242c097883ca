// The executor: whatever plan random costs lead to, the outputs are the reference's.
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "convprim/error.hpp"
#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "convprim/reference.hpp"
#include "convprim/select.hpp"
#include "selector/report.hpp"
#include "test.hpp"

using namespace convprim;

namespace {

/// An inception block with a nested concatenation, a residual block, and a classifier.
constexpr const char* kNet = R"(
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 21 dim: 19 } } }
layer { name: "stem" type: "Convolution" bottom: "data" top: "stem" convolution_param { num_output: 16 kernel_size: 3 stride: 2 pad: 1 } }
layer { name: "stem_relu" type: "ReLU" bottom: "stem" top: "stem" }
layer { name: "norm" type: "LRN" bottom: "stem" top: "norm" lrn_param { local_size: 5 alpha: 0.1 } }
layer { name: "left" type: "Convolution" bottom: "norm" top: "left" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "left_relu" type: "ReLU" bottom: "left" top: "left" }
layer { name: "middle" type: "Convolution" bottom: "norm" top: "middle" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "pool" type: "Pooling" bottom: "norm" top: "pool" pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 } }
layer { name: "inner" type: "Concat" bottom: "left" bottom: "middle" top: "inner" }
layer { name: "outer" type: "Concat" bottom: "inner" bottom: "pool" top: "outer" }
layer { name: "reduce" type: "Pooling" bottom: "outer" top: "reduce" pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "r1" type: "Convolution" bottom: "reduce" top: "r1" convolution_param { num_output: 48 kernel_size: 5 pad: 2 group: 2 } }
layer { name: "r1_relu" type: "ReLU" bottom: "r1" top: "r1" }
layer { name: "r2" type: "Convolution" bottom: "r1" top: "r2" convolution_param { num_output: 48 kernel_size: 3 pad: 1 } }
layer { name: "sum" type: "Eltwise" bottom: "reduce" bottom: "r2" top: "sum" }
layer { name: "sum_relu" type: "ReLU" bottom: "sum" top: "sum" }
layer { name: "dense" type: "Concat" bottom: "sum" bottom: "reduce" top: "dense" }
layer { name: "mix" type: "Convolution" bottom: "dense" top: "mix" convolution_param { num_output: 20 kernel_size: 1 } }
layer { name: "side" type: "Pooling" bottom: "sum" top: "side" pooling_param { pool: AVE global_pooling: true } }
layer { name: "fc" type: "InnerProduct" bottom: "mix" top: "fc" inner_product_param { num_output: 10 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
)";

struct Case {
  Network original, net;
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<double>> reference;

  Case() : original(import_network_text(kNet, "test")) {
    random_weights(original);
    net = original;
    optimise(net);
  }
};

double largest_error(const Case& c, const Executable& executable,
                     const Executable::Context& context) {
  double worst = 0;
  for (std::size_t o = 0; o < executable.output_count(); ++o) {
    double largest = 0, error = 0;
    for (std::size_t i = 0; i < c.reference[o].size(); ++i) {
      const double got = static_cast<double>(context.output(o)[i]);
      if (!std::isfinite(got)) return std::numeric_limits<double>::infinity();
      error = std::max(error, std::abs(got - c.reference[o][i]));
      largest = std::max(largest, std::abs(c.reference[o][i]));
    }
    worst = std::max(worst, error / largest);
  }
  return worst;
}

/// Costs that make any implementation likely; deterministic.
CostFunction random_costs(std::uint64_t seed) {
  return [seed](const CostKey& key) {
    const std::size_t h =
        std::hash<std::string>()(key.problem + "/" + key.implementation) * 31 + seed;
    std::mt19937_64 rng(h);
    const double u = static_cast<double>(rng() % 100'000 + 1) * 1e-5;
    return key.kind == CostKind::conversion ? u * 0.3 : u;
  };
}

}  // namespace

TEST_CASE("every plan computes the reference's outputs") {
  Case c;
  std::set<std::string> used;
  bool sliced = false, converted = false;
  for (int seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const Plan plan = select(c.net, {}, random_costs(static_cast<std::uint64_t>(seed)),
                             Machine::here(1 + seed % 3), false);
    REQUIRE(plan.cut.empty());
    const Executable executable(c.net, plan);
    auto context = executable.make_context();
    if (c.reference.empty()) {
      c.inputs = fill_inputs(executable, context);
      c.reference = evaluate_reference(c.original, c.inputs, 2);
    } else {
      fill_inputs(executable, context);
    }
    executable.run(context);
    for (const PlanLayer& l : plan.layers) {
      used.insert(l.implementation);
      sliced = sliced || l.implementation == "slices";
    }
    converted = converted || !plan.conversions.empty();
    const double error = largest_error(c, executable, context);
    if (!(error < 1e-4)) {
      for (const PlanLayer& l : plan.layers)
        MESSAGE(l.layer << " " << l.implementation << " " << name(l.in) << " " << name(l.out));
    }
    CHECK(error < 1e-4);
    // A second run on the same memory gives the same bits.
    std::vector<float> first(context.output(0),
                             context.output(0) + executable.output_shape(0).count());
    executable.run(context);
    CHECK(std::equal(first.begin(), first.end(), context.output(0)));
    CHECK(executable.arena_bytes() >= executable.live_bytes());
    CHECK(static_cast<double>(executable.arena_bytes()) <=
          1.1 * static_cast<double>(executable.live_bytes()));
  }
  CHECK(used.size() > 60);
  CHECK(sliced);
  CHECK(converted);
}

TEST_CASE("one executable serves several threads, each with its context") {
  Case c;
  const Plan plan = select(c.net, {}, random_costs(5), Machine::here(1), false);
  const Executable executable(c.net, plan);
  auto first = executable.make_context();
  c.inputs = fill_inputs(executable, first);
  executable.run(first);
  std::vector<std::thread> threads;
  std::vector<int> same(4);
  for (std::size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      auto context = executable.make_context();
      fill_inputs(executable, context);
      for (int i = 0; i < 3; ++i) executable.run(context);
      same[t] = std::equal(context.output(0),
                           context.output(0) + executable.output_shape(0).count(), first.output(0))
                    ? 1
                    : 0;
    });
  }
  for (auto& t : threads) t.join();
  CHECK(std::count(same.begin(), same.end(), 1) == 4);
}

TEST_CASE("a plan for another network is refused") {
  Case c;
  Plan plan = select(c.net, {}, random_costs(5), Machine::here(1), false);
  plan.layers[3].layer = "other";
  CHECK_THROWS_AS(Executable(c.net, plan), Error);
  plan.layers.pop_back();
  CHECK_THROWS_AS(Executable(c.net, plan), Error);
}
