// The PBQP query: one node for each layer, one choice for each implementation; edges carry the
// cheapest chains of conversions.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "pbqp/pbqp.hpp"
#include "selector/shared_parts.hpp"
#include "selector/transport.hpp"

namespace convprim {

/// The network with its choices and the costs of moving its tensors.
struct Instance {
  const Network& net;
  std::vector<std::vector<Choice>> choices;  // for each layer
  std::vector<LayerId> producer;
  std::vector<std::vector<std::pair<LayerId, std::size_t>>>
      readers;  // for each tensor: layer and input index
  std::vector<int> uses;
  SharedParts shared_parts;
  std::map<std::string, Transport> transports;

  const Transport* transport(TensorId t) const {
    const Shape& shape = net.tensors[static_cast<std::size_t>(t)].shape;
    return known(shape) ? &transports.at(text(shape)) : nullptr;
  }
};

/// The choices that filter and costs leave for each layer. Throws Error naming a layer for which
/// nothing is left, and the rules that left nothing.
Instance make_instance(const Network& net, const Filter& filter, const CostFunction& costs,
                       const SizeFunction& sizes);

/// A PBQP built from an instance, perhaps with fewer choices, and the way back.
class Query {
 public:
  Query(const Instance& instance, std::vector<std::vector<Choice>> choices,
        const CostFunction& costs);

  const pbqp::Problem& problem() const { return problem_; }
  pbqp::Result solve(const pbqp::Limits& limits = {}) const {
    return pbqp::solve(problem_, limits);
  }

  /// Gives each choice the bytes of its packed weights as weight, for a capacity. All sizes must be
  /// known.
  void weigh_packed();

  const std::vector<Choice>& choices_of(LayerId id) const {
    return choices_[static_cast<std::size_t>(id)];
  }
  const Choice& chosen(const pbqp::Assignment& assignment, LayerId id) const;

  /// Conversions of one tensor under an assignment, in the order in which they must run.
  Steps conversions_of(const pbqp::Assignment& assignment, TensorId t) const;

  /// What a choice costs by itself, conversions aside.
  double choice_cost(const Choice& choice, LayerId id) const;

  /// The plan that an assignment makes.
  Plan plan(const pbqp::Assignment& assignment, const Machine& machine) const;

 private:
  bool can_slice(const Choice& choice, LayerId id, LayerId concat, std::size_t input) const;
  pbqp::Classes producer_classes(LayerId maker,
                                 const std::vector<std::pair<LayerId, std::size_t>>& readers) const;
  pbqp::Classes reader_classes(LayerId reader, std::size_t input) const;
  void add_tensor(TensorId t);
  bool has_slices(LayerId id) const;
  void add_shared(TensorId t, const Transport& transport, const pbqp::Classes& from);

  const Instance& instance_;
  std::vector<std::vector<Choice>> choices_;
  const CostFunction& costs_;
  pbqp::Problem problem_;
  std::vector<int> tensor_node_;
};

/// What the solver says of a result.
SolverReport report_of(const pbqp::Result& result);

}  // namespace convprim
