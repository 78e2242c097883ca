// Writers of patch matrices: im2col ("col", [depth][pixels]) and im2row ("row", [pixels][depth]).
//
// Element (r, p) of a group's patch matrix is the input element that tap r sees at output pixel p,
// or zero in the padding. All writers make the same matrix but for its orientation and the order of
// r; they differ in the runs that they write:
//   col_scan        one element at a time
//   col_copy_short  the part of an output row that lies inside the image: one run of image row,
//                   copied; at unit column stride only
//   col_copy_long   the whole tile: for each channel and kernel column the image rows are staged
//                   once as the outputs see them, then each kernel row is one run from there
//   col_copy_self   the whole tile but its last output rows, from the patch matrix itself: a kernel
//                   row sees what the one above it sees an output row further down; the first
//                   kernel row and the tile's last rows are scanned
//   row_scan        one element at a time
//   row_copy_short  the channels of one tap, contiguous in hwc; one block of them in blocked
//   layouts row_copy_long   the channels of a whole kernel row; at unit column dilation only
#pragma once

#include "primitives/im2/gemm.hpp"

namespace convprim::gemm {

/// A part of one group's patch matrix of one image, and where it goes.
struct PatchPart {
  const Scenario& s;
  Strides at;       ///< of the input tensor
  const float* in;  ///< first channel of the group in that image
  Range depth;      ///< rows of the matrix in depth order; whole channels for cij
  Range pixels;     ///< output pixels y*ow + x
  float* patch;
  Index ld;        ///< distance of the patch's rows
  float* scratch;  ///< copy_long_scratch() floats; for col_copy_long only
};

void col_scan(const PatchPart& part);
void col_copy_short(const PatchPart& part);
void col_copy_long(const PatchPart& part);
void col_copy_self(const PatchPart& part);
void row_scan(const PatchPart& part);
void row_copy_short(const PatchPart& part);
void row_copy_long(const PatchPart& part);

/// An image row (of one channel) as kernel column j sees it: the columns x*sw - pl + j*dw for
/// outputs x in `columns`, zeros outside the image and if `row` is null; element by element, or, at
/// unit stride, the inner part in one run.
void gather_row(const Scenario& s, Index w_stride, const float* row, Index j, Range columns,
                bool run, float* to);

/// An image row whose channels are contiguous, as output column x sees it: elements [begin, end) of
/// the channels of kernel columns j, j+1, ... in order jc, zeros outside the image and if `row` is
/// null. More than one kernel column only if one group and dense.
void copy_columns(const Scenario& s, Index w_stride, const float* row, Index x, Index j, Range part,
                  float* to);

/// Image rows kept once for all kernel rows that see them: kernel row i sees at output row y what
/// kernel row i - period sees at output row y + shift. Kernel rows that are a multiple of the
/// period apart share a slot of consecutive rows.
struct RowSlots {
  RowSlots(const Scenario& s, Index output_rows);
  Index period, shift;
  Index seen;         ///< output rows
  Index slots, rows;  ///< slots, and rows in each
  Index count() const { return slots * rows; }
  /// Where the row lies that kernel row i sees at the first output row; the next ones follow.
  Index first(Index i) const { return i % slots * rows + i / period * shift; }
  /// The first output row at which kernel row i sees what no kernel row before it has.
  Index fresh(Index i) const { return i < period ? 0 : std::max<Index>(0, seen - shift); }
};

/// Floats that col_copy_long stages for tiles of that many pixels.
Index copy_long_scratch(const Scenario& s, Index pixels);

}  // namespace convprim::gemm
