// Register tiles of a matrix product with packed weights whose other operand is read where it lies.
//
//   sums[p][m] = bias[m] + sum over groups g, runs r of g, i < r.terms of
//                pixel(p, g)[r.at + i * step] * weights[r.first_term + i][m]
//
// A tile is a few pixels (rows of the product) times a panel of a few vectors of output channels;
// its sums stay in registers from the bias to the stored result. The terms of the sum come in runs:
// a plain GEMM has one group of one run of K terms; a convolution has a run for each tap and block
// of input channels. For pixels inside the image one address serves all taps, whose distances are
// in Run::at (Zhang et al., arXiv 1809.10170); at the edges a group for each tap gives each pixel
// an address of its own or zeros (Dukhan, arXiv 1907.02129).
#pragma once

#include <cstddef>
#include <cstdint>

namespace convprim::kernels {

inline constexpr int kMaxPanelVectors = 4;
inline constexpr int kMaxTilePixels = 28;
inline constexpr int kPrefetch = 8;

/// Consecutive terms of the sum, as consecutive weights.
struct GemmRun {
  std::int32_t at;          ///< first term's offset from the pixel
  std::int32_t first_term;  ///< its row of the weights
  std::int32_t terms;
};

/// Runs that share the addresses of the pixels: in + shift + offsets[p], or zeros where offsets[p]
/// is negative.
struct GemmGroup {
  const GemmRun* runs;
  std::ptrdiff_t run_count;
  std::ptrdiff_t shift;
  std::ptrdiff_t offset_row;  ///< first of these offsets in GemmTile::offsets
};

/// What is the same for all tiles of one panel of output channels.
struct GemmPanel {
  const float* weights;      ///< [terms][vectors * lanes], 64-byte aligned
  const float* bias;         ///< [vectors * lanes]
  std::ptrdiff_t in_offset;  ///< added to GemmTile::in
  std::ptrdiff_t step;       ///< floats between the terms of a run in the input

  /// Channel c of the panel is stored at pixel + offset + (lane + c) / block * block_stride + (lane
  /// + c) % block.
  struct Target {
    std::ptrdiff_t offset, block_stride;
    std::ptrdiff_t pixel_stride;
    std::ptrdiff_t vectors[2 * kMaxPanelVectors];  ///< where each vector (or half) starts
  };
  Target out, residual;
  std::ptrdiff_t block, lane;
  std::ptrdiff_t valid;   ///< channels of the panel that exist
  std::ptrdiff_t stored;  ///< channels written; those from `valid` on as zeros
  /// How sums are stored. whole: all channels exist and each vector is stored in one piece; halves:
  /// in two; parts: anything else.
  enum class Store : std::uint8_t { whole, halves, parts };
  Store store;
  float lo, hi;
};

/// One tile.
struct GemmTile {
  const float* in;
  const float*
      zeros;  ///< what is read for pixels outside the image: zeros as far as the runs reach
  const GemmGroup* groups;
  std::ptrdiff_t group_count;
  const std::int32_t* offsets;
  std::ptrdiff_t pixel_step;  ///< floats from pixel to pixel in the input, for even tiles
  /// Brought to the L2 cache meanwhile: for each run kPrefetch floats a term, from prefetch + at *
  /// prefetch_at + first_term * prefetch_term.
  const float* prefetch;
  std::ptrdiff_t prefetch_at, prefetch_term;
  float* out;             ///< first pixel
  const float* residual;  ///< first pixel, or null
};

struct GemmKernels {
  int lanes;  ///< floats in a vector
  /// Most pixels of a tile with that many vectors less one; 0: no such tile.
  int max_pixels[kMaxPanelVectors];
  /// tile[step == 1][vectors - 1][pixels - 1]
  void (*tile[2][kMaxPanelVectors][kMaxTilePixels])(const GemmPanel&, const GemmTile&);
  /// The same for even tiles: pixels inside the image, pixel_step apart from the first one's offset
  /// on. They have wider tiles, since they need fewer registers for addresses; 0: none.
  int max_even[kMaxPanelVectors];
  void (*even[2][kMaxPanelVectors][kMaxTilePixels])(const GemmPanel&, const GemmTile&);
};

}  // namespace convprim::kernels
