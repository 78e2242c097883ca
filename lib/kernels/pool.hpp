// Pooling: maximum or average over windows.
#pragma once

#include <cstddef>

namespace convprim::kernels {

/// A list of output rows whose columns are contiguous (CHW, HCW): of one plane, or row y of all
/// channels.
struct PoolPlane {
  std::ptrdiff_t w, ow;           ///< columns
  std::ptrdiff_t kw, sw, dw, pl;  ///< window, stride, dilation and left padding in columns
  std::ptrdiff_t in_step;         ///< between the input rows of one window
  std::ptrdiff_t in_h, out_h;     ///< from one row of the list to the next
  const std::ptrdiff_t* row;      ///< each output row's first input row, in units of in_h
  const std::ptrdiff_t* rows;     ///< and its number of rows
  const float* scale_y;           ///< average: one over the rows to divide by, of each output row
  std::ptrdiff_t y_step;          ///< 0 if all output rows have the same rows and scale_y
  const float* scale_x;           ///< one over the columns, with room for a vector at the end
  std::ptrdiff_t line;            ///< floats of a padded row in the scratch memory: all that
                                  ///< whole vectors of windows read
};

/// One output row of pixels whose channels are contiguous (HWC and the blocked layouts).
struct PoolPixels {
  std::ptrdiff_t ow;
  std::ptrdiff_t kw, sw, pl;            ///< window, stride and left padding in columns
  std::ptrdiff_t dh, dw;                ///< dilation
  std::ptrdiff_t in_h, in_w;            ///< from one input row, and pixel, to the next
  std::ptrdiff_t out_w;                 ///< from one output pixel to the next
  std::ptrdiff_t full_begin, full_end;  ///< output columns whose windows are inside the image
  const std::ptrdiff_t* col;   ///< each output column's first input column inside the image
  const std::ptrdiff_t* cols;  ///< and its number of columns
  const float* scale_x;        ///< average: one over the columns to divide by
};

struct PoolKernels {
  /// Output rows [begin, end) of the list. `scratch` holds (end - begin) lines, filled with what
  /// the method ignores (-infinity or 0).
  void (*max_plane)(const PoolPlane&, const float* in, float* out, std::ptrdiff_t begin,
                    std::ptrdiff_t end, float* scratch);
  void (*avg_plane)(const PoolPlane&, const float* in, float* out, std::ptrdiff_t begin,
                    std::ptrdiff_t end, float* scratch);
  /// One output row: `in` is its first input row, of `rows`; `channels` are contiguous.
  void (*max_pixels)(const PoolPixels&, const float* in, std::ptrdiff_t rows, float* out,
                     std::ptrdiff_t channels, float scale_y);
  void (*avg_pixels)(const PoolPixels&, const float* in, std::ptrdiff_t rows, float* out,
                     std::ptrdiff_t channels, float scale_y);
  /// The maximum, and the sum, of n > 0 floats.
  float (*max_run)(const float* in, std::ptrdiff_t n);
  float (*sum_run)(const float* in, std::ptrdiff_t n);
};

}  // namespace convprim::kernels
