// selector: from a network file to the fastest plan for this machine, and its run.
#include <fmt/format.h>
#include <fnmatch.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "apps/costs.hpp"
#include "apps/cpus.hpp"
#include "apps/limits.hpp"
#include "apps/output.hpp"
#include "apps/plan_io.hpp"
#include "apps/progress.hpp"
#include "apps/tensor_io.hpp"
#include "convprim/cost_files.hpp"
#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "convprim/layer.hpp"
#include "convprim/select.hpp"
#include "selector/printable.hpp"
#include "selector/report.hpp"
#include "selector/stopwatch.hpp"
#include "selector/versions.hpp"

namespace convprim {
namespace {

struct Settings {
  std::string net, weights, costs, json, target, cpus;
  int threads = 0;
  Index batch = 0;
  std::vector<std::string> shapes, families, exclude_families, exclude, force, explain;
  std::string max_workspace, max_memory;
  int runs = 20;
  double max_error = kDefaultMaxError;
  std::uint64_t seed = 1;
  TensorSettings tensors;
  PlanSettings plans;
  bool verify = false, quiet = false, profile_only = false, partial = false,
       list_primitives = false, version = false, compare = false;
};

enum Exit { kOk = 0, kVerifyFailed = 1, kBadInput = 2 };

Family family_of(const std::string& text) {
  std::string all;
  for (int f = 0; f < kFamilyCount; ++f) {
    const auto family = static_cast<Family>(f);
    if (name(family) == text) return family;
    all += fmt::format("{}{}", f == 0 ? "" : ", ", name(family));
  }
  throw Error(fmt::format("'{}' is no family of primitives: use {}", text, all));
}

/// The primitives and layer implementations that --exclude names, by a name or a pattern.
std::vector<std::string> excluded_by(const std::string& pattern) {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (fnmatch(pattern.c_str(), std::string(name).c_str(), 0) == 0) names.emplace_back(name);
  };
  for (const Primitive* p : primitives()) add(p->name);
  for (const LayerImpl* impl : layer_impls()) add(impl->name);
  if (names.empty()) {
    throw Error(fmt::format(
        "--exclude {}: no such primitive or layer implementation; --list-primitives names the "
        "primitives, a report's plan the others",
        pattern));
  }
  return names;
}

Filter filter_of(const Settings& settings) {
  Filter filter;
  if (std::isnan(settings.max_error)) throw Error("--max-error nan: give a number, such as 1e-5");
  filter.max_error = settings.max_error;
  for (const std::string& f : settings.families) filter.families.push_back(family_of(f));
  for (const std::string& f : settings.exclude_families)
    filter.exclude_families.push_back(family_of(f));
  for (const std::string& pattern : settings.exclude) {
    for (std::string& name : excluded_by(pattern)) filter.exclude.push_back(std::move(name));
  }
  for (const std::string& f : settings.force) filter.force.push_back(parse_force(f));
  if (!settings.max_workspace.empty())
    filter.max_workspace = parse_bytes("--max-workspace", settings.max_workspace);
  if (!settings.max_memory.empty())
    filter.max_memory = parse_bytes("--max-memory", settings.max_memory);
  return filter;
}

void list_primitives() {
  fmt::print("{:<36} {:<10} {:<7} {}\n", "name", "family", "in", "out");
  for (const Primitive* p : primitives())
    fmt::print("{:<36} {:<10} {:<7} {}\n", p->name, name(p->family), name(p->in), name(p->out));
}

/// The plan's memory was computed from sizes measured earlier; this is what it really takes.
void check_memory(const Executable& executable, const Filter& filter) {
  const std::size_t bytes = executable.arena_bytes() + executable.packed_bytes();
  if (bytes > filter.max_memory) {
    throw Error(
        fmt::format("--max-memory {}: the plan takes {} bytes, more than its cost file says; "
                    "measure again into "
                    "another file with --costs",
                    filter.max_memory, bytes));
  }
}

void remark_on(int threads) {
  if (threads > available_cpus()) {
    fmt::print(stderr, "remark: {} threads on {} processors: {}\n", threads, available_cpus(),
               threads > 2 * available_cpus() ? "threads wait for each other, expect it many times "
                                                "slower than with as many as there are"
                                              : "expect no gain");
  }
}

/// The fastest plan on measured costs; none if profiling is all that is asked for.
std::optional<Plan> selected_plan(const Settings& settings, const Filter& filter,
                                  const std::string& costs, const Network& net, Report& report) {
  const int threads = settings.threads > 0 ? settings.threads : available_cpus();
  const bool here = settings.target.empty();
  if (here) remark_on(threads);
  CostStore store(costs, here ? Machine::here(threads)
                              : find_machine(read_costs(costs), settings.target, settings.threads));
  report.costs_file = store.path();
  ProgressBar bar;
  if (here) {
    report.profile =
        profile(net, filter, store,
                settings.quiet ? std::function<void(const Progress&)>() : std::ref(bar));
  }
  if (settings.profile_only) {
    fmt::print("{} costs measured in {:.1f} s, {} reused, in {}\n", report.profile.measured,
               report.profile.seconds, report.profile.reused, store.path());
    return std::nullopt;
  }
  report.considered = count_candidates(net, filter);
  if (filter.max_memory != kNoLimit && !settings.quiet)
    fmt::print(stderr, "looking for the fastest plan within {}\n", settings.max_memory);
  Plan plan = select(net, filter, costs_of(store), store.machine(), true, sizes_of(store));
  if (!settings.explain.empty()) {
    report.explanations =
        explain(net, filter, costs_of(store), sizes_of(store), plan, settings.explain);
  }
  return plan;
}

int run(const Settings& settings) {
  const Filter filter = filter_of(settings);
  ImportOptions import;
  import.batch = settings.batch;
  import.weights = settings.weights;
  for (const std::string& text : settings.shapes) {
    const auto [input, shape] = parse_input_shape(text);
    if (!import.shapes.emplace(input, shape).second) {
      throw Error(
          fmt::format("--input-shape gives the shape of \"{}\" twice; give it once", input));
    }
  }
  if (settings.batch > 0 && !settings.shapes.empty()) {
    throw Error("--batch and --input-shape exclude each other; put the batch into the shape");
  }
  if (settings.profile_only && (settings.verify || !settings.json.empty())) {
    throw Error(
        "--profile-only stops before there is anything to verify or report; leave out --verify and "
        "--json");
  }
  if (!settings.target.empty() && (settings.verify || settings.profile_only)) {
    throw Error(
        "--target plans for another machine, whose primitives are neither measured nor run here; "
        "leave out --verify and --profile-only");
  }
  if (settings.compare && (settings.partial || settings.profile_only || !settings.target.empty())) {
    throw Error(
        "--compare runs the network here: leave out --partial, --profile-only and --target");
  }
  if (!settings.cpus.empty()) pin(parse_cpus(settings.cpus));
  Report report;
  Laps laps;
  Network original = import_network(settings.net, import);
  report.start.import = laps.next();
  random_weights(original, settings.seed);
  for (const std::string& remark : original.remarks)
    fmt::print(stderr, "remark: {}\n", printable(remark));
  Network net = original;
  report.net = &net;
  laps.next();
  report.passes = optimise(net);
  report.start.passes = laps.next();

  const auto cut = uncomputable(net);
  if (!cut.empty() && (!settings.partial || settings.verify)) {
    throw Error(fmt::format(
        "{}: nothing here computes layer {}{}; {}", settings.net, cut[0],
        cut.size() > 1 ? fmt::format(" and {} more", cut.size() - 1) : "",
        settings.partial
            ? "a network that cannot be run whole cannot be verified: leave --verify out"
            : "with --partial the rest is selected for, without running it"));
  }

  check(net, filter);
  const bool loads = !settings.plans.load.empty();
  const std::string costs =
      settings.costs.empty() && !loads ? CostStore::default_path() : settings.costs;
  const std::vector<std::string> used = {settings.net, settings.weights, costs,
                                         settings.plans.load};
  if (!settings.json.empty()) check_writable("--json", settings.json, used);
  check_plan_outputs(settings.plans, used);
  const TensorIo tensors(settings.tensors, net, used);
  const bool here = settings.target.empty();
  std::optional<Plan> plan;
  laps.next();
  if (loads) {
    plan = loaded_plan(settings.plans, net, settings.threads);
    report.plan_file = settings.plans.load;
    remark_on(plan->machine.threads);
  } else {
    plan = selected_plan(settings, filter, costs, net, report);
  }
  if (!plan) return kOk;
  report.start.plan = laps.next() - (report.profile.measured > 0 ? report.profile.seconds : 0);
  report.plan = &*plan;
  write_plan(settings.plans, net, *plan);

  std::optional<Executable> executable;
  std::string classes;
  if (here && plan->cut.empty()) {
    laps.next();
    executable.emplace(net, *plan);
    report.executable = &*executable;
    check_memory(*executable, filter);
    Executable::Context context = executable->make_context();
    report.start.prepare = laps.next();
    const auto inputs = tensors.fill(*executable, context, settings.seed);
    if (settings.runs > 0)
      report.times = measure_runs(*executable, context, settings.runs, plan->machine);
    if (settings.runs == 0 && (settings.verify || settings.tensors.any())) executable->run(context);
    if (settings.verify)
      report.verification = verify(original, inputs, *executable, context, available_cpus());
    tensors.write(*executable, context);
    classes = tensors.classes(*executable, context);
  }
  if (settings.compare) {
    const CostStore store(costs, plan->machine);
    ProgressBar runs("comparing", "turns");
    report.comparison = compare(
        net, filter, costs_of(store), sizes_of(store), *plan, std::max(3, settings.runs / 4),
        settings.quiet ? std::function<void(const Progress&)>() : std::ref(runs));
  }
  fmt::print("{}{}", table(report), classes.empty() ? "" : "\n" + classes);
  if (!settings.json.empty()) write_file(settings.json, json(report));
  return report.verification && !report.verification->passed ? kVerifyFailed : kOk;
}

/// One sentence on standard error; never throws, not even if that is closed.
int refuse(const std::string& sentence) {
  std::fputs(("selector: " + printable(sentence) + "\n").c_str(), stderr);
  return kBadInput;
}

}  // namespace
}  // namespace convprim

int main(int argc, char** argv) {
  using namespace convprim;
  Settings settings;
  CLI::App app{
      "Selects the fastest implementation of every layer of a network for this machine, "
      "conversions between data layouts\n"
      "included, and runs the result. Costs are measured once and kept.\n"
      "Exit status: 0 success, 1 verification failed, 2 bad input."};
  app.name("selector");
  app.add_option("--net", settings.net,
                 "network file: Caffe text (.prototxt) or ONNX, told by content");
  app.add_option("--weights", settings.weights,
                 "weights (.caffemodel); without them, reproducible random ones");
  app.add_option("--threads", settings.threads, "threads to run with; default: all processors")
      ->check(CLI::Range(1, 1024));
  app.add_option("--cpus", settings.cpus, "run on these processors only: 0-3, or 0,2,4-5");
  app.add_option("--batch", settings.batch, "images in a batch, instead of the file's")
      ->check(CLI::Range(1, 65536));
  app.add_option("--input-shape", settings.shapes,
                 "shape of an input, instead of the file's: data=1,3,224,224; repeatable");
  app.add_option(
      "--costs", settings.costs,
      "file that keeps the measured costs; default: convprim/costs.db in the user's cache folder");
  app.add_option("--target", settings.target,
                 "plan for another machine, from its costs in the cost file: its name in "
                 "`selector costs list`, or the start of it; nothing is measured or run");
  app.add_option("--families", settings.families,
                 "only primitives of these families, comma-separated")
      ->delimiter(',');
  app.add_option("--exclude-family", settings.exclude_families, "no primitives of these families")
      ->delimiter(',');
  app.add_option(
         "--exclude", settings.exclude,
         "not the primitives or layer implementations of these names; '*-fixed24': all whose "
         "weights are kept in 24 bits")
      ->delimiter(',');
  app.add_option(
         "--max-error", settings.max_error,
         "leave out implementations that may be off by more than this, relative to an "
         "output's sum of |x*w|; with 1e-4 fully connected layers may keep their weights in 20 "
         "bits")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  app.add_option("--force", settings.force,
                 "LAYER=PRIMITIVE: this layer by this implementation, named as in the report; "
                 "repeatable");
  app.add_option("--explain", settings.explain,
                 "also print what each implementation of this layer would cost, by itself and for "
                 "the network; repeatable");
  app.add_option("--max-workspace", settings.max_workspace,
                 "leave out implementations that need more scratch memory than so many bytes; K, M "
                 "and G are understood");
  app.add_option(
      "--max-memory", settings.max_memory,
      "the fastest plan whose arena and packed weights together take no more than so many "
      "bytes");
  app.add_option("--runs", settings.runs, "forward passes to time, 20 unless given; 0: none")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--seed", settings.seed, "seed of random weights and inputs");
  add_tensor_options(app, settings.tensors);
  app.add_option("--json", settings.json, "also write the report as JSON to this file");
  app.add_flag("--verify", settings.verify,
               "compare every output with the double-precision reference");
  app.add_flag("--compare", settings.compare,
               "also run the strategies that the plan is compared with, and print speed-ups over "
               "sum2d");
  app.add_flag("--profile-only", settings.profile_only, "measure what is missing and stop");
  app.add_flag("--partial", settings.partial,
               "select for what can be computed of a network that cannot be run whole");
  app.add_flag("--quiet", settings.quiet, "no progress on standard error");
  app.add_flag("--list-primitives", settings.list_primitives,
               "list all primitives: name, family, layouts");
  app.add_flag("--version", settings.version,
               "versions of this program, of what it is linked with, and of the CPU");
  add_plan_options(app, settings.plans);
  add_costs_command(app);
  try {
    app.parse(argc, argv);
    int status = kOk;
    if (!app.get_subcommands().empty()) {
      // The subcommand has done its work.
    } else if (settings.version) {
      fmt::print("{}", versions());
    } else if (settings.list_primitives) {
      list_primitives();
    } else if (settings.net.empty()) {
      throw Error("no network: name a file with --net, or see --help");
    } else {
      status = run(settings);
    }
    if (std::fflush(stdout) != 0) throw Error("standard output cannot be written");
    return status;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    return refuse(fmt::format("{}; see --help", e.what()));
  } catch (const Error& e) {
    return refuse(e.what());
  } catch (const std::bad_alloc&) {
    return refuse("not enough memory for this network; a smaller --batch needs less");
  } catch (const std::system_error& e) {
    return refuse(fmt::format("standard output cannot be written ({})", e.what()));
  }
}
