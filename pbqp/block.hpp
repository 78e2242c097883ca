// Cutting a block out of a core.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core.hpp"

namespace pbqp::detail {

/// The block of the given parts with the edges among them.
template <class V>
Block<V> cut_out(Core<V>& core, const std::vector<std::uint32_t>& parts) {
  Block<V> b;
  b.part = parts;
  const std::size_t n = parts.size();
  b.option.resize(n);
  b.cost.resize(n);
  b.incident.resize(n);
  std::unordered_map<std::uint32_t, std::uint32_t> position;
  for (std::uint32_t i = 0; i < n; ++i) {
    position[parts[i]] = i;
    const auto& cost = core.part(parts[i]).cost;
    for (std::uint32_t k = 0; k < cost.size(); ++k) {
      if (is_inf(cost[k])) continue;
      b.option[i].push_back(k);
      b.cost[i].push_back(cost[k]);
    }
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    for (const std::uint32_t id : core.edges_of(parts[i])) {
      const auto& e = core.edge(id);
      if (e.u != parts[i]) continue;
      const auto it = position.find(e.v);
      if (it == position.end()) continue;
      core.ready(id);
      const std::uint32_t j = it->second;
      typename Block<V>::Edge out{i, j, {}};
      const std::size_t cols = core.dim(e.v);
      out.m.reserve(b.dim(i) * b.dim(j));
      for (const std::uint32_t r : b.option[i]) {
        for (const std::uint32_t c : b.option[j]) out.m.push_back(core.edge(id).m[r * cols + c]);
      }
      b.incident[i].push_back(static_cast<std::uint32_t>(b.edges.size()));
      b.incident[j].push_back(static_cast<std::uint32_t>(b.edges.size()));
      b.edges.push_back(std::move(out));
    }
  }
  return b;
}

}  // namespace pbqp::detail
