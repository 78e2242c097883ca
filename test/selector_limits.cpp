// Rules on what may be chosen: forced layers, workspaces, memory; and explanations. Costs are made
// up, so nothing is measured.
#include <algorithm>
#include <map>
#include <random>

#include "convprim/error.hpp"
#include "convprim/explain.hpp"
#include "convprim/import.hpp"
#include "convprim/select.hpp"
#include "selector/candidates.hpp"
#include "selector/memory.hpp"
#include "test.hpp"

using namespace convprim;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr const char* kNet = R"(
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 16 dim: 12 dim: 12 } } }
layer { name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "p" type: "Pooling" bottom: "a" top: "p" pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 } }
layer { name: "b" type: "Convolution" bottom: "p" top: "b" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "c" type: "Convolution" bottom: "p" top: "c" convolution_param { num_output: 32 kernel_size: 1 } }
layer { name: "cat" type: "Concat" bottom: "b" bottom: "c" top: "cat" }
layer { name: "d" type: "Convolution" bottom: "cat" top: "d" convolution_param { num_output: 16 kernel_size: 1 } }
)";

Network prepare() {
  Network net = import_network_text(kNet, "test");
  random_weights(net);
  optimise(net);
  return net;
}

double made_up(const CostKey& key) {
  std::mt19937_64 rng(std::hash<std::string>()(key.problem + '/' + key.implementation));
  const double u = static_cast<double>(rng() % 1000 + 1) / 64;  // sums are exact
  return key.kind == CostKind::conversion ? u / 8 : u;
}

std::optional<Sizes> made_up_sizes(const CostKey& key) {
  std::mt19937_64 rng(std::hash<std::string>()(key.implementation));
  const std::size_t workspace = key.kind == CostKind::convolution ? rng() % 50 * 1024 : 0;
  return Sizes{workspace, rng() % 100 * 1000};
}

Plan plan_with(const Network& net, const Filter& filter) {
  return select(net, filter, made_up, Machine::here(1), false, made_up_sizes);
}

std::string refusal(const Network& net, const Filter& filter) {
  try {
    plan_with(net, filter);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

bool contains_all(const std::string& text, const std::vector<std::string>& words) {
  return std::all_of(words.begin(), words.end(),
                     [&](const std::string& w) { return text.find(w) != std::string::npos; });
}

const PlanLayer& layer_of(const Plan& plan, const std::string& name) {
  const auto it = std::find_if(plan.layers.begin(), plan.layers.end(),
                               [&](const PlanLayer& l) { return l.layer == name; });
  REQUIRE(it != plan.layers.end());
  return *it;
}

}  // namespace

TEST_CASE("a forced layer is computed so, convolution or not") {
  const Network net = prepare();
  Filter filter;
  filter.force = {{"a", "direct-sum2d"}, {"p", "pool-chw16c"}, {"cat", "slices"}};
  const Plan plan = plan_with(net, filter);
  CHECK(layer_of(plan, "a").implementation == "direct-sum2d");
  CHECK(layer_of(plan, "p").implementation == "pool-chw16c");
  CHECK(layer_of(plan, "cat").implementation == "slices");
  CHECK(plan.solver.objective_seconds >= plan_with(net, {}).solver.objective_seconds);
}

TEST_CASE("a forced layer that cannot be is refused with layer and rule") {
  const Network net = prepare();
  const auto with = [&](const std::string& layer, const std::string& implementation) {
    Filter filter;
    filter.force = {{layer, implementation}};
    return refusal(net, filter);
  };
  CHECK(contains_all(with("nobody", "direct-sum2d"), {"nobody=direct-sum2d", "no layer"}));
  CHECK(contains_all(with("a", "nothing"), {"\"a\"", "a=nothing"}));
  CHECK(contains_all(with("p", "direct-sum2d"), {"\"p\"", "p=direct-sum2d"}));
  const auto& rows = primitives();
  const auto rejected = std::find_if(
      rows.begin(), rows.end(), [](const Primitive* p) { return p->family == Family::conv_1x1; });
  REQUIRE(rejected != rows.end());
  const std::string name((*rejected)->name);
  CHECK(contains_all(with("a", name), {"\"a\"", "a=" + name, "cannot be"}));
  Filter twice;
  twice.force = {{"a", "direct-sum2d"}, {"a", "im2row-scan-abt-ik"}};
  CHECK(contains_all(refusal(net, twice), {"a=im2row-scan-abt-ik", "already"}));
}

TEST_CASE("rules that leave a layer nothing are named with what each leaves") {
  const Network net = prepare();
  Filter filter;
  filter.families = {Family::winograd};
  filter.force = {{"a", "direct-sum2d"}};
  CHECK(contains_all(refusal(net, filter), {"layer \"a\"", "--families winograd leaves",
                                            "--force a=direct-sum2d leaves 0"}));
  filter = {};
  filter.families = {Family::winograd, Family::conv_1x1};
  filter.max_workspace = 0;
  const auto sizes = [](const CostKey&) -> std::optional<Sizes> { return Sizes{1, 0}; };
  try {
    select(net, filter, made_up, Machine::here(1), false, sizes);
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(contains_all(
        e.what(), {"\"a\"", "--families winograd,conv-1x1 leaves", "--max-workspace 0 leaves 0"}));
  }
}

TEST_CASE("no chosen implementation asks for more workspace than allowed") {
  const Network net = prepare();
  for (const std::size_t limit : {std::size_t{0}, std::size_t{10240}, std::size_t{1} << 20}) {
    Filter filter;
    filter.max_workspace = limit;
    const Plan plan = plan_with(net, filter);
    for (const PlanLayer& l : plan.layers) {
      if (l.kind != "conv") continue;
      const CostKey key{CostKind::convolution, l.problem, l.implementation, 0};
      CHECK(made_up_sizes(key)->workspace <= limit);
    }
  }
}

TEST_CASE("an explanation's costs are those of plans with each row forced") {
  const Network net = prepare();
  Filter filter;
  filter.exclude_families = {Family::onednn};
  const Plan plan = plan_with(net, filter);
  const auto all = explain(net, filter, made_up, made_up_sizes, plan, {"b", "p", "cat"});
  REQUIRE(all.size() == 3);
  for (const Explanation& e : all) {
    CAPTURE(e.layer);
    int chosen = 0, candidates = 0, left_out = 0;
    double last = 0;
    for (const ExplainedRow& row : e.rows) {
      CAPTURE(row.implementation);
      if (!row.left_out.empty()) {
        ++left_out;
        continue;
      }
      CHECK(left_out == 0);  // the candidates come first
      CHECK(row.network_seconds >= last);
      last = row.network_seconds;
      ++candidates;
      chosen += row.chosen ? 1 : 0;
      if (row.chosen) CHECK(row.network_seconds == plan.solver.objective_seconds);
      // What the network costs otherwise is at least the layer itself and the conversions around
      // it, with everything else as in the plan at most.
      CHECK(row.network_seconds >= row.seconds);
      if (candidates % 7 != 1 || e.layer == "cat") continue;
      Filter forced = filter;
      forced.force = {{e.layer, row.implementation}};
      CHECK(plan_with(net, forced).solver.objective_seconds == row.network_seconds);
    }
    CHECK(chosen == 1);
    if (e.layer == "b") CHECK(left_out > 0);
  }
}

TEST_CASE("an explanation's conversions are what changes beside the layer itself") {
  const Network net = prepare();
  const Plan plan = plan_with(net, {});
  const auto all = explain(net, {}, made_up, made_up_sizes, plan, {"b"});
  // With all other layers forced to the plan, the network differs in the layer and its
  // conversions only.
  Filter pinned;
  for (const PlanLayer& l : plan.layers) {
    if (l.kind != "input" && l.layer != "b" && l.implementation != "slices")
      pinned.force.push_back({l.layer, l.implementation});
  }
  const auto base = std::find_if(all[0].rows.begin(), all[0].rows.end(),
                                 [](const ExplainedRow& r) { return r.chosen; });
  REQUIRE(base != all[0].rows.end());
  int compared = 0;
  for (const ExplainedRow& row : all[0].rows) {
    if (!row.left_out.empty() || !(row.conversion_seconds < kInfinity)) continue;
    Filter forced = pinned;
    forced.force.push_back({"b", row.implementation});
    const double expected = plan.solver.objective_seconds - base->seconds -
                            base->conversion_seconds + row.seconds + row.conversion_seconds;
    // The concat may find a cheaper layout for its slices.
    CHECK(plan_with(net, forced).solver.objective_seconds <= expected);
    ++compared;
  }
  CHECK(compared > 5);
}

TEST_CASE("bytes and names in explanations of what cannot be explained") {
  const Network net = prepare();
  const Plan plan = plan_with(net, {});
  CHECK_THROWS_AS(explain(net, {}, made_up, made_up_sizes, plan, {"nobody"}), Error);
  CHECK_THROWS_AS(explain(net, {}, made_up, made_up_sizes, plan, {"data"}), Error);
}

namespace {

constexpr const char* kChain = R"(
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 16 dim: 9 dim: 9 } } }
layer { name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 24 kernel_size: 3 pad: 1 } }
layer { name: "b" type: "Convolution" bottom: "a" top: "b" convolution_param { num_output: 32 kernel_size: 3 pad: 1 } }
layer { name: "c" type: "Convolution" bottom: "b" top: "c" convolution_param { num_output: 16 kernel_size: 5 pad: 2 } }
)";

/// Few implementations of each layer have costs, those of little memory being the slower ones.
double few(const CostKey& key) {
  if (key.kind == CostKind::conversion) return made_up(key);
  const std::size_t h = std::hash<std::string>()(key.problem + key.implementation);
  if (key.kind == CostKind::convolution && h % 17 != 0) return kInfinity;
  const Sizes sizes = *made_up_sizes(key);
  return 40 - static_cast<double>((sizes.packed + sizes.workspace) / 5000) + made_up(key) / 4;
}

}  // namespace

TEST_CASE("within a limit of memory the plan is the cheapest of all that obey it") {
  Network net = import_network_text(kChain, "test");
  random_weights(net);
  optimise(net);
  // All plans, by forcing each combination.
  std::vector<std::vector<std::string>> names;
  for (const char* layer : {"a", "b", "c"}) {
    const auto id = std::find_if(net.layers.begin(), net.layers.end(),
                                 [&](const Layer& l) { return l.name == layer; }) -
                    net.layers.begin();
    names.emplace_back();
    for (const Choice& c : choices(net, static_cast<LayerId>(id), {})) {
      if (few(c.key) < kInfinity) names.back().push_back(c.name);
    }
    REQUIRE(names.back().size() > 2);
  }
  const SizeFunction size_function = made_up_sizes;
  SizeTable table(net, size_function);
  std::vector<std::pair<double, std::size_t>> all;  // cost and bytes
  for (const auto& a : names[0]) {
    for (const auto& b : names[1]) {
      for (const auto& c : names[2]) {
        Filter forced;
        forced.force = {{"a", a}, {"b", b}, {"c", c}};
        const Plan plan = select(net, forced, few, Machine::here(1), false, made_up_sizes);
        all.emplace_back(plan.solver.objective_seconds, memory_of(net, plan, table).total());
      }
    }
  }
  const auto lightest = std::min_element(
      all.begin(), all.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
  const auto cheapest = *std::min_element(all.begin(), all.end());
  REQUIRE(lightest->second < cheapest.second);
  int proven = 0;
  constexpr int kSteps = 12;
  for (int i = 0; i <= kSteps; ++i) {
    Filter filter;
    filter.max_memory = lightest->second +
                        (cheapest.second - lightest->second) * static_cast<std::size_t>(i) / kSteps;
    CAPTURE(filter.max_memory);
    double best = kInfinity;
    for (const auto& [cost, bytes] : all) {
      if (bytes <= filter.max_memory) best = std::min(best, cost);
    }
    const Plan plan = select(net, filter, few, Machine::here(1), false, made_up_sizes);
    REQUIRE(plan.memory.has_value());
    CHECK(memory_of(net, plan, table).total() == plan.memory->arena + plan.memory->packed);
    CHECK(plan.memory->arena + plan.memory->packed <= filter.max_memory);
    CHECK(plan.memory->unlimited_seconds == cheapest.first);
    CHECK(plan.solver.lower_bound_seconds <= best);
    CHECK(plan.solver.objective_seconds >= best);
    if (plan.solver.proven_optimal) {
      CHECK(plan.solver.objective_seconds == best);
      ++proven;
    }
  }
  CHECK(proven > kSteps / 2);
  Filter filter;
  filter.max_memory = 1000;
  try {
    select(net, filter, few, Machine::here(1), false, made_up_sizes);
    FAIL("accepted");
  } catch (const Error& e) {
    CAPTURE(e.what());
    CHECK(contains_all(e.what(), {"--max-memory 1000", "the least found takes",
                                  std::to_string(lightest->second), "no plan takes less than"}));
  }
}
