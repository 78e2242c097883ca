// Concatenations of parts that others read as well: they lie inside the whole where all their
// readers can read them there, and are copied elsewhere; the outputs are the reference's either
// way.
#include <algorithm>
#include <cmath>
#include <set>

#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "convprim/reference.hpp"
#include "convprim/select.hpp"
#include "selector/program.hpp"
#include "selector/report.hpp"
#include "small_net.hpp"
#include "test.hpp"

using namespace convprim;

namespace {

/// A dense block: each concatenation is read by a layer and is a part of the next. Then a part of
/// two concatenations, one that is read again after its concatenation was written over, and parts
/// that are no whole blocks.
std::string dense_net(int images) {
  return "layer { name: \"data\" type: \"Input\" top: \"data\" input_param { shape { dim: " +
         std::to_string(images) + R"( dim: 16 dim: 6 dim: 8 } } }
layer { name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 32 kernel_size: 3 pad: 1 } }
layer { name: "bn1" type: "Scale" bottom: "a" top: "bn1" scale_param { bias_term: true } }
layer { name: "x1" type: "Convolution" bottom: "bn1" top: "x1" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "c1" type: "Concat" bottom: "a" bottom: "x1" top: "c1" }
layer { name: "bn2" type: "Scale" bottom: "c1" top: "bn2" scale_param { bias_term: true } }
layer { name: "x2" type: "Convolution" bottom: "bn2" top: "x2" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "c2" type: "Concat" bottom: "c1" bottom: "x2" top: "c2" }
layer { name: "x3" type: "Convolution" bottom: "c2" top: "x3" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "s3" type: "Eltwise" bottom: "x2" bottom: "x3" top: "s3" }
layer { name: "c3" type: "Concat" bottom: "c2" bottom: "s3" bottom: "x2" top: "c3" }
layer { name: "t3" type: "TanH" bottom: "c3" top: "t3" }
layer { name: "late" type: "Convolution" bottom: "s3" top: "late" convolution_param { num_output: 20 kernel_size: 1 } }
layer { name: "odd" type: "Pooling" bottom: "t3" top: "odd" pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 } }
layer { name: "thin" type: "Convolution" bottom: "odd" top: "thin" convolution_param { num_output: 5 kernel_size: 1 } }
layer { name: "c4" type: "Concat" bottom: "thin" bottom: "odd" bottom: "late" top: "c4" }
layer { name: "act" type: "Sigmoid" bottom: "thin" top: "act" }
layer { name: "act2" type: "ELU" bottom: "odd" top: "act2" }
layer { name: "side" type: "Convolution" bottom: "act2" top: "side" convolution_param { num_output: 20 kernel_size: 1 } }
layer { name: "last" type: "Convolution" bottom: "c4" top: "last" convolution_param { num_output: 20 kernel_size: 1 } }
layer { name: "sum" type: "Eltwise" bottom: "side" bottom: "last" top: "sum" }
)";
}

struct Case {
  Network original, net;
  std::vector<std::vector<double>> reference;
  explicit Case(int images) : original(import_network_text(dense_net(images), "test")) {
    random_weights(original);
    net = original;
    optimise(net);
  }
};

double largest_error(Case& c, const Executable& executable) {
  auto context = executable.make_context();
  const auto inputs = fill_inputs(executable, context);
  if (c.reference.empty()) c.reference = evaluate_reference(c.original, inputs, 1);
  double worst = 0;
  for (int run = 0; run < 2; ++run) {
    executable.run(context);
    for (std::size_t o = 0; o < c.reference.size(); ++o) {
      double error = 0, largest = 0;
      for (std::size_t i = 0; i < c.reference[o].size(); ++i) {
        const double off = std::abs(static_cast<double>(context.output(o)[i]) - c.reference[o][i]);
        error = std::isfinite(off) ? std::max(error, off) : INFINITY;
        largest = std::max(largest, std::abs(c.reference[o][i]));
      }
      worst = std::max(worst, error / largest);
    }
  }
  return worst;
}

/// Random costs, all concatenations being cheapest when written in place.
CostFunction in_place_costs(std::uint64_t seed) {
  return [random = test::random_costs(seed)](const CostKey& key) {
    return random(key) * (key.problem.starts_with("concat") ? 100 : 1);
  };
}

std::size_t count_copies(const Network& net, const Plan& plan) {
  const Program program = lay_out(net, plan);
  return static_cast<std::size_t>(
      std::count_if(program.steps.begin(), program.steps.end(),
                    [](const ProgramStep& s) { return s.info.kind == "concat"; }));
}

}  // namespace

TEST_CASE("whatever parts lie inside their concatenations, the outputs are the reference's") {
  for (const int images : {1, 2}) {
    CAPTURE(images);
    Case c(images);
    std::set<std::string> slices;  // concatenation and layout
    std::size_t inside = 0, copied = 0;
    for (std::uint64_t seed = 1; seed <= 80; ++seed) {
      CAPTURE(seed);
      const Plan plan = select(c.net, {}, in_place_costs(seed),
                               Machine::here(1 + static_cast<int>(seed % 2)), false);
      const Executable executable(c.net, plan);
      CHECK(largest_error(c, executable) < 1e-4);
      CHECK(static_cast<double>(executable.arena_bytes()) <=
            1.1 * static_cast<double>(executable.live_bytes()));
      for (const PlanLayer& l : plan.layers) {
        if (l.implementation == "slices") slices.insert(l.layer + std::string(name(l.out)));
      }
      inside += lay_out(c.net, plan).parts.size();
      copied += count_copies(c.net, plan);
    }
    CHECK(slices.size() >= 8);
    CHECK(copied > 20);
    CHECK((inside > 40) == (images == 1));
  }
}

TEST_CASE("a dense block of one image is concatenated without copies in chw") {
  Case c(1);
  Filter filter;
  for (const char* layer : {"c1", "c2", "c3"}) filter.force.push_back({layer, "slices"});
  // Costs that leave chw only.
  const CostFunction costs = [](const CostKey& key) {
    if (key.kind == CostKind::conversion) return 1.0;
    const Primitive* p = find_primitive(key.implementation);
    const LayerImpl* l = find_layer_impl(key.implementation);
    const bool chw = p != nullptr ? p->in == Layout::chw && p->out == Layout::chw
                                  : l->in == Layout::chw && l->out == Layout::chw;
    return chw ? 1e-3 : 1e-1;
  };
  const Plan plan = select(c.net, filter, costs, Machine::here(1), false);
  const Program program = lay_out(c.net, plan);
  // a in c1, c1 in c2, c2 in c3, x2 in c2; what is left is the copy of x2 into c3.
  CHECK(program.parts.size() >= 4);
  for (const PlanLayer& l : plan.layers) {
    CAPTURE(l.layer);
    if (l.layer == "c1" || l.layer == "c2") CHECK(l.seconds == 0);
    if (l.layer == "c1" || l.layer == "c2" || l.layer == "c3") CHECK(l.out == Layout::chw);
  }
  for (const ProgramStep& step : program.steps) {
    if (step.info.kind == "concat") CHECK((step.info.name == "c3" || step.info.name == "c4"));
  }
  CHECK(largest_error(c, Executable(c.net, plan)) < 1e-4);
}
