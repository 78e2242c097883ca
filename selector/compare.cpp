#include "selector/compare.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "convprim/executable.hpp"
#include "selector/placement.hpp"
#include "selector/report.hpp"
#include "selector/stopwatch.hpp"
#include "selector/strategies.hpp"

namespace convprim {
namespace {

constexpr double kSlowSeconds = 5;  // timed work after which a bar takes part in no more rounds
constexpr double kColdSeconds =
    1;                        // passes predicted longer are not warmed up: it would not matter
constexpr int kRunsEach = 2;  // timed passes of a bar in one round
constexpr int kTries = 3;     // repetitions of a run that other programs disturbed

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// A strategy ready to be timed. Its executable is kept only while there is room.
struct Runner {
  Plan plan;
  std::string name;
  std::vector<double> seconds;
  std::optional<Executable> executable;
  std::optional<Executable::Context> context;

  /// Packs the weights if that is not done; returns the bytes that it took.
  std::size_t make_ready(const Network& net) {
    if (executable) return 0;
    executable.emplace(net, plan);
    context.emplace(executable->make_context());
    fill_inputs(*executable, *context);
    return executable->packed_bytes() + executable->arena_bytes();
  }
  void drop() {
    context.reset();
    executable.reset();
  }
  double total() const {
    double sum = 0;
    for (double s : seconds) sum += s;
    return sum;
  }
};

std::vector<Runner> runners(const Network& net, const Filter& filter, const CostFunction& costs,
                            const SizeFunction& sizes, const Plan& plan) {
  std::vector<Runner> all;
  const auto add = [&](std::string name, Plan p) {
    Runner runner;
    runner.plan = std::move(p);
    runner.name = std::move(name);
    all.push_back(std::move(runner));
  };
  const Instance instance = make_instance(net, filter, costs, sizes);
  for (StrategyChoices& s : strategy_choices(instance, costs)) {
    const Query query(instance, std::move(s.choices), costs);
    const pbqp::Result result = query.solve();
    if (!result.has_assignment()) continue;
    Plan p = query.plan(result.assignment, plan.machine);
    p.solver = report_of(result);
    add(s.name, std::move(p));
  }
  add("pbqp", plan);
  return all;
}

Bar bar_of(const Runner& r) {
  Bar bar{r.name, r.plan.solver.objective_seconds, median_of(r.seconds)};
  bar.min = *std::min_element(r.seconds.begin(), r.seconds.end());
  bar.max = *std::max_element(r.seconds.begin(), r.seconds.end());
  bar.runs = static_cast<int>(r.seconds.size());
  return bar;
}

}  // namespace

Comparison compare(const Network& net, const Filter& filter, const CostFunction& costs,
                   const SizeFunction& sizes, const Plan& plan, int rounds,
                   const std::function<void(const Progress&)>& progress) {
  std::vector<Runner> all = runners(net, filter, costs, sizes, plan);
  Comparison comparison;
  comparison.rounds = rounds;
  std::size_t room = static_cast<std::size_t>(std::max(0L, sysconf(_SC_AVPHYS_PAGES))) / 2 *
                     static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  Progress now;
  now.total = static_cast<std::size_t>(rounds) * all.size();
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::size_t> before;
    for (const Runner& r : all) before.push_back(r.seconds.size());
    for (Runner& r : all) {
      now.now = r.name;
      if (progress) progress(now);
      if (r.total() < kSlowSeconds) {
        const std::size_t bytes = r.make_ready(net);
        const bool fast = r.plan.solver.objective_seconds < kColdSeconds;
        if (fast) r.executable->run(*r.context);
        for (int i = 0; i < (fast ? kRunsEach : 1); ++i) {
          r.seconds.push_back(undisturbed_seconds(
              fast ? kTries : 1, comparison.disturbed, [] {},
              [&] { r.executable->run(*r.context); }));
        }
        if (bytes > room || r.total() >= kSlowSeconds) {
          r.drop();
        } else {
          room -= bytes;
        }
      }
      ++now.done;
      now.measured = now.done;
    }
    comparison.in_place = in_place(plan.machine);
    if (comparison.in_place || comparison.moved == rounds) continue;
    // The round is repeated, but for strategies that take too long for another.
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].total() < kSlowSeconds) all[i].seconds.resize(before[i]);
    }
    now.done -= all.size();
    --round;
    ++comparison.moved;
  }
  now.now.clear();
  if (progress) progress(now);
  for (const Runner& r : all) comparison.bars.push_back(bar_of(r));
  if (all[0].name == "sum2d") {
    comparison.predicted_base = comparison.bars[0].predicted;
    comparison.base = comparison.bars[0].median;
  }
  return comparison;
}

}  // namespace convprim
