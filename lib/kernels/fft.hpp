// Two-dimensional real FFTs of small square tiles, one channel in each lane of a register.
//
// A tile is [T][T][lanes] floats. Of its spectrum X(u, v) = sum over y, x of tile(y, x) *
// exp(-2 pi i (u y + v x) / T) only the T^2/2 + 2 frequencies that the symmetry of real data leaves
// are kept: u = 0 .. T/2 of the columns v = 0 and v = T/2, and all u of the columns between, in
// this order.
#pragma once

#include <cstddef>

namespace convprim::kernels {

/// Where the planes of a spectrum lie: frequency f's real part of all lanes at f * frequency, its
/// imaginary part `plane` behind, in floats.
struct SpectrumStrides {
  std::ptrdiff_t frequency, plane;
};

/// The transforms of one tile size. Scratch holds scratch_floats() floats.
struct TileFft {
  int size;         ///< T
  int frequencies;  ///< T^2/2 + 2
  /// Transforms a tile. With `sum`, also writes re + im as a third plane.
  void (*forward)(const float* tile, float* spectrum, SpectrumStrides at, bool sum, float* scratch);
  /// The first `rows` rows of T^2 times the inverse transform.
  void (*inverse)(const float* spectrum, SpectrumStrides at, std::ptrdiff_t rows, float* tile,
                  float* scratch);
};

inline constexpr int kTileFfts = 3;

struct FftKernels {
  int lanes;
  const TileFft* tiles;  ///< sizes 8, 16 and 32
  /// x[i] = clamp(x[i] + bias[lane] + residual[i], lo, hi) for n positions of `lanes` floats, and 0
  /// in the lanes from `valid` on. residual may be null.
  void (*finish)(float* x, const float* residual, const float* bias, float lo, float hi, int valid,
                 std::ptrdiff_t n);
};

/// Floats of scratch that a transform of size T needs.
constexpr std::ptrdiff_t fft_scratch_floats(int size, int lanes) {
  return std::ptrdiff_t{2} * (size / 2 + 1) * size * lanes;
}

}  // namespace convprim::kernels
