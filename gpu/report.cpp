#include "gpu/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

namespace convprim::ios {
namespace {

/// Outputs may differ by the rounding of other primitives and orders of summation.
constexpr double kTolerance = 1e-4;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::string dump(const nlohmann::ordered_json& j) {
  // Names in files may be in any encoding.
  return j.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Comparison compare(const std::vector<float>& got, const std::vector<float>& expected) {
  double largest = 0, error = 0;
  bool finite = true;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto a = static_cast<double>(got[i]), b = static_cast<double>(expected[i]);
    finite = finite && std::isfinite(a) && std::isfinite(b);
    largest = std::max(largest, std::abs(b));
    error = std::max(error, std::abs(a - b));
  }
  const double relative = !finite       ? std::numeric_limits<double>::infinity()
                          : largest > 0 ? error / largest
                                        : error;
  return {relative, relative <= kTolerance};
}

void fill(const OperatorGraph& graph, Run& run, std::uint64_t seed) {
  for (TensorId t : run.program().inputs) {
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(t));
    std::vector<float> values(static_cast<std::size_t>(graph.net.tensors[at(t)].shape.count()));
    for (float& v : values) v = static_cast<float>(random() >> 40) * 0x1p-23F - 1;
    run.set(t, values);
  }
}

int merges(const Schedule& schedule) {
  return static_cast<int>(
      std::count_if(schedule.stages.begin(), schedule.stages.end(),
                    [](const StagePlan& s) { return s.strategy == Strategy::merge; }));
}

int widest(const Schedule& schedule) {
  std::size_t most = 0;
  for (const StagePlan& s : schedule.stages) {
    if (s.strategy == Strategy::concurrent) most = std::max(most, s.groups.size());
  }
  return static_cast<int>(most);
}

}  // namespace

double median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds.empty() ? 0 : seconds[seconds.size() / 2];
}

void measure(const OperatorGraph& graph, Run& reference, std::vector<Candidate>& candidates,
             int runs, std::uint64_t seed) {
  fill(graph, reference, seed);
  reference.run();
  for (Candidate& c : candidates) {
    fill(graph, *c.run, seed);
    c.run->run();
    Comparison worst;
    for (TensorId t : graph.net.outputs) {
      const Comparison one = compare(c.run->values(t), reference.values(t));
      worst.error = std::max(worst.error, one.error);
      worst.passed = worst.passed && one.passed;
    }
    c.outputs = worst;
  }
  // By turns, so that what else the machine does meets all alike.
  for (int i = 0; i < runs; ++i) {
    for (Candidate& c : candidates) c.seconds.push_back(c.run->run());
  }
}

std::string table(const OperatorGraph& graph, const std::vector<Candidate>& candidates,
                  const std::string& origin) {
  std::string s;
  const bool measured = !candidates.empty() && !candidates[0].seconds.empty();
  const std::string sum = fmt::format("sum of stages ({})", origin);
  s += fmt::format("{:<16} {:>6} {:>6} {:>6} {:>26}", "schedule", "stages", "merged", "widest",
                   sum + ", ms");
  if (measured)
    s += fmt::format(" {:>14} {:>8} {:>8}  {}", "whole run, ms", "min", "speedup", "outputs");
  s += "\n";
  const double base = measured ? median(candidates[0].seconds) : 0;
  for (const Candidate& c : candidates) {
    const std::string label =
        fmt::format("{}{}", c.from_file ? "file: " : "", name(c.schedule.kind));
    s += fmt::format("{:<16} {:>6} {:>6} {:>6} {:>26.3f}", label, c.schedule.stages.size(),
                     merges(c.schedule), widest(c.schedule), 1e3 * c.schedule.seconds);
    if (!c.seconds.empty()) {
      s += fmt::format(" {:>14.3f} {:>8.3f} {:>8.2f}  ", 1e3 * median(c.seconds),
                       1e3 * *std::min_element(c.seconds.begin(), c.seconds.end()),
                       base / median(c.seconds));
      if (c.outputs) {
        s += fmt::format("{} ({:.1e})", c.outputs->passed ? "agree" : "DIFFER", c.outputs->error);
      }
    }
    s += "\n";
  }
  for (const Candidate& c : candidates) {
    if (c.blocks.empty()) continue;
    std::size_t states = 0, transitions = 0, stages = 0;
    const BlockReport* largest = &c.blocks[0];
    for (const BlockReport& b : c.blocks) {
      states += b.statistics.states;
      transitions += b.statistics.transitions;
      stages += b.statistics.stages;
      if (b.statistics.transitions > largest->statistics.transitions) largest = &b;
    }
    s += fmt::format(
        "{}: searched {} blocks ({} in all) in {:.2f} s: {} states, {} transitions, {} stages "
        "priced; the largest has {} operators, width {}, {:.2e} schedules\n",
        name(c.schedule.kind), c.blocks.size(), graph.blocks.size(), c.search_seconds, states,
        transitions, stages, largest->operators, largest->width, largest->statistics.schedules);
  }
  return s;
}

std::string report_json(const OperatorGraph& graph, const std::vector<Candidate>& candidates,
                        const Provenance& provenance) {
  nlohmann::ordered_json j;
  j["schema"] = "convprim-ios-report-1";
  j["network"] = graph.net.name;
  j["operators"] = graph.operators.size();
  j["blocks"] = graph.blocks.size();
  j["schedules"] = nlohmann::ordered_json::array();
  for (const Candidate& c : candidates) {
    auto s = nlohmann::ordered_json::parse(to_json(graph, c.schedule, provenance));
    s["search_seconds"] = c.search_seconds;
    if (!c.seconds.empty()) {
      s["measured_ms"] = {{"median", 1e3 * median(c.seconds)},
                          {"min", 1e3 * *std::min_element(c.seconds.begin(), c.seconds.end())},
                          {"runs", c.seconds.size()}};
    }
    if (c.outputs) {
      s["outputs"] = {
          {"agree", c.outputs->passed},
          {"max_relative_error", std::isfinite(c.outputs->error) ? c.outputs->error : -1},
          {"tolerance", kTolerance}};
    }
    s["search"] = nlohmann::ordered_json::array();
    for (const BlockReport& b : c.blocks) {
      s["search"].push_back({{"operators", b.operators},
                             {"repeats", b.repeats},
                             {"width", b.width},
                             {"states", b.statistics.states},
                             {"transitions", b.statistics.transitions},
                             {"schedules", b.statistics.schedules},
                             {"stages_priced", b.statistics.stages},
                             {"seconds", b.statistics.seconds}});
    }
    j["schedules"].push_back(std::move(s));
  }
  return dump(j);
}

std::string trace_json(const OperatorGraph& graph, const Program& program,
                       const std::vector<StepTime>& times, const std::string& title) {
  using nlohmann::ordered_json;
  ordered_json events = ordered_json::array();
  const auto name_of = [](const char* what, int tid, const std::string& name) {
    ordered_json e = {{"name", what}, {"ph", "M"}, {"pid", 0}, {"tid", tid}};
    e["args"] = {{"name", name}};
    return e;
  };
  events.push_back(name_of("process_name", 0, title));
  events.push_back(name_of("thread_name", 0, "stages"));
  std::map<int, std::pair<double, double>> stages;
  int lanes = 0;
  for (const StepTime& t : times) lanes = std::max(lanes, t.lane + 1);
  for (int lane = 0; lane < lanes; ++lane)
    events.push_back(name_of("thread_name", lane + 1, fmt::format("lane {}", lane)));
  const auto span = [&](const std::string& name, int tid, double begin, double end,
                        ordered_json args) {
    ordered_json e = {{"name", name}, {"ph", "X"}, {"pid", 0}, {"tid", tid}};
    e["ts"] = 1e6 * begin;
    e["dur"] = 1e6 * (end - begin);
    e["args"] = std::move(args);
    events.push_back(std::move(e));
  };
  for (const StepTime& t : times) {
    const Step& step = program.steps[at(t.step)];
    std::string name;
    for (LayerId id : step.layers)
      name += (name.empty() ? "" : " + ") + graph.net.layers[at(id)].name;
    if (step.kind == Step::Kind::copy) name = "copy " + name;
    span(name, t.lane + 1, t.begin, t.end,
         {{"stage", step.stage},
          {"group", step.group},
          {"kind", kind(graph.net.layers[at(step.layers[0])].op)}});
    const auto [it, fresh] = stages.emplace(step.stage, std::pair(t.begin, t.end));
    it->second = {std::min(it->second.first, t.begin), std::max(it->second.second, t.end)};
  }
  for (const auto& [stage, extent] : stages) {
    const auto groups = program.stages[at(stage)].size();
    span(fmt::format("stage {}", stage), 0, extent.first, extent.second, {{"groups", groups}});
  }
  return dump({{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}});
}

std::vector<StepTime> simulated_times(const OperatorGraph& graph, const Schedule& schedule,
                                      const Program& program, const SimulatedCosts& costs) {
  std::vector<StepTime> times;
  double start = 0;
  for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage) {
    double end = 0;
    std::map<int, std::size_t> next;  // of each group
    for (const SimulatedStep& s : costs.steps(graph, schedule.stages[stage])) {
      const int step = program.stages[stage][at(s.group)][next[s.group]++];
      times.push_back({step, s.group, start + s.begin, start + s.end});
      end = std::max(end, s.end);
    }
    start += end;
  }
  return times;
}

}  // namespace convprim::ios
