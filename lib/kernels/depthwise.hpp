// Inner loops of depthwise convolution: one input channel to each output channel.
#pragma once

#include <cstddef>

namespace convprim::kernels {

/// Rows of output pixels that have the same kernel rows inside the image, vectors of channels (HWC
/// and blocked layouts). Strides count floats. The channels come in groups of V; a group's packed
/// numbers are
///   bias[V] lo[V] hi[V] weights[kh][kw][V],
/// zeros in lanes beyond the last channel, so that those stay zero.
struct DepthwiseRows {
  const float* in;  ///< column 0 of the input row under the first kernel row that lies in the image
  std::ptrdiff_t in_row;  ///< between the input rows of neighbouring kernel rows
  std::ptrdiff_t in_col;
  std::ptrdiff_t in_next;  ///< from one output row to the next
  std::ptrdiff_t w;        ///< input columns
  std::ptrdiff_t rows;     ///< kernel rows in the image; may be 0
  std::ptrdiff_t kw, sw, dw, pl;
  const float* packed;          ///< of the first group
  std::ptrdiff_t packed_group;  ///< from one group to the next
  std::ptrdiff_t first_row;     ///< kernel rows above the image
  float* out;
  std::ptrdiff_t out_col, out_next;
  const float* residual;  ///< null for none
  std::ptrdiff_t residual_col, residual_next;
  std::ptrdiff_t oh;  ///< output rows
  std::ptrdiff_t ow;
  std::ptrdiff_t groups;  ///< whole groups
  std::ptrdiff_t tail;    ///< channels of a partial group after them, or 0
};

/// Rows of one output channel, vectors of columns (CHW and HCW). The input is a padded copy, each
/// row split into `sw` phases (columns p, p + sw, p + 2 sw, ...), so that the columns under one
/// tap are neighbours whatever the stride.
struct DepthwisePlane {
  const float* in;       ///< padded row under the first tap of the first output row
  std::ptrdiff_t pitch;  ///< floats of a padded row, all phases
  std::ptrdiff_t kh, kw, sh, dh;
  const std::ptrdiff_t* column;  ///< [kw] offset of each tap's columns in a padded row
  const float* weights;          ///< [kh][kw]
  float bias, lo, hi;
  float* out;
  std::ptrdiff_t out_row;
  const float* residual;  ///< null for none
  std::ptrdiff_t residual_row;
  std::ptrdiff_t rows, ow;
};

/// Padded, phase-split copy of one channel's rows.
struct DepthwisePad {
  const float* in;  ///< row 0 of the channel
  std::ptrdiff_t in_row, h, w;
  std::ptrdiff_t first;  ///< input row of the first padded row; may lie outside the image
  std::ptrdiff_t rows;
  std::ptrdiff_t pl, sw;
  std::ptrdiff_t phase;  ///< floats of one phase of one row; zeros beyond the image
  float* out;
};

struct DepthwiseKernels {
  /// V = lanes.
  void (*rows)(const DepthwiseRows& a);
  /// V = the smaller of 8 and lanes: for chw8c.
  void (*rows8)(const DepthwiseRows& a);
  void (*plane)(const DepthwisePlane& a);
  void (*pad)(const DepthwisePad& a);
};

}  // namespace convprim::kernels
