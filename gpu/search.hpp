// The dynamic program of IOS (Ding et al., MLSys 2021, algorithm 1) on one block of operators:
//   cost[S] = min over endings S' of S of cost[S - S'] + stage(S'),   cost[{}] = 0.
// It knows operators as bits and stages as costs, nothing of networks or devices.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace convprim::ios {

/// A set of operators of one block; operator i is bit i.
using Set = std::uint64_t;

/// Operators that a block may have.
inline constexpr int kMaxOperators = 64;

/// The operators in a set.
inline int size(Set s) { return std::popcount(s); }
/// The lowest operator of a set that is not empty.
inline int lowest(Set s) { return std::countr_zero(s); }
/// The set of operator i alone.
inline Set bit(int i) { return Set{1} << i; }

/// Who feeds whom inside a block. Operators are in topological order: successors[i] holds only
/// operators above i.
struct Dag {
  std::vector<Set> successors;
  int size() const { return static_cast<int>(successors.size()); }
  /// All operators.
  Set all() const;
  /// Operators that can be reached from each, itself included.
  std::vector<Set> closures() const;
  /// The most operators of which none reaches another (Dilworth: by bipartite matching).
  int width() const;
};

/// Which endings are considered. A limit of 0 is none.
struct Pruning {
  int r = 3;  ///< operators in a group at most
  int s = 8;  ///< groups in a stage at most
  /// Only groups with one root, as the authors' code has them: a -> c <- b is no group there. The
  /// counts in the paper belong to this.
  bool legacy_single_root = false;
};

/// How the operators of a stage run.
enum class Strategy : std::uint8_t {
  concurrent,  ///< groups beside one another, the operators of a group one after another
  merge        ///< all as one convolution
};

/// One stage of a block.
struct Stage {
  Strategy strategy = Strategy::concurrent;
  std::vector<Set> groups;  ///< by their lowest operator; of a merge: one for each operator
  double seconds = 0;       ///< its cost
};

/// What stages cost. `concurrent` and `merge` may be empty, not both. Costs are 0 or more;
/// infinity forbids a stage. The merge cost is asked for stages of single operators without
/// successors among themselves only. Each stage is asked for once at most.
struct StageCost {
  std::function<double(std::span<const Set> groups)> concurrent;
  std::function<double(Set operators)> merge;
};

/// What a search went through.
struct Statistics {
  std::size_t states = 0;       ///< sets S reached, the empty one included
  std::size_t transitions = 0;  ///< pairs of a state and an ending of it
  double schedules = 0;         ///< sequences of stages: paths from all operators to none
  std::size_t stages = 0;       ///< distinct stages whose cost was asked for
  double seconds = 0;           ///< of search, the time inside cost functions included
};

/// The cheapest schedule of a block: stages in the order of their running.
struct SearchResult {
  std::vector<Stage> stages;
  double seconds = 0;
  Statistics statistics;
};

/// The connected, closed subsets of a state: the groups that an ending of it may have, each at most
/// once, in a fixed order. `closures` are those of the Dag.
std::vector<Set> groups_of(const std::vector<Set>& closures, Set state, const Pruning& pruning);

/// Calls visit(ending, groups) for each ending of a state until it returns false: each family of
/// pairwise disjoint groups, once. Disjoint closed sets have no edge between them, so the groups
/// are the connected components of the ending. They come by ascending lowest operator. Returns
/// whether all were visited.
template <class Visit>
bool for_each_ending(const std::vector<Set>& closures, Set state, const Pruning& pruning,
                     Visit&& visit);

/// Finds the cheapest schedule. Of equal ones it takes that with fewer stages; further ties are
/// broken the same way every time.
/// The schedule exists whatever the pruning; if all are forbidden, `seconds` is infinite and there
/// are no stages.
SearchResult search(const Dag& dag, const Pruning& pruning, const StageCost& cost);

/// The statistics of a search, without costs. Nothing if there are more transitions than `limit`.
std::optional<Statistics> count(const Dag& dag, const Pruning& pruning,
                                std::size_t limit = std::numeric_limits<std::size_t>::max());

namespace detail {

template <class Visit>
struct EndingWalk {
  std::size_t most;  // groups
  Visit& visit;
  std::vector<Set> chosen = {};

  // Extends the chosen family by each candidate; all candidates are disjoint from it.
  bool walk(Set ending, std::span<const Set> candidates) {
    std::vector<Set> rest;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const Set group = candidates[i];
      chosen.push_back(group);
      if (!visit(ending | group, std::span<const Set>(chosen))) return false;
      if (chosen.size() < most) {
        rest.clear();
        for (std::size_t j = i + 1; j < candidates.size(); ++j) {
          if ((candidates[j] & group) == 0) rest.push_back(candidates[j]);
        }
        if (!rest.empty() && !walk(ending | group, rest)) return false;
      }
      chosen.pop_back();
    }
    return true;
  }
};

}  // namespace detail

template <class Visit>
bool for_each_ending(const std::vector<Set>& closures, Set state, const Pruning& pruning,
                     Visit&& visit) {
  const std::vector<Set> groups = groups_of(closures, state, pruning);
  const auto most = pruning.s > 0 ? static_cast<std::size_t>(pruning.s) : groups.size();
  return detail::EndingWalk<Visit>{most, visit}.walk(0, groups);
}

}  // namespace convprim::ios
