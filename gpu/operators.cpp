#include "gpu/operators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "convprim/error.hpp"
#include "selector/candidates.hpp"
#include "selector/network_infer.hpp"
#include "selector/passes.hpp"

namespace convprim::ios {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// A concatenation along the channels that only another one reads gives its inputs to that.
void join_concats(Network& net) {
  const auto makers = producers(net);
  const auto uses = use_counts(net);
  const auto channels = [](const Layer& layer) {
    const auto* op = std::get_if<ConcatOp>(&layer.op);
    return op != nullptr && op->axis == 1;
  };
  for (Layer& layer : net.layers) {
    if (!channels(layer)) continue;
    std::vector<TensorId> inputs;
    for (TensorId t : layer.inputs) {
      const LayerId maker = makers[at(t)];
      if (maker >= 0 && uses[at(t)] == 1 && channels(net.layers[at(maker)])) {
        // Its own inputs are joined already: layers come in topological order.
        for (TensorId inner : net.layers[at(maker)].inputs) inputs.push_back(inner);
      } else {
        inputs.push_back(t);
      }
    }
    layer.inputs = std::move(inputs);
  }
}

/// Element-wise layers: cheap, and free to run right before the one that reads them.
bool element_wise(const Op& op) {
  return std::holds_alternative<EltwiseOp>(op) || std::holds_alternative<ActivationOp>(op) ||
         std::holds_alternative<AffineOp>(op) || std::holds_alternative<PReluOp>(op) ||
         std::holds_alternative<BroadcastOp>(op);
}

bool depthwise(const Op& op) {
  const auto* conv = std::get_if<ConvOp>(&op);
  return conv != nullptr && conv->g > 1 && conv->g == conv->m;
}

bool pointwise(const Op& op) {
  const auto* conv = std::get_if<ConvOp>(&op);
  return conv != nullptr && conv->g == 1 && conv->kh == 1 && conv->kw == 1;
}

/// Whether `layer`, read by `reader` alone, is scheduled together with it.
bool joins(const Layer& layer, const Layer& reader) {
  if (layer.outputs.size() != 1) return false;
  return element_wise(layer.op) || (depthwise(layer.op) && pointwise(reader.op));
}

std::vector<Operator> find_operators(const Network& net) {
  const auto readers = consumers(net);
  const auto uses = use_counts(net);
  std::vector<Operator> operators;
  std::vector<std::vector<LayerId>> pending(net.layers.size());  // joined to each layer
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    const Layer& layer = net.layers[at(id)];
    if (std::holds_alternative<InputOp>(layer.op)) continue;
    if (const auto* opaque = std::get_if<OpaqueOp>(&layer.op)) {
      throw Error(fmt::format("{}: cannot be run ({}), so the network cannot be scheduled",
                              place(net, layer), opaque->why));
    }
    std::vector<LayerId> layers = std::move(pending[at(id)]);
    layers.push_back(id);
    const TensorId out = layer.outputs[0];
    if (uses[at(out)] == 1 && readers[at(out)].size() == 1) {
      const LayerId reader = readers[at(out)][0];
      if (joins(layer, net.layers[at(reader)])) {
        auto& waiting = pending[at(reader)];
        waiting.insert(waiting.end(), layers.begin(), layers.end());
        continue;
      }
    }
    operators.push_back({layer.name, std::move(layers)});
  }
  return operators;
}

/// Cuts a range of operators into blocks.
class Cutter {
 public:
  Cutter(const Network& net, const std::vector<Operator>& operators, const BlockLimits& limits)
      : net_(net), operators_(operators), limits_(limits), live_(operators.size()) {
    std::vector<int> owner(net.layers.size(), -1);  // -1: inputs, there from the start
    for (int i = 0; i < static_cast<int>(operators.size()); ++i) {
      for (LayerId id : operators[at(i)].layers) owner[at(id)] = i;
    }
    const auto makers = producers(net);
    const auto readers = consumers(net);
    successors_.resize(operators.size());
    for (std::size_t t = 0; t < net.tensors.size(); ++t) {
      if (makers[t] < 0) continue;
      const int from = owner[at(makers[t])];
      int last = from;
      for (LayerId reader : readers[t]) {
        const int to = owner[at(reader)];
        last = std::max(last, to);
        if (from >= 0 && to != from) successors_[at(from)].push_back(to);
      }
      // Live after operators from .. last - 1; an input from the first on.
      for (int i = std::max(from, 0); i < last; ++i) ++live_[at(i)];
    }
  }

  std::vector<Block> blocks() {
    std::vector<Block> blocks;
    int begin = 0;
    for (int i = 0; i < static_cast<int>(operators_.size()); ++i) {
      if (live_[at(i)] > 1) continue;  // the last one leaves none
      cut(begin, i + 1, blocks);
      begin = i + 1;
    }
    return blocks;
  }

 private:
  void cut(int begin, int end, std::vector<Block>& blocks) const {
    if (begin == end) return;
    if (end - begin <= std::min(limits_.operators, kMaxOperators)) {
      Block block = make(begin, end);
      if (end - begin == 1 || count(block.dag, limits_.pruning, limits_.transitions)) {
        blocks.push_back(std::move(block));
        return;
      }
    }
    // Where fewest tensors pass; of such places one where branches end, nearest to the middle.
    const auto rank = [&](int i) {
      const bool ends = i > begin && live_[at(i - 1)] > live_[at(i)];
      return std::tuple(live_[at(i)], !ends, std::abs(2 * (i + 1) - begin - end));
    };
    int best = begin;
    for (int i = begin; i + 1 < end; ++i) {
      if (rank(i) < rank(best)) best = i;
    }
    cut(begin, best + 1, blocks);
    cut(best + 1, end, blocks);
  }

  Block make(int begin, int end) const {
    Block block;
    block.dag.successors.resize(at(end - begin));
    for (int i = begin; i < end; ++i) {
      block.operators.push_back(i);
      for (int to : successors_[at(i)]) {
        if (to < end) block.dag.successors[at(i - begin)] |= bit(to - begin);
      }
    }
    return block;
  }

  const Network& net_;
  const std::vector<Operator>& operators_;
  const BlockLimits& limits_;
  std::vector<std::vector<int>> successors_;
  std::vector<int> live_;  // tensors read after each operator that are there before the next
};

/// A layer's problem without its weights: what its time depends on.
std::string problem_text(const Network& net, LayerId id) {
  const auto* conv = std::get_if<ConvOp>(&net.layers[at(id)].op);
  if (conv == nullptr) return str(layer_problem(net, id, 1));
  std::string s = convolution_problem(net, id);
  if (conv->bias) s += "+bias";
  if (conv->epilogue.clamps()) {
    s += fmt::format("+clamp({},{})", conv->epilogue.lo, conv->epilogue.hi);
  }
  return s;
}

}  // namespace

void simplify(Network& net) {
  sort_layers(net);
  infer_shapes(net);
  remove_dead(net);
  remove_identities(net);
  lower_to_affine(net);
  fold_affine(net);
  fuse_activations(net);
  join_concats(net);
  remove_dead(net);
  sort_layers(net);
  infer_shapes(net);
}

OperatorGraph operator_graph(Network net, const BlockLimits& limits) {
  OperatorGraph graph;
  graph.net = std::move(net);
  graph.operators = find_operators(graph.net);
  graph.blocks = Cutter(graph.net, graph.operators, limits).blocks();
  for (LayerId id = 0; id < static_cast<LayerId>(graph.net.layers.size()); ++id) {
    graph.texts.push_back(problem_text(graph.net, id));
  }
  const auto readers = consumers(graph.net);
  for (std::size_t t = 0; t < graph.net.tensors.size(); ++t) {
    const auto& outputs = graph.net.outputs;
    const bool output = std::count(outputs.begin(), outputs.end(), static_cast<TensorId>(t)) > 0;
    graph.joined.push_back(
        !output && std::all_of(readers[t].begin(), readers[t].end(), [&](LayerId reader) {
          const auto* op = std::get_if<ConcatOp>(&graph.net.layers[at(reader)].op);
          return op != nullptr && op->axis == 1;
        }));
  }
  std::map<std::string, int> first;
  for (int i = 0; i < static_cast<int>(graph.blocks.size()); ++i) {
    Block& block = graph.blocks[at(i)];
    block.same_as = first.emplace(text(graph, {block.operators}), i).first->second;
  }
  return graph;
}

std::string text(const OperatorGraph& graph, const std::vector<std::vector<int>>& groups) {
  std::map<TensorId, std::size_t> numbers;
  std::string s;
  const auto append = [&](TensorId t) {
    s += " t" + std::to_string(numbers.emplace(t, numbers.size()).first->second);
  };
  for (const auto& group : groups) {
    s += s.empty() ? "" : "| ";
    for (int i : group) {
      for (LayerId id : graph.operators[at(i)].layers) {
        const Layer& layer = graph.net.layers[at(id)];
        s += graph.texts[at(id)];
        for (TensorId t : layer.inputs) append(t);
        s += " to";
        for (TensorId t : layer.outputs) {
          append(t);
          if (graph.joined[at(t)]) s += '*';
        }
        s += "; ";
      }
    }
  }
  return s;
}

}  // namespace convprim::ios
