// The DT graph: layouts are vertices, conversion routines are edges weighted for one tensor shape;
// all-pairs shortest paths (Floyd-Warshall) give the cheapest chain between any two layouts.
// Anderson and Gregg, CGO 2018, section 3.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "convprim/conversion.hpp"

namespace convprim {

/// Cheapest chains of conversions for tensors of one shape.
class DtGraph {
 public:
  /// costs[i] is the cost of routines[i] for this shape, 0 or more; infinity leaves a routine out.
  /// Pairs of layouts that lie the same in memory for this shape (same_memory()) are joined at no
  /// cost and no copy. The routines must outlive the graph. Throws Error on a negative cost or NaN.
  DtGraph(const Shape& shape, std::span<const Conversion> routines, std::span<const double> costs);

  /// Cost of the cheapest chain; 0 from a layout to itself, infinity where there is no chain.
  double cost(Layout from, Layout to) const;

  /// The routines of that chain in order, empty if nothing has to be copied. Throws Error if there
  /// is no chain.
  std::vector<const Conversion*> chain(Layout from, Layout to) const;

 private:
  std::array<std::array<double, kLayoutCount>, kLayoutCount> cost_;
  /// First step of the cheapest chain: the layout it leads to, and the routine (null: same memory).
  struct Step {
    Layout to{};
    const Conversion* routine = nullptr;
  };
  std::array<std::array<Step, kLayoutCount>, kLayoutCount> first_;
};

}  // namespace convprim
