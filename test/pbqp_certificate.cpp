// Certificates: what the solver writes is accepted, what has been changed is not.
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "pbqp/check.hpp"
#include "pbqp/generate.hpp"
#include "pbqp_util.hpp"
#include "test.hpp"

using pbqp::Problem;
using pbqp_test::Costs;
using pbqp_test::Random;

namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> r;
  std::istringstream in(text);
  for (std::string s; std::getline(in, s, at);) r.push_back(s);
  return r;
}

std::string glue(const std::vector<std::string>& parts, const char* with) {
  std::string s;
  for (std::size_t i = 0; i < parts.size(); ++i) s += (i == 0 ? "" : with) + parts[i];
  return s;
}

// The text with a checksum that fits, so that only the proof itself can give a change away.
std::string sealed(std::vector<std::string> lines) {
  lines.pop_back();
  const std::string body = glue(lines, "\n") + "\n";
  return body + "checksum " + pbqp::certificate_checksum(body) + "\n";
}

std::vector<std::size_t> lines_with(const std::vector<std::string>& lines,
                                    const std::vector<std::string>& verbs) {
  std::vector<std::size_t> r;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string verb = lines[i].substr(0, lines[i].find(' '));
    if (std::find(verbs.begin(), verbs.end(), verb) != verbs.end()) r.push_back(i);
  }
  return r;
}

struct Subject {
  Problem problem;
  pbqp::Result result;
};

// Certificates of all kinds: reductions only, eliminations, searches, infeasible ones, stopped
// ones.
std::vector<Subject> subjects() {
  std::vector<Subject> r;
  for (std::uint64_t seed = 1; seed <= 14; ++seed) {
    const auto kinds = pbqp::generator_kinds();
    pbqp::GenerateOptions o;
    o.kind = kinds[seed % kinds.size()];
    o.nodes = o.kind == "dense" ? 8 : 30;
    o.options = 15;
    o.layouts = 4;
    o.infinite = seed % 3 == 0 ? 0.3 : 0.0;
    o.seed = seed;
    pbqp::Limits limits;
    limits.certificate = true;
    if (seed % 2 == 0) limits.memory_bytes = 0;
    Problem p = pbqp::generate(o);
    pbqp::Result result = pbqp::solve(p, limits);
    r.push_back({std::move(p), std::move(result)});
  }
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Random random(seed + 40);
    pbqp::Limits limits;
    limits.certificate = true;
    limits.memory_bytes = 0;
    Problem p = pbqp_test::random_problem(random, 8, 3, Costs::kIntegers, 0.9, 0.7);
    pbqp::Result result = pbqp::solve(p, limits);
    r.push_back({std::move(p), std::move(result)});
  }
  return r;
}

}  // namespace

TEST_CASE("pbqp: certificates of all kinds are accepted") {
  bool block = false;
  bool elimination = false;
  bool infeasible = false;
  for (const Subject& s : subjects()) {
    const auto c = pbqp::check(s.problem, s.result.certificate);
    CHECK_MESSAGE(c.valid, c.message << " in line " << c.line);
    CHECK(c.status == s.result.status);
    CHECK(c.upper == s.result.upper);
    CHECK(c.lower == s.result.lower);
    block = block || s.result.certificate.find("\ntry ") != std::string::npos;
    elimination = elimination || s.result.certificate.find("\nelim ") != std::string::npos;
    infeasible = infeasible || c.status == pbqp::Status::kInfeasible;
  }
  CHECK(block);
  CHECK(elimination);
  CHECK(infeasible);
}

TEST_CASE("pbqp: a damaged certificate is rejected") {
  const auto all = subjects();
  Random r(1);
  for (int i = 0; i < 1000; ++i) {
    const Subject& s = all[r.below(all.size())];
    std::string text = s.result.certificate;
    const std::size_t at = r.below(text.size());
    switch (r.below(3)) {
      case 0:
        text[at] =
            static_cast<char>('0' + (text[at] - '0' + 1 + static_cast<int>(r.below(9))) % 10);
        break;
      case 1:
        text.erase(at, 1 + r.below(20));
        break;
      default:
        text.resize(at);
    }
    if (text == s.result.certificate) continue;
    CHECK(!pbqp::check(s.problem, text).valid);
  }
}

// Now with the checksum made to fit again: a thousand changes of options, bounds, reductions and
// branches.
TEST_CASE("pbqp: a certificate with a changed claim or step is rejected") {
  const auto all = subjects();
  Random r(2);
  int tried[6] = {};
  int idle = 0;
  for (int i = 0; i < 4000; ++i) {
    const Subject& s = all[r.below(all.size())];
    auto lines = split(s.result.certificate, '\n');
    std::string what;
    const std::size_t kind = r.below(6);
    if (kind == 0) {  // an option of the assignment, for another of different cost
      if (s.result.assignment.empty()) continue;
      pbqp::Assignment x = s.result.assignment;
      const std::size_t v = r.below(x.size());
      x[v] = r.below(s.problem.option_count(v));
      if (s.problem.cost(x) == s.result.upper) continue;
      auto words = split(lines[6], ' ');
      words[v + 1] = std::to_string(x[v]);
      lines[6] = glue(words, " ");
      what = "option";
    } else if (kind == 1) {  // a bound
      const std::size_t line = 4 + r.below(2);
      auto words = split(lines[line], ' ');
      const std::string old = words[1];
      if (old == "inf") {
        words[1] = "12345";
      } else {
        words[1] = std::to_string(std::stoll(old) + (r.chance(0.5) ? 1 : -1));
      }
      lines[line] = glue(words, " ");
      what = "bound";
    } else if (kind == 2) {  // a reduction to another kind
      const auto at = lines_with(lines, {"r0", "r1", "r2"});
      if (at.empty()) continue;
      auto words = split(lines[at[r.below(at.size())]], ' ');
      const std::size_t line = at[r.below(at.size())];
      words = split(lines[line], ' ');
      words[0] = "r" + std::to_string((words[0][1] - '0' + 1 + static_cast<int>(r.below(2))) % 3);
      lines[line] = glue(words, " ");
      what = "reduction";
    } else if (kind == 3) {  // a reduction left out
      const auto at = lines_with(lines, {"r0", "r1", "r2", "elim"});
      if (at.empty() || s.result.status == pbqp::Status::kInfeasible) continue;
      lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at[r.below(at.size())]));
      what = "missing reduction";
    } else if (kind == 4) {  // a branch left out, from its "try" to its "end"
      const auto at = lines_with(lines, {"try"});
      if (at.empty()) continue;
      const std::size_t first = at[r.below(at.size())];
      std::size_t last = first;
      for (int depth = 0;; ++last) {
        if (lines[last].starts_with("try")) ++depth;
        if (lines[last] == "end" && --depth == 0) break;
      }
      lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(first),
                  lines.begin() + static_cast<std::ptrdiff_t>(last) + 1);
      what = "missing branch";
    } else {  // a case's target raised
      const auto at = lines_with(lines, {"case"});
      if (at.empty()) continue;
      const std::size_t line = at[r.below(at.size())];
      auto words = split(lines[line], ' ');
      if (words[2] == "inf") continue;
      words[2] = std::to_string(std::stoll(words[2]) + 1000000);
      lines[line] = glue(words, " ");
      what = "raised target";
    }
    ++tried[kind];
    const auto c = pbqp::check(s.problem, sealed(lines));
    // Some branches cut only what the bound of their parent reaches anyway: a proof without them
    // may still hold. Then it must prove no more than is true.
    if (what == "missing branch" && c.valid) {
      CHECK(c.status == s.result.status);
      CHECK(c.lower == s.result.lower);
      ++idle;
      --tried[kind];
      continue;
    }
    CHECK_MESSAGE(!c.valid, what << " accepted");
  }
  for (const int t : tried) CHECK(t >= 20);
  CHECK(idle <= tried[4] / 10);
}

// Whatever is changed, no accepted certificate may claim anything false.
TEST_CASE("pbqp: no mutation proves anything false") {
  const auto all = subjects();
  Random r(3);
  int valid = 0;
  for (int i = 0; i < 4000; ++i) {
    const Subject& s = all[r.below(all.size())];
    auto lines = split(s.result.certificate, '\n');
    const std::size_t line = 1 + r.below(lines.size() - 2);
    switch (r.below(4)) {
      case 0: {
        auto words = split(lines[line], ' ');
        if (words.empty()) break;
        words[r.below(words.size())] = std::to_string(r.below(12));
        lines[line] = glue(words, " ");
        break;
      }
      case 1:
        lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(line));
        break;
      case 2:
        lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(line),
                     lines[1 + r.below(lines.size() - 2)]);
        break;
      default:
        std::swap(lines[line], lines[1 + r.below(lines.size() - 2)]);
    }
    const auto c = pbqp::check(s.problem, sealed(lines));
    if (!c.valid) continue;
    ++valid;
    const double optimum = s.result.upper;
    CHECK(c.lower <= optimum);
    CHECK(c.upper >= optimum);
    if (c.status == pbqp::Status::kOptimal) CHECK(c.upper == optimum);
    if (c.status == pbqp::Status::kInfeasible) {
      CHECK(s.result.status == pbqp::Status::kInfeasible);
    }
  }
  CHECK(valid < 2000);
}
