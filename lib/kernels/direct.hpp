// Register tiles of direct convolution with vectors along an output row: M output channels times Q
// vectors of columns.
//
//   sums[m][x] = bias[m] + sum over channels c, taps t of
//                in[c * channel_stride + offsets[t] + x] * weights[c][t][m]
//
// The input is a copy of image rows with zeros left and right and, at strides above 1, with the
// columns that share x mod stride next to each other: every load is a whole vector.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convprim::kernels {

inline constexpr int kMaxColumnVectors = 4;
inline constexpr int kMaxColumnChannels = 12;

struct ColumnsTile {
  const float* in;  ///< first column of the tile, first channel
  const std::int32_t* offsets;
  std::ptrdiff_t taps, channels, channel_stride;
  const float* weights;
  std::ptrdiff_t weights_stride;  ///< floats from one channel to the next
  const float* bias;              ///< [m]
  float* out;                     ///< first column of the first output channel
  std::ptrdiff_t out_stride;      ///< from one output channel to the next
  const float* residual;          ///< likewise, or null
  std::ptrdiff_t residual_stride;
  std::ptrdiff_t columns;  ///< columns that are stored
  float lo, hi;
};

struct DirectKernels {
  int lanes;  ///< floats in a vector
  /// Most output channels of a tile with that many vectors less one; 0: no such tile.
  int max_channels[kMaxColumnVectors];
  /// columns[vectors - 1][channels - 1]
  void (*columns[kMaxColumnVectors][kMaxColumnChannels])(const ColumnsTile&);
};

}  // namespace convprim::kernels
