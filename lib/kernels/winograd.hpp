// Inner loops of Winograd convolution: tile transforms and the products between them.
//
// The transformed data of a batch of tiles lies as [element][channel block][tile][16]: the product
// reads a register tile's rows at constant distances, and a transform stores whole vectors.
#pragma once

#include <cstddef>

namespace convprim::kernels {

/// Channels in a block of transformed data, whatever the instruction set.
inline constexpr int kWinogradBlock = 16;

/// One tile of the input: t x t pixels (1 x t for a one-dimensional transform) of `blocks` runs of
/// V channels.
struct WinogradInput {
  const float* in;                              // the tile's first pixel, which may lie outside
  std::ptrdiff_t h_stride, w_stride, v_stride;  // v_stride: from V channels to the next V
  int y_begin, y_end, x_begin, x_end;           // the part of the tile that is in the image
  std::ptrdiff_t blocks;
  float* out;
  std::ptrdiff_t e_stride, block_stride;  // between elements, between 16 channels
};

/// One tile of the output: m x m pixels (1 x m), of which rows x cols are stored.
struct WinogradOutput {
  const float* in;
  std::ptrdiff_t e_stride, block_stride;
  float* out;
  std::ptrdiff_t h_stride, w_stride, v_stride;
  const float* residual;  // null: none
  std::ptrdiff_t rh_stride, rw_stride, rv_stride;
  const float* bias;  // a whole number of V
  float lo, hi;
  int rows, cols;
  std::ptrdiff_t blocks;
};

/// c = sum over taps and channels of a * b, for `rows` tiles and n outputs (a multiple of 16). With
/// one tap the tiles come in chunks, one for each register tile (see winograd_chunk), a chunk being
/// [k / 16][tile][16]; with several, a is [k / 16][tile][16] as a whole.
struct WinogradGemm {
  const float* a;
  std::ptrdiff_t a_block, tap_stride;  // with several taps: between 16 channels, between taps
  std::ptrdiff_t rows, taps, k, n;
  const float*
      b;  // panels of WinogradKernels::panel columns (the last may be narrower): [tap][k][columns]
  float* c;  // [n / 16][tile][16]
  std::ptrdiff_t c_block;
};

/// The transforms of one F(m, r) over runs of V channels.
struct WinogradTransform {
  int m, r;
  int dims;  // 1 or 2
  int v;     // 1, 4, 8 or 16
  void (*input)(const WinogradInput&);
  void (*output)(const WinogradOutput&);
};

struct WinogradKernels {
  const WinogradTransform* transforms;
  int transform_count;
  int panel;     // columns of a panel of packed weights
  int max_rows;  // tiles in a register tile
  void (*gemm)(const WinogradGemm&);
  /// out[i * 16 + c] = in[c * stride + i] for i < n and c < channels; 0 for channels <= c < 16.
  void (*gather)(const float* in, std::ptrdiff_t stride, std::ptrdiff_t channels, std::ptrdiff_t n,
                 float* out);
  /// out[c * stride + i] = clamp(in[i * 16 + c] + residual[c * r_stride + i], lo, hi); residual may
  /// be null.
  void (*scatter)(const float* in, std::ptrdiff_t channels, std::ptrdiff_t n, float* out,
                  std::ptrdiff_t stride, const float* residual, std::ptrdiff_t r_stride, float lo,
                  float hi);
};

}  // namespace convprim::kernels
