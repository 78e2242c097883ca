// Softmax, and scaling to length 1, over the channels of each pixel.
#pragma once

#include <cstddef>

namespace convprim::kernels {

/// Where the channels of a pixel lie: runs of contiguous ones. HWC has one run of all channels, a
/// blocked layout one for each block, the last with fewer valid channels.
struct ChannelRuns {
  std::ptrdiff_t run;                ///< channels of a run as stored
  std::ptrdiff_t channels;           ///< valid channels of all runs together
  std::ptrdiff_t in_step, out_step;  ///< from one run to the next
};

struct SoftmaxKernels {
  /// One pixel; writes zeros behind the valid channels of the last run. log: the logarithm.
  void (*pixel)(const ChannelRuns&, const float* in, float* out, bool log);
  /// n pixels, contiguous; in_c and out_c from one channel to the next.
  void (*columns)(const float* in, std::ptrdiff_t in_c, float* out, std::ptrdiff_t out_c,
                  std::ptrdiff_t channels, std::ptrdiff_t n, bool log);
  /// out = in * scale / sqrt(sum of in^2 + eps) for one pixel; scale as stored, one for each
  /// channel, with room for a whole vector at the end.
  void (*normalize_pixel)(const ChannelRuns&, const float* in, float* out, const float* scale,
                          float eps);
  void (*normalize_columns)(const float* in, std::ptrdiff_t in_c, float* out, std::ptrdiff_t out_c,
                            std::ptrdiff_t channels, std::ptrdiff_t n, const float* scale,
                            float eps);
  /// Sum of the squares of n floats, n up to a few thousand.
  float (*square_run)(const float* in, std::ptrdiff_t n);
};

}  // namespace convprim::kernels
