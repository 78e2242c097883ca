// selector: from a network file to the fastest plan for this machine, and its run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "apps/progress.hpp"
#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "convprim/select.hpp"
#include "selector/report.hpp"
#include "selector/versions.hpp"

namespace convprim {
namespace {

struct Settings {
  std::string net, weights, costs, json;
  int threads = 0;
  Index batch = 0;
  std::vector<std::string> shapes, families, exclude_families, exclude;
  int runs = 20;
  double max_error = 0;
  std::uint64_t seed = 1;
  bool verify = false, quiet = false, profile_only = false, partial = false,
       list_primitives = false, version = false;
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

Filter filter_of(const Settings& settings) {
  Filter filter;
  if (settings.max_error > 0) filter.max_error = settings.max_error;
  for (const std::string& f : settings.families) filter.families.push_back(family_of(f));
  for (const std::string& f : settings.exclude_families)
    filter.exclude_families.push_back(family_of(f));
  for (const std::string& p : settings.exclude) {
    if (find_primitive(p) == nullptr)
      throw Error(
          fmt::format("--exclude {}: no such primitive; --list-primitives names them all", p));
    filter.exclude.push_back(p);
  }
  return filter;
}

/// Writes a file whole or not at all.
void write_file(const std::string& path, const std::string& content) {
  const std::string partial = path + ".part";
  std::ofstream file(partial, std::ios::binary);
  file << content;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(partial, path, error);
  if (!file || error) {
    std::filesystem::remove(partial, error);
    throw Error(fmt::format("{}: cannot be written; choose another file", path));
  }
}

void list_primitives() {
  fmt::print("{:<36} {:<10} {:<7} {}\n", "name", "family", "in", "out");
  for (const Primitive* p : primitives())
    fmt::print("{:<36} {:<10} {:<7} {}\n", p->name, name(p->family), name(p->in), name(p->out));
}

int run(const Settings& settings) {
  const Filter filter = filter_of(settings);
  ImportOptions import;
  import.batch = settings.batch;
  import.weights = settings.weights;
  for (const std::string& text : settings.shapes) import.shapes.insert(parse_input_shape(text));
  Network original = import_network(settings.net, import);
  random_weights(original, settings.seed);
  for (const std::string& remark : original.remarks) fmt::print(stderr, "remark: {}\n", remark);
  Network net = original;
  Report report;
  report.net = &net;
  report.passes = optimise(net);

  const auto cut = uncomputable(net);
  if (!cut.empty() && (!settings.partial || settings.verify)) {
    throw Error(fmt::format(
        "{}: nothing here computes layer {}{}; {}", settings.net, cut[0],
        cut.size() > 1 ? fmt::format(" and {} more", cut.size() - 1) : "",
        settings.partial
            ? "a network that cannot be run whole cannot be verified: leave --verify out"
            : "with --partial the rest is selected for, without running it"));
  }

  const int threads = settings.threads > 0 ? settings.threads : available_cpus();
  if (threads > available_cpus()) {
    fmt::print(stderr, "remark: {} threads on {} processors: expect no gain\n", threads,
               available_cpus());
  }
  CostStore store(settings.costs.empty() ? CostStore::default_path() : settings.costs,
                  Machine::here(threads));
  report.costs_file = store.path();
  ProgressBar bar;
  report.profile = profile(net, filter, store,
                           settings.quiet ? std::function<void(const Progress&)>() : std::ref(bar));
  if (settings.profile_only) {
    fmt::print("{} costs measured in {:.1f} s, {} reused, in {}\n", report.profile.measured,
               report.profile.seconds, report.profile.reused, store.path());
    return kOk;
  }
  report.considered = count_candidates(net, filter);
  const Plan plan = select(net, filter, costs_of(store), store.machine());
  report.plan = &plan;

  std::optional<Executable> executable;
  if (plan.cut.empty()) {
    executable.emplace(net, plan);
    report.executable = &*executable;
    Executable::Context context = executable->make_context();
    const auto inputs = fill_inputs(*executable, context, settings.seed);
    if (settings.runs > 0) report.times = measure_runs(*executable, context, settings.runs);
    if (settings.verify) {
      if (settings.runs == 0) executable->run(context);
      report.verification = verify(original, inputs, *executable, context, available_cpus());
    }
  }
  fmt::print("{}", table(report));
  if (!settings.json.empty()) write_file(settings.json, json(report));
  return report.verification && !report.verification->passed ? kVerifyFailed : kOk;
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
  app.add_option("--batch", settings.batch, "images in a batch, instead of the file's")
      ->check(CLI::Range(1, 65536));
  app.add_option("--input-shape", settings.shapes,
                 "shape of an input, instead of the file's: data=1,3,224,224; repeatable");
  app.add_option(
      "--costs", settings.costs,
      "file that keeps the measured costs; default: convprim/costs.db in the user's cache folder");
  app.add_option("--families", settings.families,
                 "only primitives of these families, comma-separated")
      ->delimiter(',');
  app.add_option("--exclude-family", settings.exclude_families, "no primitives of these families")
      ->delimiter(',');
  app.add_option("--exclude", settings.exclude, "not these primitives")->delimiter(',');
  app.add_option("--max-error", settings.max_error,
                 "leave out primitives that may be off by more than this, relative to an output's "
                 "sum of |x*w|")
      ->check(CLI::PositiveNumber);
  app.add_option("--runs", settings.runs, "forward passes to time; 0: none")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--seed", settings.seed, "seed of random weights and inputs");
  app.add_option("--json", settings.json, "also write the report as JSON to this file");
  app.add_flag("--verify", settings.verify,
               "compare every output with the double-precision reference");
  app.add_flag("--profile-only", settings.profile_only, "measure what is missing and stop");
  app.add_flag("--partial", settings.partial,
               "select for what can be computed of a network that cannot be run whole");
  app.add_flag("--quiet", settings.quiet, "no progress on standard error");
  app.add_flag("--list-primitives", settings.list_primitives,
               "list all primitives: name, family, layouts");
  app.add_flag("--version", settings.version,
               "versions of this program, of what it is linked with, and of the CPU");
  try {
    app.parse(argc, argv);
    if (settings.version) {
      fmt::print("{}", versions());
      return kOk;
    }
    if (settings.list_primitives) {
      list_primitives();
      return kOk;
    }
    if (settings.net.empty()) throw Error("no network: name a file with --net, or see --help");
    return run(settings);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    fmt::print(stderr, "selector: {}; see --help\n", e.what());
    return kBadInput;
  } catch (const Error& e) {
    fmt::print(stderr, "selector: {}\n", e.what());
    return kBadInput;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "selector: not enough memory\n");
    return kBadInput;
  }
}
