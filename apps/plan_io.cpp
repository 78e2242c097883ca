#include "apps/plan_io.hpp"

#include <fmt/format.h>

#include "apps/output.hpp"
#include "convprim/emit.hpp"
#include "convprim/error.hpp"
#include "selector/importers/file.hpp"

namespace convprim {

void add_plan_options(CLI::App& app, PlanSettings& settings) {
  CLI::Option* save =
      app.add_option("--save-plan", settings.save, "write the plan to this file (JSON)");
  CLI::Option* load = app.add_option(
      "--load-plan", settings.load,
      "run the plan in this file: nothing is measured or solved, no cost file is used");
  app.add_flag("--force-plan", settings.force,
               "run a loaded plan although it was made for another CPU or thread count")
      ->needs(load);
  CLI::Option* emit = app.add_option(
      "--emit", settings.emit,
      "write a C++ program that does what the plan says, weights and Meson file into this folder");
  for (const char* name : {"--costs", "--families", "--exclude-family", "--exclude", "--max-error",
                           "--profile-only", "--partial", "--target", "--force", "--explain",
                           "--max-workspace", "--max-memory", "--compare"})
    load->excludes(app.get_option(name));
  // Nothing is run with these.
  for (const char* name : {"--profile-only", "--partial", "--target"}) {
    for (CLI::Option* option :
         {emit, app.get_option("--input"), app.get_option("--output"), app.get_option("--top")})
      app.get_option(name)->excludes(option);
  }
  for (const char* name : {"--profile-only", "--partial"}) app.get_option(name)->excludes(save);
}

void check_plan_outputs(const PlanSettings& settings, const std::vector<std::string>& used) {
  if (!settings.save.empty()) check_writable("--save-plan", settings.save, used);
  if (!settings.emit.empty()) check_folder("--emit", settings.emit, emitted_names(), used);
}

Plan loaded_plan(const PlanSettings& settings, const Network& net, int threads) {
  constexpr std::size_t kLargest = std::size_t{64} << 20;
  Plan plan = load_plan(read_file(settings.load, kLargest), net, settings.load);
  const Machine here = Machine::here(threads > 0 ? threads : plan.machine.threads);
  const std::string difference = machine_difference(plan.machine, here);
  if (!difference.empty() && !settings.force) {
    throw Error(fmt::format("{}: {}; make a plan here, or run this one as it is with --force-plan",
                            settings.load, difference));
  }
  plan.machine = here;
  return plan;
}

void write_plan(const PlanSettings& settings, const Network& net, const Plan& plan) {
  if (!settings.save.empty()) write_file(settings.save, save_plan(plan, net));
  if (settings.emit.empty()) return;
  std::vector<OutputFile> files;
  for (EmittedFile& file : emit(net, plan))
    files.push_back({std::move(file.name), std::move(file.content)});
  write_folder(settings.emit, files);
}

}  // namespace convprim
