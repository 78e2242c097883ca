// The executor: whatever plan random costs lead to, the outputs are the reference's.
#include <cmath>
#include <map>
#include <set>

#include "convprim/error.hpp"
#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "convprim/reference.hpp"
#include "convprim/select.hpp"
#include "selector/report.hpp"
#include "small_net.hpp"
#include "test.hpp"

using namespace convprim;
using test::kSmallNet;
using test::random_costs;

namespace {

struct Case {
  Network original, net;
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<double>> reference;

  Case() : original(import_network_text(kSmallNet, "test")) {
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
    CHECK(executable.input_name(0) == "data");
    CHECK(executable.output_name(executable.output_count() - 1) == "prob");
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

TEST_CASE("a plan for another network is refused") {
  Case c;
  Plan plan = select(c.net, {}, random_costs(5), Machine::here(1), false);
  plan.layers[3].layer = "other";
  CHECK_THROWS_AS(Executable(c.net, plan), Error);
  plan.layers.pop_back();
  CHECK_THROWS_AS(Executable(c.net, plan), Error);
}
