// Kernels of the FFT convolutions against sums in double, for the instruction set in use.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <random>
#include <vector>

#include "kernels/kernels.hpp"
#include "test.hpp"

using namespace convprim;
using Complex = std::complex<double>;

namespace {

std::vector<float> noise(std::size_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& x : values) x = uniform(rng);
  return values;
}

/// The frequencies (u, v) that are kept, in their order.
std::vector<std::pair<int, int>> kept(int t) {
  std::vector<std::pair<int, int>> all;
  for (int v : {0, t / 2}) {
    for (int u = 0; u <= t / 2; ++u) all.emplace_back(u, v);
  }
  for (int v = 1; v < t / 2; ++v) {
    for (int u = 0; u < t; ++u) all.emplace_back(u, v);
  }
  return all;
}

}  // namespace

TEST_CASE("tile transforms are the discrete Fourier transform and its inverse") {
  const kernels::FftKernels& fft = *kernels::active().fft;
  const int lanes = fft.lanes;
  for (int i = 0; i < kernels::kTileFfts; ++i) {
    const kernels::TileFft& transform = fft.tiles[i];
    const int t = transform.size;
    CAPTURE(t);
    const auto frequencies = kept(t);
    REQUIRE(static_cast<int>(frequencies.size()) == transform.frequencies);
    const auto pixels = static_cast<std::size_t>(t * t * lanes);
    const std::vector<float> tile = noise(pixels, 7);
    std::vector<float> scratch(static_cast<std::size_t>(kernels::fft_scratch_floats(t, lanes)),
                               NAN);
    // Planes and frequencies further apart than need be.
    const kernels::SpectrumStrides at{4 * lanes, lanes};
    std::vector<float> spectrum(frequencies.size() * 4 * static_cast<std::size_t>(lanes), NAN);
    transform.forward(tile.data(), spectrum.data(), at, true, scratch.data());

    std::vector<Complex> root(static_cast<std::size_t>(t));
    for (int k = 0; k < t; ++k) {
      root[static_cast<std::size_t>(k)] = std::polar(1.0, -2 * std::numbers::pi * k / t);
    }
    double worst = 0;
    for (std::size_t f = 0; f < frequencies.size(); ++f) {
      const auto [u, v] = frequencies[f];
      for (int lane = 0; lane < lanes; ++lane) {
        Complex want = 0;
        for (int y = 0; y < t; ++y) {
          for (int x = 0; x < t; ++x) {
            want +=
                static_cast<double>(tile[static_cast<std::size_t>((y * t + x) * lanes + lane)]) *
                root[static_cast<std::size_t>((u * y + v * x) % t)];
          }
        }
        const float* got = spectrum.data() + f * 4 * static_cast<std::size_t>(lanes) + lane;
        worst = std::max({worst, std::abs(got[0] - want.real()), std::abs(got[lanes] - want.imag()),
                          std::abs(got[2 * lanes] - want.real() - want.imag())});
      }
    }
    CHECK(worst < 1e-6 * t * t);

    std::vector<float> back(pixels, NAN);
    const int rows = t - 3;
    transform.inverse(spectrum.data(), at, rows, back.data(), scratch.data());
    double off = 0;
    for (int k = 0; k < rows * t * lanes; ++k) {
      const auto at_k = static_cast<std::size_t>(k);
      off = std::max(off, std::abs(static_cast<double>(back[at_k]) / (t * t) - tile[at_k]));
    }
    CHECK(off < 1e-6);
    CHECK(std::isnan(back[static_cast<std::size_t>(rows * t * lanes)]));
  }
}

TEST_CASE("complex products, plain and in Gauss's form") {
  const kernels::ComplexKernels& complex = *kernels::active().complex;
  const int lanes = complex.lanes;
  const std::ptrdiff_t taps = 3, channels = 5, most = 2 * complex.positions + 1;
  for (bool gauss : {false, true}) {
    for (int vectors = 1; vectors <= complex.vectors; ++vectors) {
      for (std::ptrdiff_t positions = 1; positions <= most; ++positions) {
        CAPTURE(gauss);
        CAPTURE(vectors);
        CAPTURE(positions);
        const std::ptrdiff_t outputs = vectors * lanes, planes = gauss ? 3 : 2;
        const std::ptrdiff_t x_plane = channels + 2, x_position = 3 * x_plane,
                             x_tap = 2 * x_position;
        const auto x_floats = static_cast<std::size_t>((positions + 2 * taps) * x_position);
        std::vector<float> x = noise(x_floats, 3);
        const auto filter_at = [&](std::ptrdiff_t i, std::ptrdiff_t c, std::ptrdiff_t plane) {
          return static_cast<std::size_t>(((i * channels + c) * planes + plane) * outputs);
        };
        std::vector<float> plain =
            noise(static_cast<std::size_t>(taps * channels * 2 * outputs), 5);
        std::vector<float> filter(static_cast<std::size_t>(taps * channels * planes * outputs));
        for (std::ptrdiff_t j = 0; j < taps * channels; ++j) {
          for (std::ptrdiff_t m = 0; m < outputs; ++m) {
            const float re = plain[static_cast<std::size_t>(2 * j * outputs + m)];
            const float im = plain[static_cast<std::size_t>((2 * j + 1) * outputs + m)];
            float* to = filter.data() + filter_at(j / channels, j % channels, 0) + m;
            to[0] = re;
            to[outputs] = gauss ? im - re : im;
            if (gauss) to[2 * outputs] = re + im;
          }
        }
        for (std::ptrdiff_t t = 0; t < positions + 2 * taps; ++t) {
          for (std::ptrdiff_t c = 0; c < channels; ++c) {
            float* at = x.data() + t * x_position + c;
            at[2 * x_plane] = at[0] + at[x_plane];
          }
        }
        const std::ptrdiff_t y_plane = outputs + 16, y_position = 2 * y_plane;
        std::vector<float> y(static_cast<std::size_t>(positions * y_position + 16), -9);
        kernels::ComplexProduct p{};
        p.filter = p.next = filter.data();
        p.x = x.data(), p.x_position = x_position, p.x_plane = x_plane, p.x_tap = x_tap;
        p.y = y.data(), p.y_position = y_position, p.y_plane = y_plane;
        p.taps = taps, p.channels = channels, p.positions = positions, p.vectors = vectors;
        (gauss ? complex.gauss_product : complex.product)(p);
        double worst = 0;
        for (std::ptrdiff_t t = 0; t < positions; ++t) {
          for (std::ptrdiff_t m = 0; m < outputs; ++m) {
            Complex want = 0;
            for (std::ptrdiff_t i = 0; i < taps; ++i) {
              for (std::ptrdiff_t c = 0; c < channels; ++c) {
                const float* at = x.data() + t * x_position + i * x_tap + c;
                const float* f = plain.data() + 2 * (i * channels + c) * outputs + m;
                want += Complex(at[0], at[x_plane]) * Complex(f[0], f[outputs]);
              }
            }
            const float* got = y.data() + t * y_position + m;
            worst = std::max(
                {worst, std::abs(got[0] - want.real()), std::abs(got[y_plane] - want.imag())});
          }
        }
        CHECK(worst < 1e-5);
        CHECK(y[static_cast<std::size_t>(outputs)] == -9);
        CHECK(y[static_cast<std::size_t>(positions * y_position)] == -9);
      }
    }
  }
}

TEST_CASE("spectra of filters are sums over their taps, plain and in Gauss's form") {
  const kernels::ComplexKernels& complex = *kernels::active().complex;
  const std::ptrdiff_t channels = 3, rows = 4, cols = 5;
  const auto root = [](std::ptrdiff_t i, double turn) {
    return std::polar(1.0, 2 * std::numbers::pi * turn * static_cast<double>(i));
  };
  const auto floats = [&](std::ptrdiff_t count, double turn) {
    std::vector<float> all;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      all.push_back(static_cast<float>(root(i, turn).real()));
      all.push_back(static_cast<float>(root(i, turn).imag()));
    }
    return all;
  };
  const double turn_y = 3.0 / 8, turn_x = 1.0 / 10;
  const std::vector<float> roots_y = floats(rows, turn_y), roots_x = floats(cols, turn_x);
  for (bool gauss : {false, true}) {
    for (int vectors = 1; vectors <= complex.vectors; ++vectors) {
      CAPTURE(gauss);
      CAPTURE(vectors);
      const std::ptrdiff_t width = vectors * complex.lanes, planes = gauss ? 3 : 2;
      const auto taps = noise(static_cast<std::size_t>(channels * rows * cols * width), 11);
      std::vector<float> spectra(static_cast<std::size_t>(channels * rows * 2 * width), NAN);
      std::vector<float> filter(static_cast<std::size_t>(channels * planes * width) + 1, NAN);
      complex.row_spectra(
          {taps.data(), roots_x.data(), spectra.data(), channels * rows, cols, vectors});
      complex.column_spectra(
          {spectra.data(), roots_y.data(), filter.data(), channels, rows, vectors, gauss});
      double worst = 0;
      for (std::ptrdiff_t c = 0; c < channels; ++c) {
        for (std::ptrdiff_t m = 0; m < width; ++m) {
          Complex want = 0;
          for (std::ptrdiff_t i = 0; i < rows * cols; ++i) {
            const auto at = static_cast<std::size_t>((c * rows * cols + i) * width + m);
            want += static_cast<double>(taps[at]) * root(i / cols, turn_y) * root(i % cols, turn_x);
          }
          const float* got = filter.data() + c * planes * width + m;
          const double second = want.imag() - (gauss ? want.real() : 0);
          worst = std::max({worst, std::abs(got[0] - want.real()), std::abs(got[width] - second)});
          if (gauss) {
            worst = std::max(worst, std::abs(got[2 * width] - want.real() - want.imag()));
          }
        }
      }
      CHECK(worst < 1e-5);
      CHECK(std::isnan(filter.back()));
    }
  }
}
