// The selector command: what a person types, and what comes back for bad input.
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "files.hpp"
#include "process.hpp"
#include "test.hpp"

using convprim::test::Outcome;
using convprim::test::slurp;
using convprim::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

pid_t start(const std::vector<std::string>& arguments, const std::string& out,
            const std::string& err) {
  return convprim::test::start_program(convprim::test::selector(), arguments, out, err);
}

Outcome run(const TemporaryFolder& folder, const std::vector<std::string>& arguments) {
  return convprim::test::run_program(folder, convprim::test::selector(), arguments);
}

constexpr const char* kTiny = R"(
name: "tiny"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 16 dim: 16 } } }
layer { name: "c1" type: "Convolution" bottom: "data" top: "c1" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" }
layer { name: "p1" type: "Pooling" bottom: "c1" top: "p1" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "c2" type: "Convolution" bottom: "p1" top: "c2" convolution_param { num_output: 24 kernel_size: 3 pad: 1 } }
layer { name: "fc" type: "InnerProduct" bottom: "c2" top: "fc" inner_product_param { num_output: 10 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
)";

/// The rows of a cost file, by key and stage, with their value and the time when each was taken.
std::map<std::string, std::string> rows(const std::string& path) {
  std::map<std::string, std::string> all;
  sqlite3* db = nullptr;
  sqlite3_open(path.c_str(), &db);
  sqlite3_exec(
      db,
      "SELECT kind || ' ' || problem || ' ' || implementation || ' ' || stage, seconds || ' ' || "
      "taken FROM costs",
      [](void* map, int, char** column, char**) {
        (*static_cast<std::map<std::string, std::string>*>(map))[column[0]] = column[1];
        return 0;
      },
      &all, nullptr);
  sqlite3_close(db);
  return all;
}

/// One sentence for people: exit status 2, nothing on standard output, no dump of anything.
void check_refusal(const Outcome& o, const std::vector<std::string>& words) {
  CAPTURE(o.err);
  CHECK(o.status == 2);
  CHECK(o.out.empty());
  CHECK(std::count(o.err.begin(), o.err.end(), '\n') <= 2);
  for (const std::string& word : words) {
    CAPTURE(word);
    CHECK(o.err.find(word) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("a network is profiled, planned, run and verified; again it reuses every cost") {
  const TemporaryFolder folder;
  const std::string net = folder.write("tiny.prototxt", kTiny), costs = folder.file("costs.db"),
                    report = folder.file("g.json");
  const std::vector<std::string> arguments = {"--net", net,        "--threads", "2",   "--costs",
                                              costs,   "--verify", "--json",    report};
  const Outcome first = run(folder, arguments);
  CAPTURE(first.err);
  REQUIRE(first.status == 0);
  CHECK(first.out.find("proven optimal") != std::string::npos);
  CHECK(first.err.find("profiling") != std::string::npos);
  auto j = nlohmann::json::parse(slurp(report));
  CHECK(j["verify"]["passed"] == true);
  CHECK(j["verify"]["max_relative_error"].get<double>() < 1e-4);
  CHECK(j["solver"]["proven_optimal"] == true);
  CHECK(j["considered"]["families"].size() >= 4);
  CHECK(j["considered"]["conversions"].get<int>() > 0);
  CHECK(j["profile"]["measured"].get<int>() > 0);
  CHECK(j["measured_ms"]["runs"] == 20);
  CHECK(j["layers"].size() == 6);
  double sum = 0;
  for (const auto& l : j["layers"]) sum += l["cost_ms"].get<double>();
  for (const auto& c : j["conversions"]) sum += c["cost_ms"].get<double>();
  CHECK(sum == doctest::Approx(j["predicted_ms"].get<double>()));
  for (const char* key : {"schema", "network", "machine", "solver", "layers", "conversions",
                          "predicted_ms", "measured_ms", "strategies", "verify"})
    CHECK(j.contains(key));

  // Costs are known now, unless the two threads have moved apart or together.
  CHECK(j["machine"]["threads"] == 2);
  const auto place = j["machine"]["apart_ns"];
  const Outcome again = run(folder, arguments);
  REQUIRE(again.status == 0);
  j = nlohmann::json::parse(slurp(report));
  if (j["machine"]["apart_ns"] != place || j["profile"]["moves"] != 0) return;
  CHECK(again.err.empty());
  CHECK(j["profile"]["measured"] == 0);
  CHECK(j["profile"]["seconds"].get<double>() < 2);
}

TEST_CASE("the second time all costs are known") {
  const TemporaryFolder folder;
  const std::string net = folder.write("tiny.prototxt", kTiny), report = folder.file("report.json");
  const std::vector<std::string> arguments = {"--net",      net,
                                              "--threads",  "1",
                                              "--costs",    folder.file("costs.db"),
                                              "--families", "direct,winograd,onednn",
                                              "--json",     report};
  REQUIRE(run(folder, arguments).status == 0);
  CHECK(nlohmann::json::parse(slurp(report))["machine"]["apart_ns"].is_null());
  const Outcome again = run(folder, arguments);
  REQUIRE(again.status == 0);
  CHECK(again.err.empty());
  const auto j = nlohmann::json::parse(slurp(report));
  CHECK(j["profile"]["measured"] == 0);
  CHECK(j["profile"]["reused"].get<int>() > 0);
}

TEST_CASE("a limit of memory, and what it costs") {
  const TemporaryFolder folder;
  const std::string report = folder.file("j.json");
  const std::vector<std::string> base = {"--net",      folder.write("tiny.prototxt", kTiny),
                                         "--costs",    folder.file("costs.db"),
                                         "--families", "direct,winograd,fft",
                                         "--json",     report,
                                         "--threads",  "1",
                                         "--quiet",    "--runs",
                                         "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return run(folder, more);
  };
  // The Fourier transform of a tile takes far more than the nine weights.
  const Outcome free = with({"--force", "c2=fft-16x16-chw"});
  REQUIRE(free.status == 0);
  auto j = nlohmann::json::parse(slurp(report));
  const auto bytes = j["memory"]["total_bytes"].get<std::int64_t>();
  CHECK(bytes == j["memory"]["arena_bytes"].get<std::int64_t>() +
                     j["memory"]["packed_bytes"].get<std::int64_t>());
  const std::int64_t limit = bytes * 6 / 10;
  const Outcome limited = with({"--max-memory", std::to_string(limit), "--verify"});
  CAPTURE(limited.err);
  REQUIRE(limited.status == 0);
  CHECK(limited.out.find("limited to") != std::string::npos);
  j = nlohmann::json::parse(slurp(report));
  CHECK(j["verify"]["passed"] == true);
  CHECK(j["memory"]["total_bytes"].get<std::int64_t>() <= limit);
  CHECK(j["memory"]["limit_bytes"] == limit);
  CHECK(j["memory"]["price_ms"].get<double>() >= 0);
  check_refusal(with({"--max-memory", "1K"}), {"--max-memory 1K", "the least found takes"});
  check_refusal(with({"--max-memory", "1Q"}), {"--max-memory 1Q", "512K"});
  check_refusal(
      with({"--force", "c2=winograd-4x4-3x3-chw", "--max-workspace", "1"}),
      {"\"c2\"", "--force c2=winograd-4x4-3x3-chw leaves 1", "--max-workspace 1 leaves 0"});
  check_refusal(with({"--force", "c2"}), {"LAYER=PRIMITIVE"});
  check_refusal(with({"--explain", "nobody"}), {"nobody"});
}

TEST_CASE("strategies are measured, a layer is explained, and time is shared out") {
  const TemporaryFolder folder;
  const std::string report = folder.file("j.json");
  const Outcome o =
      run(folder, {"--net", folder.write("tiny.prototxt", kTiny), "--costs",
                   folder.file("costs.db"), "--families", "direct,winograd,onednn", "--threads",
                   "1", "--compare", "--explain", "c2", "--json", report, "--runs", "12"});
  CAPTURE(o.err);
  REQUIRE(o.status == 0);
  CHECK(o.out.find("strategy, measured") != std::string::npos);
  CHECK(o.out.find("type of layer") != std::string::npos);
  CHECK(o.err.find("comparing") != std::string::npos);
  const auto j = nlohmann::json::parse(slurp(report));
  std::map<std::string, double> bars;
  for (const auto& bar : j["compare"]["bars"]) {
    CHECK(bar["runs"].get<int>() > 0);
    CHECK(bar["min"].get<double>() <= bar["median"].get<double>());
    bars[bar["name"].get<std::string>()] = bar["speed_up"].get<double>();
  }
  for (const char* name : {"sum2d", "best direct", "best winograd", "local-optimal chw", "pbqp"})
    CHECK(bars.contains(name));
  CHECK(bars["sum2d"] == 1);
  CHECK(bars["pbqp"] > 1);
  double predicted = 0, measured = 0, layers = 0;
  for (const auto& type : j["types"]) {
    predicted += type["predicted_ms"].get<double>();
    measured += type["measured_ms"].get<double>();
  }
  for (const auto& l : j["layers"]) layers += l.value("measured_ms", 0.0);
  CHECK(predicted == doctest::Approx(j["predicted_ms"].get<double>()));
  CHECK(measured >= layers * (1 - 1e-9));  // sums in another order
  const auto& rows = j["explain"][0]["rows"];
  CHECK(rows.size() > 100);
  CHECK(rows[0]["chosen"] == true);
  CHECK(rows[0]["network_ms"].get<double>() == doctest::Approx(j["predicted_ms"].get<double>()));
  CHECK(rows[rows.size() - 1]["left_out"].is_string());
}

TEST_CASE("batches of 1, 4 and 16 are planned and verified") {
  const TemporaryFolder folder;
  const std::string net = folder.write("tiny.prototxt", kTiny), report = folder.file("j.json");
  for (const char* batch : {"1", "4", "16"}) {
    CAPTURE(batch);
    const Outcome o = run(folder, {"--net", net, "--costs", folder.file("costs.db"), "--families",
                                   "direct,winograd,onednn", "--threads", "1", "--quiet", "--batch",
                                   batch, "--verify", "--json", report});
    CAPTURE(o.err);
    REQUIRE(o.status == 0);
    const auto j = nlohmann::json::parse(slurp(report));
    CHECK(j["images"] == std::stoi(batch));
    CHECK(j["verify"]["passed"] == true);
    const std::string problem = j["layers"][1]["problem"];
    CHECK(problem.find("mb" + std::string(batch) + "ic3") != std::string::npos);
    CHECK((o.out.find("ms an image") != std::string::npos) == (std::string(batch) != "1"));
  }
}

TEST_CASE("two at once on one cost file take each cost once") {
  const TemporaryFolder folder;
  const std::string net = folder.write("tiny.prototxt", kTiny), costs = folder.file("costs.db");
  std::map<pid_t, std::string> errors;
  for (const char* name : {"1", "2"}) {
    const std::string err = folder.file(std::string("err") + name);
    errors[start({"--net", net, "--costs", costs, "--threads", "1", "--runs", "1", "--families",
                  "direct,winograd,im2", "--json", folder.file(std::string("j") + name)},
                 folder.file(std::string("out") + name), err)] = err;
  }
  for (const auto& [child, err] : errors) {
    int status = 0;
    waitpid(child, &status, 0);
    CAPTURE(slurp(err));
    CHECK(status == 0);
  }
  std::vector<int> measured, total;
  for (const char* name : {"j1", "j2"}) {
    const auto profile = nlohmann::json::parse(slurp(folder.file(name)))["profile"];
    measured.push_back(profile["measured"].get<int>());
    total.push_back(measured.back() + profile["reused"].get<int>());
  }
  CHECK(total[0] == total[1]);
  CHECK(measured[0] + measured[1] == total[0]);
}

TEST_CASE("many may open a new cost file at once") {
  const TemporaryFolder folder;
  const std::string net = folder.write("relu.prototxt", R"(name: "relu"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "r" type: "ReLU" bottom: "data" top: "r" }
)");
  for (const std::string round : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    std::map<pid_t, std::string> errors;
    for (const char* name : {"1", "2", "3", "4", "5", "6"}) {
      const std::string err = folder.file(round + name);
      errors[start(
          {"--net", net, "--costs", folder.file(round), "--threads", "1", "--runs", "0", "--quiet"},
          folder.file("out"), err)] = err;
    }
    for (const auto& [child, err] : errors) {
      int status = 0;
      waitpid(child, &status, 0);
      CAPTURE(slurp(err));
      CHECK(status == 0);
    }
  }
}

TEST_CASE("a locked cost file is refused before long") {
  const TemporaryFolder folder;
  const std::string costs = folder.file("costs.db");
  const std::vector<std::string> arguments = {"--net",      folder.write("tiny.prototxt", kTiny),
                                              "--costs",    costs,
                                              "--threads",  "1",
                                              "--families", "direct",
                                              "--quiet",    "--runs",
                                              "0"};
  REQUIRE(run(folder, arguments).status == 0);
  sqlite3* db = nullptr;
  sqlite3_open(costs.c_str(), &db);
  sqlite3_exec(db, "PRAGMA journal_mode=DELETE; BEGIN EXCLUSIVE", nullptr, nullptr, nullptr);
  check_refusal(run(folder, arguments), {"costs.db", "another program", "--costs"});
  sqlite3_close(db);
}

TEST_CASE("names cannot reach the terminal's controls") {
  const TemporaryFolder folder;
  std::string net = kTiny;
  for (std::size_t at = 0; (at = net.find("\"c1\"", at)) != std::string::npos; at += 5)
    net.replace(at, 4, "\"c\\033]0;x\\007\"");
  const Outcome o =
      run(folder, {"--net", folder.write("tiny.prototxt", net), "--costs", folder.file("costs.db"),
                   "--families", "direct", "--threads", "1", "--runs", "1"});
  CAPTURE(o.err);
  REQUIRE(o.status == 0);
  CHECK(o.out.find("c\\x1b]0;x\\x07") != std::string::npos);
  CHECK(o.out.find('\x1b') == std::string::npos);
  CHECK(o.err.find('\x1b') == std::string::npos);
}

TEST_CASE("--quiet says nothing on standard error") {
  const TemporaryFolder folder;
  const Outcome o =
      run(folder, {"--net", folder.write("tiny.prototxt", kTiny), "--costs",
                   folder.file("costs.db"), "--quiet", "--families", "direct", "--threads", "1"});
  CHECK(o.status == 0);
  CHECK(o.err.empty());
}

TEST_CASE("killed while profiling, the next run goes on and takes nothing twice") {
  const TemporaryFolder folder;
  const std::string net = folder.write("tiny.prototxt", kTiny), costs = folder.file("costs.db");
  const std::vector<std::string> arguments = {"--net", net, "--threads", "1", "--costs", costs};
  std::map<std::string, std::string> before;
  int kills = 0;
  for (int round = 0; round < 3; ++round) {
    const pid_t child = start(arguments, folder.file("out"), folder.file("err"));
    const std::size_t goal = before.size() + 20;
    for (int wait = 0;
         wait < 2000 && rows(costs).size() < goal && waitpid(child, nullptr, WNOHANG) == 0;
         ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (kill(child, SIGKILL) == 0) ++kills;
    waitpid(child, nullptr, 0);
    const auto after = rows(costs);
    // What was there is there still as it was, or has gone to a later stage.
    for (const auto& [key, value] : before) {
      CAPTURE(key);
      CHECK((!after.contains(key) || after.at(key) == value));
    }
    before = after;
  }
  CHECK(kills > 0);
  CHECK(before.size() >= 20);
  const Outcome o = run(folder, arguments);
  CAPTURE(o.err);
  REQUIRE(o.status == 0);
  const auto after = rows(costs);
  for (const auto& [key, value] : before) CHECK((!after.contains(key) || after.at(key) == value));
}

TEST_CASE("capped instruction sets give verified results") {
  const TemporaryFolder folder;
  const std::string net = folder.write("tiny.prototxt", kTiny);
  for (const char* isa : {"baseline", "avx2"}) {
    setenv("CONVPRIM_ISA", isa, 1);
    const Outcome o = run(folder, {"--net", net, "--costs", folder.file("costs.db"), "--verify",
                                   "--runs", "1", "--json", folder.file("j")});
    unsetenv("CONVPRIM_ISA");
    CAPTURE(isa);
    if (o.status == 2 && o.err.find("lacks it") != std::string::npos)
      continue;  // this CPU has no AVX2
    CHECK(o.status == 0);
    CHECK(nlohmann::json::parse(slurp(folder.file("j")))["machine"]["isa"] == isa);
  }
}

TEST_CASE("bad input is refused with one sentence and nothing is left behind") {
  const TemporaryFolder folder;
  const std::string net = folder.write("tiny.prototxt", kTiny), costs = folder.file("costs.db");
  check_refusal(run(folder, {}), {"--net"});
  check_refusal(run(folder, {"--net", folder.file("missing.prototxt")}), {"missing.prototxt"});
  check_refusal(run(folder, {"--net", folder.write("empty.prototxt", "")}), {"empty.prototxt"});
  check_refusal(run(folder, {"--net", folder.write("binary.prototxt", std::string("\x7f"
                                                                                  "ELF\0\1\2\3",
                                                                                  8))}),
                {"binary.prototxt"});
  check_refusal(
      run(folder, {"--net", folder.write("broken.prototxt", "layer { name: \"a\"\n type: }")}),
      {"broken.prototxt", "2"});
  check_refusal(run(folder, {"--net", folder.path.string()}), {folder.path.string()});
  const std::string head =
      "layer { name: \"data\" type: \"Input\" top: \"data\" input_param { shape { dim: 1 dim: 3 "
      "dim: 8 dim: 8 } } }\n";
  check_refusal(
      run(folder,
          {"--net",
           folder.write(
               "bottom.prototxt",
               head + "layer { name: \"c\" type: \"ReLU\" bottom: \"nobody\" top: \"c\" }")}),
      {"nobody", "\"c\""});
  check_refusal(
      run(folder,
          {"--net",
           folder.write("shape.prototxt",
                        head + "layer { name: \"big\" type: \"Convolution\" bottom: \"data\" top: "
                               "\"c\" convolution_param { num_output: 4 kernel_size: 11 } }")}),
      {"big"});
  check_refusal(run(folder, {"--net", net, "--threads", "0"}), {"threads"});
  check_refusal(run(folder, {"--net", net, "--threads", "many"}), {"threads"});
  check_refusal(run(folder, {"--net", net, "--no-such-option"}), {"no-such-option"});
  check_refusal(run(folder, {"--net", net, "--families", "fourier"}), {"fourier", "winograd"});
  check_refusal(run(folder, {"--net", net, "--batch", "2", "--input-shape", "data=1,3,8,8"}),
                {"--batch", "--input-shape"});
  check_refusal(
      run(folder, {"--net", net, "--input-shape", "data=1,3,8,8", "--input-shape", "data=1,3,9,9"}),
      {"twice"});
  check_refusal(run(folder, {"--net", net, "--profile-only", "--verify"}), {"--profile-only"});
  check_refusal(run(folder, {"--net", net, "--exclude", "nothing"}), {"nothing"});
  check_refusal(run(folder, {"--net", net, "--exclude", "fc-*"}),
                {"layer \"fc\"", "--exclude fc-chw,", "and 10 more"});
  check_refusal(run(folder, {"--net", net, "--costs", folder.file("no/folder/costs.db")}),
                {"no/folder/costs.db", "--costs"});
  check_refusal(
      run(folder, {"--net", net, "--costs", folder.write("text.db", std::string(4096, 'x'))}),
      {"text.db"});
  check_refusal(
      run(folder, {"--net", net, "--costs", costs, "--json", folder.file("no/folder/j.json")}),
      {"j.json"});
  CHECK_FALSE(fs::exists(costs));
  CHECK_FALSE(fs::exists(folder.file("no")));
  CHECK(slurp(folder.file("text.db")) == std::string(4096, 'x'));
}

TEST_CASE("--json replaces no input, follows links and takes names in any encoding") {
  const TemporaryFolder folder;
  const std::string net =
      folder.write("odd name.prototxt", "name: \"caf\xe9\"\n" + std::string(kTiny).substr(14));
  const std::vector<std::string> base = {
      "--net",      net,      "--costs",   folder.file("costs.db"),
      "--families", "direct", "--threads", "1",
      "--quiet",    "--runs", "1",         "--json"};
  const auto with = [&](const std::string& json) {
    auto arguments = base;
    arguments.push_back(json);
    return run(folder, arguments);
  };
  check_refusal(with(net), {"--json"});
  CHECK(slurp(net).find("caf\xe9") != std::string::npos);
  check_refusal(with(folder.path.string()), {"folder"});
  folder.write("target.json", "old");
  fs::create_symlink(folder.file("target.json"), folder.file("link.json"));
  CHECK(with(folder.file("link.json")).status == 0);
  CHECK(fs::is_symlink(folder.file("link.json")));
  CHECK(nlohmann::json::parse(slurp(folder.file("target.json")))["schema"] == 1);
  CHECK(with("/dev/null").status == 0);
  CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("output that cannot be written is a failure, not a crash") {
  const TemporaryFolder folder;
  for (const char* option : {"--version", "--list-primitives"}) {
    int status = 0;
    waitpid(start({option}, "/dev/full", folder.file("err")), &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 2);
    CHECK(slurp(folder.file("err")).find("standard output") != std::string::npos);
  }
  int status = 0;
  waitpid(start({"--net", "missing"}, folder.file("out"), "/dev/full"), &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 2);
}

TEST_CASE("costs of another machine: exported, merged, listed, and planned for") {
  const TemporaryFolder folder;
  const std::string net = folder.write("tiny.prototxt", kTiny), costs = folder.file("costs.db"),
                    text = folder.file("costs.json"), all = folder.file("all.db");
  REQUIRE(run(folder, {"--net", net, "--costs", costs, "--profile-only", "--families", "direct",
                       "--threads", "1", "--quiet", "--cpus", "0"})
              .status == 0);
  REQUIRE(run(folder, {"costs", "export", costs, text}).status == 0);
  // The same costs as if another machine had taken them.
  auto exported = nlohmann::json::parse(slurp(text));
  for (auto& row : exported["costs"]) row["cpu"] = "Board", row["isa"] = "neon";
  const std::string renamed = folder.write("board.json", exported.dump());
  REQUIRE(run(folder, {"costs", "import", all, renamed}).status == 0);
  CHECK(run(folder, {"costs", "merge", all, costs}).out.find(" 0 clashed") != std::string::npos);
  const Outcome list = run(folder, {"costs", "list", all});
  CHECK(list.status == 0);
  CHECK(std::count(list.out.begin(), list.out.end(), '\n') == 3);
  CHECK(list.out.find("board-neon-") != std::string::npos);

  const std::vector<std::string> plan = {"--net",      net,      "--costs", all,
                                         "--families", "direct", "--json",  folder.file("p.json"),
                                         "--target"};
  auto arguments = plan;
  arguments.push_back("board-neon");
  const Outcome planned = run(folder, arguments);
  CAPTURE(planned.err);
  REQUIRE(planned.status == 0);
  const auto j = nlohmann::json::parse(slurp(folder.file("p.json")));
  CHECK(j["machine"]["cpu"] == "Board");
  CHECK(j["measured_ms"].is_null());
  CHECK(j["profile"]["measured"] == 0);

  arguments.push_back("--verify");
  check_refusal(run(folder, arguments), {"--target", "--verify"});
  arguments = plan;
  arguments.push_back("z80");
  check_refusal(run(folder, arguments), {"z80", "board-neon-"});
  check_refusal(run(folder, {"costs", "export", all, folder.file("t.txt")}), {"t.txt", ".csv"});
  check_refusal(run(folder, {"costs", "export", all, all + ".csv", "--target", "z80"}), {"z80"});
  check_refusal(run(folder, {"costs", "merge", all, folder.file("none.db")}), {"none.db"});
  check_refusal(run(folder, {"costs", "import", all, net}), {net});
  check_refusal(run(folder, {"costs"}), {"subcommand"});
  check_refusal(run(folder, {"--net", net, "--cpus", "0-x"}), {"--cpus", "0-x"});
  check_refusal(run(folder, {"--net", net, "--cpus", "1023"}), {"--cpus", "1023"});
}

TEST_CASE("an unknown layer is named, and --partial selects for the rest") {
  const TemporaryFolder folder;
  const std::string net =
      folder.write("odd.prototxt",
                   "layer { name: \"data\" type: \"Input\" top: \"data\" input_param { shape { "
                   "dim: 1 dim: 3 dim: 8 dim: 8 } } }\n"
                   "layer { name: \"c\" type: \"Convolution\" bottom: \"data\" top: \"c\" "
                   "convolution_param { num_output: 4 kernel_size: 3 } }\n"
                   "layer { name: \"odd\" type: \"Oracle\" bottom: \"c\" top: \"d\" }\n");
  std::vector<std::string> arguments = {
      "--net",     net, "--costs", folder.file("costs.db"), "--families", "direct",
      "--threads", "1", "--quiet"};
  check_refusal(run(folder, arguments), {"odd", "Oracle", "--partial"});
  CHECK_FALSE(fs::exists(folder.file("costs.db")));
  arguments.push_back("--partial");
  const Outcome partial = run(folder, arguments);
  CHECK(partial.status == 0);
  CHECK(partial.out.find("cut: layer \"odd\"") != std::string::npos);
  CHECK(partial.out.find("measured  ") == std::string::npos);
  arguments.push_back("--verify");
  check_refusal(run(folder, arguments), {"odd", "--verify"});
}

TEST_CASE("--version tells what is linked, --list-primitives lists rows, --help helps") {
  const TemporaryFolder folder;
  const Outcome version = run(folder, {"--version"});
  CHECK(version.status == 0);
  for (const char* word : {"convprim", "CPU", "instructions", "OpenBLAS", "core", "oneDNN", "FFTW",
                           "protobuf", "SQLite"}) {
    CAPTURE(word);
    CHECK(version.out.find(word) != std::string::npos);
  }
  const Outcome list = run(folder, {"--list-primitives"});
  CHECK(list.status == 0);
  CHECK(list.out.find("direct-sum2d") != std::string::npos);
  const Outcome help = run(folder, {"--help"});
  CHECK(help.status == 0);
  CHECK(help.out.find("--net") != std::string::npos);
}
