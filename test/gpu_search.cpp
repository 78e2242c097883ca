// The IOS search: the published counts, bounds, and brute force on small graphs.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <random>

#include "convprim/import.hpp"
#include "gpu/nets.hpp"
#include "gpu/operators.hpp"
#include "gpu/search.hpp"
#include "test.hpp"

using namespace convprim;
using namespace convprim::ios;

namespace {

constexpr Pruning kNone{0, 0, false};
constexpr Pruning kLegacy{0, 0, true};

/// The largest block of a network.
Dag largest(const OperatorGraph& graph) {
  const auto& blocks = graph.blocks;
  return std::max_element(
             blocks.begin(), blocks.end(),
             [](const Block& a, const Block& b) { return a.dag.size() < b.dag.size(); })
      ->dag;
}

OperatorGraph graph_of(Network net) {
  random_weights(net);
  simplify(net);
  return operator_graph(std::move(net));
}

/// The block that holds an operator of that name.
Dag block_with(const OperatorGraph& graph, const std::string& name) {
  for (const Block& block : graph.blocks) {
    for (int i : block.operators) {
      if (graph.operators[static_cast<std::size_t>(i)].name == name) return block.dag;
    }
  }
  FAIL("no operator " << name);
  return {};
}

/// The operators whose names begin so, as one block.
Dag part(const OperatorGraph& graph, const std::string& prefix) {
  std::map<TensorId, int> makers;
  Dag dag;
  for (const Operator& op : graph.operators) {
    if (op.name.rfind(prefix, 0) != 0) continue;
    const int number = dag.size();
    dag.successors.push_back(0);
    for (LayerId id : op.layers) {
      for (TensorId t : graph.net.layers[static_cast<std::size_t>(id)].inputs) {
        const auto it = makers.find(t);
        if (it != makers.end()) dag.successors[static_cast<std::size_t>(it->second)] |= bit(number);
      }
    }
    makers[graph.net.layers[static_cast<std::size_t>(op.layers.back())].outputs[0]] = number;
  }
  return dag;
}

Dag published_randwire() {
  return largest(graph_of(randwire_stage({1, 308, 28, 28}, 616, 32, published_stage())));
}

/// What the paper and the requirement say about a block.
struct Expected {
  int operators, width;
  std::size_t legacy, exact, legacy_pruned, exact_pruned;  // transitions
  double legacy_schedules, exact_schedules;                // to three digits
};

double binomial(double n, double k) {
  return std::tgamma(n + 1) / std::tgamma(k + 1) / std::tgamma(n - k + 1);
}

void check_counts(const Dag& dag, const Expected& e) {
  REQUIRE(dag.size() == e.operators);
  CHECK(dag.width() == e.width);
  const auto legacy = count(dag, kLegacy), exact = count(dag, kNone);
  REQUIRE(legacy);
  REQUIRE(exact);
  CHECK(legacy->transitions == e.legacy);
  CHECK(exact->transitions == e.exact);
  CHECK(legacy->schedules == doctest::Approx(e.legacy_schedules).epsilon(0.005));
  CHECK(exact->schedules == doctest::Approx(e.exact_schedules).epsilon(0.005));
  CHECK(count(dag, {3, 8, true})->transitions == e.legacy_pruned);
  CHECK(count(dag, {3, 8, false})->transitions == e.exact_pruned);
  const double n = e.operators, d = e.width;
  const auto transitions = static_cast<double>(exact->transitions);
  CHECK(transitions <= std::pow(binomial(n / d + 2, 2), d));
  CHECK(transitions <= std::pow(n / d + 1, 2 * d));
  const double states = std::pow(n / d + 1, d);
  CHECK(static_cast<double>(exact->states) <= states);
  CHECK(static_cast<double>(count(dag, {3, 8, false})->transitions) <= states * std::pow(4, 8));
}

}  // namespace

TEST_CASE("counts of Inception v3's block E") {
  const auto graph = graph_of(import_network(test::data("nets/inception_v3.prototxt")));
  check_counts(block_with(graph, "mixed7c/3x3_row"),
               {11, 6, 4871, 5040, 4616, 4631, 3.76e6, 4.41e6});
}

TEST_CASE("counts of RandWire's third stage, as published") {
  check_counts(published_randwire(),
               {33, 8, 1'170'663, 3'560'808, 774'186, 843'754, 9.20e22, 1.18e23});
}

TEST_CASE("counts of NASNet's part of 18 operators") {
  const auto graph = graph_of(nasnet());
  check_counts(part(graph, "cell1_1/"),
               {18, 8, 307'841, 335'331, 233'842, 234'533, 7.15e12, 8.84e12});
}

TEST_CASE("counts of SqueezeNet's fire module with complex bypass") {
  const auto graph = graph_of(squeezenet_bypass());
  check_counts(block_with(graph, "fire2/conv1"), {6, 3, 51, 60, 47, 51, 131, 152});
}

TEST_CASE("the paper's figure 5: three operators, six states, twelve transitions") {
  const Dag dag{{bit(1), 0, 0}};  // a -> b, c
  const auto s = count(dag, kNone);
  CHECK(s->states == 6);
  CHECK(s->transitions == 12);
  CHECK(s->schedules == 8);
}

TEST_CASE("a group with two roots is an ending, except in the legacy mode") {
  const Dag dag{{bit(2), bit(2), 0}};  // a -> c <- b
  const auto closures = dag.closures();
  CHECK(groups_of(closures, 7, kNone) == std::vector<Set>{5, 7, 6, 4});
  CHECK(groups_of(closures, 7, kLegacy) == std::vector<Set>{5, 6, 4});
  // The zigzag a -> x <- c -> y <- b is one group; each operator lies in one only.
  const Dag zigzag{{bit(3), bit(3) | bit(4), bit(4), 0, 0}};
  for_each_ending(zigzag.closures(), 31, kNone, [](Set ending, std::span<const Set> groups) {
    Set all = 0;
    for (Set g : groups) {
      CHECK((all & g) == 0);
      all |= g;
    }
    CHECK(all == ending);
    if (ending == 31) CHECK(groups.size() == 1);
    return true;
  });
}

TEST_CASE("counting stops at its limit, however wide the graph") {
  const Dag wide{std::vector<Set>(60, 0)};
  CHECK(!count(wide, {3, 8, false}, 100'000));
  CHECK(wide.width() == 60);
}

TEST_CASE("the search of the 33-operator stage takes under 2 s with costs given") {
  const Dag dag = published_randwire();
  StageCost cost;
  cost.concurrent = [](std::span<const Set> groups) {
    int longest = 0;
    for (Set g : groups) longest = std::max(longest, size(g));
    return 1.0 + longest + 0.1 * static_cast<double>(groups.size());
  };
  const auto result = search(dag, {3, 8, false}, cost);
  CHECK(result.statistics.transitions == 843'754);
  CHECK(result.statistics.seconds < 2);
  MESSAGE("search: " << result.statistics.seconds << " s, " << result.stages.size() << " stages");
}

namespace {

/// What brute force compares: a pruning and which strategies there are.
struct Config {
  int r, s;
  bool concurrent, merge;
};
constexpr std::array<Config, 7> kConfigs = {{{0, 0, true, false},
                                             {0, 0, true, true},
                                             {0, 0, false, true},
                                             {2, 3, true, false},
                                             {3, 2, true, true},
                                             {1, 2, true, true},
                                             {2, 2, false, true}}};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A graph with costs: random numbers by set, and random kinds of operators of which equal ones can
/// be merged.
struct Problem {
  Dag dag;
  std::vector<int> kinds;
  std::uint64_t salt = 0;

  double cost(Set set, std::uint64_t which) const {
    std::mt19937_64 random(salt ^ set * 2654435761U ^ which << 60);
    // Multiples of 1/64 add up exactly in any order; small numbers make ties.
    return static_cast<double>(random() % 200) / 64 * (1 + size(set)) / 2;
  }
  bool mergeable(Set set) const {
    for (Set rest = set; rest != 0; rest &= rest - 1) {
      if (kinds[static_cast<std::size_t>(lowest(rest))] !=
          kinds[static_cast<std::size_t>(lowest(set))])
        return false;
    }
    return size(set) == 1 || kinds[static_cast<std::size_t>(lowest(set))] != 0;
  }
};

/// All ordered partitions into stages, first stage first.
class BruteForce {
 public:
  explicit BruteForce(const Problem& p) : p_(p) {
    best.fill(kInfinity);
    schedules.fill(0);
    for (std::size_t set = 1; set <= p.dag.all(); ++set) stages_.push_back(price(set));
    extend(0, {});
  }
  std::array<double, kConfigs.size()> best;
  std::array<double, kConfigs.size()> schedules;

 private:
  using Costs = std::array<double, kConfigs.size()>;

  /// The stage's cost under each configuration. Components by repeated relabelling.
  Costs price(Set set) const {
    const int n = p_.dag.size();
    std::vector<int> label(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) label[static_cast<std::size_t>(i)] = i;
    for (int round = 0; round < n; ++round) {
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) {
          if ((set & bit(i)) == 0 || (set & bit(j)) == 0) continue;
          if ((p_.dag.successors[static_cast<std::size_t>(i)] & bit(j)) == 0) continue;
          auto &a = label[static_cast<std::size_t>(i)], &b = label[static_cast<std::size_t>(j)];
          a = b = std::min(a, b);
        }
      }
    }
    std::map<int, int> sizes;
    for (int i = 0; i < n; ++i) {
      if ((set & bit(i)) != 0) ++sizes[label[static_cast<std::size_t>(i)]];
    }
    int largest_group = 0;
    for (const auto& [_, members] : sizes) largest_group = std::max(largest_group, members);
    const auto groups = static_cast<int>(sizes.size());
    Costs costs;
    for (std::size_t c = 0; c < kConfigs.size(); ++c) {
      const Config& k = kConfigs[c];
      costs[c] = kInfinity;
      if ((k.r > 0 && largest_group > k.r) || (k.s > 0 && groups > k.s)) continue;
      if (k.concurrent) costs[c] = p_.cost(set, 1);
      if (k.merge && largest_group == 1 && p_.mergeable(set) && (groups > 1 || !k.concurrent))
        costs[c] = std::min(costs[c], p_.cost(set, 2));
    }
    return costs;
  }

  void extend(Set done, const Costs& so_far) {
    const Set all = p_.dag.all();
    if (done == all) {
      for (std::size_t c = 0; c < kConfigs.size(); ++c) {
        best[c] = std::min(best[c], so_far[c]);
        if (so_far[c] < kInfinity) ++schedules[c];
      }
      return;
    }
    const Set left = all & ~done;
    for (Set stage = left; stage != 0; stage = (stage - 1) & left) {
      bool legal = true;  // no operator in it is fed by one that waits
      for (Set rest = left & ~stage; rest != 0 && legal; rest &= rest - 1) {
        legal = (p_.dag.successors[static_cast<std::size_t>(lowest(rest))] & stage) == 0;
      }
      if (!legal) continue;
      Costs costs = so_far;
      for (std::size_t c = 0; c < kConfigs.size(); ++c) costs[c] += stages_[stage - 1][c];
      extend(done | stage, costs);
    }
  }

  const Problem& p_;
  std::vector<Costs> stages_;
};

/// The cost of a found schedule, stage by stage, checking each.
double replay(const Problem& p, const SearchResult& found) {
  double seconds = 0;
  Set done = 0;
  for (const Stage& stage : found.stages) {
    Set all = 0;
    for (Set g : stage.groups) all |= g;
    for (Set rest = p.dag.all() & ~done & ~all; rest != 0; rest &= rest - 1) {
      CHECK((p.dag.successors[static_cast<std::size_t>(lowest(rest))] & all) == 0);
    }
    CHECK((all & done) == 0);
    done |= all;
    seconds += p.cost(all, stage.strategy == Strategy::merge ? 2 : 1);
  }
  CHECK(done == p.dag.all());
  return seconds;
}

}  // namespace

TEST_CASE("2,000 random graphs of up to 8 operators cost what brute force says") {
  std::mt19937_64 random(20201);
  for (int round = 0; round < 2000; ++round) {
    Problem p;
    const int n = 1 + static_cast<int>(random() % 8);
    const std::uint64_t density = 15 + random() % 60;  // per cent; wide graphs of 8 would take long
    p.salt = random();
    p.dag.successors.resize(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) {
      p.kinds.push_back(static_cast<int>(random() % 3));
      for (int j = i + 1; j < n; ++j) {
        if (random() % 100 < density) p.dag.successors[static_cast<std::size_t>(i)] |= bit(j);
      }
    }
    const BruteForce brute(p);
    for (std::size_t c = 0; c < kConfigs.size(); ++c) {
      CAPTURE(round);
      CAPTURE(c);
      const Config& k = kConfigs[c];
      StageCost cost;
      if (k.concurrent) {
        cost.concurrent = [&](std::span<const Set> groups) {
          Set all = 0;
          for (Set g : groups) all |= g;
          return p.cost(all, 1);
        };
      }
      if (k.merge) {
        cost.merge = [&](Set set) { return p.mergeable(set) ? p.cost(set, 2) : kInfinity; };
      }
      const auto found = search(p.dag, {k.r, k.s, false}, cost);
      REQUIRE(found.seconds == brute.best[c]);
      CHECK(replay(p, found) == found.seconds);
      if (k.concurrent) CHECK(found.statistics.schedules == brute.schedules[c]);
    }
  }
}

TEST_CASE("the same search gives the same schedule, ties included") {
  const Dag dag = published_randwire();
  StageCost cost;
  cost.concurrent = [](std::span<const Set> groups) { return groups.size() > 2 ? 2.0 : 1.0; };
  const auto first = search(dag, {2, 4, false}, cost), second = search(dag, {2, 4, false}, cost);
  REQUIRE(first.stages.size() == second.stages.size());
  for (std::size_t i = 0; i < first.stages.size(); ++i)
    CHECK(first.stages[i].groups == second.stages[i].groups);
}
