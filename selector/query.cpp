// The PBQP query: one node for each layer, one choice for each implementation; edges carry the
// cheapest chains of conversions.
//
// A tensor with several readers has a node of its own, whose choices are the sets of layouts that
// it is kept in: making a set costs the cheapest tree of conversions from the producer's layout (a
// Steiner tree in the DT graph, by Dreyfus and Wagner's dynamic programme), and a reader pays
// nothing if its layout is in the set. So a conversion is paid once however many want it, exactly.
//
// Costs depend on a choice's layouts only, so edges go to the solver as classes of choices and
// small matrices, never expanded.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "convprim/error.hpp"
#include "layouts/dt_graph.hpp"
#include "pbqp/pbqp.hpp"
#include "selector/candidates.hpp"

namespace convprim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The class of a choice as seen from one of its tensors: a layout and a flag. As producer the flag
/// says that the choice can write a channel slice; as reader, that it wants the tensor inside its
/// own output (a concat that copies nothing).
constexpr std::size_t kClasses = 2 * kLayoutCount;
std::uint32_t class_of(Layout layout, bool flag) {
  return 2 * static_cast<std::uint32_t>(layout) + (flag ? 1 : 0);
}
Layout layout_of_class(std::size_t c) { return kLayouts[c / 2]; }
bool flag_of_class(std::size_t c) { return c % 2 == 1; }

/// A conversion step of a plan.
using Steps = std::vector<const Conversion*>;

/// Everything about moving a tensor of one shape between layouts.
class Transport {
 public:
  Transport(const Shape& shape, const CostFunction& costs)
      : shape_(shape), costs_(routine_costs(shape, costs)), graph_(shape, conversions(), costs_) {
    for (std::size_t i = 0; i < kLayoutCount; ++i) {
      const LayerImpl* impl = copy_impl(kLayouts[i]);
      const LayerProblem problem = copy_problem(shape, 1);
      copy_[i] = impl == nullptr || impl->reject(problem) != nullptr
                     ? kInfinity
                     : costs({CostKind::layer, str(problem), std::string(impl->name)});
    }
    build_trees();
  }

  double cost(Layout from, Layout to) const { return graph_.cost(from, to); }
  Steps chain(Layout from, Layout to) const { return graph_.chain(from, to); }
  double copy(Layout layout) const { return copy_[static_cast<std::size_t>(layout)]; }
  double cost_of(const Conversion* routine) const {
    return costs_[static_cast<std::size_t>(routine - conversions().data())];
  }

  /// True if a tensor written in one layout into a slice lies there as the other layout wants it.
  bool joined(Layout a, Layout b, Index whole_channels) const {
    Shape whole = shape_;
    whole.c = whole_channels;
    return a == b || (same_memory(a, b, shape_) && same_memory(a, b, whole));
  }

  /// Cheapest way to get the tensor from `from` into a slice in `to` by at least one routine: the
  /// last one writes the slice.
  std::pair<double, Steps> into_slice(Layout from, Layout to) const {
    double best = kInfinity;
    const Conversion* last = nullptr;
    for (const Conversion& r : conversions()) {
      const double total = r.to == to ? graph_.cost(from, r.from) + cost_of(&r) : kInfinity;
      if (total < best) best = total, last = &r;
    }
    if (last == nullptr) return {kInfinity, {}};
    Steps steps = graph_.chain(from, last->from);
    steps.push_back(last);
    return {best, steps};
  }

  /// Cheapest tree of conversions from `from` to all layouts of the set (a bit mask), itself
  /// included if in the set.
  double tree_cost(Layout from, unsigned set) const {
    return tree_[static_cast<std::size_t>(from)][set].cost;
  }
  Steps tree(Layout from, unsigned set) const {
    Steps steps;
    collect(static_cast<std::size_t>(from), set, steps);
    return steps;
  }

 private:
  static std::vector<double> routine_costs(const Shape& shape, const CostFunction& costs) {
    std::vector<double> all;
    for (const Conversion& r : conversions()) all.push_back(costs(conversion_key(shape, r)));
    return all;
  }

  static constexpr unsigned kSets = 1U << kLayoutCount;
  struct Tree {
    double cost = kInfinity;
    unsigned part = 0;               // nonzero: the set is split into this and the rest
    std::size_t via = kLayoutCount;  // else: go to this layout first
  };

  void build_trees() {
    for (unsigned set = 0; set < kSets; ++set) {
      for (std::size_t v = 0; v < kLayoutCount; ++v) {
        Tree& t = tree_[v][set];
        if ((set & ~(1U << v)) == 0) {
          t.cost = 0;
          continue;
        }
        // A vertex that is itself wanted costs nothing here.
        if ((set & (1U << v)) != 0) {
          t.cost = tree_[v][set & ~(1U << v)].cost;
          t.part = 1U << v;
          continue;
        }
        for (unsigned part = (set - 1) & set; part != 0; part = (part - 1) & set) {
          const double split = tree_[v][part].cost + tree_[v][set & ~part].cost;
          if (split < t.cost) t = {split, part, kLayoutCount};
        }
      }
      // Then one step of the shortest-path closure to another root, the cheapest settled first: all
      // costs are against settled roots only.
      std::array<double, kLayoutCount> base;
      for (std::size_t v = 0; v < kLayoutCount; ++v) base[v] = own_cost(v, set);
      for (std::size_t v = 0; v < kLayoutCount; ++v) {
        for (std::size_t u = 0; u < kLayoutCount; ++u) {
          const double moved = graph_.cost(kLayouts[v], kLayouts[u]) + base[u];
          if (u != v && moved < tree_[v][set].cost) tree_[v][set] = {moved, 0, u};
        }
      }
    }
  }

  /// Cost of covering the set from v without moving the root first.
  double own_cost(std::size_t v, unsigned set) const { return tree_[v][set].cost; }

  void collect(std::size_t v, unsigned set, Steps& steps) const {
    const Tree& t = tree_[v][set];
    if ((set & ~(1U << v)) == 0) return;
    if (t.part != 0) {
      collect(v, t.part, steps);
      collect(v, set & ~t.part, steps);
      return;
    }
    for (const Conversion* r : graph_.chain(kLayouts[v], kLayouts[t.via])) {
      if (std::find(steps.begin(), steps.end(), r) == steps.end()) steps.push_back(r);
    }
    collect(t.via, set, steps);
  }

  Shape shape_;
  std::vector<double> costs_;
  DtGraph graph_;
  std::array<double, kLayoutCount> copy_{};
  std::array<std::array<Tree, kSets>, kLayoutCount> tree_{};
};

/// The network with its choices and the costs of moving its tensors.
struct Instance {
  const Network& net;
  std::vector<std::vector<Choice>> choices;  // for each layer
  std::vector<LayerId> producer;
  std::vector<std::vector<std::pair<LayerId, std::size_t>>>
      readers;  // for each tensor: layer and input index
  std::vector<int> uses;
  std::map<std::string, Transport> transports;

  const Transport* transport(TensorId t) const {
    const Shape& shape = net.tensors[static_cast<std::size_t>(t)].shape;
    return known(shape) ? &transports.at(text(shape)) : nullptr;
  }
};

Instance make_instance(const Network& net, const Filter& filter, const CostFunction& costs) {
  Instance instance{net, {}, producers(net), {}, use_counts(net), {}};
  instance.readers.resize(net.tensors.size());
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    const Layer& layer = net.layers[static_cast<std::size_t>(id)];
    auto all = choices(net, id, filter);
    if (std::holds_alternative<ConvOp>(layer.op) && all[0].name == "cut" &&
        known(net.tensors[static_cast<std::size_t>(layer.inputs[0])].shape)) {
      throw Error(
          fmt::format("layer \"{}\" ({}): no primitive that the options allow solves it; allow "
                      "more families, primitives or a larger error",
                      layer.name, scenario_of(net, id).str()));
    }
    std::erase_if(all, [&](const Choice& c) { return !c.free() && costs(c.key) == kInfinity; });
    if (all.empty()) {
      throw Error(fmt::format(
          "layer \"{}\": none of its implementations has a cost; profile the network first",
          layer.name));
    }
    instance.choices.push_back(std::move(all));
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      instance.readers[static_cast<std::size_t>(layer.inputs[i])].emplace_back(id, i);
    }
  }
  for (const Tensor& tensor : net.tensors) {
    if (known(tensor.shape) && !instance.transports.contains(text(tensor.shape))) {
      instance.transports.try_emplace(text(tensor.shape), tensor.shape, costs);
    }
  }
  return instance;
}

/// A PBQP built from an instance, perhaps with fewer choices, and the way back.
class Query {
 public:
  Query(const Instance& instance, std::vector<std::vector<Choice>> choices,
        const CostFunction& costs)
      : instance_(instance), choices_(std::move(choices)) {
    const Network& net = instance.net;
    for (std::size_t id = 0; id < net.layers.size(); ++id) {
      std::vector<double> vector;
      std::vector<std::string> names;
      for (const Choice& c : choices_[id]) {
        vector.push_back(choice_cost(c, static_cast<LayerId>(id), costs));
        names.push_back(fmt::format("{} {}->{}", c.name, name(c.in), name(c.out)));
      }
      problem_.add_node(std::move(vector), std::move(names), net.layers[id].name);
    }
    tensor_node_.assign(net.tensors.size(), -1);
    for (TensorId t = 0; t < static_cast<TensorId>(net.tensors.size()); ++t) add_tensor(t);
  }

  const pbqp::Problem& problem() const { return problem_; }

  pbqp::Result solve() const { return pbqp::solve(problem_); }

  const Choice& chosen(const pbqp::Result& result, LayerId id) const {
    const auto i = static_cast<std::size_t>(id);
    return choices_[i][result.assignment[i]];
  }

  /// Conversions of one tensor under an assignment, in the order in which they must run.
  Steps conversions_of(const pbqp::Result& result, TensorId t) const {
    const auto i = static_cast<std::size_t>(t);
    const Transport* transport = instance_.transport(t);
    const LayerId maker = instance_.producer[i];
    if (transport == nullptr || maker < 0) return {};
    const Layout from = chosen(result, maker).out;
    if (tensor_node_[i] >= 0) {
      const auto set =
          static_cast<unsigned>(result.assignment[static_cast<std::size_t>(tensor_node_[i])] + 1);
      return transport->tree(from, set);
    }
    if (instance_.uses[i] == 0) return {};
    if (instance_.readers[i].empty()) return transport->chain(from, Layout::chw);
    const auto [reader, input] = instance_.readers[i][0];
    const Choice& c = chosen(result, reader);
    if (c.slices) {
      if (transport->joined(from, c.in, whole_channels(reader))) return {};
      return transport->into_slice(from, c.in).second;
    }
    return transport->chain(from, input_layout(c, input));
  }

  double choice_cost(const Choice& choice, LayerId id, const CostFunction& costs) const {
    if (!choice.slices) return choice.free() ? 0 : costs(choice.key);
    // Inputs that others read too lie elsewhere and are copied into place.
    double sum = 0;
    for (TensorId t : instance_.net.layers[static_cast<std::size_t>(id)].inputs) {
      if (instance_.uses[static_cast<std::size_t>(t)] > 1)
        sum += instance_.transport(t)->copy(choice.in);
    }
    return sum;
  }

 private:
  Index whole_channels(LayerId concat) const {
    const Layer& layer = instance_.net.layers[static_cast<std::size_t>(concat)];
    return instance_.net.tensors[static_cast<std::size_t>(layer.outputs[0])].shape.c;
  }

  /// Whether a choice of layer `id` can write its output as input `input` of concat `concat`.
  bool can_slice(const Choice& choice, LayerId id, LayerId concat, std::size_t input) const {
    if (choice.primitive != nullptr || choice.slices) return true;
    if (choice.impl == nullptr) return false;
    LayerProblem problem = layer_problem(instance_.net, id, 1);
    problem.slice = concat_slice(instance_.net, concat, input);
    return choice.impl->reject(problem) == nullptr;
  }

  pbqp::Classes producer_classes(
      LayerId maker, const std::vector<std::pair<LayerId, std::size_t>>& readers) const {
    pbqp::Classes classes;
    for (const Choice& c : choices_[static_cast<std::size_t>(maker)]) {
      bool sliceable = false;
      if (readers.size() == 1) {
        const auto& reader_choices = choices_[static_cast<std::size_t>(readers[0].first)];
        const bool wanted = std::any_of(reader_choices.begin(), reader_choices.end(),
                                        [](const Choice& r) { return r.slices; });
        sliceable = wanted && can_slice(c, maker, readers[0].first, readers[0].second);
      }
      classes.push_back(class_of(c.out, sliceable));
    }
    return classes;
  }

  pbqp::Classes reader_classes(LayerId reader, std::size_t input) const {
    pbqp::Classes classes;
    for (const Choice& c : choices_[static_cast<std::size_t>(reader)])
      classes.push_back(class_of(input_layout(c, input), c.slices));
    return classes;
  }

  void add_tensor(TensorId t) {
    const auto i = static_cast<std::size_t>(t);
    const Transport* transport = instance_.transport(t);
    const LayerId maker = instance_.producer[i];
    if (transport == nullptr || maker < 0 || instance_.uses[i] == 0) return;
    const auto& readers = instance_.readers[i];
    const auto maker_node = static_cast<std::size_t>(maker);
    const pbqp::Classes from = producer_classes(maker, readers);
    if (instance_.uses[i] > 1) {
      add_shared(t, *transport, from);
    } else if (readers.empty()) {  // read from outside, in chw
      std::vector<double> extra = problem_.costs(maker_node);
      for (std::size_t o = 0; o < extra.size(); ++o)
        extra[o] += transport->cost(choices_[maker_node][o].out, Layout::chw);
      problem_.set_costs(maker_node, std::move(extra));
    } else {
      const auto [reader, input] = readers[0];
      pbqp::Matrix matrix(kClasses, kClasses);
      const Index whole = choices_[static_cast<std::size_t>(reader)][0].slices || has_slices(reader)
                              ? whole_channels(reader)
                              : 0;
      for (std::size_t a = 0; a < kClasses; ++a) {
        for (std::size_t b = 0; b < kClasses; ++b) {
          const Layout own = layout_of_class(a), wanted = layout_of_class(b);
          if (!flag_of_class(b)) {
            matrix(a, b) = transport->cost(own, wanted);
          } else if (transport->joined(own, wanted, whole)) {
            matrix(a, b) = flag_of_class(a) ? 0 : kInfinity;
          } else {
            matrix(a, b) = transport->into_slice(own, wanted).first;
          }
        }
      }
      problem_.add_class_edge(maker_node, from, static_cast<std::size_t>(reader),
                              reader_classes(reader, input), std::move(matrix));
    }
  }

  bool has_slices(LayerId id) const {
    const auto& all = choices_[static_cast<std::size_t>(id)];
    return std::any_of(all.begin(), all.end(), [](const Choice& c) { return c.slices; });
  }

  /// A tensor that several read: a node whose option number s - 1 is the set s of layouts that it
  /// is kept in.
  void add_shared(TensorId t, const Transport& transport, const pbqp::Classes& from) {
    const auto i = static_cast<std::size_t>(t);
    constexpr std::size_t kSets = (1U << kLayoutCount) - 1;
    std::vector<double> costs(kSets);
    std::vector<std::string> names(kSets);
    const bool outside = instance_.uses[i] > static_cast<int>(instance_.readers[i].size());
    for (std::size_t s = 1; s <= kSets; ++s) {
      if (outside && (s & (1U << static_cast<unsigned>(Layout::chw))) == 0)
        costs[s - 1] = kInfinity;
      for (Layout layout : kLayouts) {
        if ((s & (1U << static_cast<unsigned>(layout))) != 0)
          names[s - 1] += fmt::format("{}{}", names[s - 1].empty() ? "" : "+", name(layout));
      }
    }
    const std::size_t node = problem_.add_node(std::move(costs), std::move(names),
                                               "tensor " + instance_.net.tensors[i].name);
    tensor_node_[i] = static_cast<int>(node);
    pbqp::Classes identity(kSets);
    for (std::size_t s = 0; s < kSets; ++s) identity[s] = static_cast<std::uint32_t>(s);
    pbqp::Matrix make(kClasses, kSets);
    for (std::size_t a = 0; a < kClasses; ++a) {
      for (std::size_t s = 1; s <= kSets; ++s)
        make(a, s - 1) = transport.tree_cost(layout_of_class(a), static_cast<unsigned>(s));
    }
    problem_.add_class_edge(static_cast<std::size_t>(instance_.producer[i]), from, node, identity,
                            std::move(make));
    for (const auto& [reader, input] : instance_.readers[i]) {
      pbqp::Matrix read(kSets, kClasses);
      for (std::size_t s = 1; s <= kSets; ++s) {
        for (std::size_t b = 0; b < kClasses; ++b) {
          const bool kept = (s & (1U << static_cast<unsigned>(layout_of_class(b)))) != 0;
          read(s - 1, b) = kept ? 0 : kInfinity;
        }
      }
      problem_.add_class_edge(node, identity, static_cast<std::size_t>(reader),
                              reader_classes(reader, input), std::move(read));
    }
  }

  const Instance& instance_;
  std::vector<std::vector<Choice>> choices_;
  pbqp::Problem problem_;
  std::vector<int> tensor_node_;
};

bool is_convolution(const std::vector<Choice>& all) {
  return !all.empty() && all[0].primitive != nullptr;
}

/// The index of the cheapest choice that `wanted` admits.
template <class Predicate>
std::optional<std::size_t> cheapest(const std::vector<Choice>& all, const CostFunction& costs,
                                    Predicate wanted) {
  std::optional<std::size_t> best;
  double least = kInfinity;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double cost = all[i].free() ? 0 : costs(all[i].key);
    if (wanted(all[i]) && cost < least) least = cost, best = i;
  }
  return best;
}

/// The bars of Anderson and Gregg's figures, predicted: convolutions as each strategy has them,
/// everything else as cheap as it can be around them.
std::vector<Strategy> compare_strategies(const Instance& instance, const CostFunction& costs) {
  std::vector<Strategy> strategies;
  const auto is_sum2d = [](const Choice& c) { return c.primitive->name == "direct-sum2d"; };
  const auto predict =
      [&](std::string name,
          const std::function<std::optional<std::size_t>(const std::vector<Choice>&)>& pick,
          bool chw_only) {
        auto restricted = instance.choices;
        for (auto& all : restricted) {
          if (is_convolution(all)) {
            const auto best = pick(all);
            if (!best) return;  // the filter leaves this strategy nothing
            all = {all[*best]};
          } else if (chw_only) {
            std::vector<Choice> plain;
            for (const Choice& c : all) {
              if (c.in == Layout::chw && c.out == Layout::chw) plain.push_back(c);
            }
            if (!plain.empty()) all = std::move(plain);
          }
        }
        const auto result = Query(instance, std::move(restricted), costs).solve();
        if (result.has_assignment()) strategies.push_back({std::move(name), result.upper});
      };
  predict(
      "sum2d", [&](const auto& all) { return cheapest(all, costs, is_sum2d); }, false);
  for (int f = 0; f < kFamilyCount; ++f) {
    const auto family = static_cast<Family>(f);
    const bool present =
        std::any_of(instance.choices.begin(), instance.choices.end(), [&](const auto& all) {
          return is_convolution(all) && std::any_of(all.begin(), all.end(), [&](const Choice& c) {
                   return c.primitive->family == family;
                 });
        });
    if (!present) continue;
    predict(
        fmt::format("best {}", name(family)),
        [&](const auto& all) {
          return cheapest(all, costs, [&](const Choice& c) {
            return c.primitive->family == family || is_sum2d(c);
          });
        },
        false);
  }
  predict(
      "local-optimal chw",
      [&](const auto& all) {
        return cheapest(all, costs, [](const Choice& c) {
          return c.in == Layout::chw && c.out == Layout::chw;
        });
      },
      true);
  return strategies;
}

SolverReport report_of(const pbqp::Result& result) {
  const pbqp::Statistics& s = result.statistics;
  SolverReport report;
  report.objective_seconds = result.upper;
  report.lower_bound_seconds = result.lower;
  report.proven_optimal = result.optimal();
  report.solve_seconds = s.seconds;
  report.nodes = s.nodes, report.edges = s.edges, report.options = s.options;
  report.r0 = s.r0, report.r1 = s.r1, report.r2 = s.r2;
  report.eliminated = s.eliminated, report.searched = s.searched, report.width = s.width;
  return report;
}

}  // namespace

CostFunction costs_of(const CostStore& store) {
  return [&store](const CostKey& key) {
    const auto cost = store.find(key);
    return cost ? cost->seconds : kInfinity;
  };
}

Plan select(const Network& net, const Filter& filter, const CostFunction& costs,
            const Machine& machine, bool compare) {
  const Instance instance = make_instance(net, filter, costs);
  const Query query(instance, instance.choices, costs);
  const pbqp::Result result = query.solve();
  if (!result.has_assignment()) {
    std::string layers;
    for (std::size_t node : result.core)
      layers += (layers.empty() ? "" : ", ") + query.problem().describe(node);
    throw Error(fmt::format(
        "no plan: no choice of implementations fits together at {}; allow more families", layers));
  }
  Plan plan;
  plan.network = net.name;
  plan.file = net.file;
  plan.machine = machine;
  plan.solver = report_of(result);
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    const Layer& layer = net.layers[static_cast<std::size_t>(id)];
    const Choice& c = query.chosen(result, id);
    plan.layers.push_back({layer.name, std::string(kind(layer.op)), c.key.problem, c.name, c.in,
                           c.out, query.choice_cost(c, id, costs)});
    if (c.name == "cut") plan.cut.push_back(layer.name);
  }
  for (TensorId t = 0; t < static_cast<TensorId>(net.tensors.size()); ++t) {
    for (const Conversion* r : query.conversions_of(result, t)) {
      plan.conversions.push_back(
          {t, r->from, r->to, std::string(r->name), instance.transport(t)->cost_of(r)});
    }
  }
  if (compare) plan.strategies = compare_strategies(instance, costs);
  plan.strategies.push_back({"pbqp", plan.solver.objective_seconds});
  return plan;
}

}  // namespace convprim
