// The cheapest plan within a limit of memory.
//
// What counts is packed weights, a sum over the layers, plus the arena, which is near to the
// largest sum of tensors and workspace in use at one step. A sum is a capacity of the PBQP. A
// maximum is a threshold A: a choice fits under A if its workspace and the tensors that are in use
// then at least do. So with arenas between two thresholds, L < A <= H, the cheapest plan costs no
// less than
//
//   the PBQP with the choices that fit under H and packed weights of at most limit - L.
//
// The intervals of thresholds are searched best bound first. If the plan behind a bound takes no
// more than the limit, laid out exactly as an executable is, it is the best of its interval; else
// the interval is halved. An interval of one threshold whose plan still takes too much (conversions
// and blocks that are not full need more than the model knows) is tried again with less for the
// weights, and then the answer is no longer proven.
#include "selector/limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <queue>
#include <set>

#include "convprim/error.hpp"
#include "selector/memory.hpp"

namespace convprim {
namespace {

constexpr double kSolveSeconds = 1;    // for one PBQP
constexpr double kSearchSeconds = 10;  // for the search
constexpr int kTightenings = 8;

using Clock = std::chrono::steady_clock;

std::size_t tensor_bytes(const Shape& shape) {
  const auto bytes = static_cast<std::size_t>(shape.count()) * sizeof(float);
  return (bytes + 63) / 64 * 64;
}

/// For each layer, the least that its step's tensors take beside a workspace, and the same without
/// the layer's own outputs, for choices that write over an input.
struct LiveBytes {
  std::vector<std::size_t> whole, without_outputs;
};

LiveBytes live_bytes(const Network& net, const Instance& instance) {
  const std::size_t layers = net.layers.size();
  LiveBytes live{std::vector<std::size_t>(layers), std::vector<std::size_t>(layers)};
  for (std::size_t t = 0; t < net.tensors.size(); ++t) {
    if (instance.producer[t] < 0 || !known(net.tensors[t].shape)) continue;
    const auto maker = static_cast<std::size_t>(instance.producer[t]);
    const bool input = std::holds_alternative<InputOp>(net.layers[maker].op);
    std::size_t last = maker;
    for (const auto& [reader, index] : instance.readers[t])
      last = std::max(last, static_cast<std::size_t>(reader));
    // Inputs stay for the whole run, outputs to its end.
    if (input || instance.uses[t] > static_cast<int>(instance.readers[t].size())) last = layers - 1;
    // What may lie inside a concatenation counts as a part of it from there on.
    if (const LayerId host = instance.shared_parts.host(static_cast<TensorId>(t)); host >= 0)
      last = std::min(last, static_cast<std::size_t>(host));
    for (std::size_t i = input ? 0 : maker; i <= last; ++i) {
      live.whole[i] += tensor_bytes(net.tensors[t].shape);
      if (i != maker) live.without_outputs[i] += tensor_bytes(net.tensors[t].shape);
    }
  }
  return live;
}

/// The smallest arena that a choice may fit in.
std::size_t arena_of(const Network& net, std::size_t id, const Choice& c, const LiveBytes& live) {
  if (c.slices || c.name == "input" || c.name == "cut") return 0;  // no step
  const auto* conv = std::get_if<ConvOp>(&net.layers[id].op);
  const bool over = c.primitive != nullptr ? conv->epilogue.residual : c.impl->in_place;
  return (over ? live.without_outputs[id] : live.whole[id]) + (c.sizes->workspace + 63) / 64 * 64;
}

/// The search for one network and limit.
class Search {
 public:
  Search(const Network& net, const Filter& filter, const Instance& instance,
         const CostFunction& costs, const SizeFunction& sizes, const Plan& unlimited)
      : net_(net),
        limit_(filter.max_memory),
        instance_(instance),
        costs_(costs),
        unlimited_(unlimited),
        sizes_(net, sizes) {
    const LiveBytes live = live_bytes(net, instance);
    std::set<std::size_t> values;
    std::size_t least = 0;  // below this some layer has no choice
    for (std::size_t id = 0; id < net.layers.size(); ++id) {
      auto& arenas = arenas_.emplace_back();
      for (const Choice& c : instance.choices[id]) arenas.push_back(arena_of(net, id, c, live));
      values.insert(arenas.begin(), arenas.end());
      least = std::max(least, *std::min_element(arenas.begin(), arenas.end()));
    }
    thresholds_.assign(values.lower_bound(least), values.end());
  }

  Plan run() {
    const auto start = Clock::now();
    const PlanMemory unlimited = memory_of(net_, unlimited_, sizes_);
    if (unlimited.total() <= limit_) {
      Plan plan = unlimited_;
      plan.memory = MemoryReport{limit_, unlimited.arena, unlimited.packed,
                                 plan.solver.objective_seconds, unlimited.total()};
      return plan;
    }
    find_leanest();
    if (least_possible_ <= limit_) search();
    if (!best_) refuse();
    best_->memory->unlimited_seconds = unlimited_.solver.objective_seconds;
    best_->memory->unlimited_bytes = unlimited.total();
    SolverReport& solver = best_->solver;
    solver.lower_bound_seconds = std::min(bound_, solver.objective_seconds);
    solver.solve_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    solver.proven_optimal = solver.lower_bound_seconds == solver.objective_seconds;
    return std::move(*best_);
  }

 private:
  using Choices = std::vector<std::vector<Choice>>;

  /// Thresholds low to high, by number; no plan with an arena in there costs less than `bound`.
  struct Interval {
    double bound = 0;
    std::size_t low = 0, high = 0;
    bool operator<(const Interval& other) const { return bound > other.bound; }
  };

  /// The choices that fit under an arena.
  Choices fitting(std::size_t threshold) const {
    Choices choices = instance_.choices;
    for (std::size_t id = 0; id < choices.size(); ++id) {
      std::size_t k = 0;
      std::erase_if(choices[id], [&](const Choice&) { return arenas_[id][k++] > threshold; });
    }
    return choices;
  }

  /// Keeps a plan if it is within the limit and better, and the least memory seen. Returns its
  /// memory.
  std::size_t note(const Query& query, const pbqp::Result& result) {
    Plan plan = query.plan(result.assignment, unlimited_.machine);
    const PlanMemory memory = memory_of(net_, plan, sizes_);
    if (memory.total() < least_.total()) least_ = memory, leanest_ = true;
    if (memory.total() <= limit_ && (!best_ || result.upper < best_->solver.objective_seconds)) {
      plan.solver = report_of(result);
      plan.memory = MemoryReport{.limit = limit_, .arena = memory.arena, .packed = memory.packed};
      best_ = std::move(plan);
    }
    return memory.total();
  }

  /// The plans with the least packed weights under each threshold, and what no plan goes below.
  void find_leanest() {
    const std::size_t step = std::max<std::size_t>(1, thresholds_.size() / 32);
    for (std::size_t i = 0; i < thresholds_.size(); ++i) {
      Choices choices = fitting(thresholds_[i]);
      std::size_t packed = 0;
      for (auto& all : choices) {
        std::size_t least = kNoLimit;
        for (const Choice& c : all) least = std::min(least, c.sizes->packed);
        packed += least;
        std::erase_if(all, [&](const Choice& c) { return c.sizes->packed > least; });
      }
      least_possible_ = std::min(least_possible_, thresholds_[i] + packed);
      if (i % step != 0 && i + 1 != thresholds_.size()) continue;
      const Query query(instance_, std::move(choices), costs_);
      const pbqp::Result result = query.solve();
      if (result.has_assignment()) note(query, result);
    }
  }

  /// The relaxation of an interval; `less` is taken off the capacity for weights. Nothing if no
  /// plan fits.
  std::optional<std::pair<pbqp::Result, std::size_t>> relax(const Interval& interval,
                                                            std::size_t less) {
    const std::size_t arena = thresholds_[interval.low] + less;
    if (arena > limit_) return std::nullopt;
    Query query(instance_, fitting(thresholds_[interval.high]), costs_);
    query.weigh_packed();
    pbqp::Limits limits;
    limits.seconds = kSolveSeconds;
    limits.capacity = static_cast<double>(limit_ - arena);
    const pbqp::Result result = query.solve(limits);
    if (!result.has_assignment()) {
      if (result.status == pbqp::Status::kLimit) bound_ = std::min(bound_, interval.bound);
      return std::nullopt;
    }
    return std::pair(result, note(query, result));
  }

  void search() {
    const auto start = Clock::now();
    std::priority_queue<Interval> open;
    open.push({0, 0, thresholds_.size() - 1});
    while (!open.empty()) {
      const Interval interval = open.top();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (worse_than_best(interval.bound) || seconds > kSearchSeconds) {
        bound_ = std::min(bound_, interval.bound);
        return;
      }
      open.pop();
      const auto relaxed = relax(interval, 0);
      if (!relaxed) continue;
      const auto& [result, bytes] = *relaxed;
      const double bound = std::max(interval.bound, result.lower);
      if (bytes <= limit_ && result.optimal()) {  // the best of its interval
        bound_ = std::min(bound_, bound);
      } else if (interval.low < interval.high) {
        const std::size_t middle = interval.low + (interval.high - interval.low) / 2;
        open.push({bound, interval.low, middle});
        open.push({bound, middle + 1, interval.high});
      } else {
        bound_ = std::min(bound_, bound);
        tighten(interval, bytes);
      }
    }
  }

  bool worse_than_best(double bound) const {
    return best_ && bound >= best_->solver.objective_seconds;
  }

  /// A plan for one threshold took too much: less for the weights, until one does not.
  void tighten(const Interval& interval, std::size_t bytes) {
    std::size_t less = 0;
    for (int i = 0; i < kTightenings && bytes > limit_; ++i) {
      less += bytes - limit_;
      const auto relaxed = relax(interval, less);
      if (!relaxed) return;
      bytes = relaxed->second;
    }
  }

  [[noreturn]] void refuse() const {
    const std::string limit = "--max-memory " + bytes_text(limit_);
    if (!leanest_)
      throw Error("no plan: " + limit + ": no choice of implementations fits together");
    std::string biggest;
    std::size_t most = 0;
    for (std::size_t id = 0; id < net_.layers.size(); ++id) {
      std::size_t packed = kNoLimit;
      for (const Choice& c : instance_.choices[id]) packed = std::min(packed, c.sizes->packed);
      if (packed > most) most = packed, biggest = net_.layers[id].name;
    }
    throw Error(fmt::format(
        "no plan: {}: the least found takes {} bytes (arena {}, packed weights {}); {}{}", limit,
        least_.total(), least_.arena, least_.packed,
        least_possible_ > limit_
            ? fmt::format("no plan takes less than {}", least_possible_)
            : fmt::format("whether one takes less than {} is not known", limit_ + 1),
        most > 0 ? fmt::format("; the weights of layer \"{}\" alone take {}", biggest, most) : ""));
  }

  const Network& net_;
  std::size_t limit_;
  const Instance& instance_;
  const CostFunction& costs_;
  const Plan& unlimited_;
  SizeTable sizes_;
  std::vector<std::vector<std::size_t>> arenas_;  // of each layer's choices: arena_of()
  std::vector<std::size_t> thresholds_;           // all values of them that matter, ascending
  std::size_t least_possible_ = kNoLimit;         // no plan takes less memory
  PlanMemory least_{.arena = kNoLimit / 2};
  bool leanest_ = false;
  std::optional<Plan> best_;
  double bound_ = kInfinity;  // no plan within the limit costs less, all of the search considered
};

}  // namespace

Plan select_within(const Network& net, const Filter& filter, const Instance& instance,
                   const CostFunction& costs, const SizeFunction& sizes, const Plan& unlimited) {
  return Search(net, filter, instance, costs, sizes, unlimited).run();
}

}  // namespace convprim
