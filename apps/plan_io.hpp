// Plans that a command reads and writes: --save-plan, --load-plan, --force-plan and --emit.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "convprim/network.hpp"
#include "convprim/plan.hpp"

namespace convprim {

/// The options' arguments; empty where not given.
struct PlanSettings {
  std::string save, load, emit;
  bool force = false;
};

/// Adds the options to a command that has all its others: some exclude each other.
void add_plan_options(CLI::App& app, PlanSettings& settings);

/// Finds out before long work whether plan and program can be written without replacing one of the
/// files `used`. Throws Error.
void check_plan_outputs(const PlanSettings& settings, const std::vector<std::string>& used);

/// The plan of --load-plan, made out for this machine and `threads` threads (0: the plan's own
/// number). Throws Error if it does not fit the network, or was made for another machine and is not
/// forced.
Plan loaded_plan(const PlanSettings& settings, const Network& net, int threads);

/// Writes the plan and the program that are asked for. Throws Error.
void write_plan(const PlanSettings& settings, const Network& net, const Plan& plan);

}  // namespace convprim
