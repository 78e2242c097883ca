// The PBQP solver against toulbar2, an exact solver of weighted CSPs (Debian package of that name):
// skipped where it is not installed. Also the public optima of instances in its distribution, where
// those are.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "pbqp/check.hpp"
#include "pbqp/generate.hpp"
#include "pbqp/io.hpp"
#include "pbqp_util.hpp"
#include "test.hpp"

using pbqp::Problem;
using pbqp::Status;
using pbqp_test::Costs;
using pbqp_test::Random;

namespace {

bool installed() { return std::system("command -v toulbar2 >/dev/null 2>&1") == 0; }

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  while (std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  pclose(pipe);
  return out;
}

struct Answer {
  bool solved = false;
  bool feasible = false;
  double optimum = 0;  // in the units of the file
};

Answer toulbar2(const std::string& path) {
  const std::string out = output_of("toulbar2 '" + path + "' -timer=60 2>&1");
  Answer a;
  const std::size_t at = out.find("\nOptimum: ");
  if (at != std::string::npos) {
    a.solved = a.feasible = true;
    a.optimum = std::strtod(out.c_str() + at + 10, nullptr);
  } else if (out.find("No solution") != std::string::npos) {
    a.solved = true;
  } else {
    MESSAGE(out);
  }
  return a;
}

struct Folder {
  std::filesystem::path path;
  Folder() {
    path = std::filesystem::temp_directory_path() / "pbqp_toulbar2_test";
    std::filesystem::create_directories(path);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

// What toulbar2 found, in the problem's own costs.
void compare(const Problem& p, const std::string& path, const std::string& what) {
  const std::string text = pbqp::write_wcsp(p);
  pbqp::write_file(path, text);
  const Answer a = toulbar2(path);
  INFO(what);
  REQUIRE(a.solved);
  pbqp::Limits limits;
  limits.certificate = true;
  const auto r = pbqp::solve(p, limits);
  CHECK(r.status == (a.feasible ? Status::kOptimal : Status::kInfeasible));
  CHECK(pbqp::check(p, r.certificate).valid);
  if (!a.feasible) return;
  int exponent = 0;
  long long offset = 0;
  REQUIRE(std::sscanf(text.c_str(), "pbqp_e%d_o%lld", &exponent, &offset) == 2);
  CHECK(r.upper == std::ldexp(a.optimum + static_cast<double>(offset), exponent));
}

}  // namespace

TEST_CASE("pbqp: toulbar2 agrees on generated problems of all kinds") {
  if (!installed()) {
    convprim::test::skip("toulbar2 is not installed");
    return;
  }
  Folder folder;
  const std::string path = (folder.path / "p.wcsp").string();
  const auto kinds = pbqp::generator_kinds();
  int infeasible = 0;
  for (std::uint64_t i = 0; i < 210; ++i) {
    pbqp::GenerateOptions o;
    o.kind = kinds[i % kinds.size()];
    o.nodes = o.kind == "dense" ? 7 : o.kind == "randwire" ? 35 : 25;
    o.options = 5 + i % 11;
    o.layouts = 2 + i % 4;
    o.infinite = i % 3 == 0 ? 0.0 : i % 3 == 1 ? 0.3 : 0.7;
    o.seed = 1000 + i;
    const Problem p = pbqp::generate(o);
    infeasible += pbqp::solve(p).status == Status::kInfeasible ? 1 : 0;
    compare(p, path, o.kind + ", seed " + std::to_string(o.seed));
  }
  const Costs costs[] = {Costs::kTiny, Costs::kIntegers};
  for (std::uint64_t i = 0; i < 90; ++i) {
    Random r(i);
    const Problem p =
        pbqp_test::random_problem(r, 16, 5, costs[i % 2], 0.2 + 0.6 * r.uniform(), 0.35);
    infeasible += pbqp::solve(p).status == Status::kInfeasible ? 1 : 0;
    compare(p, path, "random, seed " + std::to_string(i));
  }
  CHECK(infeasible >= 20);
}

TEST_CASE("pbqp: public optima of radio link and warehouse instances") {
  struct Known {
    const char* file;
    double optimum;
  };
  const Known known[] = {{"CELAR6-SUB0.wcsp", 159},
                         {"CELAR6-SUB1.wcsp", 2669},
                         {"CELAR7-SUB0.wcsp", 10310},
                         {"cap131.wcsp", 7934385}};
  int found = 0;
  for (const Known& k : known) {
    for (const std::string& folder :
         {convprim::test::shared("wcsp"), std::string("/usr/share/doc/toulbar2/examples"),
          std::string("/usr/share/toulbar2")}) {
      const std::string path = folder + "/" + k.file;
      if (folder.empty() || !std::filesystem::exists(path)) continue;
      ++found;
      const auto r = pbqp::solve(pbqp::load(path));
      INFO(k.file);
      CHECK(r.optimal());
      CHECK(r.upper == k.optimum);
    }
  }
  if (found == 0) convprim::test::skip("no file of a public instance is there");
}
