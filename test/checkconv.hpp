// checkconv's parts: what it is asked for, the problems of its suites, and the run over them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkconv_bench.hpp"
#include "convprim/primitive.hpp"

namespace convprim {

struct Settings {
  std::vector<std::string> scenarios, files, primitives, families, exclude;
  std::string suite, resume;
  int threads = 0;  ///< 0: varied
  int jobs = 1;     ///< processes that share the pairs; 0: one for each processor
  std::uint64_t seed = 1;
  bool list = false, bench = false, accuracy = false, verbose = false;
  BenchSettings benching;
  std::vector<std::string> summary;
  double limit_gmac = 0;  ///< 0: none
};

/// The distinct problems that are asked for; those of a long suite come in the order of their work.
std::vector<Scenario> suite_scenarios(const Settings& settings);

/// Runs the rows over the problems and prints what failed, and a summary. 0 if all passed, else 1.
int verify(const Settings& settings, const std::vector<const Primitive*>& rows);

}  // namespace convprim
