// A network as a Boost.Graph adjacency list: vertices are layers, an edge leads from the layer that
// makes a tensor to each layer that reads it.
#pragma once

#include <boost/graph/adjacency_list.hpp>
#include <vector>

#include "convprim/network.hpp"

namespace convprim {

struct TensorEdge {
  TensorId tensor = -1;
};

using NetworkGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS,
                                           boost::no_property, TensorEdge>;

/// Vertex i is layer i. Tensors without a producer have no edges.
NetworkGraph network_graph(const Network& net);

/// Layers in topological order, as near to the file's order as depth-first search from each layer
/// to its producers, in the file's order, comes: the same order if that is topological already.
/// Empty if the graph has a cycle.
std::vector<LayerId> topological_order(const NetworkGraph& graph);

/// The layers of one cycle's strongly connected component; empty if there is no cycle.
std::vector<LayerId> find_cycle(const NetworkGraph& graph);

}  // namespace convprim
