// The DT graph on Boost.Graph: floyd_warshall_all_pairs_shortest_paths() for the costs; the chains
// follow from them, because the first step of a shortest path leads to a vertex from which the rest
// costs exactly the remainder.
#include "layouts/dt_graph.hpp"

#include <fmt/format.h>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/floyd_warshall_shortest.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "convprim/error.hpp"

namespace convprim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t index(Layout layout) { return static_cast<std::size_t>(layout); }

// Bidirectional graphs keep one list of all edges, which is what Floyd-Warshall walks over.
using Graph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, boost::no_property,
                          boost::property<boost::edge_weight_t, double>>;

}  // namespace

DtGraph::DtGraph(const Shape& shape, std::span<const Conversion> routines,
                 std::span<const double> costs) {
  if (routines.size() != costs.size()) {
    throw Error(fmt::format("DT graph: {} costs for {} conversion routines; give one for each",
                            costs.size(), routines.size()));
  }
  // The cheapest edge of each pair, with the routine behind it.
  struct Edge {
    double cost = kInfinity;
    const Conversion* routine = nullptr;
  };
  std::array<std::array<Edge, kLayoutCount>, kLayoutCount> edges;
  for (std::size_t i = 0; i < routines.size(); ++i) {
    if (std::isnan(costs[i]) || costs[i] < 0) {
      throw Error(fmt::format("DT graph: the cost of {} is {}; it must be 0 or more",
                              routines[i].name, costs[i]));
    }
    Edge& edge = edges[index(routines[i].from)][index(routines[i].to)];
    if (costs[i] < edge.cost) edge = {costs[i], &routines[i]};
  }
  for (Layout a : kLayouts) {
    for (Layout b : kLayouts) {
      if (a != b && same_memory(a, b, shape)) edges[index(a)][index(b)] = {0, nullptr};
    }
  }

  Graph graph(kLayoutCount);
  for (std::size_t a = 0; a < kLayoutCount; ++a) {
    for (std::size_t b = 0; b < kLayoutCount; ++b) {
      if (a != b && edges[a][b].cost < kInfinity) boost::add_edge(a, b, edges[a][b].cost, graph);
    }
  }
  boost::floyd_warshall_all_pairs_shortest_paths(
      graph, cost_,
      boost::distance_inf(kInfinity).distance_zero(0.0).distance_combine(std::plus<>()));

  // First steps. Among the edges that lie on a shortest path, ties (edges of cost 0) are broken by
  // the number of edges to the goal, so that following the steps always ends.
  std::array<std::array<int, kLayoutCount>, kLayoutCount> hops;
  for (std::size_t to = 0; to < kLayoutCount; ++to) {
    for (std::size_t from = 0; from < kLayoutCount; ++from) {
      hops[from][to] = from == to ? 0 : kLayoutCount;
      first_[from][to] = {static_cast<Layout>(to), nullptr};
    }
    for (int round = 1; round < kLayoutCount; ++round) {
      for (std::size_t from = 0; from < kLayoutCount; ++from) {
        if (hops[from][to] < round || cost_[from][to] == kInfinity) continue;
        for (std::size_t via = 0; via < kLayoutCount; ++via) {
          const Edge& edge = edges[from][via];
          if (via == from || edge.cost == kInfinity || hops[via][to] != round - 1) continue;
          // The sum may be rounded another way than Floyd-Warshall's: nearly equal is equal.
          const double sum = edge.cost + cost_[via][to];
          if (sum > cost_[from][to] * (1 + 1e-12)) continue;
          hops[from][to] = round;
          first_[from][to] = {static_cast<Layout>(via), edge.routine};
          break;
        }
      }
    }
  }
}

double DtGraph::cost(Layout from, Layout to) const { return cost_[index(from)][index(to)]; }

std::vector<const Conversion*> DtGraph::chain(Layout from, Layout to) const {
  if (cost(from, to) == kInfinity) {
    throw Error(fmt::format("no chain of conversions leads from {} to {}", name(from), name(to)));
  }
  std::vector<const Conversion*> routines;
  while (from != to) {
    const Step& step = first_[index(from)][index(to)];
    if (step.routine != nullptr) routines.push_back(step.routine);
    from = step.to;
  }
  return routines;
}

}  // namespace convprim
