// Spectra of a convolution's filters, see spectral_filter.hpp.
#include "primitives/fft/spectral_filter.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/kernels.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

constexpr Index kRowFloats = 4096;  // spectra of rows that a thread computes at a time

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

namespace {

/// exp(2 pi i place * k / length) for k below `frequencies` and all places.
std::vector<float> roots(std::span<const SpectralFilter::Tap> taps, Index frequencies,
                         Index length) {
  std::vector<float> all;
  for (Index k = 0; k < frequencies; ++k) {
    for (const SpectralFilter::Tap& tap : taps) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(tap.place * k % length) /
                           static_cast<double>(length);
      all.push_back(static_cast<float>(std::cos(angle)));
      all.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return all;
}

/// A part's roots of unity, for each row and column of frequencies.
struct Roots {
  std::vector<float> rows, cols;
};

}  // namespace

/// One thread's memory while it computes spectra.
class SpectralFilter::Filler {
 public:
  Filler(SpectralFilter& to, const Scenario& s, const float* filter, const Transform& transform)
      : to_(to), s_(s), filter_(filter), transform_(transform) {}

  /// Spectra of `count` channels of a part, from its c-th on.
  void fill(const Panel& panel, const Part& part, const Roots& roots, Index c, Index count) {
    const auto rows = static_cast<Index>(part.rows.size());
    const auto cols = static_cast<Index>(part.cols.size());
    const Index width = panel.vectors * to_.lanes_;
    gather(panel, part, c, count);
    rows_.resize(static_cast<std::size_t>(2 * count * rows * width));
    const int vectors = static_cast<int>(panel.vectors);
    const auto& kernels = *kernels::active().complex;
    for (Index x = 0; x <= transform_.width / 2; ++x) {
      kernels.row_spectra({taps_.data(), roots.cols.data() + 2 * x * cols, rows_.data(),
                           count * rows, cols, vectors});
      for (Index y = 0; y < transform_.height; ++y) {
        const Index frequency =
            transform_.order[static_cast<std::size_t>(x * transform_.height + y)];
        if (frequency < 0) continue;
        float* spectra = to_.packed_.data() + to_.at(frequency, panel) +
                         (part.tap * to_.channels_ + part.begin + c) * to_.planes_ * width;
        kernels.column_spectra({rows_.data(), roots.rows.data() + 2 * y * rows, spectra, count,
                                rows, vectors, to_.planes_ == 3});
      }
    }
  }

 private:
  /// Taps as [channel][row][column][output], scaled, with zeros for outputs that are none.
  void gather(const Panel& panel, const Part& part, Index c, Index count) {
    const Index width = panel.vectors * to_.lanes_;
    const Index first = (panel.vector - panel.group * group_vectors(s_)) * to_.lanes_;
    const auto taps = static_cast<Index>(part.rows.size() * part.cols.size());
    const float scale = 1.0F / static_cast<float>(transform_.height * transform_.width);
    taps_.assign(static_cast<std::size_t>(count * taps * width), 0.0F);
    for (Index lane = 0; lane < std::min(width, s_.mg() - first); ++lane) {
      const float* from =
          filter_ + ((panel.group * s_.mg() + first + lane) * s_.cg() + c) * s_.kh * s_.kw;
      float* to = taps_.data() + lane;
      for (Index i = 0; i < count; ++i, from += s_.kh * s_.kw) {
        for (const Tap& row : part.rows) {
          for (const Tap& col : part.cols) {
            *to = scale * from[row.index * s_.kw + col.index];
            to += width;
          }
        }
      }
    }
  }

  SpectralFilter& to_;
  const Scenario& s_;
  const float* filter_;
  const Transform& transform_;
  std::vector<float> taps_, rows_;
};

void SpectralFilter::fill(const Scenario& s, const float* filter, const Transform& transform,
                          std::span<const Part> parts, int threads) {
  // Channels whose rows' spectra stay in the first-level cache.
  std::size_t most = 1;
  for (const Part& part : parts) most = std::max(most, part.rows.size());
  const auto width = static_cast<Index>(kernels::active().complex->vectors) * lanes_;
  const Index count =
      std::clamp<Index>(kRowFloats / (2 * static_cast<Index>(most) * width), 1, s.cg());
  const Index blocks = (s.cg() + count - 1) / count;
  const auto n = static_cast<Index>(parts.size());
  std::vector<Roots> all;
  for (const Part& part : parts) {
    all.push_back({roots(part.rows, transform.height, transform.height),
                   roots(part.cols, transform.width / 2 + 1, transform.width)});
  }
  parallel(threads, [&](int thread, int team) {
    Filler filler(*this, s, filter, transform);
    const Range mine = share(static_cast<Index>(panels_.size()) * n * blocks, thread, team);
    for (Index i = mine.begin; i < mine.end; ++i) {
      const Index c = i % blocks * count;
      const auto part = static_cast<std::size_t>(i / blocks % n);
      filler.fill(panels_[static_cast<std::size_t>(i / blocks / n)], parts[part], all[part], c,
                  std::min(count, s.cg() - c));
    }
  });
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
