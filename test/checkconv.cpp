// checkconv: every primitive over every scenario against the double-precision reference; and the
// bench of primitives. A row passes or fails as a whole.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "checkconv.hpp"
#include "convprim/error.hpp"
#include "convprim/primitive.hpp"

namespace convprim {
namespace {

std::vector<const Primitive*> chosen_rows(const Settings& settings) {
  const auto matches = [](const std::vector<std::string>& list, std::string_view text) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& part) {
      return part == text ||
             (part.ends_with('*') && text.starts_with(part.substr(0, part.size() - 1)));
    });
  };
  std::vector<const Primitive*> rows;
  for (const Primitive* row : primitives()) {
    if (!settings.primitives.empty() && !matches(settings.primitives, row->name)) continue;
    if (!settings.families.empty() && !matches(settings.families, name(row->family))) continue;
    if (matches(settings.exclude, row->name) || matches(settings.exclude, name(row->family)))
      continue;
    rows.push_back(row);
  }
  if (rows.empty()) throw Error("no primitive matches; `checkconv --list` names them all");
  return rows;
}

int list(const Settings& settings) {
  const auto rows = chosen_rows(settings);
  if (settings.scenarios.empty() && settings.files.empty()) {
    for (const Primitive* row : rows) {
      fmt::print("{:<36} {:<10} {:>6} -> {}\n", row->name, name(row->family), name(row->in),
                 name(row->out));
    }
    return 0;
  }
  for (const Scenario& s : suite_scenarios(settings)) {
    fmt::print("{}\n", s.str());
    for (const Primitive* row : rows) {
      const char* why = row->reject(s);
      fmt::print("  {:<36} {}\n", row->name,
                 why != nullptr ? fmt::format("rejects: {}", why) : "solves it");
    }
  }
  return 0;
}

}  // namespace
}  // namespace convprim

int main(int argc, char** argv) {
  using namespace convprim;
  Settings settings;
  CLI::App app{
      "Checks convolution primitives against the double-precision reference, and benches them."};
  app.add_option("--scenario", settings.scenarios,
                 "problem string in benchdnn's grammar, repeatable");
  app.add_option("--file", settings.files, "file with one problem string a line, repeatable");
  app.add_option("--suite", settings.suite, "short (default without --scenario) or long")
      ->check(CLI::IsMember({"short", "long"}));
  app.add_option("--primitive", settings.primitives, "only these; a trailing * matches any ending")
      ->delimiter(',');
  app.add_option("--family", settings.families, "only these families")->delimiter(',');
  app.add_option("--exclude", settings.exclude, "not these primitives or families")->delimiter(',');
  app.add_option("--threads", settings.threads,
                 "threads; default: 1 to 3 in checks, 1 in the bench")
      ->check(CLI::Range(1, 1024));
  app.add_option("--jobs", settings.jobs,
                 "processes that share the checks; 0: one for each processor")
      ->check(CLI::Range(0, 1024));
  app.add_option("--seed", settings.seed, "seed of data, options and random scenarios");
  app.add_option("--reps", settings.benching.reps, "rounds of the bench")
      ->check(CLI::Range(1, 1000));
  app.add_option("--limit-gmac", settings.limit_gmac,
                 "leave out problems of more multiplications than this, in units of 1e9; 0: none")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--resume", settings.resume,
                 "file of pairs that passed: they are not run again, and new ones are added");
  app.add_flag("--list", settings.list, "list primitives; with --scenario, who rejects it and why");
  app.add_flag("--bench", settings.bench,
               "time them, interleaved, against the peak measured in the same run");
  app.add_flag("--best", settings.benching.best, "with --bench: only the best of each family");
  app.add_flag(
      "--compare", settings.benching.compare,
      "with --bench: only the best rows that compute all products, the best that transform "
      "and oneDNN's best, and the ratio of the times");
  app.add_option("--results", settings.benching.results,
                 "with --compare: append all times to this file; problems in it are left out");
  app.add_option("--budget", settings.benching.budget,
                 "begin no further problem of the bench after this many seconds; status 3 if some "
                 "are left")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--summary", settings.summary,
                 "print ratios and geometric means of files of --results, one for each run");
  app.add_flag("--accuracy", settings.accuracy,
               "print each primitive's largest error, in units of rounding of its sum of |x*w|");
  app.add_flag("--verbose", settings.verbose, "a line for each check");
  CLI11_PARSE(app, argc, argv);
  try {
    if (settings.list) return list(settings);
    if (!settings.summary.empty()) return summarise(settings.summary);
    if (!settings.bench) return verify(settings, chosen_rows(settings));
    settings.benching.threads = std::max(1, settings.threads);
    settings.benching.seed = settings.seed;
    return bench(suite_scenarios(settings), chosen_rows(settings), settings.benching);
  } catch (const Error& e) {
    fmt::print(stderr, "checkconv: {}\n", e.what());
    return 2;
  }
}
