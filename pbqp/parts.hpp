// From nodes with many options to parts with few.
//
// Edges rarely tell all options of a node apart: a convolution's edges see its input layout or its
// output layout. Options that an edge cannot tell apart form a class; classes are found from class
// edges and, for any matrix, by hashing equal rows and columns. A node whose edges agree on one
// class map becomes one part with an option per class (within a class all but the cheapest option
// are dominated). A node with two class maps becomes two parts joined by an edge that holds, for
// each pair of classes, the cheapest option in both: RII then costs L^3 instead of D^3 for D
// options in L classes. More maps than two are joined pairwise until two are left.
//
// Every map is stored once, so that comparing and joining maps costs nothing for the thousandth
// node that uses the same pair.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pbqp/pbqp.hpp"

namespace pbqp::detail {

struct ClassMap {
  std::vector<std::uint32_t> of;     // class of each option, numbered by first occurrence
  std::vector<std::uint32_t> first;  // lowest option of each class
};

// Which parts a problem has and what joins them, without any costs.
class Parts {
 public:
  struct Part {
    std::uint32_t node;
    std::uint32_t map;
  };
  // A problem edge seen from the parts it joins (rows, columns); self-loops are not among them.
  struct Link {
    std::uint32_t row_part;
    std::uint32_t col_part;
    std::uint32_t edge;
  };

  explicit Parts(const Problem& problem);

  const std::vector<Part>& parts() const { return parts_; }
  const std::vector<Link>& links() const { return links_; }
  const ClassMap& map(std::uint32_t part) const { return maps_[parts_[part].map]; }
  std::uint32_t map_id(std::uint32_t part) const { return parts_[part].map; }
  // A node's parts are first_part(node) and, if it has two, the next.
  std::uint32_t first_part(std::size_t node) const { return first_part_[node]; }
  bool split(std::size_t node) const { return first_part_[node + 1] - first_part_[node] == 2; }
  const std::vector<std::uint32_t>& self_loops(std::size_t node) const;

 private:
  std::uint32_t intern(std::vector<std::uint32_t> raw);
  std::uint32_t intern_shared(const std::shared_ptr<const Classes>& classes);
  std::uint32_t join(std::uint32_t a, std::uint32_t b);
  bool refines(std::uint32_t fine, std::uint32_t coarse);
  std::uint32_t map_of_end(const Edge& e, bool rows, std::size_t options);

  std::vector<ClassMap> maps_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> by_hash_;
  std::unordered_map<const Classes*, std::uint32_t> by_pointer_;
  std::unordered_map<std::uint64_t, std::uint32_t> joins_;
  std::vector<Part> parts_;
  std::vector<Link> links_;
  std::vector<std::uint32_t> first_part_;
  std::unordered_map<std::size_t, std::vector<std::uint32_t>> self_loops_;
};

}  // namespace pbqp::detail
