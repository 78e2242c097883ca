// Register tiles of a matrix product with packed weights whose other operand is read where it lies.
//
//   sums[p][m] = bias[m] + sum over blocks b, taps t, k of in(p, t, b)[k * step] *
//   weights[b][t][k][m]
//
// A tile is a few pixels (rows of the product) times a panel of a few vectors of output channels;
// its sums stay in registers from the bias to the stored result. in(p, t, b) is a run of `len`
// floats at an address of its own, so that the same loops serve a plain GEMM (one block, one tap),
// implicit GEMM through an indirection table (Dukhan, arXiv 1907.02129) and direct convolution on
// blocked layouts (Georganas et al., arXiv 1808.05567).
#pragma once

#include <cstddef>
#include <cstdint>

namespace convprim::kernels {

inline constexpr int kMaxPanelVectors = 4;
inline constexpr int kMaxTilePixels = 16;

/// What is the same for all tiles of one panel of output channels.
struct GemmPanel {
  const float* weights;          ///< [blocks][all taps][len][vectors * lanes], 64-byte aligned
  const float* bias;             ///< [vectors * lanes]
  std::ptrdiff_t weights_block;  ///< floats from one block to the next
  std::ptrdiff_t blocks;         ///< blocks of the innermost sum
  std::ptrdiff_t len, last_len;  ///< terms in a block (in the last one) for each tap
  std::ptrdiff_t step;           ///< floats between the terms of a run in `in`
  std::ptrdiff_t in_offset;      ///< first block, in floats from GemmTile::in
  std::ptrdiff_t block_stride;   ///< from one block to the next in `in`

  /// Channel c of the panel is stored at pixel + offset + (lane + c) / block * block_stride + (lane
  /// + c) % block.
  struct Target {
    std::ptrdiff_t offset, block_stride;
    std::ptrdiff_t pixel_stride;
    std::ptrdiff_t vectors[kMaxPanelVectors];  ///< where each vector starts, if `whole`
  };
  Target out, residual;
  std::ptrdiff_t block, lane;
  std::ptrdiff_t valid;   ///< channels of the panel that exist
  std::ptrdiff_t stored;  ///< channels written; those from `valid` on as zeros
  bool whole;  ///< all channels of all vectors exist and each vector is stored in one piece
  float lo, hi;
};

/// One tile.
struct GemmTile {
  const float* in;
  const float* zeros;  ///< a run of zeros, read for pixels outside the image
  /// in(p, t, b) is in + panel.in_offset + offsets[t * offset_step + p] + b * panel.block_stride;
  /// a negative offset stands for zeros.
  const std::int32_t* offsets;
  std::ptrdiff_t offset_step;
  std::ptrdiff_t first_tap, taps;  ///< taps that are not outside the image for all pixels
  float* out;                      ///< first pixel
  const float* residual;           ///< first pixel, or null
};

struct GemmKernels {
  int lanes;  ///< floats in a vector
  /// Most pixels of a tile with that many vectors less one; 0: no such tile.
  int max_pixels[kMaxPanelVectors];
  /// tile[vectors - 1][pixels - 1]
  void (*tile[kMaxPanelVectors][kMaxTilePixels])(const GemmPanel&, const GemmTile&);
};

}  // namespace convprim::kernels
