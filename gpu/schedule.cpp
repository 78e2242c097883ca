#include "gpu/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "convprim/error.hpp"
#include "gpu/merge.hpp"

namespace convprim::ios {
namespace {

constexpr const char* kSchema = "convprim-ios-1";
constexpr std::string_view kNames[] = {"sequential", "greedy", "merge", "parallel", "both"};

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::vector<int> members(const Block& block, Set set) {
  std::vector<int> operators;
  for (; set != 0; set &= set - 1) operators.push_back(block.operators[at(lowest(set))]);
  return operators;
}

StagePlan plan_of(const Block& block, Strategy strategy, std::span<const Set> groups) {
  StagePlan plan;
  plan.strategy = strategy;
  for (Set group : groups) plan.groups.push_back(members(block, group));
  return plan;
}

/// One group for each operator in a set.
std::vector<Set> singles(Set set) {
  std::vector<Set> groups;
  for (; set != 0; set &= set - 1) groups.push_back(bit(lowest(set)));
  return groups;
}

/// The stages of a block without a search.
std::vector<std::vector<Set>> fixed_stages(Kind kind, const Dag& dag) {
  std::vector<std::vector<Set>> stages;
  if (kind == Kind::sequential) {
    for (int i = 0; i < dag.size(); ++i) stages.push_back({bit(i)});
    return stages;
  }
  for (Set left = dag.all(); left != 0;) {
    Set waiting = 0;  // fed by one that has not run
    for (Set rest = left; rest != 0; rest &= rest - 1) {
      waiting |= dag.successors[at(lowest(rest))];
    }
    stages.push_back(singles(left & ~waiting));
    left &= waiting;
  }
  return stages;
}

std::vector<StagePlan> solve(Kind kind, const OperatorGraph& graph, const Block& block,
                             const Pruning& pruning, StageCosts& costs, Statistics& statistics) {
  std::vector<StagePlan> plans;
  if (kind == Kind::sequential || kind == Kind::greedy) {
    for (const auto& groups : fixed_stages(kind, block.dag)) {
      plans.push_back(plan_of(block, Strategy::concurrent, groups));
      plans.back().seconds = costs.seconds(graph, plans.back());
    }
    return plans;
  }
  StageCost cost;
  if (kind != Kind::merge) {
    cost.concurrent = [&](std::span<const Set> groups) {
      return costs.seconds(graph, plan_of(block, Strategy::concurrent, groups));
    };
  }
  if (kind != Kind::parallel) {
    cost.merge = [&](Set operators) {
      if (cannot_merge(graph, members(block, operators)) != nullptr)
        return std::numeric_limits<double>::infinity();
      // A single operator is no merge, whatever the schedule.
      const auto strategy = size(operators) > 1 ? Strategy::merge : Strategy::concurrent;
      return costs.seconds(graph, plan_of(block, strategy, singles(operators)));
    };
  }
  const SearchResult found = search(block.dag, pruning, cost);
  statistics = found.statistics;
  if (found.stages.empty()) {
    throw Error(fmt::format("no schedule of the block of operator \"{}\" has a finite cost",
                            graph.operators[at(block.operators[0])].name));
  }
  for (const Stage& stage : found.stages) {
    const bool merged = stage.strategy == Strategy::merge && stage.groups.size() > 1;
    plans.push_back(plan_of(block, merged ? Strategy::merge : Strategy::concurrent, stage.groups));
    plans.back().seconds = stage.seconds;
  }
  return plans;
}

}  // namespace

std::string_view name(Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }

Schedule make_schedule(Kind kind, const OperatorGraph& graph, const Pruning& pruning,
                       StageCosts& costs, std::vector<BlockReport>* report) {
  Schedule schedule;
  schedule.kind = kind;
  std::map<int, std::vector<StagePlan>> solved;  // by first block
  std::map<int, BlockReport> reports;
  for (int b = 0; b < static_cast<int>(graph.blocks.size()); ++b) {
    const Block& block = graph.blocks[at(b)];
    if (block.same_as == b) {
      BlockReport& r = reports[b];
      r = {b, 0, block.dag.size(), block.dag.width(), {}};
      solved[b] = solve(kind, graph, block, pruning, costs, r.statistics);
    }
    ++reports[block.same_as].repeats;
    // The same operators by their place in the block.
    const int shift = block.operators[0] - graph.blocks[at(block.same_as)].operators[0];
    for (StagePlan stage : solved[block.same_as]) {
      for (auto& group : stage.groups) {
        for (int& i : group) i += shift;
      }
      schedule.seconds += stage.seconds;
      schedule.stages.push_back(std::move(stage));
    }
  }
  if (report != nullptr && kind != Kind::sequential && kind != Kind::greedy) {
    for (const auto& [b, r] : reports) report->push_back(r);
  }
  return schedule;
}

void check(const OperatorGraph& graph, const Schedule& schedule) {
  std::vector<int> stage_of(graph.operators.size(), -1), group_of(graph.operators.size(), -1);
  std::vector<int> owner(graph.net.layers.size(), -1);
  for (int i = 0; i < static_cast<int>(graph.operators.size()); ++i) {
    for (LayerId id : graph.operators[at(i)].layers) owner[at(id)] = i;
  }
  const auto makers = producers(graph.net);
  const auto fail = [&](int i, std::string_view why) {
    throw Error(
        fmt::format("operator \"{}\": {} in this schedule", graph.operators[at(i)].name, why));
  };
  int count = 0;
  for (const StagePlan& stage : schedule.stages) {
    int group = 0;
    if (stage.strategy == Strategy::merge) {
      std::vector<int> all;
      for (const auto& g : stage.groups) all.insert(all.end(), g.begin(), g.end());
      if (all.size() != stage.groups.size()) fail(all[0], "is merged in a group of several");
      if (const char* why = cannot_merge(graph, all)) {
        fail(all[0], fmt::format("cannot be merged ({})", why));
      }
    }
    for (const auto& operators : stage.groups) {
      for (int i : operators) {
        if (stage_of[at(i)] >= 0) fail(i, "runs twice");
        stage_of[at(i)] = count;
        group_of[at(i)] = group;
        for (LayerId id : graph.operators[at(i)].layers) {
          for (TensorId t : graph.net.layers[at(id)].inputs) {
            const int from = owner[at(makers[at(t)])];
            if (from < 0 || from == i) continue;
            // Within a stage only operators before it in its own group have run.
            const bool there = stage_of[at(from)] >= 0 &&
                               (stage_of[at(from)] < count || group_of[at(from)] == group);
            if (!there || (stage.strategy == Strategy::merge && stage_of[at(from)] == count)) {
              fail(i, fmt::format("runs before \"{}\", which it reads, has",
                                  graph.operators[at(from)].name));
            }
          }
        }
      }
      ++group;
    }
    ++count;
  }
  for (std::size_t i = 0; i < stage_of.size(); ++i) {
    if (stage_of[i] < 0) fail(static_cast<int>(i), "never runs");
  }
}

std::string to_json(const OperatorGraph& graph, const Schedule& schedule,
                    const Provenance& provenance) {
  using nlohmann::ordered_json;
  ordered_json j;
  j["schema"] = kSchema;
  j["network"] = graph.net.name;
  j["file"] = provenance.file;
  j["batch"] = 0;
  for (const Layer& layer : graph.net.layers) {
    if (const auto* input = std::get_if<InputOp>(&layer.op)) {
      j["batch"] = input->shape.n;
      break;
    }
  }
  j["schedule"] = name(schedule.kind);
  j["made_with"] = {{"device", provenance.device},
                    {"costs", provenance.costs},
                    {"version", provenance.version},
                    {"r", provenance.pruning.r},
                    {"s", provenance.pruning.s}};
  j["predicted_ms"] = 1e3 * schedule.seconds;
  j["stages"] = ordered_json::array();
  for (const StagePlan& stage : schedule.stages) {
    ordered_json s;
    s["strategy"] = stage.strategy == Strategy::merge ? "merge" : "concurrent";
    s["ms"] = 1e3 * stage.seconds;
    s["groups"] = ordered_json::array();
    for (const auto& group : stage.groups) {
      ordered_json names = ordered_json::array();
      for (int i : group) names.push_back(graph.operators[at(i)].name);
      s["groups"].push_back(std::move(names));
    }
    j["stages"].push_back(std::move(s));
  }
  // Names in files may be in any encoding.
  return j.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Schedule schedule_from_json(const OperatorGraph& graph, std::string_view json,
                            const std::string& file) {
  std::map<std::string, int> numbers;
  for (int i = 0; i < static_cast<int>(graph.operators.size()); ++i) {
    numbers[graph.operators[at(i)].name] = i;
  }
  Schedule schedule;
  try {
    const auto j = nlohmann::json::parse(json);
    if (j.at("schema") != kSchema)
      throw Error(fmt::format("{}: is no schedule of format {}", file, kSchema));
    const std::string kind = j.at("schedule");
    const auto found = std::find(std::begin(kNames), std::end(kNames), kind);
    if (found == std::end(kNames))
      throw Error(fmt::format("{}: '{}' is no kind of schedule", file, kind));
    schedule.kind = kKinds[found - std::begin(kNames)];
    for (const auto& s : j.at("stages")) {
      StagePlan& stage = schedule.stages.emplace_back();
      const std::string strategy = s.at("strategy");
      if (strategy != "merge" && strategy != "concurrent")
        throw Error(fmt::format("{}: '{}' is no strategy", file, strategy));
      stage.strategy = strategy == "merge" ? Strategy::merge : Strategy::concurrent;
      stage.seconds = 1e-3 * s.at("ms").get<double>();
      schedule.seconds += stage.seconds;
      for (const auto& names : s.at("groups")) {
        auto& group = stage.groups.emplace_back();
        for (const std::string operator_name : names) {
          const auto it = numbers.find(operator_name);
          if (it == numbers.end()) {
            throw Error(fmt::format("{}: names operator \"{}\", which the network has not", file,
                                    operator_name));
          }
          group.push_back(it->second);
        }
        if (group.empty()) throw Error(fmt::format("{}: has an empty group", file));
      }
      if (stage.groups.empty()) throw Error(fmt::format("{}: has an empty stage", file));
    }
    check(graph, schedule);
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("{}: is no schedule ({})", file, e.what()));
  } catch (const Error& e) {
    const std::string what = e.what();
    throw Error(what.rfind(file, 0) == 0 ? what : fmt::format("{}: {}", file, what));
  }
  return schedule;
}

}  // namespace convprim::ios
