// The PBQP query.
//
// A tensor with several readers has a node of its own, whose choices are the sets of layouts that
// it is kept in: making a set costs the cheapest tree of conversions from the producer's layout (a
// Steiner tree in the DT graph, by Dreyfus and Wagner's dynamic programme), and a reader pays
// nothing if its layout is in the set. So a conversion is paid once however many want it, exactly.
//
// Costs depend on a choice's layouts only, so edges go to the solver as classes of choices and
// small matrices, never expanded.
#include "selector/query.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace convprim {
namespace {

/// The class of a choice as seen from one of its tensors: a layout and a flag. As producer the flag
/// says that the choice can write a channel slice; as reader, that it wants the tensor inside its
/// own output (a concat that copies nothing).
constexpr std::size_t kClasses = 2 * kLayoutCount;
std::uint32_t class_of(Layout layout, bool flag) {
  return 2 * static_cast<std::uint32_t>(layout) + (flag ? 1 : 0);
}
Layout layout_of_class(std::size_t c) { return kLayouts[c / 2]; }
bool flag_of_class(std::size_t c) { return c % 2 == 1; }

}  // namespace

Instance make_instance(const Network& net, const Filter& filter, const CostFunction& costs,
                       const SizeFunction& sizes) {
  check(net, filter);
  Instance instance{net, {}, producers(net), {}, use_counts(net), SharedParts(net), {}};
  instance.readers.resize(net.tensors.size());
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    const Layer& layer = net.layers[static_cast<std::size_t>(id)];
    auto all = candidates(net, id, filter);
    apply_costs(all, filter, costs, sizes);
    std::vector<Choice> kept;
    for (Candidate& c : all) {
      if (c.rule == Rule::none) kept.push_back(std::move(c.choice));
    }
    if (kept.empty()) {
      // An input, or a layer that nothing computes whatever the rules.
      kept = choices(net, id, filter);
      if (!kept[0].free()) refuse_layer(net, id, filter, all);
      kept[0].sizes = Sizes{};
    }
    instance.choices.push_back(std::move(kept));
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

Query::Query(const Instance& instance, std::vector<std::vector<Choice>> choices,
             const CostFunction& costs)
    : instance_(instance), choices_(std::move(choices)), costs_(costs) {
  const Network& net = instance.net;
  for (std::size_t id = 0; id < net.layers.size(); ++id) {
    std::vector<double> vector;
    std::vector<std::string> names;
    for (const Choice& c : choices_[id]) {
      vector.push_back(choice_cost(c, static_cast<LayerId>(id)));
      names.push_back(fmt::format("{} {}->{}", c.name, name(c.in), name(c.out)));
    }
    problem_.add_node(std::move(vector), std::move(names), net.layers[id].name);
  }
  tensor_node_.assign(net.tensors.size(), -1);
  for (TensorId t = 0; t < static_cast<TensorId>(net.tensors.size()); ++t) add_tensor(t);
}

void Query::weigh_packed() {
  for (std::size_t id = 0; id < choices_.size(); ++id) {
    std::vector<double> weights;
    for (const Choice& c : choices_[id]) weights.push_back(static_cast<double>(c.sizes->packed));
    problem_.set_weights(id, std::move(weights));
  }
}

const Choice& Query::chosen(const pbqp::Assignment& assignment, LayerId id) const {
  const auto i = static_cast<std::size_t>(id);
  return choices_[i][assignment[i]];
}

Steps Query::conversions_of(const pbqp::Assignment& assignment, TensorId t) const {
  const auto i = static_cast<std::size_t>(t);
  const Transport* transport = instance_.transport(t);
  const LayerId maker = instance_.producer[i];
  if (transport == nullptr || maker < 0) return {};
  const Layout from = chosen(assignment, maker).out;
  if (tensor_node_[i] >= 0) {
    const auto set =
        static_cast<unsigned>(assignment[static_cast<std::size_t>(tensor_node_[i])] + 1);
    return transport->tree(from, set);
  }
  if (instance_.uses[i] == 0) return {};
  if (instance_.readers[i].empty()) return transport->chain(from, Layout::chw);
  const auto [reader, input] = instance_.readers[i][0];
  const Choice& c = chosen(assignment, reader);
  if (c.slices) {
    if (transport->joined(from, c.in, concat_slice(instance_.net, reader, input))) return {};
    return transport->into_slice(from, c.in).second;
  }
  return transport->chain(from, input_layout(c, input));
}

double Query::choice_cost(const Choice& choice, LayerId id) const {
  if (!choice.slices) return choice.free() ? 0 : costs_(choice.key);
  // Inputs that others read too lie elsewhere and are copied into place, unless all can read them
  // there.
  double sum = 0;
  const auto& inputs = instance_.net.layers[static_cast<std::size_t>(id)].inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (instance_.uses[static_cast<std::size_t>(inputs[i])] > 1 &&
        !instance_.shared_parts.inside(id, i, choice.in))
      sum += instance_.transport(inputs[i])->copy(choice.in);
  }
  return sum;
}

/// Whether a choice of layer `id` can write its output as input `input` of concat `concat`.
bool Query::can_slice(const Choice& choice, LayerId id, LayerId concat, std::size_t input) const {
  if (choice.primitive != nullptr || choice.slices) return true;
  if (choice.impl == nullptr) return false;
  LayerProblem problem = layer_problem(instance_.net, id, 1);
  problem.slice = concat_slice(instance_.net, concat, input);
  return choice.impl->reject(problem) == nullptr;
}

pbqp::Classes Query::producer_classes(
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

pbqp::Classes Query::reader_classes(LayerId reader, std::size_t input) const {
  pbqp::Classes classes;
  for (const Choice& c : choices_[static_cast<std::size_t>(reader)])
    classes.push_back(class_of(input_layout(c, input), c.slices));
  return classes;
}

void Query::add_tensor(TensorId t) {
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
    const ChannelSlice slice =
        has_slices(reader) ? concat_slice(instance_.net, reader, input) : ChannelSlice{};
    for (std::size_t a = 0; a < kClasses; ++a) {
      for (std::size_t b = 0; b < kClasses; ++b) {
        const Layout own = layout_of_class(a), wanted = layout_of_class(b);
        if (!flag_of_class(b)) {
          matrix(a, b) = transport->cost(own, wanted);
        } else if (transport->joined(own, wanted, slice)) {
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

bool Query::has_slices(LayerId id) const {
  const auto& all = choices_[static_cast<std::size_t>(id)];
  return std::any_of(all.begin(), all.end(), [](const Choice& c) { return c.slices; });
}

/// A tensor that several read: a node whose option number s - 1 is the set s of layouts that it
/// is kept in.
void Query::add_shared(TensorId t, const Transport& transport, const pbqp::Classes& from) {
  const auto i = static_cast<std::size_t>(t);
  constexpr std::size_t kSets = (1U << kLayoutCount) - 1;
  std::vector<double> costs(kSets);
  std::vector<std::string> names(kSets);
  const bool outside = instance_.uses[i] > static_cast<int>(instance_.readers[i].size());
  for (std::size_t s = 1; s <= kSets; ++s) {
    if (outside && (s & (1U << static_cast<unsigned>(Layout::chw))) == 0) costs[s - 1] = kInfinity;
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

Plan Query::plan(const pbqp::Assignment& assignment, const Machine& machine) const {
  const Network& net = instance_.net;
  Plan plan;
  plan.network = net.name;
  plan.file = net.file;
  plan.machine = machine;
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    const Layer& layer = net.layers[static_cast<std::size_t>(id)];
    const Choice& c = chosen(assignment, id);
    plan.layers.push_back({layer.name, std::string(kind(layer.op)), c.key.problem, c.name, c.in,
                           c.out, choice_cost(c, id)});
    if (c.name == "cut") plan.cut.push_back(layer.name);
  }
  for (TensorId t = 0; t < static_cast<TensorId>(net.tensors.size()); ++t) {
    for (const Conversion* r : conversions_of(assignment, t)) {
      plan.conversions.push_back(
          {t, r->from, r->to, std::string(r->name), instance_.transport(t)->cost_of(r)});
    }
  }
  return plan;
}

}  // namespace convprim
