// Inner loops of convolution with few input channels: the first layer of a network.
#pragma once

#include <cstddef>

namespace convprim::kernels {

/// One row of output pixels. The input lies in a padded strip whose rows are split into phases (see
/// DepthwisePad), so that output column x of tap t reads in[offsets[t] + x] whatever the stride,
/// and nothing needs a test. Reads up to 16 columns beyond ow.
struct FirstRow {
  const float* in;  ///< strip, moved on to this output row
  std::ptrdiff_t taps;
  const std::ptrdiff_t* offsets;  ///< [taps]
  std::ptrdiff_t ow;
  /// Packed numbers of this block of output channels; see the two kernels.
  const float* packed;
  float* out;
  const float* residual;  ///< null for none

  // by channels
  std::ptrdiff_t vectors;  ///< registers of channels: 1 or 2
  std::ptrdiff_t lanes;    ///< channels that are stored, padding lanes included
  std::ptrdiff_t piece;    ///< channels that lie together: 8 in chw8c, else all of a register
  std::ptrdiff_t out_col, residual_col;
  const std::ptrdiff_t* places;  ///< offset of each piece from `out`
  const std::ptrdiff_t* residual_places;

  // by columns
  std::ptrdiff_t channels;  ///< of kFirstChannels, that are stored
  std::ptrdiff_t out_channel, residual_channel;
  float lo, hi;
};

/// Output channels of a block of by_columns.
inline constexpr std::ptrdiff_t kFirstChannels = 6;

struct FirstLayerKernels {
  /// Vectors of channels, for HWC and the blocked layouts. Packed, with n = vectors * lanes of a
  /// register: bias[n] lo[n] hi[n] weights[taps][n].
  void (*by_channels)(const FirstRow& a);
  /// Vectors of columns, for CHW and HCW. Packed: bias[6] weights[taps][6].
  void (*by_columns)(const FirstRow& a);
};

}  // namespace convprim::kernels
