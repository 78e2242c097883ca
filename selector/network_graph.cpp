// See network_graph.hpp.
#include "selector/network_graph.hpp"

#include <algorithm>
#include <boost/graph/reverse_graph.hpp>
#include <boost/graph/strong_components.hpp>
#include <boost/graph/topological_sort.hpp>
#include <iterator>

namespace convprim {

NetworkGraph network_graph(const Network& net) {
  NetworkGraph graph(net.layers.size());
  const std::vector<LayerId> made_by = producers(net);
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    for (const TensorId t : net.layers[i].inputs) {
      const LayerId from = made_by[static_cast<std::size_t>(t)];
      if (from >= 0) boost::add_edge(static_cast<std::size_t>(from), i, TensorEdge{t}, graph);
    }
  }
  return graph;
}

std::vector<LayerId> topological_order(const NetworkGraph& graph) {
  std::vector<LayerId> order;
  order.reserve(boost::num_vertices(graph));
  try {
    // topological_sort() writes vertices in the order in which the search leaves them, sinks first;
    // with the edges reversed, a layer's producers are its sinks.
    auto to_producers = boost::make_reverse_graph(graph);
    boost::topological_sort(to_producers, std::back_inserter(order));
  } catch (const boost::not_a_dag&) {
    order.clear();
  }
  return order;
}

std::vector<LayerId> find_cycle(const NetworkGraph& graph) {
  std::vector<int> component(boost::num_vertices(graph));
  boost::strong_components(graph, boost::make_iterator_property_map(
                                      component.begin(), boost::get(boost::vertex_index, graph)));
  std::vector<int> members(component.size(), 0);
  for (const int id : component) ++members[static_cast<std::size_t>(id)];
  for (std::size_t v = 0; v < component.size(); ++v) {
    const bool loop = boost::edge(v, v, graph).second;
    if (!loop && members[static_cast<std::size_t>(component[v])] == 1) continue;
    std::vector<LayerId> cycle;
    for (std::size_t u = 0; u < component.size(); ++u) {
      if (component[u] == component[v]) cycle.push_back(static_cast<LayerId>(u));
    }
    return cycle;
  }
  return {};
}

}  // namespace convprim
