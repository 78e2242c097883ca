// fft-2d-*: one transform of the whole image; fft-1d-*: one of each row. Through FFTW.
//
//   2-D: Y(f, n, k) = sum over c of X(f, n, c) * conj(F(f, c, k)), f over the whole image
//   1-D: Y(f, y, k) = sum over i, c of X(f, y*sh - pt + i*dh, c) * conj(F(f, i, c, k)), f over a
//   row
//
// Both are products of "lines" (images or rows) at each frequency: for 1-D the taps of the kernel's
// column stay a direct sum, so that the rows may be strided. Circular correlation needs a length of
// w + max(left, right padding) only (and the output's): the zeros on one side serve the other too.
// Lengths are rounded up to products of 2, 3, 5 and 7. FFTW transforms the channels one after
// another; their spectra are then transposed so that a frequency's channels are contiguous (those
// of the filters are summed as they are defined, see spectral_filter.hpp). Loops: images (2-D:
// blocks of images); lines x vectors of channels, frequencies x panels, lines x vectors of outputs,
// each shared out among the threads. Source: Mathieu, Henaff, LeCun, arXiv 1312.5851 for 2-D.
//
// FFTW chooses its own instruction set: CONVPRIM_ISA does not cap it.
#include <fftw3.h>

#include <algorithm>
#include <mutex>
#include <new>

#include "buffer.hpp"
#include "convprim/cpu.hpp"
#include "kernels/kernels.hpp"
#include "primitives/fft/spectral_filter.hpp"
#include "primitives/registry.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

constexpr Index kLimitFloats = (Index{1} << 30) / 4;
constexpr Index kBlockFloats = Index{16} << 20;  // spectra of one block of images

Index round_up(Index x, Index unit) { return (x + unit - 1) / unit * unit; }

/// The smallest even product of 2, 3, 5 and 7 that is not less than n; 1 for 1.
Index good_length(Index n) {
  if (n <= 1) return 1;
  for (Index length = n + n % 2;; length += 2) {
    Index rest = length;
    for (Index p : {2, 3, 5, 7}) {
      while (rest % p == 0) rest /= p;
    }
    if (rest == 1) return length;
  }
}

/// A row's own column.
struct Variant {
  bool rows;  ///< transforms rows, not images
};

/// Extents that follow from the scenario and the row.
struct Geometry {
  Geometry(const Scenario& s, const Variant& v)
      : lanes(kernels::active().lanes),
        height(v.rows ? 1 : good_length(std::max(s.h + std::max(s.pt, s.pb()), s.oh))),
        width(good_length(std::max(s.w + std::max(s.pl, s.pr()), s.ow))),
        taps(v.rows ? s.kh : 1),
        frequencies(height * (width / 2 + 1)),
        points(round_up(height * width, 16)),
        half(round_up(2 * frequencies, 16)),
        c_vectors((s.c + lanes - 1) / lanes),
        group_vectors(SpectralFilter::group_vectors(s)),
        m_vectors(s.g * group_vectors),
        x_line(frequencies * 2 * c_vectors * lanes),
        y_line(frequencies * 2 * m_vectors * lanes),
        image_x(v.rows ? (s.oh - 1) * s.sh + s.span_h() : 1),
        image_y(v.rows ? s.oh : 1) {
    const Index image = image_x * x_line + image_y * y_line;
    images = v.rows ? 1 : std::clamp<Index>(kBlockFloats / image, 1, s.n);
  }
  Index spectra_floats() const { return images * (image_x * x_line + image_y * y_line); }
  Index thread_floats() const { return lanes * (points + half); }

  Index lanes, height, width;  // of a transform
  Index taps, frequencies;
  Index points, half;  // floats of one real and one complex array
  Index c_vectors, group_vectors, m_vectors;
  Index x_line, y_line;    // floats of one line's spectra
  Index image_x, image_y;  // input lines (1-D: with the rows of padding) and output lines
  Index images;            // images in a block
};

/// FFTW's planner is not thread-safe; execution is.
std::mutex& planner() {
  static std::mutex mutex;
  return mutex;
}

/// Forward and inverse real transforms of one channel, to be executed on 64-byte aligned arrays.
class Plans {
 public:
  explicit Plans(const Geometry& g) {
    Buffer real(static_cast<std::size_t>(g.points)), complex(static_cast<std::size_t>(g.half));
    auto* half = reinterpret_cast<fftwf_complex*>(complex.data());
    const int n[] = {static_cast<int>(g.height), static_cast<int>(g.width)};
    const int rank = g.height > 1 ? 2 : 1;
    const int* extents = n + (2 - rank);
    const std::lock_guard lock(planner());
    forward_ = fftwf_plan_dft_r2c(rank, extents, real.data(), half, FFTW_ESTIMATE);
    inverse_ = fftwf_plan_dft_c2r(rank, extents, half, real.data(), FFTW_ESTIMATE);
    if (forward_ == nullptr || inverse_ == nullptr) {
      destroy();
      throw std::bad_alloc();
    }
  }
  ~Plans() {
    const std::lock_guard lock(planner());
    destroy();
  }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;

  void forward(float* real, float* complex) const {
    fftwf_execute_dft_r2c(forward_, real, reinterpret_cast<fftwf_complex*>(complex));
  }
  /// Overwrites `complex`.
  void inverse(float* complex, float* real) const {
    fftwf_execute_dft_c2r(inverse_, reinterpret_cast<fftwf_complex*>(complex), real);
  }

 private:
  void destroy() {
    if (forward_ != nullptr) fftwf_destroy_plan(forward_);
    if (inverse_ != nullptr) fftwf_destroy_plan(inverse_);
  }
  fftwf_plan forward_ = nullptr, inverse_ = nullptr;
};

class WholeFftConvolution final : public Convolution {
 public:
  WholeFftConvolution(const Primitive& row, const Scenario& s, const Weights& weights,
                      const Options& options)
      : s_(s),
        rows_(static_cast<const Variant*>(row.params)->rows),
        g_(s, {rows_}),
        threads_(options.threads),
        epilogue_(options.epilogue),
        in_(strides(row.in, s.in())),
        residual_(strides(row.out, s.out())),
        out_(strides(row.out, s.out(), options.slice)),
        plans_(g_),
        filter_(s, g_.frequencies, g_.taps, false),
        bias_(Buffer::zeros(static_cast<std::size_t>(s.m))) {
    if (weights.bias != nullptr) std::copy_n(weights.bias, s.m, bias_.data());
    pack(weights.filter);
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(g_.spectra_floats() + threads_ * g_.thread_floats()) * 4;
  }
  std::size_t packed_bytes() const override { return filter_.bytes() + bias_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    auto* x = static_cast<float*>(args.workspace);
    float* y = x + g_.images * g_.image_x * g_.x_line;
    float* scratch = y + g_.images * g_.image_y * g_.y_line;
    const auto panels = static_cast<Index>(filter_.panels().size());
    const SpectralFilter::Strides x_at{2 * filter_.x_plane(),
                                       rows_ ? s_.sh * g_.x_line : g_.x_line};
    const SpectralFilter::Strides y_at{2 * filter_.y_plane(), g_.y_line};
    parallel(threads_, [&](int thread, int team) {
      float* own = scratch + thread * g_.thread_floats();
      for (Index first = 0; first < s_.n; first += g_.images) {
        const Index images = std::min(g_.images, s_.n - first);
        const Range loads = share(images * g_.image_x * g_.c_vectors, thread, team);
        for (Index i = loads.begin; i < loads.end; ++i) {
          transform_input(args.in, first, i / g_.c_vectors, i % g_.c_vectors, x, own);
        }
        team_barrier(team);
        const Range products = share(g_.frequencies * panels, thread, team);
        for (Index i = products.begin; i < products.end; ++i) {
          filter_.multiply(i / panels, filter_.panels()[static_cast<std::size_t>(i % panels)],
                           images * g_.image_y, x, x_at, s_.dh * g_.x_line, y, y_at);
        }
        team_barrier(team);
        // The next block's x may be written meanwhile; its y only after the next barrier.
        const Range stores = share(images * g_.image_y * g_.m_vectors, thread, team);
        for (Index i = stores.begin; i < stores.end; ++i) {
          transform_output(args, first, i / g_.m_vectors, i % g_.m_vectors, y, own);
        }
      }
    });
  }

 private:
  void pack(const float* filter) {
    SpectralFilter::Transform transform{g_.height, g_.width, {}};
    for (Index x = 0; x <= g_.width / 2; ++x) {
      for (Index y = 0; y < g_.height; ++y) {
        transform.order.push_back(y * (g_.width / 2 + 1) + x);
      }
    }
    // A kernel longer than the transform comes round: where it does, it meets zeros only.
    std::vector<SpectralFilter::Tap> rows, cols;
    for (Index i = 0; i < s_.kh; ++i) rows.push_back({i, rows_ ? 0 : i * s_.dh % g_.height});
    for (Index j = 0; j < s_.kw; ++j) cols.push_back({j, j * s_.dw % g_.width});
    std::vector<SpectralFilter::Part> parts;
    if (rows_) {
      for (const auto& row : rows) parts.push_back({row.index, 0, {row}, cols});
    } else {
      parts.push_back({0, 0, rows, cols});
    }
    filter_.fill(s_, filter, transform, parts, threads_);
  }

  static void transpose(Index rows, Index cols, const float* from, Index from_ld, float* to,
                        Index to_ld) {
    kernels::active().transpose->transpose(rows, cols, from, from_ld, to, to_ld);
  }

  /// Spectra of one line of the block, one vector of channels.
  void transform_input(const float* in, Index first, Index line, Index vector, float* x,
                       float* own) const {
    const Index n = first + line / g_.image_x, y = line % g_.image_x - s_.pt;
    const Index c = vector * g_.lanes, valid = std::min(g_.lanes, s_.c - c);
    float* to = x + line * g_.x_line + c;
    float* complex = own + g_.lanes * g_.points;
    if (rows_ && (y < 0 || y >= s_.h)) {
      for (Index f = 0; f < 2 * g_.frequencies; ++f) {
        std::fill_n(to + f * filter_.x_plane(), g_.lanes, 0.0F);
      }
      return;
    }
    for (Index lane = 0; lane < valid; ++lane) {
      std::fill_n(own, g_.points, 0.0F);
      if (rows_) {
        std::copy_n(in + in_.at(n, c + lane, y, 0), s_.w, own + s_.pl);
      } else {
        for (Index i = 0; i < s_.h; ++i) {
          std::copy_n(in + in_.at(n, c + lane, i, 0), s_.w, own + (i + s_.pt) * g_.width + s_.pl);
        }
      }
      plans_.forward(own, complex + lane * g_.half);
    }
    transpose(valid, 2 * g_.frequencies, complex, g_.half, to, filter_.x_plane());
  }

  /// Outputs of one line of the block, one vector of channels.
  void transform_output(const RunArgs& args, Index first, Index line, Index vector, const float* y,
                        float* own) const {
    const Index n = first + line / g_.image_y;
    const Index k = vector % g_.group_vectors * g_.lanes;  // in the group
    const Index m = vector / g_.group_vectors * s_.mg() + k;
    const Index valid = std::min(g_.lanes, s_.mg() - k);
    float* complex = own + g_.lanes * g_.points;
    transpose(2 * g_.frequencies, valid, y + line * g_.y_line + vector * g_.lanes,
              filter_.y_plane(), complex, g_.half);
    for (Index lane = 0; lane < valid; ++lane) {
      plans_.inverse(complex + lane * g_.half, own);
      if (rows_) {
        store(args, n, m + lane, line % g_.image_y, own);
      } else {
        for (Index row = 0; row < s_.oh; ++row) {
          store(args, n, m + lane, row, own + row * g_.width);
        }
      }
    }
  }

  /// One row of one output channel.
  void store(const RunArgs& args, Index n, Index m, Index y, float* row) const {
    const float* residual = epilogue_.residual ? args.residual + residual_.at(n, m, y, 0) : nullptr;
    kernels::active().elementwise->epilogue_channel(
        row, residual, bias_[static_cast<std::size_t>(m)], epilogue_.lo, epilogue_.hi, s_.ow);
    std::copy_n(row, s_.ow, args.out + out_.at(n, m, y, 0));
  }

  Scenario s_;
  bool rows_;
  Geometry g_;
  int threads_;
  Epilogue epilogue_;
  Strides in_, residual_, out_;
  Plans plans_;
  SpectralFilter filter_;
  Buffer bias_;
};

const char* reject(const Primitive& row, const Scenario& s) {
  const auto& v = *static_cast<const Variant*>(row.params);
  if (s.sw != 1 || (!v.rows && s.sh != 1)) {
    return v.rows ? "needs horizontal stride 1" : "needs stride 1";
  }
  const Geometry g(s, v);
  if (SpectralFilter::floats(s, g.frequencies, g.taps, false) > kLimitFloats) {
    return "the spectra of the filters exceed 1 GiB";
  }
  if (g.spectra_floats() > kLimitFloats) return "the spectra of an image exceed 1 GiB";
  return nullptr;
}

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<WholeFftConvolution>(row, s, weights, options);
}

constexpr Variant kRowsOnly = {true}, kImage = {false};

constexpr Primitive row(std::string_view name, const Variant& variant, Layout in, Layout out) {
  return {name, Family::fft, in, out, reject, prepare, &variant, 1, true};
}

constexpr Primitive kRows[] = {
    row("fft-1d-chw", kRowsOnly, Layout::chw, Layout::chw),
    row("fft-1d-hcw", kRowsOnly, Layout::hcw, Layout::hcw),
    row("fft-2d-chw", kImage, Layout::chw, Layout::chw),
    row("fft-2d-hcw", kImage, Layout::hcw, Layout::hcw),
};

}  // namespace

std::span<const Primitive> fft_whole_rows() { return kRows; }

}  // namespace convprim
