// What the selector tells: measured runs, verification, and the report as a table and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convprim/executable.hpp"
#include "convprim/explain.hpp"
#include "convprim/network.hpp"
#include "convprim/plan.hpp"
#include "convprim/select.hpp"
#include "selector/compare.hpp"

namespace convprim {

/// Times of whole forward passes.
struct RunTimes {
  double median = 0, min = 0, max = 0;  ///< seconds
  int runs = 0;
  int disturbed = 0;     ///< runs taken again because other programs took part of their time
  int moved = 0;         ///< and because the threads lay elsewhere than when the costs were taken
  int apart_ns = 0;      ///< how far apart they lay in the end
  bool in_place = true;  ///< whether that is where they lay when costs were taken
  std::vector<double> step_seconds;  ///< median of each step over passes of their own, in the order
                                     ///< of Executable::steps()
};

/// Runs a context's inputs `runs` times after warm-up, and in between a few times with each step
/// timed. Runs for which the threads lay elsewhere than when the costs of `machine` were taken are
/// repeated, as often as they are many.
RunTimes measure_runs(const Executable& executable, Executable::Context& context, int runs,
                      const Machine& machine);

/// Fills all inputs with reproducible values, uniform in [-1, 1). Returns them in (n, c, h, w)
/// order.
std::vector<std::vector<float>> fill_inputs(const Executable& executable,
                                            Executable::Context& context, std::uint64_t seed = 1);

/// A comparison of all outputs with the double-precision reference.
struct Verification {
  double max_relative_error =
      0;  ///< largest |out - reference| over the output's largest |reference|
  double tolerance = 1e-4;
  bool passed = false;
};

/// Compares a context's outputs after run() with the reference evaluated on `original`, the network
/// before optimise().
Verification verify(const Network& original, const std::vector<std::vector<float>>& inputs,
                    const Executable& executable, const Executable::Context& context, int threads);

/// Candidates that were considered for the convolutions, and conversions.
struct Considered {
  std::vector<std::pair<std::string, int>>
      families;         ///< family and number of its (layer, primitive) pairs
  int conversions = 0;  ///< (tensor shape, routine) pairs
};
Considered count_candidates(const Network& net, const Filter& filter);

/// Seconds from files to a network that is ready to run; measuring costs is not in it.
struct StartTimes {
  double import = 0;   ///< network and weights read
  double passes = 0;   ///< and optimised
  double plan = 0;     ///< the plan loaded, or selected from known costs
  double prepare = 0;  ///< weights packed, memory laid out and zeroed
};

/// Everything that a report tells.
struct Report {
  const Network* net = nullptr;
  const Plan* plan = nullptr;
  StartTimes start = {};
  PassCounts passes;
  ProfileReport profile;
  Considered considered;
  std::string costs_file;
  std::string plan_file =
      {};  ///< where the plan was read from; then nothing was measured or solved
  const Executable* executable = nullptr;
  std::optional<RunTimes> times;
  std::optional<Verification> verification;
  std::vector<Explanation> explanations;
  std::optional<Comparison> comparison;
};

/// The report for people: one line for each layer and conversion, then the totals.
std::string table(const Report& report);

/// The report for programs, keys as in docs/report.md; ends with a newline.
std::string json(const Report& report);

}  // namespace convprim
