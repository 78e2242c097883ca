// Copies between tensors that each axis describes by itself: the element at (i0, i1, i2, i3) moves
// from the sum of the axes' input offsets to the sum of their output offsets. Concatenation,
// slices, crops, padding, permutations, shuffles, repetition and layout changes are all of this
// kind; what differs is the tables of offsets.
#pragma once

#include <array>
#include <vector>

#include "convprim/layout.hpp"

namespace convprim {

/// Offsets of the positions along one axis.
struct AxisTable {
  std::vector<Index> in, out;
};

/// Offsets of positions along axis 0..3 (n, c, h, w) of a tensor, without its base.
std::vector<Index> axis_offsets(const Strides& s, int axis, Index extent);

/// A list of such copies, their loops put in order once.
class TableCopy {
 public:
  /// One copy, from tensor `source` to tensor `target`.
  void add(int source, Index in_base, int target, Index out_base,
           const std::array<AxisTable, 4>& axes);

  /// A thread's share of all copies.
  void run(const float* const* in, float* const* out, int thread, int team) const;

 private:
  /// A loop: offsets are multiples of a step, or listed.
  struct Loop {
    Index extent = 1;
    Index in_step = 0, out_step = 0;
    std::vector<std::ptrdiff_t> in_list, out_list;  // both filled or both empty
    bool listed() const { return !in_list.empty(); }
  };
  /// Loops from the outermost to the innermost.
  struct Nest {
    int source, target;
    Index in_base, out_base;
    std::vector<Loop> loops;
    std::size_t split;  // the loop that the threads share
  };
  static void order(Nest& nest);
  void run_nest(const Nest& nest, const float* in, float* out, int thread, int team) const;

  std::vector<Nest> nests_;
};

}  // namespace convprim
