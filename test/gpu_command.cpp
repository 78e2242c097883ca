// The command ios: what a person types, and what comes back.
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "files.hpp"
#include "test.hpp"

using convprim::test::slurp;
using convprim::test::TemporaryFolder;

namespace {

struct Outcome {
  int status = -1;
  std::string out, err;
};

/// Runs the command with arguments that need no quoting.
Outcome run(const TemporaryFolder& folder, const std::string& arguments) {
  const char* path = std::getenv("CONVPRIM_IOS");
  const std::string command = std::string(path != nullptr ? path : "build/apps/ios") + " " +
                              arguments + " >" + folder.file("out") + " 2>" + folder.file("err");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          slurp(folder.file("out")), slurp(folder.file("err"))};
}

constexpr const char* kTiny = R"(
name: "tiny"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 16 dim: 16 } } }
layer { name: "a" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 8 kernel_size: 3 pad: 1 } }
layer { name: "b" type: "Convolution" bottom: "data" top: "b" convolution_param { num_output: 8 kernel_size: 1 } }
layer { name: "c" type: "Concat" bottom: "a" bottom: "b" top: "c" }
layer { name: "d" type: "Convolution" bottom: "c" top: "d" convolution_param { num_output: 4 kernel_size: 1 } }
)";

}  // namespace

TEST_CASE("ios measures, compares, writes its files, and reads its own schedule") {
  const TemporaryFolder folder;
  const std::string net = "--net " + folder.write("tiny.prototxt", kTiny) +
                          " --threads 2 --costs " + folder.file("c.db") + " --runs 3 ";
  const Outcome first =
      run(folder, net + "--device cpu --json " + folder.file("s.json") + " --report " +
                      folder.file("r.json") + " --trace " + folder.file("t.json"));
  CAPTURE(first.err);
  REQUIRE(first.status == 0);
  for (const char* word :
       {"sequential", "greedy", "merge", "parallel", "both", "agree", "measured"})
    CHECK(first.out.find(word) != std::string::npos);
  CHECK(first.out.find("DIFFER") == std::string::npos);
  const auto schedule = nlohmann::json::parse(slurp(folder.file("s.json")));
  CHECK(schedule["schema"] == "convprim-ios-1");
  CHECK(schedule["made_with"]["costs"] == "measured");
  const auto report = nlohmann::json::parse(slurp(folder.file("r.json")));
  REQUIRE(report["schedules"].size() == 5);
  for (const auto& s : report["schedules"]) {
    CHECK(s["outputs"]["agree"] == true);
    CHECK(s["measured_ms"]["median"].get<double>() > 0);
  }
  CHECK(nlohmann::json::parse(slurp(folder.file("t.json")))["traceEvents"].size() > 4);

  const Outcome again = run(folder, net + "--run --batch 3 --use " + folder.file("s.json"));
  CAPTURE(again.err);
  CHECK(again.status == 0);
  CHECK(again.out.find("file: both") != std::string::npos);
  const Outcome cached = run(folder, net);
  CHECK(cached.out.find("0 stage costs measured") != std::string::npos);
}

TEST_CASE("simulated costs are called so wherever they are printed") {
  const TemporaryFolder folder;
  const std::string net = "--net " + folder.write("tiny.prototxt", kTiny);
  const Outcome o = run(folder, net + " --device simulated --trace " + folder.file("t.json"));
  REQUIRE(o.status == 0);
  CHECK(o.out.find("sum of stages (simulated)") != std::string::npos);
  CHECK(o.out.find("whole run") == std::string::npos);
  CHECK(slurp(folder.file("t.json")).find("simulated") != std::string::npos);
}

TEST_CASE("bad input is one sentence and exit status 2") {
  const TemporaryFolder folder;
  const std::string net = folder.write("tiny.prototxt", kTiny);
  const auto refuse = [&](const std::string& arguments, const char* word) {
    const Outcome o = run(folder, arguments);
    CAPTURE(o.err);
    CHECK(o.status == 2);
    CHECK(o.out.empty());
    CHECK(o.err.find(word) != std::string::npos);
    CHECK(std::count(o.err.begin(), o.err.end(), '\n') == 1);
  };
  refuse("", "--net");
  refuse("--net " + folder.file("none"), "none");
  refuse("--net built-in:none", "no built-in network");
  refuse("--net " + net + " --device tpu", "tpu");
  refuse("--net " + net + " --device simulated --json " + net, "would replace");
  refuse("--net " + net + " --device simulated --use " + net, "is no schedule");
  refuse("--net " + net + " --device simulated --stage-costs " + net, "no table of stage costs");
}

TEST_CASE("--device cuda without a GPU is one sentence and exit status 3") {
  const TemporaryFolder folder;
  const Outcome o = run(folder, "--net " + folder.write("tiny.prototxt", kTiny) +
                                    " --device cuda --costs " + folder.file("c.db"));
  if (o.status == 0) {
    convprim::test::skip("there is a GPU");
    return;
  }
  CAPTURE(o.err);
  CHECK(o.status == 3);
  CHECK(o.out.empty());
  CHECK(std::count(o.err.begin(), o.err.end(), '\n') == 1);
  CHECK(o.err.find("--device cpu") != std::string::npos);
}
