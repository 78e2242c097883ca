// Local response normalisation.
#pragma once

#include <cstddef>

namespace convprim::kernels {

/// out = in * (k + alpha * sum of in^2 over the window)^-beta; alpha is already divided by the
/// window's size.
struct LrnParams {
  std::ptrdiff_t before, after;  ///< channels (or pixels) of the window before and after its middle
  float alpha, beta, k;
};

struct LrnKernels {
  /// Across channels, columns contiguous: n pixels of all channels, in_c and out_c from one channel
  /// to the next.
  void (*planes)(const LrnParams&, const float* in, std::ptrdiff_t in_c, float* out,
                 std::ptrdiff_t out_c, std::ptrdiff_t channels, std::ptrdiff_t n);
  /// Across channels, channels contiguous in blocks (`block` 8 or 16; 0: all of them): n pixels,
  /// in_w and out_w from one to the next, in_c and out_c from one block to the next. Channels are a
  /// multiple of the block. scratch holds channels + before + after + 4 * lanes floats.
  void (*pixels)(const LrnParams&, const float* in, std::ptrdiff_t in_w, std::ptrdiff_t in_c,
                 float* out, std::ptrdiff_t out_w, std::ptrdiff_t out_c, std::ptrdiff_t block,
                 std::ptrdiff_t channels, std::ptrdiff_t n, float* scratch);
  /// Within a channel, one row of n floats: window rows [0, rows) start at `window`, in_h apart;
  /// columns are `step` floats apart. scratch holds n + (before + after) * step + 2 * lanes floats.
  void (*within)(const LrnParams&, const float* window, std::ptrdiff_t in_h, std::ptrdiff_t rows,
                 const float* in, float* out, std::ptrdiff_t step, std::ptrdiff_t n,
                 float* scratch);
};

}  // namespace convprim::kernels
