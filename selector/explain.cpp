// What each implementation of a layer would cost. The network's cost with one forced is a
// min-marginal of the query: all of them come from two passes over one elimination order.
#include "convprim/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "convprim/error.hpp"
#include "pbqp/explain.hpp"
#include "selector/query.hpp"

namespace convprim {
namespace {

/// The number of the choice that the plan has for each layer.
pbqp::Assignment options_of(const Query& query, const Plan& plan) {
  pbqp::Assignment options;
  for (std::size_t id = 0; id < plan.layers.size(); ++id) {
    const PlanLayer& l = plan.layers[id];
    const auto& all = query.choices_of(static_cast<LayerId>(id));
    const auto it = std::find_if(all.begin(), all.end(), [&](const Choice& c) {
      return c.name == l.implementation && c.in == l.in && c.out == l.out;
    });
    if (it == all.end()) {
      throw Error(fmt::format("layer \"{}\": the plan's {} is none of the layer's choices", l.layer,
                              l.implementation));
    }
    options.push_back(static_cast<std::size_t>(it - all.begin()));
  }
  return options;
}

/// The edges of each node of a problem.
std::vector<std::vector<std::size_t>> edges_of(const pbqp::Problem& problem) {
  std::vector<std::vector<std::size_t>> all(problem.node_count());
  for (std::size_t e = 0; e < problem.edge_count(); ++e) {
    all[problem.edge(e).u].push_back(e);
    all[problem.edge(e).v].push_back(e);
  }
  return all;
}

/// What moving the tensors around one layer costs, all layers' options given.
class Surroundings {
 public:
  Surroundings(const Query& query, pbqp::Assignment options)
      : query_(query),
        problem_(query.problem()),
        edges_(edges_of(query.problem())),
        options_(std::move(options)) {}

  double conversions(std::size_t node, std::size_t option) {
    const std::size_t kept = options_[node];
    options_[node] = option;
    // A node's cost beyond the layer's own is the conversion of an output that nobody here reads.
    const auto layer = static_cast<LayerId>(node);
    double sum =
        problem_.costs(node)[option] - query_.choice_cost(query_.choices_of(layer)[option], layer);
    std::set<std::size_t> tensors;  // several edges may lead to one
    for (std::size_t e : edges_[node]) {
      const std::size_t other = other_end(e, node);
      if (other >= options_.size()) {
        tensors.insert(other);
      } else {
        sum += edge_cost(e, node, option, options_[other]);
      }
    }
    for (std::size_t tensor : tensors) sum += best_tensor(tensor);
    options_[node] = kept;
    return sum;
  }

 private:
  std::size_t other_end(std::size_t e, std::size_t node) const {
    const pbqp::Edge& edge = problem_.edge(e);
    return edge.u == node ? edge.v : edge.u;
  }

  double edge_cost(std::size_t e, std::size_t node, std::size_t own, std::size_t others) const {
    const pbqp::Edge& edge = problem_.edge(e);
    return edge.u == node ? edge.cost(own, others) : edge.cost(others, own);
  }

  /// The cheapest set of layouts for a tensor between these options.
  double best_tensor(std::size_t node) const {
    double best = kInfinity;
    for (std::size_t set = 0; set < problem_.option_count(node); ++set) {
      double sum = problem_.costs(node)[set];
      for (std::size_t e : edges_[node])
        sum += edge_cost(e, node, set, options_[other_end(e, node)]);
      best = std::min(best, sum);
    }
    return best;
  }

  const Query& query_;
  const pbqp::Problem& problem_;
  std::vector<std::vector<std::size_t>> edges_;
  pbqp::Assignment options_;
};

std::string reason(const Candidate& c, const Filter& filter, const std::string& layer) {
  switch (c.rule) {
    case Rule::none:
      return "";
    case Rule::shape:
      return c.why;
    case Rule::cost:
      return "not measured, or too large to be";
    default:
      return option_text(c.rule, filter, layer);
  }
}

LayerId layer_named(const Network& net, const std::string& name) {
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    if (net.layers[static_cast<std::size_t>(id)].name == name) return id;
  }
  throw Error(fmt::format(
      "layer \"{}\": the network has none of that name after its passes; the report names its "
      "layers",
      name));
}

Explanation explain_layer(const Network& net, LayerId id, std::vector<Candidate> all,
                          const Filter& filter, const CostFunction& costs, const Query& query,
                          const std::vector<double>& marginals, std::size_t chosen,
                          Surroundings& surroundings) {
  const Layer& layer = net.layers[static_cast<std::size_t>(id)];
  Explanation result{layer.name, std::string(kind(layer.op)), all[0].choice.key.problem, {}};
  std::size_t option = 0;
  for (const Candidate& c : all) {
    ExplainedRow row;
    row.implementation = c.choice.name;
    row.in = c.choice.in;
    row.out = c.choice.out;
    row.sizes = c.choice.sizes;
    row.left_out = reason(c, filter, layer.name);
    if (c.rule == Rule::none) {
      row.chosen = option == chosen;
      row.seconds = query.choice_cost(query.choices_of(id)[option], id);
      row.conversion_seconds = surroundings.conversions(static_cast<std::size_t>(id), option);
      row.network_seconds = marginals[option];
      ++option;
    } else {
      row.seconds = c.choice.slices ? kInfinity : costs(c.choice.key);
      row.conversion_seconds = row.network_seconds = kInfinity;
    }
    result.rows.push_back(std::move(row));
  }
  std::stable_sort(
      result.rows.begin(), result.rows.end(), [](const ExplainedRow& a, const ExplainedRow& b) {
        const auto key = [](const ExplainedRow& r) {
          return std::tuple(!r.left_out.empty(), r.network_seconds, !r.chosen, r.seconds);
        };
        return key(a) < key(b);
      });
  return result;
}

}  // namespace

std::vector<Explanation> explain(const Network& net, const Filter& filter,
                                 const CostFunction& costs, const SizeFunction& sizes,
                                 const Plan& plan, const std::vector<std::string>& layers) {
  const Instance instance = make_instance(net, filter, costs, sizes);
  const Query query(instance, instance.choices, costs);
  const pbqp::Assignment options = options_of(query, plan);
  Surroundings surroundings(query, options);
  const pbqp::Marginals marginals = pbqp::min_marginals(query.problem());
  std::vector<Explanation> result;
  for (const std::string& name : layers) {
    const LayerId id = layer_named(net, name);
    auto all = candidates(net, id, filter);
    if (all.empty())
      throw Error(
          fmt::format("layer \"{}\": there is nothing to choose, so nothing to explain", name));
    apply_costs(all, filter, costs, sizes);
    const auto i = static_cast<std::size_t>(id);
    result.push_back(explain_layer(net, id, std::move(all), filter, costs, query, marginals.cost[i],
                                   options[i], surroundings));
  }
  return result;
}

}  // namespace convprim
