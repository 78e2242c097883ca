#include "gpu/search.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

#include "gpu/set_map.hpp"

namespace convprim::ios {

Set Dag::all() const { return size() == kMaxOperators ? ~Set{0} : bit(size()) - 1; }

std::vector<Set> Dag::closures() const {
  std::vector<Set> closure(successors.size());
  for (int i = size(); i-- > 0;) {
    const auto at = static_cast<std::size_t>(i);
    closure[at] = bit(i);
    for (Set rest = successors[at]; rest != 0; rest &= rest - 1) {
      closure[at] |= closure[static_cast<std::size_t>(lowest(rest))];
    }
  }
  return closure;
}

namespace {

/// Kuhn's augmenting paths: `above` of each operator are its proper descendants.
bool augment(int i, const std::vector<Set>& above, std::vector<int>& partner, Set& seen) {
  for (Set rest = above[static_cast<std::size_t>(i)] & ~seen; rest != 0; rest &= rest - 1) {
    const int j = lowest(rest);
    if ((seen & bit(j)) != 0) continue;
    seen |= bit(j);
    int& mate = partner[static_cast<std::size_t>(j)];
    if (mate < 0 || augment(mate, above, partner, seen)) {
      mate = i;
      return true;
    }
  }
  return false;
}

}  // namespace

int Dag::width() const {
  std::vector<Set> above = closures();
  for (int i = 0; i < size(); ++i) above[static_cast<std::size_t>(i)] &= ~bit(i);
  std::vector<int> partner(successors.size(), -1);
  int matched = 0;
  for (int i = 0; i < size(); ++i) {
    Set seen = 0;
    matched += augment(i, above, partner, seen) ? 1 : 0;
  }
  return size() - matched;  // the least number of chains that cover all
}

std::vector<Set> groups_of(const std::vector<Set>& closures, Set state, const Pruning& pruning) {
  const int most = pruning.r > 0 ? pruning.r : kMaxOperators;
  std::vector<Set> groups;  // grows while it is walked
  std::vector<Set> roots;   // closures within the state, of those small enough
  for (Set rest = state; rest != 0; rest &= rest - 1) {
    const Set closure = closures[static_cast<std::size_t>(lowest(rest))] & state;
    if (size(closure) <= most) roots.push_back(closure);
  }
  groups = roots;
  if (!pruning.legacy_single_root) {
    // A connected closed set is a union of closures that overlap one after another.
    SetMap<char> known(2 * groups.size());
    for (Set g : groups) known.insert(g, 1);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      for (Set root : roots) {
        const Set joined = groups[i] | root;
        if ((groups[i] & root) == 0 || joined == groups[i] || size(joined) > most) continue;
        if (known.insert(joined, 1).second) groups.push_back(joined);
      }
    }
  }
  std::sort(groups.begin(), groups.end(),
            [](Set a, Set b) { return lowest(a) != lowest(b) ? lowest(a) < lowest(b) : a < b; });
  return groups;
}

namespace {

struct Best {
  double seconds = std::numeric_limits<double>::infinity();
  int stages = 0;
  double schedules = 0;
  Set last = 0;  // operators of the last stage
};

/// A stage's cheaper strategy.
struct Choice {
  double seconds = std::numeric_limits<double>::infinity();
  Strategy strategy = Strategy::concurrent;
};

class Search {
 public:
  Search(const Dag& dag, const Pruning& pruning, const StageCost* cost, std::size_t limit)
      : closures_(dag.closures()), pruning_(pruning), cost_(cost), limit_(limit) {
    // Operators of one merged convolution do not feed one another: groups of one.
    if (cost != nullptr && !cost->concurrent) pruning_.r = 1;
    best_.insert(0, {0, 0, 1, 0});
  }

  /// Solves a state and those below; false once there are too many transitions.
  bool solve(Set state) {
    if (best_.find(state) != nullptr) return true;
    Best best;
    std::vector<std::pair<double, Set>> endings;  // with the cost of what is left without them
    const auto visit = [&](Set ending, std::span<const Set>) {
      if (++statistics.transitions > limit_ || !solve(state & ~ending)) return false;
      const Best& rest = *best_.find(state & ~ending);
      best.schedules += rest.schedules;
      if (cost_ != nullptr) endings.emplace_back(rest.seconds, ending);
      return true;
    };
    if (!for_each_ending(closures_, state, pruning_, visit)) return false;
    // Cheapest rest first: a stage costs nothing at the least, so most need not be measured.
    std::sort(endings.begin(), endings.end());
    for (const auto& [rest, ending] : endings) {
      if (rest > best.seconds) break;
      const double seconds = rest + choice(ending).seconds;
      const int stages = best_.find(state & ~ending)->stages + 1;
      if (seconds < best.seconds || (seconds == best.seconds && stages < best.stages)) {
        best.seconds = seconds;
        best.stages = stages;
        best.last = ending;
      }
    }
    best_.insert(state, best);
    return true;
  }

  SearchResult result(Set all) {
    SearchResult result;
    const Best whole = *best_.find(all);
    result.seconds = whole.seconds;
    statistics.schedules = whole.schedules;
    statistics.states = best_.size();
    statistics.stages = choices_.size();
    if (cost_ == nullptr || whole.seconds == std::numeric_limits<double>::infinity()) return result;
    for (Set state = all; state != 0;) {
      const Set last = best_.find(state)->last;
      const Choice chosen = *choices_.find(last);
      result.stages.push_back({chosen.strategy, components(last), chosen.seconds});
      state &= ~last;
    }
    std::reverse(result.stages.begin(), result.stages.end());
    return result;
  }

  Statistics statistics;

 private:
  const Choice& choice(Set ending) {
    if (const Choice* known = choices_.find(ending)) return *known;
    const std::vector<Set> groups = components(ending);
    Choice choice;
    if (cost_->concurrent) choice = {cost_->concurrent(groups), Strategy::concurrent};
    const bool singles = static_cast<int>(groups.size()) == size(ending);
    // A stage of one operator is the same either way.
    if (cost_->merge && singles && (groups.size() > 1 || !cost_->concurrent)) {
      const double merged = cost_->merge(ending);
      if (merged < choice.seconds) choice = {merged, Strategy::merge};
    }
    return *choices_.insert(ending, choice).first;
  }

  /// The connected components of a set that is an ending of some state.
  std::vector<Set> components(Set ending) const {
    std::vector<Set> groups;
    for (Set rest = ending; rest != 0; rest &= rest - 1) {
      Set group = closures_[static_cast<std::size_t>(lowest(rest))] & ending;
      std::erase_if(groups, [&](Set other) {
        const bool overlap = (other & group) != 0;
        if (overlap) group |= other;
        return overlap;
      });
      groups.push_back(group);
    }
    std::sort(groups.begin(), groups.end(), [](Set a, Set b) { return lowest(a) < lowest(b); });
    return groups;
  }

  const std::vector<Set> closures_;
  Pruning pruning_;
  const StageCost* cost_;
  std::size_t limit_;
  SetMap<Best> best_;
  SetMap<Choice> choices_;
};

}  // namespace

SearchResult search(const Dag& dag, const Pruning& pruning, const StageCost& cost) {
  assert(dag.size() <= kMaxOperators && (cost.concurrent || cost.merge));
  const auto start = std::chrono::steady_clock::now();
  Search search(dag, pruning, &cost, std::numeric_limits<std::size_t>::max());
  search.solve(dag.all());
  SearchResult result = search.result(dag.all());
  result.statistics = search.statistics;
  result.statistics.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::optional<Statistics> count(const Dag& dag, const Pruning& pruning, std::size_t limit) {
  assert(dag.size() <= kMaxOperators);
  Search search(dag, pruning, nullptr, limit);
  if (!search.solve(dag.all())) return std::nullopt;
  search.result(dag.all());
  return search.statistics;
}

}  // namespace convprim::ios
