// Linear interpolation between rows and between columns.
#pragma once

#include <cstddef>

namespace convprim::kernels {

struct ResizeKernels {
  /// out[i] = (1 - t) * a[i] + t * b[i].
  void (*lerp_rows)(const float* a, const float* b, float t, float* out, std::ptrdiff_t n);
  /// out[x] = (1 - t[x]) * line[a[x]] + t[x] * line[b[x]] for x < n: columns of one plane.
  void (*lerp_columns)(const float* line, const std::ptrdiff_t* a, const std::ptrdiff_t* b,
                       const float* t, float* out, std::ptrdiff_t n);
  /// The same for pixels of `lanes` contiguous channels, out_w from one output to the next; a and b
  /// are offsets in floats.
  void (*lerp_pixels)(const float* line, const std::ptrdiff_t* a, const std::ptrdiff_t* b,
                      const float* t, std::ptrdiff_t lanes, float* out, std::ptrdiff_t out_w,
                      std::ptrdiff_t n);
};

}  // namespace convprim::kernels
