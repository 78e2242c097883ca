// Schedules: blocks, simulated and cached costs, files; the CPU back end runs them all to the same
// outputs.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "convprim/import.hpp"
#include "convprim/reference.hpp"
#include "files.hpp"
#include "gpu/cuda.hpp"
#include "gpu/engine.hpp"
#include "gpu/nets.hpp"
#include "gpu/report.hpp"
#include "gpu/schedule.hpp"
#include "test.hpp"

using namespace convprim;
using namespace convprim::ios;

namespace {

OperatorGraph graph_of(Network net, const BlockLimits& limits = {}) {
  random_weights(net);
  simplify(net);
  return operator_graph(std::move(net), limits);
}

/// Branches with kernels that merge, a pooling, a residual sum and two concatenations.
constexpr const char* kSmall = R"(
name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 12 dim: 12 } } }
layer { name: "stem" type: "Convolution" bottom: "data" top: "stem" convolution_param { num_output: 10 kernel_size: 3 pad: 1 } }
layer { name: "stem/relu" type: "ReLU" bottom: "stem" top: "stem" }
layer { name: "row" type: "Convolution" bottom: "stem" top: "row" convolution_param { num_output: 6 kernel_h: 1 kernel_w: 3 pad_w: 1 } }
layer { name: "row/relu" type: "ReLU" bottom: "row" top: "row" }
layer { name: "column" type: "Convolution" bottom: "stem" top: "column" convolution_param { num_output: 7 kernel_h: 3 kernel_w: 1 pad_h: 1 } }
layer { name: "column/relu" type: "ReLU" bottom: "column" top: "column" }
layer { name: "one" type: "Convolution" bottom: "stem" top: "one" convolution_param { num_output: 5 kernel_size: 1 } }
layer { name: "one/relu" type: "ReLU" bottom: "one" top: "one" }
layer { name: "deep" type: "Convolution" bottom: "one" top: "deep" convolution_param { num_output: 7 kernel_size: 3 pad: 1 } }
layer { name: "sum" type: "Eltwise" bottom: "deep" bottom: "column" top: "sum" }
layer { name: "pool" type: "Pooling" bottom: "stem" top: "pool" pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 } }
layer { name: "inner" type: "Concat" bottom: "row" bottom: "column" top: "inner" }
layer { name: "join" type: "Concat" bottom: "inner" bottom: "sum" bottom: "pool" top: "join" }
layer { name: "fc" type: "InnerProduct" bottom: "join" top: "fc" inner_product_param { num_output: 9 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
)";

OperatorGraph small() { return graph_of(import_network_text(kSmall, "small")); }

}  // namespace

TEST_CASE("Inception v3 is cut at its concatenations, and like blocks are found") {
  const auto graph = graph_of(import_network(test::data("nets/inception_v3.prototxt")));
  int mixed = 0;
  for (const Block& b : graph.blocks) mixed += b.dag.size() > 1 ? 1 : 0;
  CHECK(mixed == 11);
  std::set<int> kinds;
  for (const Block& b : graph.blocks) kinds.insert(b.same_as);
  CHECK(kinds.size() < graph.blocks.size());
  int operators = 0;
  for (const Block& b : graph.blocks) operators += static_cast<int>(b.operators.size());
  CHECK(operators == static_cast<int>(graph.operators.size()));
}

TEST_CASE("blocks of more than 64 operators, or of too long a search, are cut again") {
  const auto nas = graph_of(nasnet(1, 3, 44));
  for (const Block& b : nas.blocks) {
    CHECK(b.dag.size() <= 64);
    CHECK(count(b.dag, {3, 8, false}, 4'000'000));
  }
  BlockLimits limits;
  limits.operators = 5;
  const auto cut = graph_of(import_network(test::data("nets/googlenet.prototxt")), limits);
  for (const Block& b : cut.blocks) CHECK(b.dag.size() <= 5);
  SimulatedCosts costs;
  check(cut, make_schedule(Kind::both, cut, {}, costs));
}

TEST_CASE("searched schedules cost no more than fixed ones; simulated costs add up") {
  for (const char* file : {"inception_v3", "squeezenet_v1.1", "googlenet", "resnet50"}) {
    const auto graph =
        graph_of(import_network(test::data(std::string("nets/") + file + ".prototxt")));
    SimulatedCosts costs;
    CHECK(costs.origin() == "simulated");
    std::map<Kind, double> seconds;
    for (Kind kind : kKinds) {
      const auto schedule = make_schedule(kind, graph, {3, 8, false}, costs);
      check(graph, schedule);
      double sum = 0;
      for (const StagePlan& s : schedule.stages) {
        CHECK(costs.seconds(graph, s) == doctest::Approx(s.seconds));
        sum += s.seconds;
      }
      CHECK(sum == doctest::Approx(schedule.seconds));
      seconds[kind] = schedule.seconds;
    }
    const double slack = 1 + 1e-9;
    CHECK(seconds[Kind::both] <= slack * seconds[Kind::parallel]);
    CHECK(seconds[Kind::both] <= slack * seconds[Kind::merge]);
    CHECK(seconds[Kind::parallel] <= slack * seconds[Kind::sequential]);
    CHECK(seconds[Kind::parallel] <= slack * seconds[Kind::greedy]);
    CHECK(seconds[Kind::merge] <= slack * seconds[Kind::sequential]);
  }
}

TEST_CASE("every schedule on the CPU gives the double reference's outputs") {
  const auto graph = small();
  for (int threads : {1, 2, 3}) {
    const auto engine = cpu_engine(graph, threads);
    SimulatedCosts costs;
    std::vector<Candidate> all;
    for (Kind kind : kKinds) all.push_back({.schedule = make_schedule(kind, graph, {}, costs)});
    // One that merges whatever can be, so that slices are copied, joined and read where they lie.
    Candidate merging{.schedule = make_schedule(Kind::sequential, graph, {}, costs)};
    auto& stages = merging.schedule.stages;
    StagePlan merged;
    merged.strategy = Strategy::merge;
    for (int i = 0; i < static_cast<int>(graph.operators.size()); ++i) {
      const std::string& op = graph.operators[static_cast<std::size_t>(i)].name;
      if (op != "row" && op != "column" && op != "one") continue;
      merged.groups.push_back({i});
      std::erase_if(stages, [&](const StagePlan& s) { return s.groups[0][0] == i; });
    }
    REQUIRE(merged.groups.size() == 3);
    stages.insert(stages.begin() + 1, merged);
    check(graph, merging.schedule);
    all.push_back(std::move(merging));
    for (Candidate& c : all) c.run = engine->prepare(c.schedule.stages);
    const auto reference = engine->prepare(all[0].schedule.stages);
    measure(graph, *reference, all, 2, 11);
    for (const Candidate& c : all) {
      CHECK(c.outputs->passed);
      CHECK(c.seconds.size() == 2);
    }
    // The sequential schedule itself against the textbook.
    std::vector<std::vector<float>> inputs;
    std::vector<float> values(2 * 3 * 12 * 12);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
    inputs.push_back(values);
    const auto expected = evaluate_reference(graph.net, inputs);
    for (Candidate& c : all) {
      c.run->set(c.run->program().inputs[0], values);
      c.run->run();
      const auto got = c.run->values(graph.net.outputs[0]);
      REQUIRE(got.size() == expected[0].size());
      for (std::size_t i = 0; i < got.size(); ++i)
        CHECK(static_cast<double>(got[i]) == doctest::Approx(expected[0][i]).epsilon(1e-4));
      const auto times = c.run->run_timed();
      CHECK(times.size() == c.run->program().steps.size());
    }
  }
}

TEST_CASE("a large first convolution is prepared and run on the CPU") {
  constexpr const char* kFirst = R"(
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 227 dim: 227 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 96 kernel_size: 7 stride: 2 } }
)";
  const auto graph = graph_of(import_network_text(kFirst, "first"));
  const auto engine = cpu_engine(graph, 2);
  const StagePlan stage{Strategy::concurrent, {{0}}};
  CHECK(engine->costs().seconds(graph, stage) > 0);
}

TEST_CASE("costs measured on the CPU are kept by stage, device and threads") {
  const test::TemporaryFolder folder;
  const auto graph = small();
  const auto engine = cpu_engine(graph, 2);
  double first = 0;
  std::size_t stages = 0;
  {
    CachedCosts costs(engine->costs(), folder.file("c.db"), engine->device_key(), engine->version(),
                      2);
    const auto schedule = make_schedule(Kind::both, graph, {}, costs);
    CHECK(schedule.seconds > 0);
    CHECK(costs.taken() > 5);
    stages = costs.taken();
    first = schedule.seconds;
  }
  CachedCosts again(engine->costs(), folder.file("c.db"), engine->device_key(), engine->version(),
                    2);
  CHECK(make_schedule(Kind::both, graph, {}, again).seconds == first);
  CHECK(again.taken() == 0);
  CHECK(again.reused() >= stages);
  CachedCosts other(engine->costs(), folder.file("c.db"), "another device", engine->version(), 2);
  make_schedule(Kind::sequential, graph, {}, other);
  CHECK(other.reused() == 0);
}

TEST_CASE("a table of costs gives what it was made from, and names what it lacks") {
  const auto graph = small();
  SimulatedCosts simulated;
  std::map<std::string, double> stages;
  const auto sequential = make_schedule(Kind::sequential, graph, {}, simulated);
  for (const StagePlan& s : sequential.stages) stages[key(graph, s)] = s.seconds;
  TableCosts table(costs_to_json("a device", stages), "t.json");
  CHECK(table.device() == "a device");
  CHECK(make_schedule(Kind::sequential, graph, {}, table).seconds ==
        doctest::Approx(sequential.seconds));
  CHECK_THROWS_WITH_AS(make_schedule(Kind::greedy, graph, {}, table),
                       doctest::Contains("t.json: has no cost for stage"), Error);
  CHECK_THROWS_WITH_AS(TableCosts("{}", "t.json"), doctest::Contains("t.json"), Error);
  CHECK_THROWS_WITH_AS(
      TableCosts(R"({"schema":"convprim-ios-costs-1","device":"d","stages":{"x":-1}})", "t.json"),
      doctest::Contains("0 or more"), Error);
}

TEST_CASE("schedules survive their file, also for another batch") {
  const auto graph = small();
  SimulatedCosts costs;
  const auto schedule = make_schedule(Kind::both, graph, {}, costs);
  const std::string text = to_json(graph, schedule, {"small", "d", "simulated", "1", {}});
  const auto again = schedule_from_json(graph, text, "s.json");
  REQUIRE(again.stages.size() == schedule.stages.size());
  for (std::size_t i = 0; i < again.stages.size(); ++i) {
    CHECK(again.stages[i].groups == schedule.stages[i].groups);
    CHECK(again.stages[i].strategy == schedule.stages[i].strategy);
  }
  ImportOptions options;
  options.batch = 5;
  const auto larger = graph_of(import_network_text(kSmall, "small", options));
  CHECK(schedule_from_json(larger, text, "s.json").stages.size() == schedule.stages.size());

  auto j = nlohmann::json::parse(text);
  CHECK(j["schema"] == "convprim-ios-1");
  CHECK(j["made_with"]["costs"] == "simulated");
  CHECK(j["batch"] == 2);
  const auto refuse = [&](const nlohmann::json& bad, const char* why) {
    CHECK_THROWS_WITH_AS(schedule_from_json(graph, bad.dump(), "s.json"), doctest::Contains(why),
                         Error);
  };
  auto bad = j;
  bad["stages"].erase(0);
  refuse(bad, "runs before");
  bad = j;
  bad["stages"].push_back(bad["stages"][0]);
  refuse(bad, "runs twice");
  bad = j;
  bad["stages"][0]["groups"][0][0] = "nothing";
  refuse(bad, "which the network has not");
  bad = j;
  bad["schema"] = "other";
  refuse(bad, "no schedule of format");
  CHECK_THROWS_WITH_AS(schedule_from_json(graph, "{", "s.json"), doctest::Contains("s.json"),
                       Error);
}

TEST_CASE("the report says where its numbers come from; the trace has all steps") {
  const auto graph = small();
  SimulatedCosts costs;
  std::vector<Candidate> all;
  for (Kind kind : kKinds) {
    Candidate& c = all.emplace_back();
    c.schedule = make_schedule(kind, graph, {}, costs, &c.blocks);
  }
  const std::string text = table(graph, all, costs.origin());
  CHECK(text.find("simulated") != std::string::npos);
  const auto report = nlohmann::json::parse(
      report_json(graph, all, {"f", costs.device(), costs.origin(), "1", {}}));
  CHECK(report["schedules"].size() == 5);
  CHECK(report["schedules"][4]["made_with"]["costs"] == "simulated");
  const Program program = compile(graph, all[4].schedule.stages);
  const auto times = simulated_times(graph, all[4].schedule, program, costs);
  CHECK(times.size() == program.steps.size());
  const auto trace = nlohmann::json::parse(trace_json(graph, program, times, "title"));
  std::size_t spans = 0;
  for (const auto& e : trace["traceEvents"]) spans += e["ph"] == "X" ? 1 : 0;
  CHECK(spans == program.steps.size() + program.stages.size());
}

TEST_CASE("random wiring depends on the seed only") {
  CHECK(watts_strogatz(32, 4, 0.75, 1) == watts_strogatz(32, 4, 0.75, 1));
  CHECK(watts_strogatz(32, 4, 0.75, 1) != watts_strogatz(32, 4, 0.75, 2));
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    CHECK(watts_strogatz(32, 4, 0.75, seed).size() == 64);
  CHECK(published_stage().size() == 64);
  CHECK_THROWS_AS(watts_strogatz(4, 3, 0.5, 1), Error);
  CHECK_THROWS_AS(built_in("nothing", 1), Error);
  for (const char* name : {"nasnet", "nasnet-mobile", "randwire:3", "squeezenet-bypass"})
    CHECK(built_in(name, 2).layers.size() > 30);
}

TEST_CASE("without a GPU the cuDNN back end says so") {
  const auto graph = small();
  try {
    require_cuda();
    test::skip("there is a GPU");
  } catch (const NoDevice& e) {
    CHECK(std::string(e.what()).find("--device cpu") != std::string::npos);
    CHECK_THROWS_AS(cuda_engine(graph, {}), NoDevice);
  }
}
