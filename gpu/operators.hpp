// A network as the scheduler sees it: operators, and the blocks that they are searched in.
#pragma once

#include <string>
#include <vector>

#include "convprim/network.hpp"
#include "gpu/search.hpp"

namespace convprim::ios {

/// What is scheduled as one: a layer, with the layers before it that only it reads and that are
/// cheap (element-wise) or belong to it (the depthwise half of a separable convolution).
struct Operator {
  std::string name;             ///< of its last layer
  std::vector<LayerId> layers;  ///< in the order of their running; only the last one's outputs are
                                ///< read elsewhere
};

/// A part of the network that is scheduled on its own.
struct Block {
  std::vector<int> operators;  ///< in topological order; operator i of the block is bit i
  Dag dag;
  int same_as = 0;  ///< the first block with the same operators, shapes and edges; often itself
};

/// How the network is cut.
struct BlockLimits {
  int operators = kMaxOperators;        ///< in a block at most
  std::size_t transitions = 4'000'000;  ///< of the search of a block, at most
  Pruning pruning;                      ///< under which transitions are counted
};

/// A simplified network with its operators and blocks.
struct OperatorGraph {
  Network net;
  std::vector<Operator> operators;  ///< in topological order
  std::vector<Block> blocks;        ///< in the order of their running, together all operators
  std::vector<std::string> texts;   ///< of each layer's problem, without its weights
  std::vector<bool> joined;  ///< tensors that only concatenations read: these take a channel slice
                             ///< of a merged convolution from where it lies
};

/// Prepares a network for scheduling without changing its outputs: removes identities, folds
/// normalisation, fuses activations, joins nested concatenations; residual sums stay operators of
/// their own. Needs weights.
void simplify(Network& net);

/// Finds operators and blocks: cuts where a single tensor carries everything, and blocks that are
/// too large again where fewest tensors pass. The network must be sorted and have shapes. Throws
/// Error if a layer is opaque.
OperatorGraph operator_graph(Network net, const BlockLimits& limits = {});

/// Groups of operators with how their tensors hang together, tensors numbered as they come: equal
/// texts are equal work. The key of a stage's cost.
std::string text(const OperatorGraph& graph, const std::vector<std::vector<int>>& groups);

}  // namespace convprim::ios
