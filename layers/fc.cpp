// Fully connected layers, from every layout to CHW.
//
//   out[n][j] = clamp(bias[j] + sum over k of in[n][k] * w[j][k], lo, hi)
//
// The weights are packed in the order in which the input's layout stores its elements, into panels
// [k][outputs of the panel]: each thread reads one stream from front to back. A few images are
// served by one pass over each panel; more take it in pieces that stay in the second-level cache.
//
// Reading the weights takes all the time, so half of the rows keep them in 24 bits, as multiples q
// of a power of two for each output: |q| < 2^23, rounded by at most the 2^-24th part of the power
// of two above the output's largest weight. A sum in float is rounded by as much itself. Infinite
// inputs make NaN where a weight rounds to zero, and inputs of over 2^90 may overflow.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "buffer.hpp"
#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

/// Elements of the sum in a piece of a panel that serves many images.
constexpr Index kPiece = 512;

/// Promised of rows with 24-bit weights, in kErrorUnit: one for the sum, the others for the
/// weights.
constexpr float kFixedErrorScale = 8;

/// What rounding to 24 bits has to know about an output's weights.
struct Magnitude {
  float largest = 0;
  double sum = 0;  // of all magnitudes
  bool finite = true;
  /// The scale 2^exponent: no weight is as large.
  int exponent() const {
    int e = 0;
    std::frexp(largest, &e);
    return e;
  }
  /// Whether half a step on each of n weights is within what is promised of their sum, and the step
  /// and its reciprocal are floats.
  bool rounds_well(Index n) const {
    if (largest == 0) return finite;
    const double half_step = std::ldexp(1.0, exponent() - 24);
    return finite && exponent() > -64 && exponent() < 64 &&
           half_step * static_cast<double>(n) <= (kFixedErrorScale - 1) * kErrorUnit * sum;
  }
};

Magnitude magnitude(const float* w, Index n) {
  Magnitude m;
  // Sixteen sums side by side, as a vector holds them.
  constexpr Index kSums = 16;
  float largest[kSums] = {};
  double sum[kSums] = {};
  Index k = 0;
  for (; k + kSums <= n; k += kSums) {
    for (Index i = 0; i < kSums; ++i) {
      const float a = std::abs(w[k + i]);
      largest[i] = a > largest[i] ? a : largest[i];
      sum[i] += static_cast<double>(a);
    }
  }
  for (; k < n; ++k) {
    largest[0] = std::max(largest[0], std::abs(w[k]));
    sum[0] += static_cast<double>(std::abs(w[k]));
  }
  m.largest = *std::max_element(largest, largest + kSums);
  for (double x : sum) m.sum += x;
  m.finite = std::isfinite(m.sum);  // NaN and infinity make the sum so
  return m;
}

class FullyConnected final : public PreparedLayer {
 public:
  FullyConnected(const LayerImpl& impl, const LayerProblem& p)
      : op_(op_of<InnerProductOp>(p)),
        images_(p.in[0].n),
        k_(element_count(impl.in, {1, p.in[0].c, p.in[0].h, p.in[0].w})),
        filled_k_((k_ + kernels::kFcGroup - 1) / kernels::kFcGroup * kernels::kFcGroup),
        out_(out_strides(impl, p)),
        threads_(p.threads),
        lanes_(kernels::active().lanes),
        format_(*static_cast<const kernels::FcWeights*>(impl.params)) {
    make_panels();
    pack_bias(op_.bias ? p.blobs[1].data->data() : nullptr);
    pack(impl.in, p.in[0], p.blobs[0].data->data());
  }

  std::size_t packed_bytes() const override {
    return weights_.bytes() + scale_.bytes() + bias_.bytes();
  }

  void run(const LayerArgs& args) const noexcept override {
    parallel(threads_, [&](int thread, int team) {
      const Range parts = share(threads_, thread, team);
      for (Index part = parts.begin; part < parts.end; ++part) {
        for (const Panel& panel : panels_[static_cast<std::size_t>(part)]) {
          run_panel(panel, args.in[0], args.out[0] + out_.base);
        }
      }
    });
  }

 private:
  struct Panel {
    Index vec, vecs;  // first vector of outputs, and their number
  };

  /// Each thread's vectors of outputs, in panels as even as can be.
  void make_panels() {
    const Index vecs = (op_.m + lanes_ - 1) / lanes_;
    panels_.resize(static_cast<std::size_t>(threads_));
    for (int t = 0; t < threads_; ++t) {
      const Range r = share(vecs, t, threads_);
      const Index count = (r.end - r.begin + kernels::kFcVecs - 1) / kernels::kFcVecs;
      for (Index i = 0; i < count; ++i) {
        const Range part = share(r.end - r.begin, static_cast<int>(i), static_cast<int>(count));
        panels_[static_cast<std::size_t>(t)].push_back(
            {r.begin + part.begin, part.end - part.begin});
      }
    }
  }

  void pack_bias(const float* bias) {
    bias_ = Buffer::zeros(static_cast<std::size_t>((op_.m + lanes_ - 1) / lanes_ * lanes_));
    if (bias != nullptr) std::copy_n(bias, op_.m, bias_.data());
  }

  /// 32-bit words that hold a group of one output's weights.
  Index group_words() const { return format_ == kernels::FcWeights::fixed24 ? 3 : 4; }
  /// And k weights, whole groups, of each of so many outputs.
  Index words(Index outputs, Index k) const {
    return outputs * (k / kernels::kFcGroup) * group_words();
  }

  void pack(Layout layout, const Shape& s, const float* w) {
    const Shape image = {1, s.c, s.h, s.w};
    // For each stored element its place in (c, h, w) order; none for padding lanes.
    std::vector<Index> source(static_cast<std::size_t>(filled_k_), -1);
    Index i = 0;
    for (Index c = 0; c < s.c; ++c) {
      for (Index h = 0; h < s.h; ++h) {
        for (Index x = 0; x < s.w; ++x) {
          source[static_cast<std::size_t>(offset(layout, image, 0, c, h, x))] = i++;
        }
      }
    }
    if (format_ == kernels::FcWeights::fixed24) choose_scales(w, i);
    weights_ = Buffer(static_cast<std::size_t>(words(static_cast<Index>(bias_.size()), filled_k_)));
    parallel_for(threads_, threads_, [&](Index t) {
      for (const Panel& panel : panels_[static_cast<std::size_t>(t)]) {
        pack_panel(panel, source, i, w);
      }
    });
  }

  /// Scales for 24-bit weights [m][columns]; or floats for all where an output is not served well.
  void choose_scales(const float* w, Index columns) {
    scale_ = Buffer::zeros(bias_.size());
    std::atomic<bool> good = true;
    parallel_for(threads_, op_.m, [&](Index j) {
      const Magnitude m = magnitude(w + j * columns, columns);
      if (!m.rounds_well(columns)) good = false;
      // The kernel's integers are 2^8 times the weight's.
      scale_[static_cast<std::size_t>(j)] = std::ldexp(1.0F, m.exponent() - 31);
    });
    if (good) return;
    format_ = kernels::FcWeights::float32;
    scale_ = Buffer();
  }

  void pack_panel(const Panel& panel, const std::vector<Index>& source, Index columns,
                  const float* w) {
    const Index width = panel.vecs * lanes_, first = panel.vec * lanes_;
    const Index valid = std::min(width, op_.m - first);
    float* to = weights_.data() + words(first, filled_k_);
    // Pieces of a few cache lines: each output's row of weights is a stream of its own.
    for (Index k0 = 0; k0 < filled_k_; k0 += kStrip) {
      const Index n = std::min(kStrip, filled_k_ - k0);
      for (Index j = 0; j < width; ++j) {
        const float* from = w + (first + j) * columns;
        std::array<float, kStrip> strip{};
        for (Index k = 0; k < n; ++k) {
          const Index at = source[static_cast<std::size_t>(k0 + k)];
          strip[static_cast<std::size_t>(k)] = j < valid && at >= 0 ? from[at] : 0.0F;
        }
        if (format_ == kernels::FcWeights::float32) {
          float* column = to + k0 * width + j;
          for (Index k = 0; k < n; ++k) column[k * width] = strip[static_cast<std::size_t>(k)];
        } else {
          float* column = to + words(width, k0) + j / lanes_ * group_words() * lanes_ + j % lanes_;
          store_fixed(strip, n, scale_[static_cast<std::size_t>(first + j)], column,
                      words(width, kernels::kFcGroup));
        }
      }
    }
  }

  static constexpr Index kStrip = 64;

  /// Groups of n weights of one output as words, each group's from `to` at distances of a vector,
  /// and `step` behind the last one's.
  void store_fixed(const std::array<float, kStrip>& weights, Index n, float scale, float* to,
                   Index step) const {
    std::array<std::int32_t, kStrip> q;
    kernels::active().fc->to_fixed24(weights.data(), kStrip, scale > 0 ? 1 / (scale * 0x1p8F) : 0,
                                     q.data());
    for (Index k = 0; k < n; k += kernels::kFcGroup, to += step) {
      const std::int32_t* group = q.data() + k;
      for (int i = 0; i < 3; ++i) {
        const std::int32_t bits = group[i] * 256 + (group[3] >> (16 - 8 * i) & 0xFF);
        std::memcpy(to + i * lanes_, &bits, sizeof bits);
      }
    }
  }

  void run_panel(const Panel& panel, const float* in, float* out) const {
    const auto& kernel = *kernels::active().fc;
    const Index width = panel.vecs * lanes_, first = panel.vec * lanes_;
    // As few passes as can be, of even height.
    const Index passes = (images_ + kernel.images - 1) / kernel.images;
    const Index tile = (images_ + passes - 1) / passes;
    const Index piece = passes == 1 ? k_ : kPiece;
    for (Index k = 0; k < k_; k += piece) {
      const bool last = k + piece >= k_;
      for (Index n = 0; n < images_; n += tile) {
        const Index count = std::min(tile, images_ - n);
        kernels::FcPass pass = {};
        pass.x = in + n * k_ + k;
        pass.x_step = k_;
        pass.w = weights_.data() + words(first, filled_k_) + words(width, k);
        pass.k = std::min(piece, k_ - k);
        pass.scale = scale_.data() + first;
        pass.bias = k == 0 ? bias_.data() + first : nullptr;
        pass.out = out + n * out_.n_stride + first;
        pass.out_step = out_.n_stride;
        pass.valid = std::min(width, op_.m - first);
        pass.lo = last ? op_.lo : -std::numeric_limits<float>::infinity();
        pass.hi = last ? op_.hi : std::numeric_limits<float>::infinity();
        kernel.pass[static_cast<int>(format_)][panel.vecs - 1][count - 1](pass);
      }
    }
  }

  InnerProductOp op_;
  Index images_, k_, filled_k_;
  Strides out_;
  int threads_;
  Index lanes_;
  kernels::FcWeights format_;
  std::vector<std::vector<Panel>> panels_;  // for each of the threads
  Buffer weights_, scale_, bias_;
};

const char* reject(const LayerImpl& impl, const LayerProblem& p) {
  if (impl.in != Layout::chw && p.in[0].h == 1 && p.in[0].w == 1) {
    return "1x1 images: fc-chw reads the same memory";
  }
  return nullptr;
}

constexpr kernels::FcWeights kFloat = kernels::FcWeights::float32,
                             kFixed = kernels::FcWeights::fixed24;

constexpr LayerImpl row(std::string_view name, Layout in) {
  return {name, "fc", in, Layout::chw, false, reject, make<FullyConnected>, &kFloat};
}
constexpr LayerImpl fixed_row(std::string_view name, Layout in) {
  return {
      name, "fc", in, Layout::chw, false, reject, make<FullyConnected>, &kFixed, kFixedErrorScale};
}

constexpr LayerImpl kRows[] = {
    row("fc-chw", Layout::chw),
    row("fc-hcw", Layout::hcw),
    row("fc-hwc", Layout::hwc),
    row("fc-chw8c", Layout::chw8c),
    row("fc-chw16c", Layout::chw16c),
    fixed_row("fc-chw-fixed24", Layout::chw),
    fixed_row("fc-hcw-fixed24", Layout::hcw),
    fixed_row("fc-hwc-fixed24", Layout::hwc),
    fixed_row("fc-chw8c-fixed24", Layout::chw8c),
    fixed_row("fc-chw16c-fixed24", Layout::chw16c),
};

}  // namespace

std::span<const LayerImpl> fc_rows() { return kRows; }

}  // namespace convprim
