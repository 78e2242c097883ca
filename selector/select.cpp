// From a network and costs to the answer: the plan, and the strategies that it is compared with.
#include "convprim/select.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "convprim/error.hpp"
#include "selector/limits.hpp"
#include "selector/memory.hpp"
#include "selector/query.hpp"
#include "selector/strategies.hpp"

namespace convprim {
namespace {

/// Solves a query, or says where it cannot be.
pbqp::Result solve(const Query& query) {
  pbqp::Result result = query.solve();
  if (!result.has_assignment()) {
    std::string layers;
    for (std::size_t node : result.core)
      layers += (layers.empty() ? "" : ", ") + query.problem().describe(node);
    throw Error(fmt::format(
        "no plan: no choice of implementations fits together at {}; allow more families", layers));
  }
  return result;
}

Plan plan_of(const Query& query, const Machine& machine) {
  const pbqp::Result result = solve(query);
  Plan plan = query.plan(result.assignment, machine);
  plan.solver = report_of(result);
  return plan;
}

/// Leaves out the widest layer's choice if, where the plan has it write into a slice, it asks for
/// more workspace than is allowed. Returns whether it did.
bool drop_too_wide(Instance& instance, const Plan& plan, const Filter& filter,
                   const SizeFunction& sizes) {
  if (filter.max_workspace == kNoLimit || !plan.cut.empty()) return false;
  SizeTable table(instance.net, sizes);
  const PlanMemory memory = memory_of(instance.net, plan, table);
  if (memory.workspace <= filter.max_workspace) return false;
  const auto id = static_cast<std::size_t>(memory.widest);
  std::erase_if(instance.choices[id],
                [&](const Choice& c) { return c.name == plan.layers[id].implementation; });
  if (instance.choices[id].empty()) {
    throw Error(fmt::format(
        "layer \"{}\": no implementation left: writing into a concatenation, each needs more than "
        "{}",
        plan.layers[id].layer, option_text(Rule::max_workspace, filter, "")));
  }
  return true;
}

}  // namespace

CostFunction costs_of(const CostStore& store) {
  return [&store](const CostKey& key) {
    const auto cost = store.find(key);
    return cost ? cost->seconds : kInfinity;
  };
}

SizeFunction sizes_of(const CostStore& store) {
  return [&store](const CostKey& key) -> std::optional<Sizes> {
    const auto cost = store.find(key);
    return cost ? cost->sizes : std::nullopt;
  };
}

Plan select(const Network& net, const Filter& filter, const CostFunction& costs,
            const Machine& machine, bool compare, const SizeFunction& sizes) {
  Instance instance = make_instance(net, filter, costs, sizes);
  Plan plan;
  do {
    plan = plan_of(Query(instance, instance.choices, costs), machine);
    if (filter.max_memory != kNoLimit && plan.cut.empty())
      plan = select_within(net, filter, instance, costs, sizes, plan);
  } while (drop_too_wide(instance, plan, filter, sizes));
  if (compare) {
    for (StrategyChoices& s : strategy_choices(instance, costs)) {
      const auto result = Query(instance, std::move(s.choices), costs).solve();
      if (result.has_assignment()) plan.strategies.push_back({s.name, result.upper});
    }
  }
  plan.strategies.push_back({"pbqp", plan.solver.objective_seconds});
  return plan;
}

}  // namespace convprim
