#include "parts.hpp"

#include <algorithm>
#include <bit>

namespace pbqp::detail {
namespace {

std::uint64_t mix(std::uint64_t h, std::uint64_t x) {
  h = (h ^ x) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 29);
}

std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x + 0.0); }

// The class of each row (or column) of a matrix: rows with equal entries share one.
std::vector<std::uint32_t> equal_lines(const Matrix& m, bool rows) {
  const std::size_t n = rows ? m.rows : m.cols;
  const std::size_t k = rows ? m.cols : m.rows;
  std::vector<std::uint64_t> hashes(n, 0x51ed270b);
  if (rows) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < k; ++j) hashes[i] = mix(hashes[i], bits(m(i, j)));
    }
  } else {
    for (std::size_t i = 0; i < k; ++i) {
      for (std::size_t j = 0; j < n; ++j) hashes[j] = mix(hashes[j], bits(m(i, j)));
    }
  }
  const auto equal = [&](std::size_t a, std::size_t b) {
    for (std::size_t j = 0; j < k; ++j) {
      if (rows ? m(a, j) != m(b, j) : m(j, a) != m(j, b)) return false;
    }
    return true;
  };
  std::vector<std::uint32_t> result(n);
  if (n <= 16) {
    for (std::size_t i = 0; i < n; ++i) {
      result[i] = static_cast<std::uint32_t>(i);
      for (std::size_t j = 0; j < i; ++j) {
        if (hashes[i] == hashes[j] && equal(i, j)) {
          result[i] = result[j];
          break;
        }
      }
    }
    return result;
  }
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> seen;
  for (std::size_t i = 0; i < n; ++i) {
    auto& bucket = seen[hashes[i]];
    const auto hit =
        std::find_if(bucket.begin(), bucket.end(), [&](std::uint32_t j) { return equal(i, j); });
    if (hit != bucket.end()) {
      result[i] = *hit;
    } else {
      result[i] = static_cast<std::uint32_t>(i);
      bucket.push_back(result[i]);
    }
  }
  return result;
}

// Renumbers by first occurrence.
ClassMap canonical(const std::vector<std::uint32_t>& raw) {
  ClassMap m;
  m.of.resize(raw.size());
  std::unordered_map<std::uint32_t, std::uint32_t> number;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const auto [it, fresh] = number.try_emplace(raw[i], static_cast<std::uint32_t>(m.first.size()));
    if (fresh) m.first.push_back(static_cast<std::uint32_t>(i));
    m.of[i] = it->second;
  }
  return m;
}

}  // namespace

std::uint32_t Parts::intern(std::vector<std::uint32_t> raw) {
  ClassMap m = canonical(raw);
  std::uint64_t h = m.of.size();
  for (const std::uint32_t c : m.of) h = mix(h, c);
  auto& bucket = by_hash_[h];
  for (const std::uint32_t id : bucket) {
    if (maps_[id].of == m.of) return id;
  }
  bucket.push_back(static_cast<std::uint32_t>(maps_.size()));
  maps_.push_back(std::move(m));
  return bucket.back();
}

std::uint32_t Parts::intern_shared(const std::shared_ptr<const Classes>& classes) {
  const auto it = by_pointer_.find(classes.get());
  if (it != by_pointer_.end()) return it->second;
  const std::uint32_t id = intern(*classes);
  by_pointer_.emplace(classes.get(), id);
  return id;
}

std::uint32_t Parts::join(std::uint32_t a, std::uint32_t b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);
  const std::uint64_t key = (std::uint64_t{a} << 32) | b;
  const auto it = joins_.find(key);
  if (it != joins_.end()) return it->second;
  const std::size_t n = maps_[a].of.size();
  std::unordered_map<std::uint64_t, std::uint32_t> number;
  std::vector<std::uint32_t> raw(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t pair = (std::uint64_t{maps_[a].of[i]} << 32) | maps_[b].of[i];
    raw[i] = number.try_emplace(pair, static_cast<std::uint32_t>(i)).first->second;
  }
  const std::uint32_t id = intern(std::move(raw));
  joins_.emplace(key, id);
  return id;
}

bool Parts::refines(std::uint32_t fine, std::uint32_t coarse) {
  return fine == coarse || join(fine, coarse) == fine;
}

std::uint32_t Parts::map_of_end(const Edge& e, bool rows, std::size_t options) {
  const auto& classes = rows ? e.row_class : e.col_class;
  const std::vector<std::uint32_t> lines = equal_lines(e.matrix, rows);
  if (!classes) return intern(lines);
  bool distinct = true;
  for (std::size_t i = 0; i < lines.size(); ++i) distinct = distinct && lines[i] == i;
  if (distinct) return intern_shared(classes);
  std::vector<std::uint32_t> raw(options);
  for (std::size_t i = 0; i < options; ++i) raw[i] = lines[(*classes)[i]];
  return intern(std::move(raw));
}

const std::vector<std::uint32_t>& Parts::self_loops(std::size_t node) const {
  static const std::vector<std::uint32_t> none;
  const auto it = self_loops_.find(node);
  return it == self_loops_.end() ? none : it->second;
}

Parts::Parts(const Problem& problem) {
  const std::size_t n = problem.node_count();
  const std::size_t m = problem.edge_count();
  std::vector<std::uint32_t> row_map(m);
  std::vector<std::uint32_t> col_map(m);
  // Distinct maps per node, in the order of the edges.
  std::vector<std::vector<std::uint32_t>> distinct(n);
  const auto note = [&](std::size_t node, std::uint32_t map) {
    auto& d = distinct[node];
    if (std::find(d.begin(), d.end(), map) == d.end()) d.push_back(map);
  };
  for (std::size_t i = 0; i < m; ++i) {
    const Edge& e = problem.edge(i);
    if (e.u == e.v) {
      self_loops_[e.u].push_back(static_cast<std::uint32_t>(i));
      continue;
    }
    row_map[i] = map_of_end(e, true, problem.option_count(e.u));
    col_map[i] = map_of_end(e, false, problem.option_count(e.v));
    note(e.u, row_map[i]);
    note(e.v, col_map[i]);
  }

  parts_.reserve(n + n / 2);
  first_part_.resize(n + 1);
  const auto size = [&](std::uint32_t map) { return maps_[map].first.size(); };
  for (std::size_t v = 0; v < n; ++v) {
    first_part_[v] = static_cast<std::uint32_t>(parts_.size());
    auto& d = distinct[v];
    if (d.empty()) d.push_back(intern(std::vector<std::uint32_t>(problem.option_count(v), 0)));
    // Without what another map refines.
    for (std::size_t i = 0; i < d.size(); ++i) {
      for (std::size_t j = 0; j < d.size();) {
        if (i != j && refines(d[i], d[j])) {
          d.erase(d.begin() + static_cast<std::ptrdiff_t>(j));
          if (j < i) --i;
        } else {
          ++j;
        }
      }
    }
    while (d.size() > 2) {
      std::size_t a = 0;
      std::size_t b = 1;
      for (std::size_t i = 0; i < d.size() && d.size() <= 8; ++i) {
        for (std::size_t j = i + 1; j < d.size(); ++j) {
          if (size(join(d[i], d[j])) < size(join(d[a], d[b]))) a = i, b = j;
        }
      }
      d[a] = join(d[a], d[b]);
      d.erase(d.begin() + static_cast<std::ptrdiff_t>(b));
      if (d.size() == 2 && (refines(d[0], d[1]) || refines(d[1], d[0]))) {
        d = {refines(d[0], d[1]) ? d[0] : d[1]};
      }
    }
    if (d.size() == 2) {
      const std::uint32_t both = join(d[0], d[1]);
      // Two parts pay when the joint part would be clearly larger than either.
      if (4 * size(both) <= 5 * std::max(size(d[0]), size(d[1]))) d = {both};
    }
    for (const std::uint32_t map : d) parts_.push_back({static_cast<std::uint32_t>(v), map});
  }
  first_part_[n] = static_cast<std::uint32_t>(parts_.size());

  links_.reserve(m);
  const auto part_of = [&](std::size_t node, std::uint32_t map) {
    const std::uint32_t p = first_part_[node];
    return refines(parts_[p].map, map) ? p : p + 1;
  };
  for (std::size_t i = 0; i < m; ++i) {
    const Edge& e = problem.edge(i);
    if (e.u == e.v) continue;
    links_.push_back(
        {part_of(e.u, row_map[i]), part_of(e.v, col_map[i]), static_cast<std::uint32_t>(i)});
  }
}

}  // namespace pbqp::detail
