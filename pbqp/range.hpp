// Which integers hold a problem's costs.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "numbers.hpp"
#include "pbqp/pbqp.hpp"

namespace pbqp::detail {

// The unit of all costs and the size of their sum.
struct Range {
  int exponent = 0;   // every finite cost is a multiple of 2^exponent
  int magnitude = 0;  // and every sum below 2^magnitude in absolute value
};

class RangeScan {
 public:
  void add(const std::vector<double>& costs) {
    double largest = 0;
    for (const double x : costs) {
      if (x == 0 || x == kInfinity) continue;
      largest = std::max(largest, std::abs(x));
      // Nearly all costs are multiples of the unit so far: a cheap look confirms it.
      const double y = x * inverse_;
      if (std::abs(y) >= 1 && std::abs(y) < 0x1p62 &&  // not vanished by underflow
          static_cast<double>(static_cast<std::int64_t>(y)) == y) {
        continue;
      }
      low_ = std::min(low_, decompose(x).e);
      inverse_ = low_ > -1000 && low_ < 1000 ? std::ldexp(1.0, -low_) : kInfinity;
    }
    // Scaled by 2^-60 the sum cannot overflow.
    if (largest > 0) sum_ += std::ldexp(largest, -60) * (1 + 1e-9);
  }
  Range range() const {
    Range r;
    if (low_ == 1024) return r;
    r.exponent = low_;
    // Costs near the least double vanish when scaled; they get room for 2^40 of them.
    r.magnitude = sum_ > 0x1p-1000 ? std::ilogb(sum_) + 61 : low_ + 190;
    return r;
  }

 private:
  int low_ = 1024;
  double inverse_ = kInfinity;  // 2^-low_ where that is a double
  double sum_ = 0;
};

inline Range scan(const Problem& problem) {
  RangeScan s;
  for (std::size_t v = 0; v < problem.node_count(); ++v) s.add(problem.costs(v));
  for (std::size_t e = 0; e < problem.edge_count(); ++e) s.add(problem.edge(e).matrix.data);
  return s.range();
}

/// Calls f with a value of the narrowest integer type for sums of that many bits. Ten bits are kept
/// free: for the sign, for infinity and for the bounds of the search.
template <class F>
void with_integers(int bits, F f) {
  if (bits <= 64 - 10) {
    f(std::int64_t{});
  } else if (bits <= 128 - 10) {
    f(Int128{});
  } else {
    f(Widest{});
  }
}

}  // namespace pbqp::detail
