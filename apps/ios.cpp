// ios: schedules the operators of a network, compares schedules and runs them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <new>
#include <system_error>

#include "apps/output.hpp"
#include "convprim/cpu.hpp"
#include "convprim/import.hpp"
#include "gpu/cuda.hpp"
#include "gpu/nets.hpp"
#include "gpu/report.hpp"

namespace convprim::ios {
namespace {

enum Exit { kOk = 0, kDiffer = 1, kBadInput = 2, kNoDevice = 3 };

struct Settings {
  std::string net, weights, device = "cpu", schedule = "both", use, json, report, trace, costs,
                            stage_costs, mode = "graph";
  std::vector<std::string> shapes;
  int threads = 0, runs = 10;
  Index batch = 0;
  std::uint64_t seed = 1;
  Pruning pruning;
  bool only_run = false, tf32 = false, quiet = false, version = false;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(fmt::format("{}: cannot be read; check its name", path));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Passes costs on and says now and then how many were asked for.
class ProgressCosts final : public StageCosts {
 public:
  ProgressCosts(StageCosts& inner, bool quiet) : inner_(inner), quiet_(quiet) {}
  std::string origin() const override { return inner_.origin(); }
  std::string device() const override { return inner_.device(); }
  double seconds(const OperatorGraph& graph, const StagePlan& stage) override {
    const double seconds = inner_.seconds(graph, stage);
    ++stages_;
    if (!quiet_ && seconds_now() - shown_ > 10) {
      fmt::print(stderr, "ios: {} stages priced ({})\n", stages_, origin());
      shown_ = seconds_now();
    }
    return seconds;
  }

 private:
  StageCosts& inner_;
  bool quiet_;
  std::size_t stages_ = 0;
  double shown_ = seconds_now();
};

Network load(const Settings& settings) {
  constexpr std::string_view kBuiltIn = "built-in:";
  Network net;
  if (settings.net.rfind(kBuiltIn, 0) == 0) {
    if (!settings.weights.empty() || !settings.shapes.empty()) {
      throw Error("--weights and --input-shape are for networks from files; leave them out");
    }
    net = built_in(std::string_view(settings.net).substr(kBuiltIn.size()),
                   std::max<Index>(1, settings.batch));
  } else {
    ImportOptions import;
    import.batch = settings.batch;
    import.weights = settings.weights;
    for (const std::string& text : settings.shapes) {
      if (!import.shapes.insert(parse_input_shape(text)).second)
        throw Error("--input-shape gives one input's shape twice; give it once");
    }
    if (settings.batch > 0 && !settings.shapes.empty()) {
      throw Error("--batch and --input-shape exclude each other; put the batch into the shape");
    }
    net = import_network(settings.net, import);
  }
  for (const std::string& remark : net.remarks) fmt::print(stderr, "remark: {}\n", remark);
  random_weights(net, settings.seed);
  simplify(net);
  return net;
}

std::vector<Candidate> candidates(const Settings& settings, const OperatorGraph& graph,
                                  StageCosts& costs) {
  std::vector<Candidate> all;
  for (Kind kind : kKinds) {
    const bool chosen = settings.use.empty() && name(kind) == settings.schedule;
    if (settings.only_run && kind != Kind::sequential && !chosen) continue;
    Candidate& c = all.emplace_back();
    const double start = seconds_now();
    c.schedule = make_schedule(kind, graph, settings.pruning, costs, &c.blocks);
    c.search_seconds = seconds_now() - start;
  }
  if (!settings.use.empty()) {
    Candidate& c = all.emplace_back();
    c.schedule = schedule_from_json(graph, read_file(settings.use), settings.use);
    c.from_file = true;
    // What it costs here: the file's costs may be of another batch or device.
    c.schedule.seconds = 0;
    for (StagePlan& stage : c.schedule.stages) {
      stage.seconds = costs.seconds(graph, stage);
      c.schedule.seconds += stage.seconds;
    }
  }
  return all;
}

/// The schedule that --json, --trace and --run are about.
std::size_t chosen(const Settings& settings, const std::vector<Candidate>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Candidate& c = all[i];
    if (settings.use.empty() ? name(c.schedule.kind) == settings.schedule : c.from_file) return i;
  }
  return 0;
}

int run(const Settings& settings) {
  if (settings.device == "cuda") require_cuda();
  const int threads = settings.threads > 0 ? settings.threads : available_cpus();
  const std::string cost_file = settings.costs.empty() && settings.device != "simulated"
                                    ? CostStore::default_path()
                                    : settings.costs;
  for (const auto& [option, path] : {std::pair{"--json", settings.json},
                                     {"--report", settings.report},
                                     {"--trace", settings.trace}}) {
    if (!path.empty()) {
      check_writable(
          option, path,
          {settings.net, settings.weights, settings.use, settings.stage_costs, cost_file});
    }
  }
  BlockLimits limits;
  limits.pruning = settings.pruning;
  const OperatorGraph graph = operator_graph(load(settings), limits);

  std::unique_ptr<Engine> engine;
  if (settings.device == "cuda") {
    engine = cuda_engine(graph, {settings.mode == "graph", settings.tf32, cost_file});
  } else if (settings.device == "cpu") {
    engine = cpu_engine(graph, threads);
  }
  SimulatedCosts simulated;
  std::optional<TableCosts> table_costs;
  std::optional<CachedCosts> cached;
  StageCosts* source = &simulated;
  if (!settings.stage_costs.empty()) {
    source = &table_costs.emplace(read_file(settings.stage_costs), settings.stage_costs);
  } else if (engine) {
    source = &cached.emplace(engine->costs(), cost_file, engine->device_key(), engine->version(),
                             settings.device == "cpu" ? threads : 0);
  }
  ProgressCosts costs(*source, settings.quiet);
  std::vector<Candidate> all = candidates(settings, graph, costs);

  bool agree = true;
  if (engine && settings.runs > 0) {
    for (Candidate& c : all) c.run = engine->prepare(c.schedule.stages);
    const auto reference = engine->prepare(all[0].schedule.stages);
    measure(graph, *reference, all, settings.runs, settings.seed);
    for (const Candidate& c : all) agree = agree && c.outputs->passed;
  }

  fmt::print("{}: {} operators in {} blocks; {}, costs {}\n",
             graph.net.name.empty() ? settings.net : graph.net.name, graph.operators.size(),
             graph.blocks.size(), costs.device(), costs.origin());
  fmt::print("{}", table(graph, all, costs.origin()));
  if (cached && !settings.quiet) {
    fmt::print("{} stage costs measured, {} found in {}\n", cached->taken(), cached->reused(),
               cost_file);
  }
  const Candidate& best = all[chosen(settings, all)];
  const Provenance provenance{settings.net, costs.device(), costs.origin(),
                              settings.device == "cuda"
                                  ? fmt::format("{}, {}", version(), cuda_version())
                                  : std::string(version()),
                              settings.pruning};
  if (!settings.json.empty()) write_file(settings.json, to_json(graph, best.schedule, provenance));
  if (!settings.report.empty()) write_file(settings.report, report_json(graph, all, provenance));
  if (!settings.trace.empty()) {
    const std::string title =
        fmt::format("{} {}, {}", graph.net.name, name(best.schedule.kind), costs.device());
    const Program program = compile(graph, best.schedule.stages);
    const auto times = engine ? engine->prepare(best.schedule.stages)->run_timed()
                              : simulated_times(graph, best.schedule, program, simulated);
    write_file(settings.trace, trace_json(graph, program, times, title));
  }
  return agree ? kOk : kDiffer;
}

/// One sentence on standard error; never throws, not even if that is closed.
int refuse(const std::string& sentence, int status) {
  std::fputs(("ios: " + sentence + "\n").c_str(), stderr);
  return status;
}

void add_options(CLI::App& app, Settings& settings) {
  app.add_option("--net", settings.net,
                 "network: Caffe text format or ONNX; or built-in:nasnet, built-in:nasnet-mobile, "
                 "built-in:randwire, built-in:randwire:SEED, built-in:squeezenet-bypass");
  app.add_option("--device", settings.device,
                 "cpu: measure and run on this CPU; cuda: on the first GPU, with cuDNN; simulated: "
                 "a model of a GPU, nothing runs")
      ->check(CLI::IsMember({"cpu", "cuda", "simulated"}));
  app.add_option("--schedule", settings.schedule,
                 "the schedule that --json, --trace and --run are about; both unless given")
      ->check(CLI::IsMember({"sequential", "greedy", "merge", "parallel", "both"}));
  app.add_option("--r", settings.pruning.r,
                 "operators in a group at most, 3 unless given; 0: any number")
      ->check(CLI::Range(0, kMaxOperators));
  app.add_option("--s", settings.pruning.s, "groups in a stage at most, 8 unless given; 0: any")
      ->check(CLI::Range(0, kMaxOperators));
  app.add_flag("--legacy-single-root", settings.pruning.legacy_single_root,
               "only groups with one root, as the method's first code had them");
  app.add_option("--batch", settings.batch, "images in a batch, instead of the file's")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--threads", settings.threads, "threads of the CPU; all processors unless given")
      ->check(CLI::Range(1, 4096));
  app.add_option("--input-shape", settings.shapes,
                 "shape of an input, instead of the file's: data=1,3,224,224; repeatable");
  app.add_option("--weights", settings.weights, "trained weights (.caffemodel)");
  app.add_option("--runs", settings.runs, "whole runs of each schedule to time, 10 unless given")
      ->check(CLI::Range(0, 1000000));
  app.add_flag("--run", settings.only_run,
               "run the chosen schedule and the sequential one only, without the others");
  app.add_option("--use", settings.use,
                 "take a schedule from a file that --json wrote, also one for "
                 "another batch");
  app.add_option("--json", settings.json, "write the schedule to this file");
  app.add_option("--report", settings.report, "write the comparison of all schedules to this file");
  app.add_option("--trace", settings.trace,
                 "write a Chrome trace of one run to this file: open it in Perfetto");
  app.add_option("--costs", settings.costs,
                 "file that keeps measured costs; default: convprim/costs.db in the user's cache "
                 "folder");
  app.add_option("--stage-costs", settings.stage_costs,
                 "take the costs of stages from this JSON table instead");
  app.add_option("--mode", settings.mode,
                 "on a GPU: replay a CUDA graph, or launch step by step (eager)")
      ->check(CLI::IsMember({"graph", "eager"}));
  app.add_flag("--tf32", settings.tf32, "on a GPU: let convolutions use TF32");
  app.add_option("--seed", settings.seed, "seed of random weights and inputs");
  app.add_flag("--quiet", settings.quiet, "no progress on standard error");
  app.add_flag("--version", settings.version, "versions of this program and of its GPU back end");
}

}  // namespace
}  // namespace convprim::ios

int main(int argc, char** argv) {
  using namespace convprim;
  using namespace convprim::ios;
  Settings settings;
  CLI::App app{
      "Groups the operators of a network into stages that run beside one another, or merged, by "
      "the dynamic program of\nIOS (Ding et al., 2021), and compares the schedules.\n"
      "Exit status: 0 success, 1 outputs of schedules differ, 2 bad input, 3 no GPU for --device "
      "cuda."};
  app.name("ios");
  add_options(app, settings);
  try {
    app.parse(argc, argv);
    int status = kOk;
    if (settings.version) {
      fmt::print("convprim {}\nGPU back end: {}\n", version(), cuda_version());
    } else if (settings.net.empty()) {
      throw Error("no network: name a file with --net, or see --help");
    } else {
      status = run(settings);
    }
    if (std::fflush(stdout) != 0) throw Error("standard output cannot be written");
    return status;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    return refuse(fmt::format("{}; see --help", e.what()), kBadInput);
  } catch (const NoDevice& e) {
    return refuse(e.what(), kNoDevice);
  } catch (const Error& e) {
    return refuse(e.what(), kBadInput);
  } catch (const std::bad_alloc&) {
    return refuse("not enough memory for this network; a smaller --batch needs less", kBadInput);
  } catch (const std::system_error& e) {
    return refuse(fmt::format("standard output cannot be written ({})", e.what()), kBadInput);
  }
}
