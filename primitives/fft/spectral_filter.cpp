// Spectra of a convolution's filters, see spectral_filter.hpp.
#include "primitives/fft/spectral_filter.hpp"

#include <algorithm>

#include "kernels/kernels.hpp"

namespace convprim {
namespace {

Index vectors(Index channels) {
  const Index lanes = kernels::active().lanes;
  return (channels + lanes - 1) / lanes;
}

}  // namespace

Index SpectralFilter::group_vectors(const Scenario& s) { return vectors(s.mg()); }

Index SpectralFilter::floats(const Scenario& s, Index frequencies, Index taps, bool gauss) {
  return frequencies * s.g * group_vectors(s) * kernels::active().lanes * s.cg() * taps *
         (gauss ? 3 : 2);
}

SpectralFilter::SpectralFilter(const Scenario& s, Index frequencies, Index taps, bool gauss)
    : lanes_(kernels::active().lanes),
      taps_(taps),
      channels_(s.cg()),
      planes_(gauss ? 3 : 2),
      x_plane_(vectors(s.c) * lanes_),
      y_plane_(s.g * group_vectors(s) * lanes_),
      packed_(static_cast<std::size_t>(floats(s, frequencies, taps, gauss))) {
  const Index all = group_vectors(s), width = kernels::active().complex->vectors;
  for (Index group = 0; group < s.g; ++group) {
    for (Index v = 0; v < all; v += width) {
      panels_.push_back({group, group * all + v, std::min(width, all - v)});
    }
  }
}

Index SpectralFilter::at(Index frequency, const Panel& panel) const {
  return (frequency * y_plane_ + panel.vector * lanes_) * channels_ * taps_ * planes_;
}

void SpectralFilter::put(Index frequency, const Panel& panel, Index v, Index tap, Index c,
                         const float* re, const float* im) {
  const Index step = panel.vectors * lanes_;  // from plane to plane
  float* to =
      packed_.data() + at(frequency, panel) + (tap * channels_ + c) * planes_ * step + v * lanes_;
  for (Index lane = 0; lane < lanes_; ++lane) {
    const float real = re[lane], imaginary = -im[lane];
    to[lane] = real;
    to[step + lane] = planes_ == 3 ? imaginary - real : imaginary;
    if (planes_ == 3) to[2 * step + lane] = real + imaginary;
  }
}

void SpectralFilter::multiply(Index frequency, const Panel& panel, Index positions, const float* x,
                              const Strides& x_at, Index x_tap, float* y,
                              const Strides& y_at) const {
  kernels::ComplexProduct p{};
  p.filter = packed_.data() + at(frequency, panel);
  p.x = x + frequency * x_at.frequency + panel.group * channels_;
  p.x_position = x_at.position;
  p.x_plane = x_plane_;
  p.x_tap = x_tap;
  p.y = y + frequency * y_at.frequency + panel.vector * lanes_;
  p.y_position = y_at.position;
  p.y_plane = y_plane_;
  p.taps = taps_;
  p.channels = channels_;
  p.positions = positions;
  p.vectors = static_cast<int>(panel.vectors);
  // Panels follow one another in memory; the last one's successor is only asked for, never read.
  p.next = p.filter + taps_ * channels_ * planes_ * panel.vectors * lanes_;
  const auto& products = *kernels::active().complex;
  (planes_ == 3 ? products.gauss_product : products.product)(p);
}

}  // namespace convprim
