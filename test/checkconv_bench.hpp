// The bench of primitives: their times beside the machine's peak and beside oneDNN's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convprim/primitive.hpp"

namespace convprim {

struct BenchSettings {
  int threads = 1;
  int reps = 7;
  bool best = false;     ///< of each family only
  bool compare = false;  ///< only our best rows and oneDNN's, and the ratio of their times
  std::string results;   ///< with compare: file to which a line for each row is appended; problems
                         ///< that it has already are left out
  double budget = 0;     ///< seconds after which no further problem is begun; 0: none
  std::uint64_t seed = 1;
};

/// Times the rows on each problem, interleaved, and prints a table. 0, or 3 if the budget ended it.
int bench(const std::vector<Scenario>& scenarios, const std::vector<const Primitive*>& rows,
          const BenchSettings& settings);

/// Prints the ratios of our best row's time to oneDNN's best, and their geometric means, out of one
/// file of results for each run of the bench. The row of either side is the one with the least
/// geometric mean over the runs. Throws Error if a file cannot be read.
int summarise(const std::vector<std::string>& files);

}  // namespace convprim
