// The command pbqp: answers, exit status, and one sentence for what is wrong. Runs the built
// program, whose path is in the environment variable PBQP_COMMAND.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "pbqp/io.hpp"
#include "test.hpp"

namespace {

struct Outcome {
  int status = -1;
  std::string text;  // standard output and error
};

struct Fixture {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / "pbqp_command_test";
  Fixture() { std::filesystem::create_directories(folder); }
  ~Fixture() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }

  static Outcome run(const std::string& arguments) {
    const char* command = std::getenv("PBQP_COMMAND");
    REQUIRE(command != nullptr);
    Outcome o;
    FILE* pipe = popen((std::string(command) + " " + arguments + " 2>&1").c_str(), "r");
    REQUIRE(pipe != nullptr);
    char buffer[4096];
    while (std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) o.text.append(buffer, n);
    const int status = pclose(pipe);
    o.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return o;
  }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "pbqp command: generate, solve, check, explain, pareto, convert") {
  const std::string file = path("n.pbqp");
  REQUIRE(run("generate " + file + " --kind nasnet --nodes 20 --options 8 --layouts 3 --weights")
              .status == 0);
  const Outcome solved = run("solve " + file + " --json --certificate " + path("n.cert"));
  CHECK(solved.status == 0);
  CHECK(has(solved.text, "\"proven_optimal\":true"));
  CHECK(has(solved.text, "\"schema\":\"pbqp-result-1\""));
  const Outcome good = run("check " + file + " " + path("n.cert"));
  CHECK(good.status == 0);
  CHECK(has(good.text, "valid: optimal"));
  pbqp::write_file(path("bad.cert"), pbqp::read_file(path("n.cert")).substr(100));
  CHECK(run("check " + file + " " + path("bad.cert")).status == 1);
  CHECK(run("explain " + file).status == 0);
  CHECK(has(run("explain " + file + " --best 3 --json").text, "pbqp-best-1"));
  CHECK(has(run("pareto " + file).text, "status optimal"));
  CHECK(run("convert " + file + " " + path("n.json")).status == 0);
  CHECK(run("convert " + file + " " + path("n.wcsp") + " --quantum 0.0009765625").status == 0);
  const Outcome again = run("solve " + path("n.json") + " --json");
  const auto cost = [](const std::string& s) {
    return s.substr(s.find("\"cost\""), s.find("\"gap\"") - s.find("\"cost\""));
  };
  CHECK(cost(again.text) == cost(solved.text));
}

TEST_CASE_FIXTURE(Fixture, "pbqp command: infeasible input is status 1 and names the nodes") {
  pbqp::write_file(path("i.pbqp"),
                   "pbqp 1\nnode 0 0\nname conv1\nnode 0\nnode 0\nname relu\nedge 0 2 inf inf\n");
  const Outcome o = run("solve " + path("i.pbqp"));
  CHECK(o.status == 1);
  CHECK(has(o.text, "status infeasible"));
  CHECK(has(o.text, "among conv1 relu"));
}

TEST_CASE_FIXTURE(Fixture, "pbqp command: bad input is one sentence with the place, and status 2") {
  pbqp::write_file(path("x.pbqp"), "pbqp 1\nnode 1 2\nnode 1 y\n");
  pbqp::write_file(path("x.json"), "{\"format\":\"pbqp\",\n");
  for (const auto& [arguments, part] :
       {std::pair<std::string, std::string>{"solve " + path("x.pbqp"), "x.pbqp:3: \"y\""},
        {"solve " + path("x.json"), "x.json:2: "},
        {"solve " + path("none"), "does not exist"},
        {"solve " + folder.string(), "folder"},
        {"solve", "FILE is required"},
        {"solve " + path("x.pbqp") + " --time -1", "--time"},
        {"generate - --kind foo", "unknown kind"},
        {"generate " + path("no/x.pbqp"), "cannot be written"},
        {"frobnicate", "subcommand"}}) {
    const Outcome o = run(arguments);
    INFO(arguments << "\n" << o.text);
    CHECK(o.status == 2);
    CHECK(has(o.text, part));
  }
  const Outcome help = run("--help");
  CHECK(help.status == 0);
  CHECK(has(help.text, "Exit status"));
}
