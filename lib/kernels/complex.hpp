// Products of complex spectra: the matrix product in the middle of an FFT convolution.
//
//   y(t, m) = sum over taps i, channels c of filter(i, c, m) * x(t + i, c)
//
// all complex, for a panel of outputs m that fills a few registers and any number of positions t.
// Real and imaginary parts lie in planes of their own, so that a product is four multiply-adds on
// whole registers, or three in Gauss's form, which trades one multiply-add for filter and input
// planes that hold sums (Zlateski et al., arXiv 1809.07851).
#pragma once

#include <cstddef>

namespace convprim::kernels {

/// One frequency, one panel. Offsets count floats.
struct ComplexProduct {
  /// [taps][channels][planes][vectors * lanes]. Planes: re, im; in Gauss's form re, im - re, re +
  /// im.
  const float* filter;
  /// x(t, c) is at x + t * x_position + c, its further planes x_plane apart: re, im; in Gauss's
  /// form also re + im.
  const float* x;
  std::ptrdiff_t x_position, x_plane;
  std::ptrdiff_t x_tap;  ///< from the positions of one tap to those of the next
  float* y;              ///< y(t, m) is at y + t * y_position + m; im is y_plane behind
  std::ptrdiff_t y_position, y_plane;
  std::ptrdiff_t taps, channels, positions;
  int vectors;  ///< 1 to ComplexKernels::vectors
  /// The filter that the caller multiplies by next, fetched into the cache meanwhile.
  const float* next;
};

/// Sums over a few real taps for each of `count` rows: the first step of a filter's spectrum.
struct RowSpectra {
  const float* taps;   ///< [count][cols][vectors * lanes]
  const float* roots;  ///< [cols]: re, im
  float* spectra;      ///< [count]: re and im of [vectors * lanes]
  std::ptrdiff_t count, cols;
  int vectors;
};

/// Sums over the rows of each channel: the filter's spectrum at one frequency.
struct ColumnSpectra {
  const float* rows;   ///< [channels][count]: re and im of [vectors * lanes]
  const float* roots;  ///< [count]: re, im
  float* filter;       ///< [channels][planes][vectors * lanes], as in ComplexProduct
  std::ptrdiff_t channels, count;
  int vectors;
  bool gauss;
};

struct ComplexKernels {
  int lanes;            ///< floats in a vector
  int vectors;          ///< vectors in the widest panel
  int positions;        ///< positions in a register tile
  int gauss_positions;  ///< the same in Gauss's form
  void (*product)(const ComplexProduct&);
  void (*gauss_product)(const ComplexProduct&);
  void (*row_spectra)(const RowSpectra&);
  void (*column_spectra)(const ColumnSpectra&);
};

}  // namespace convprim::kernels
