// Schedules: stages of groups of operators, for a whole network.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpu/costs.hpp"
#include "gpu/operators.hpp"
#include "gpu/search.hpp"

namespace convprim::ios {

/// The five schedules of the paper's figure 6.
enum class Kind : std::uint8_t {
  sequential,  ///< one operator after another
  greedy,      ///< all operators that can run, beside one another; then again
  merge,       ///< the cheapest with merged convolutions and single operators
  parallel,    ///< the cheapest with concurrent groups
  both         ///< the cheapest with either
};

inline constexpr Kind kKinds[] = {Kind::sequential, Kind::greedy, Kind::merge, Kind::parallel,
                                  Kind::both};

/// "sequential", "greedy", "merge", "parallel" or "both".
std::string_view name(Kind kind);

/// A whole network's stages, in the order of their running.
struct Schedule {
  Kind kind = Kind::sequential;
  std::vector<StagePlan> stages;
  double seconds = 0;  ///< sum of the stages' costs
};

/// What one search of a block went through.
struct BlockReport {
  int block = 0;      ///< the first of its kind
  int repeats = 1;    ///< blocks like it
  int operators = 0;  ///< in it
  int width = 0;
  Statistics statistics;
};

/// Makes a schedule of that kind. Identical blocks are solved once. `report` may be null;
/// sequential and greedy schedules need no search and add nothing to it. Throws Error if no
/// schedule has a finite cost.
Schedule make_schedule(Kind kind, const OperatorGraph& graph, const Pruning& pruning,
                       StageCosts& costs, std::vector<BlockReport>* report = nullptr);

/// Throws Error unless the schedule runs each operator of the network once, after those that it
/// reads, groups of a stage do not read one another, and merged operators can be merged.
void check(const OperatorGraph& graph, const Schedule& schedule);

/// Where a schedule comes from.
struct Provenance {
  std::string file;     ///< of the network
  std::string device;   ///< that the costs belong to
  std::string costs;    ///< how they were got: "simulated", "measured"
  std::string version;  ///< of convprim, and of cuDNN where that took part
  Pruning pruning;
};

/// JSON with a schema version and the provenance; operators are named by their last layer.
std::string to_json(const OperatorGraph& graph, const Schedule& schedule,
                    const Provenance& provenance);

/// Reads what to_json() wrote, for a network with the same layers, of any batch. Throws Error
/// naming `file` and what does not fit; the result passes check().
Schedule schedule_from_json(const OperatorGraph& graph, std::string_view json,
                            const std::string& file);

}  // namespace convprim::ios
