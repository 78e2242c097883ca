// Products of complex spectra, see complex.hpp.
#include "kernels/complex.hpp"

#include "kernels/simd.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

using std::ptrdiff_t;

// Register tiles: accumulators, one panel row of the filter, and a broadcast must fit.
constexpr int kVectors = kRegisters >= 32 ? 2 : 1;
#if defined(CONVPRIM_KERNELS_BASELINE)
constexpr int kPositions = 4;  // without fused multiply-adds each product takes a register
constexpr int kGaussPositions = 3;
#else
constexpr int kPositions = 6;
constexpr int kGaussPositions = 4;
#endif

/// Fetches the next filter into the second-level cache, two lines for each channel of each register
/// tile, until all of it has been asked for: filters come from further away than the rest.
class Prefetch {
 public:
  CONVPRIM_INLINE Prefetch(const ComplexProduct& p, ptrdiff_t tile, ptrdiff_t floats) {
    const ptrdiff_t begin = tile * p.taps * p.channels * kStep;
    step_ = begin < floats ? kStep : 0;
    at_ = p.next + (step_ > 0 ? begin : 0);
  }
  CONVPRIM_INLINE void advance() {
    __builtin_prefetch(at_, 0, 2);
    __builtin_prefetch(at_ + kStep / 2, 0, 2);
    at_ += step_;
  }

 private:
  static constexpr ptrdiff_t kStep = 32;
  const float* at_;
  ptrdiff_t step_;
};

template <int N, int P>
void plain_tile(const ComplexProduct& p, ptrdiff_t first) {
  Vec re[P][N] = {}, im[P][N] = {};
  const float* f = p.filter;
  Prefetch prefetch(p, first / P, p.taps * p.channels * 2 * N * kLanes);
  for (ptrdiff_t i = 0; i < p.taps; ++i) {
    const float* x = p.x + first * p.x_position + i * p.x_tap;
    for (ptrdiff_t c = 0; c < p.channels; ++c) {
      prefetch.advance();
      Vec fr[N], fi[N];
      CONVPRIM_UNROLL
      for (int v = 0; v < N; ++v) {
        fr[v] = load(f + v * kLanes);
        fi[v] = load(f + (N + v) * kLanes);
      }
      CONVPRIM_UNROLL
      for (int t = 0; t < P; ++t) {
        const Factor xr = factor(x + t * p.x_position + c);
        const Factor xi = factor(x + t * p.x_position + p.x_plane + c);
        CONVPRIM_UNROLL
        for (int v = 0; v < N; ++v) {
          add_product(re[t][v], fr[v], xr);
          add_product(im[t][v], fi[v], xr);
          subtract_product(re[t][v], fi[v], xi);
          add_product(im[t][v], fr[v], xi);
        }
      }
      f += 2 * N * kLanes;
    }
  }
  CONVPRIM_UNROLL
  for (int t = 0; t < P; ++t) {
    float* y = p.y + (first + t) * p.y_position;
    CONVPRIM_UNROLL
    for (int v = 0; v < N; ++v) {
      store(y + v * kLanes, re[t][v]);
      store(y + p.y_plane + v * kLanes, im[t][v]);
    }
  }
}

template <int N, int P>
void gauss_tile(const ComplexProduct& p, ptrdiff_t first) {
  Vec a[P][N] = {}, b[P][N] = {}, d[P][N] = {};
  const float* f = p.filter;
  Prefetch prefetch(p, first / P, p.taps * p.channels * 3 * N * kLanes);
  for (ptrdiff_t i = 0; i < p.taps; ++i) {
    const float* x = p.x + first * p.x_position + i * p.x_tap;
    for (ptrdiff_t c = 0; c < p.channels; ++c) {
      prefetch.advance();
      Vec fa[N], fb[N], fd[N];
      CONVPRIM_UNROLL
      for (int v = 0; v < N; ++v) {
        fa[v] = load(f + v * kLanes);
        fb[v] = load(f + (N + v) * kLanes);
        fd[v] = load(f + (2 * N + v) * kLanes);
      }
      CONVPRIM_UNROLL
      for (int t = 0; t < P; ++t) {
        const float* at = x + t * p.x_position + c;
        const Factor xr = factor(at), xi = factor(at + p.x_plane), sum = factor(at + 2 * p.x_plane);
        CONVPRIM_UNROLL
        for (int v = 0; v < N; ++v) {
          add_product(a[t][v], fa[v], sum);
          add_product(b[t][v], fb[v], xr);
          add_product(d[t][v], fd[v], xi);
        }
      }
      f += 3 * N * kLanes;
    }
  }
  CONVPRIM_UNROLL
  for (int t = 0; t < P; ++t) {
    float* y = p.y + (first + t) * p.y_position;
    CONVPRIM_UNROLL
    for (int v = 0; v < N; ++v) {
      store(y + v * kLanes, a[t][v] - d[t][v]);
      store(y + p.y_plane + v * kLanes, a[t][v] + b[t][v]);
    }
  }
}

/// The last positions, fewer than a full tile.
template <int N, int P, bool gauss>
void rest(const ComplexProduct& p, ptrdiff_t first, ptrdiff_t count) {
  if constexpr (P > 0) {
    if (count < P) return rest<N, P - 1, gauss>(p, first, count);
    if constexpr (gauss) {
      gauss_tile<N, P>(p, first);
    } else {
      plain_tile<N, P>(p, first);
    }
  }
}

template <int N, int P, bool gauss>
void all_positions(const ComplexProduct& p) {
  ptrdiff_t t = 0;
  for (; t + P <= p.positions; t += P) {
    if constexpr (gauss) {
      gauss_tile<N, P>(p, t);
    } else {
      plain_tile<N, P>(p, t);
    }
  }
  rest<N, P - 1, gauss>(p, t, p.positions - t);
}

template <int P, bool gauss>
void product(const ComplexProduct& p) {
  if constexpr (kVectors > 1) {
    if (p.vectors > 1) return all_positions<kVectors, P, gauss>(p);
  }
  all_positions<1, P, gauss>(p);
}

void row_spectra(const RowSpectra& p) {
  const ptrdiff_t width = ptrdiff_t{p.vectors} * kLanes;
  for (ptrdiff_t i = 0; i < p.count; ++i) {
    for (ptrdiff_t v = 0; v < width; v += kLanes) {
      const float* tap = p.taps + i * p.cols * width + v;
      Vec re{}, im{};
      for (ptrdiff_t j = 0; j < p.cols; ++j, tap += width) {
        const Vec x = load(tap);
        add_product(re, x, factor(p.roots + 2 * j));
        add_product(im, x, factor(p.roots + 2 * j + 1));
      }
      float* to = p.spectra + 2 * i * width + v;
      store(to, re);
      store(to + width, im);
    }
  }
}

void column_spectra(const ColumnSpectra& p) {
  const ptrdiff_t width = ptrdiff_t{p.vectors} * kLanes;
  const float* row = p.rows;
  float* to = p.filter;
  for (ptrdiff_t c = 0; c < p.channels; ++c) {
    for (ptrdiff_t v = 0; v < width; v += kLanes) {
      Vec re{}, im{};
      for (ptrdiff_t i = 0; i < p.count; ++i) {
        const Vec xr = load(row + 2 * i * width + v), xi = load(row + (2 * i + 1) * width + v);
        const Factor r = factor(p.roots + 2 * i), j = factor(p.roots + 2 * i + 1);
        add_product(re, xr, r);
        add_product(im, xi, r);
        subtract_product(re, xi, j);
        add_product(im, xr, j);
      }
      store(to + v, re);
      store(to + width + v, p.gauss ? im - re : im);
      if (p.gauss) store(to + 2 * width + v, re + im);
    }
    row += 2 * p.count * width;
    to += (p.gauss ? 3 : 2) * width;
  }
}

}  // namespace

extern const ComplexKernels kComplex;
const ComplexKernels kComplex = {kLanes,
                                 kVectors,
                                 kPositions,
                                 kGaussPositions,
                                 product<kPositions, false>,
                                 product<kGaussPositions, true>,
                                 row_spectra,
                                 column_spectra};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
