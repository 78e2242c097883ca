// What the command ios shows: schedules side by side, as text, JSON and a trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpu/engine.hpp"
#include "gpu/schedule.hpp"

namespace convprim::ios {

/// Outputs of one schedule against the sequential one's.
struct Comparison {
  double error = 0;  ///< largest difference, relative to the largest value of its output
  bool passed = true;
};

/// One schedule and what became of it.
struct Candidate {
  Schedule schedule;
  std::vector<BlockReport> blocks = {};
  double search_seconds = 0;
  bool from_file = false;              ///< read, not found here
  std::unique_ptr<Run> run = nullptr;  ///< null where nothing runs
  std::vector<double> seconds = {};    ///< of whole runs
  std::optional<Comparison> outputs = {};
};

/// Median of some seconds.
double median(std::vector<double> seconds);

/// Fills the inputs of all runs with the same random numbers, runs the candidates by turns, first
/// once without counting, and compares their outputs with those of `reference`, which is run too.
void measure(const OperatorGraph& graph, Run& reference, std::vector<Candidate>& candidates,
             int runs, std::uint64_t seed);

/// The table of schedules, and below it one line for each kind of block that was searched.
/// `origin` says what the predictions are.
std::string table(const OperatorGraph& graph, const std::vector<Candidate>& candidates,
                  const std::string& origin);

/// The comparison as JSON, schema "convprim-ios-report-1", each schedule with its stages.
std::string report_json(const OperatorGraph& graph, const std::vector<Candidate>& candidates,
                        const Provenance& provenance);

/// A Chrome trace, which Perfetto opens: one track of stages, and one for each lane. `title` names
/// the whole: device, and "simulated" where it is.
std::string trace_json(const OperatorGraph& graph, const Program& program,
                       const std::vector<StepTime>& times, const std::string& title);

/// The times that a simulation gives a schedule's steps, for trace_json().
std::vector<StepTime> simulated_times(const OperatorGraph& graph, const Schedule& schedule,
                                      const Program& program, const SimulatedCosts& costs);

}  // namespace convprim::ios
