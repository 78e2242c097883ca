// The query: on small networks with random costs, the plan costs exactly what the cheapest of all
// plans costs, found by trying them all.
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "convprim/import.hpp"
#include "convprim/select.hpp"
#include "selector/candidates.hpp"
#include "selector/shared_parts.hpp"
#include "test.hpp"

using namespace convprim;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Convolutions that share tensors, a concatenation, and a residual sum.
constexpr const char* kBranches = R"(
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 16 dim: 6 dim: 6 } } }
layer { name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "b" type: "Convolution" bottom: "a" top: "b" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "c" type: "Convolution" bottom: "a" top: "c" convolution_param { num_output: 32 kernel_size: 1 } }
layer { name: "cat" type: "Concat" bottom: "b" bottom: "c" top: "cat" }
)";
constexpr const char* kResidual = R"(
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 16 dim: 5 dim: 5 } } }
layer { name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "b" type: "Convolution" bottom: "a" top: "b" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }
layer { name: "d" type: "Convolution" bottom: "sum" top: "d" convolution_param { num_output: 8 kernel_size: 1 } }
)";
/// A tensor that a concatenation and another layer read.
constexpr const char* kSharedPart = R"(
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 16 dim: 4 dim: 4 } } }
layer { name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "b" type: "Convolution" bottom: "a" top: "b" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "cat" type: "Concat" bottom: "a" bottom: "b" top: "cat" }
)";

Network prepare(const char* text) {
  Network net = import_network_text(text, "test");
  random_weights(net);
  optimise(net);
  return net;
}

/// Random costs: few implementations of each layer are there at all, so that all plans can be
/// tried.
class RandomCosts {
 public:
  RandomCosts(const Network& net, std::uint64_t seed) : rng_(seed) {
    for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
      auto all = choices(net, id, {});
      std::erase_if(all, [](const Choice& c) { return c.free(); });
      std::shuffle(all.begin(), all.end(), rng_);
      // One that reads and writes chw keeps every instance feasible.
      std::stable_partition(all.begin(), all.end(), [](const Choice& c) {
        return c.in == Layout::chw && c.out == Layout::chw;
      });
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (i == 0 || i + 3 >= all.size()) table_.emplace(all[i].key, draw());
      }
    }
  }
  double operator()(const CostKey& key) {
    if (const auto it = table_.find(key); it != table_.end()) return it->second;
    const bool is_copy =
        key.kind == CostKind::layer && key.problem.find("concat") != std::string::npos;
    double cost = kInfinity;
    if (key.kind == CostKind::conversion) cost = rng_() % 4 == 0 ? kInfinity : draw() / 4;
    if (is_copy) cost = draw() / 4;
    return table_.emplace(key, cost).first->second;
  }

 private:
  double draw() { return static_cast<double>(1 + rng_() % 1000) / 8; }  // sums are exact
  std::mt19937_64 rng_;
  std::map<CostKey, double> table_;
};

/// Cost of one tensor by exhaustion: the cheapest set of conversion routines that brings it from
/// `made` to all of `wanted`.
double tensor_cost(const Shape& shape, Layout made, const std::vector<Layout>& wanted,
                   const CostFunction& costs, bool last_must_write) {
  const auto routines = conversions();
  std::vector<double> prices;
  for (const Conversion& r : routines) prices.push_back(costs(conversion_key(shape, r)));
  double best = kInfinity;
  for (unsigned subset = 0; subset < (1U << routines.size()); ++subset) {
    double total = 0;
    for (std::size_t r = 0; r < routines.size(); ++r) {
      if ((subset >> r & 1) != 0) total += prices[r];
    }
    if (total >= best) continue;
    // Grow the set of layouts reached; in a slice only what a routine wrote counts for the last
    // one.
    std::vector<bool> reached(kLayoutCount), written(kLayoutCount);
    reached[static_cast<std::size_t>(made)] = true;
    for (int round = 0; round < kLayoutCount; ++round) {
      for (Layout a : kLayouts) {
        for (Layout b : kLayouts) {
          if (reached[static_cast<std::size_t>(a)] && same_memory(a, b, shape))
            reached[static_cast<std::size_t>(b)] = true;
        }
      }
      for (std::size_t r = 0; r < routines.size(); ++r) {
        if ((subset >> r & 1) != 0 && reached[static_cast<std::size_t>(routines[r].from)]) {
          reached[static_cast<std::size_t>(routines[r].to)] =
              written[static_cast<std::size_t>(routines[r].to)] = true;
        }
      }
    }
    const bool all = std::all_of(wanted.begin(), wanted.end(), [&](Layout w) {
      return (last_must_write ? written : reached)[static_cast<std::size_t>(w)];
    });
    if (all) best = total;
  }
  return best;
}

/// Cost of a plan by the definition: layers, and for each tensor what its readers need.
double plan_cost(const Network& net, const SharedParts& shared, const std::vector<Choice>& plan,
                 const CostFunction& costs, std::map<std::string, double>& memo) {
  const auto uses = use_counts(net);
  const auto makers = producers(net);
  double total = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (!plan[i].free()) total += costs(plan[i].key);
  }
  for (TensorId t = 0; t < static_cast<TensorId>(net.tensors.size()); ++t) {
    const auto index = static_cast<std::size_t>(t);
    if (uses[index] == 0) continue;
    const Shape& shape = net.tensors[index].shape;
    const Choice& maker = plan[static_cast<std::size_t>(makers[index])];
    std::vector<Layout> wanted;
    bool into_slice = false;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      for (std::size_t k = 0; k < net.layers[i].inputs.size(); ++k) {
        if (net.layers[i].inputs[k] != t) continue;
        wanted.push_back(input_layout(plan[i], k));
        if (!plan[i].slices) continue;
        if (shared.inside(static_cast<LayerId>(i), k, plan[i].in)) continue;
        if (uses[index] > 1) {
          const LayerImpl* impl = copy_impl(plan[i].in);
          total += costs({CostKind::layer, str(copy_problem(shape, 1)), std::string(impl->name)});
        } else {
          into_slice = true;
        }
      }
    }
    if (std::count(net.outputs.begin(), net.outputs.end(), t) > 0) wanted.push_back(Layout::chw);
    // A convolution writes a slice itself if the layout fits; with more than one pixel and channel
    // no two layouts lie the same in a slice.
    if (into_slice && maker.primitive != nullptr && maker.out == wanted[0]) continue;
    std::string key = text(shape) + std::string(name(maker.out)) + (into_slice ? "!" : "");
    std::sort(wanted.begin(), wanted.end());
    for (Layout w : wanted) key += name(w);
    auto it = memo.find(key);
    if (it == memo.end())
      it = memo.emplace(key, tensor_cost(shape, maker.out, wanted, costs, into_slice)).first;
    total += it->second;
    if (total == kInfinity) return total;
  }
  return total;
}

double cheapest_plan(const Network& net, const CostFunction& costs) {
  std::vector<std::vector<Choice>> all;
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    auto own = choices(net, id, {});
    std::erase_if(own, [&](const Choice& c) { return !c.free() && costs(c.key) == kInfinity; });
    all.push_back(std::move(own));
  }
  std::map<std::string, double> memo;
  const SharedParts shared(net);
  std::vector<Choice> plan(all.size());
  double best = kInfinity;
  const std::function<void(std::size_t)> try_all = [&](std::size_t layer) {
    if (layer == all.size()) {
      best = std::min(best, plan_cost(net, shared, plan, costs, memo));
      return;
    }
    for (const Choice& c : all[layer]) {
      plan[layer] = c;
      try_all(layer + 1);
    }
  };
  try_all(0);
  return best;
}

double total_of(const Plan& plan) {
  double total = 0;
  for (const PlanLayer& l : plan.layers) total += l.seconds;
  for (const PlanConversion& c : plan.conversions) total += c.seconds;
  return total;
}

void compare_with_exhaustion(const char* text, int rounds) {
  const Network net = prepare(text);
  for (int seed = 1; seed <= rounds; ++seed) {
    CAPTURE(seed);
    RandomCosts random(net, static_cast<std::uint64_t>(seed));
    const CostFunction costs = std::ref(random);
    const Plan plan = select(net, {}, costs, Machine::here(1), false);
    CHECK(plan.solver.proven_optimal);
    CHECK(plan.solver.objective_seconds == cheapest_plan(net, costs));
    // The parts of the plan add up to what the solver says.
    CHECK(total_of(plan) == plan.solver.objective_seconds);
  }
}

}  // namespace

TEST_CASE("branches and a concatenation: the plan is the cheapest of all") {
  compare_with_exhaustion(kBranches, 8);
}

TEST_CASE("a residual sum: the plan is the cheapest of all") {
  compare_with_exhaustion(kResidual, 8);
}

TEST_CASE("a part that others read too: the plan is the cheapest of all") {
  compare_with_exhaustion(kSharedPart, 8);
}

TEST_CASE("strategies are never cheaper than the plan, and are there") {
  const Network net = prepare(kBranches);
  std::mt19937_64 rng(3);
  std::map<CostKey, double> table;
  const CostFunction costs = [&](const CostKey& key) {
    return table.emplace(key, static_cast<double>(1 + rng() % 1000)).first->second;
  };
  const Plan plan = select(net, {}, costs, Machine::here(1));
  std::map<std::string, double> strategies;
  for (const Strategy& s : plan.strategies) strategies[s.name] = s.seconds;
  for (const char* wanted :
       {"sum2d", "best direct", "best im2", "best winograd", "local-optimal chw", "pbqp"}) {
    CAPTURE(wanted);
    REQUIRE(strategies.contains(wanted));
    CHECK(strategies[wanted] >= strategies["pbqp"]);
  }
}

TEST_CASE("an error limit leaves out the primitives that exceed it, and none unless asked for") {
  Filter filter;
  for (const Primitive* p : primitives()) {
    CAPTURE(p->name);
    CHECK(filter.allows(*p));
  }
  filter.max_error = 1.5 * kErrorUnit;
  const Primitive* exact = find_primitive("direct-sum2d");
  const Primitive* rough = find_primitive("winograd-4x4-5x5");
  REQUIRE(exact != nullptr);
  REQUIRE(rough != nullptr);
  CHECK(filter.allows(*exact));
  CHECK(rough->error_scale > 1.5F);
  CHECK_FALSE(filter.allows(*rough));
}

TEST_CASE("error limits and exclusions hold for fully connected layers") {
  const Network net = prepare(R"(
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 16 dim: 4 dim: 4 } } }
layer { name: "f" type: "InnerProduct" bottom: "data" top: "f" inner_product_param { num_output: 10 } }
)");
  const auto chosen = [&](const Filter& filter) {
    std::vector<std::string> names;
    for (const Choice& c : choices(net, 1, filter)) names.push_back(c.key.implementation);
    return names;
  };
  const auto has = [](const std::vector<std::string>& all, const char* name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  const auto all = chosen({});
  CHECK(has(all, "fc-hwc"));
  CHECK(has(all, "fc-hwc-fixed24"));
  CHECK_FALSE(has(all, "fc-hwc-block20"));  // only if asked for
  Filter filter;
  filter.max_error = kErrorUnit;
  const auto exact = chosen(filter);
  CHECK(has(exact, "fc-hwc"));
  CHECK_FALSE(has(exact, "fc-hwc-fixed24"));
  filter.max_error = 1e-4;
  CHECK(has(chosen(filter), "fc-hwc-block20"));
  CHECK(chosen(filter).size() == all.size() + 5);
  filter.max_error = kErrorUnit / 100;  // floats are taken whatever the limit
  CHECK(chosen(filter) == exact);
  filter = {};
  filter.exclude = {"fc-hwc"};
  const auto others = chosen(filter);
  CHECK(others.size() == all.size() - 1);
  CHECK_FALSE(has(others, "fc-hwc"));
}

TEST_CASE("a filter that leaves nothing names the layer") {
  const Network net = prepare(kBranches);
  Filter filter;
  filter.families = {Family::depthwise};
  try {
    select(
        net, filter, [](const CostKey&) { return 1.0; }, Machine::here(1));
    FAIL("accepted");
  } catch (const std::exception& e) {
    CHECK(std::string(e.what()).find("\"a\"") != std::string::npos);
  }
}
