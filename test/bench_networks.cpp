// One network, its forward passes timed at a caller's pace: the harness for comparisons with other
// libraries, whose passes are interleaved with these by the caller.
//
//   bench_networks BASE [--threads N] [--serve] [--reps N] [--costs FILE] [--exclude-family F]
//                  [--max-error E]
//
// reads BASE.prototxt, BASE.caffemodel, BASE.input.bin (float32, NCHW) and, where it is there,
// BASE.ref.bin (the reference output, float32). With --serve it prints READY once all is loaded,
// selected and warm; then, for each line of standard input, it runs one pass and answers with its
// milliseconds ("r") or with "ok" ("w", a pass that does not count), until "q". Ends with
//
//   RESULT peer=convprim net=NAME threads=N median_ms=.. min_ms=.. conv_ms=.. reldiff=..
//
// where conv_ms is the convolutions' share as the plan predicts it. Costs that are missing from the
// cost file are measured first.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "convprim/error.hpp"
#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "convprim/select.hpp"
#include "selector/passes.hpp"

namespace convprim {
namespace {

struct Settings {
  std::string base, costs;
  int threads = 1, reps = 15;
  bool serve = false;
  std::vector<std::string> exclude_families;
  double max_error = kDefaultMaxError;
};

std::vector<float> read_floats(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  std::vector<float> values(static_cast<std::size_t>(file.tellg()) / sizeof(float));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

/// max |output - reference| / max |reference|; NaN without a reference.
double relative_difference(const float* output, const std::vector<float>& reference) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(output[i]) - reference[i]));
    largest = std::max(largest, std::abs(static_cast<double>(reference[i])));
  }
  return reference.empty() ? std::nan("") : difference / largest;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

/// Milliseconds of one pass.
double pass(const Executable& executable, Executable::Context& context) {
  const auto start = std::chrono::steady_clock::now();
  executable.run(context);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

std::vector<double> serve(const Executable& executable, Executable::Context& context) {
  std::vector<double> times;
  std::cout << "READY" << std::endl;
  for (std::string line; std::getline(std::cin, line) && line != "q";) {
    const double ms = pass(executable, context);
    if (line == "w") {
      std::cout << "ok" << std::endl;
    } else {
      times.push_back(ms);
      std::cout << fmt::format("{:.4f}", ms) << std::endl;
    }
  }
  return times;
}

int run(const Settings& settings) {
  ImportOptions import;
  import.weights = settings.base + ".caffemodel";
  Network net = import_network(settings.base + ".prototxt", import);
  optimise(net);
  Filter filter;
  for (int f = 0; f < kFamilyCount; ++f) {
    const auto family = static_cast<Family>(f);
    if (std::count(settings.exclude_families.begin(), settings.exclude_families.end(),
                   name(family)) > 0) {
      filter.exclude_families.push_back(family);
    }
  }
  if (filter.exclude_families.size() != settings.exclude_families.size()) {
    throw Error("--exclude-family: no such family; `selector --list-primitives` names them");
  }
  CostStore store(settings.costs.empty() ? CostStore::default_path() : settings.costs,
                  Machine::here(settings.threads));
  filter.max_error = settings.max_error;
  const ProfileReport profiled = profile(net, filter, store, {});
  if (profiled.measured > 0) fmt::print(stderr, "{} costs measured\n", profiled.measured);
  const Plan plan = select(net, filter, costs_of(store), store.machine(), false, sizes_of(store));
  const Executable executable(net, plan);
  Executable::Context context = executable.make_context();

  const std::vector<float> input = read_floats(settings.base + ".input.bin");
  if (static_cast<Index>(input.size()) != executable.input_shape(0).count()) {
    throw Error(fmt::format("{}.input.bin holds {} values, the network takes {}", settings.base,
                            input.size(), executable.input_shape(0).count()));
  }
  std::copy(input.begin(), input.end(), context.input());
  const std::vector<float> reference = read_floats(settings.base + ".ref.bin");
  if (!reference.empty() &&
      static_cast<Index>(reference.size()) != executable.output_shape(0).count()) {
    throw Error(fmt::format("{}.ref.bin does not have the output's size", settings.base));
  }
  for (int i = 0; i < 3; ++i) executable.run(context);
  std::vector<double> times;
  if (settings.serve) times = serve(executable, context);
  for (int i = 0; !settings.serve && i < settings.reps; ++i) {
    times.push_back(pass(executable, context));
  }
  if (times.empty()) times.push_back(pass(executable, context));
  double convolutions = 0;
  for (const PlanLayer& layer : plan.layers) {
    if (layer.kind == "conv") convolutions += 1e3 * layer.seconds;
  }
  fmt::print(
      "RESULT peer=convprim net={} threads={} median_ms={:.3f} min_ms={:.3f} conv_ms={:.3f} "
      "reldiff={:.2e}\n",
      std::filesystem::path(settings.base).filename().string(), settings.threads, median(times),
      *std::min_element(times.begin(), times.end()), convolutions,
      relative_difference(context.output(), reference));
  return 0;
}

}  // namespace
}  // namespace convprim

int main(int argc, char** argv) {
  using namespace convprim;
  Settings settings;
  CLI::App app{"Times the forward passes of one network at the pace of a caller."};
  app.add_option("base", settings.base, "path of the network's files without their endings")
      ->required();
  app.add_option("--threads", settings.threads)->check(CLI::Range(1, 1024));
  app.add_option("--reps", settings.reps, "passes without --serve")->check(CLI::Range(1, 1000000));
  app.add_option("--costs", settings.costs, "cost file; default: the user's");
  app.add_option("--exclude-family", settings.exclude_families)->delimiter(',');
  app.add_option("--max-error", settings.max_error, "as for selector");
  app.add_flag("--serve", settings.serve, "one pass for each line of standard input");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(settings);
  } catch (const Error& e) {
    fmt::print(stderr, "bench_networks: {}\n", e.what());
    return 2;
  }
}
