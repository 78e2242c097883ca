// Fully connected layers, from every layout to CHW.
//
//   out[n][j] = clamp(bias[j] + sum over k of in[n][k] * w[j][k], lo, hi)
//
// The weights are packed in the order in which the input's layout stores its elements, into panels
// [k][outputs of the panel]: each thread reads one stream from front to back. A few images are
// served by one pass over each panel; more take it in pieces that stay in the second-level cache.
//
// Reading the weights takes all the time, so other rows keep them in fewer bits. In 24 as multiples
// q of a power of two for each output: |q| < 2^23, rounded by at most the 2^-24th part of the power
// of two above the output's largest weight; a sum in float is rounded by as much itself. In 20 as
// multiples |q| < 2^18 of a power of two for each eight terms of an output: rounded by at most the
// 2^-18th part of the largest of the eight (but those below 2^-95 by 2^-114). Infinite inputs make
// NaN where a weight rounds to zero, and inputs of over 2^90 may overflow.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "buffer.hpp"
#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

using kernels::FcWeights;

/// Elements of the sum in a piece of a panel that serves many images.
constexpr Index kPiece = 512;

/// A row: its weights, and what it promises, in kErrorUnit: one for the sum, the others for the
/// rounding of the weights.
struct Params {
  FcWeights format;
  float error_scale;
};
constexpr Params kFloat = {FcWeights::float32, 1}, kFixed = {FcWeights::fixed24, 8},
                 kBlock = {FcWeights::block20, 33};

/// The exponent of the least power of two that x is less than.
int exponent_of(float x) {
  int e = 0;
  std::frexp(x, &e);
  return e;
}

/// What rounding has to know about an output's weights.
struct Magnitude {
  float largest = 0;
  double sum = 0;  // of all magnitudes
  bool finite = true;
  /// 24 bits: the scale 2^exponent.
  int exponent() const { return exponent_of(largest); }
  /// Whether steps of the largest, and their reciprocals, are floats.
  bool in_range() const {
    return finite && (largest == 0 || (exponent() > -64 && exponent() < 64));
  }
  /// 24 bits: whether half a step on each of n weights is within what is promised of their sum.
  bool rounds_well(Index n) const {
    const double half_step = largest > 0 ? std::ldexp(1.0, exponent() - 24) : 0;
    return half_step * static_cast<double>(n) <=
           static_cast<double>(kFixed.error_scale - 1) * kErrorUnit * sum;
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

/// Eight weights with an exponent of their own.
struct Block {
  static constexpr int kSize = kernels::fc_group(FcWeights::block20).size;
  static constexpr int kWords = kernels::fc_group(FcWeights::block20).words;
  static constexpr int kLeast = -95;  // so that the step of the kernel's integers is a float

  std::int32_t q[kSize];
  int exponent;  // weights are q * 2^(exponent - 18), |q| < 2^18

  /// Of finite weights.
  explicit Block(const float* w) {
    float largest = 0;
    for (int i = 0; i < kSize; ++i) largest = std::max(largest, std::abs(w[i]));
    // Not so large that it would be rounded to 2^18.
    exponent = largest > 0 ? std::max(exponent_of(largest * (1 + 0x1p-18F)), kLeast) : kLeast;
    const float per_step = std::ldexp(1.0F, 18 - exponent);
    // Above 2^23 floats are integers, and sums round to the nearest.
    constexpr float kIntegers = 0x1.8p23F;
    for (int i = 0; i < kSize; ++i)
      q[i] = static_cast<std::int32_t>((w[i] * per_step + kIntegers) - kIntegers);
  }

  /// As in FcWeights.
  std::array<std::uint32_t, kWords> words() const {
    const auto biased = static_cast<std::uint32_t>(exponent - 31 + 127);
    std::uint32_t v[kSize];
    for (int i = 0; i < kSize; ++i) v[i] = static_cast<std::uint32_t>(q[i]) & 0x7FFFF;
    return {v[0] << 13 | v[5] >> 6,
            v[1] << 13 | (v[5] & 0x3F) << 7 | (v[7] & 0x3F) << 1 | biased >> 7,
            v[2] << 13 | v[6] >> 6, v[3] << 13 | (v[6] & 0x3F) << 7 | (biased & 0x7F),
            v[4] << 13 | v[7] >> 6};
  }
};

class FullyConnected final : public PreparedLayer {
 public:
  FullyConnected(const LayerImpl& impl, const LayerProblem& p)
      : op_(op_of<InnerProductOp>(p)),
        images_(p.in[0].n),
        k_(element_count(impl.in, {1, p.in[0].c, p.in[0].h, p.in[0].w})),
        out_(out_strides(impl, p)),
        threads_(p.threads),
        lanes_(kernels::active().lanes),
        format_(static_cast<const Params*>(impl.params)->format) {
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

  kernels::FcGroup group() const { return kernels::fc_group(format_); }
  /// Elements of the sum, in whole groups.
  Index filled_k() const { return (k_ + group().size - 1) / group().size * group().size; }
  /// 32-bit words that hold k weights, whole groups, of each of so many outputs.
  Index words(Index outputs, Index k) const { return outputs * (k / group().size) * group().words; }

  void pack(Layout layout, const Shape& s, const float* w) {
    const Shape image = {1, s.c, s.h, s.w};
    // For each stored element its place in (c, h, w) order; none for padding lanes.
    std::vector<Index> source(static_cast<std::size_t>((k_ + kStrip - 1) / kStrip * kStrip), -1);
    Index i = 0;
    for (Index c = 0; c < s.c; ++c) {
      for (Index h = 0; h < s.h; ++h) {
        for (Index x = 0; x < s.w; ++x) {
          source[static_cast<std::size_t>(offset(layout, image, 0, c, h, x))] = i++;
        }
      }
    }
    if (format_ != FcWeights::float32) choose_format(w, i);
    weights_ =
        Buffer(static_cast<std::size_t>(words(static_cast<Index>(bias_.size()), filled_k())));
    parallel_for(threads_, threads_, [&](Index t) {
      for (const Panel& panel : panels_[static_cast<std::size_t>(t)]) {
        pack_panel(panel, source, i, w);
      }
    });
  }

  /// Floats for all outputs' weights [m][columns] where one's are not served well by fewer bits;
  /// and else the scales, if there are any.
  void choose_format(const float* w, Index columns) {
    const bool scaled = format_ == FcWeights::fixed24;
    if (scaled) scale_ = Buffer::zeros(bias_.size());
    std::atomic<bool> good = true;
    parallel_for(threads_, op_.m, [&](Index j) {
      const Magnitude m = magnitude(w + j * columns, columns);
      if (!m.in_range() || (scaled && !m.rounds_well(columns))) good = false;
      // The kernel's integers are 2^8 times the weight's.
      if (scaled) scale_[static_cast<std::size_t>(j)] = std::ldexp(1.0F, m.exponent() - 31);
    });
    if (good) return;
    format_ = FcWeights::float32;
    scale_ = Buffer();
  }

  static constexpr Index kStrip = 64;
  using Strip = std::array<float, kStrip>;

  /// One output's weights from the k0-th stored element on; zeros after the last, and for padding.
  static Strip strip(const float* w, const std::vector<Index>& source, Index k0) {
    Strip s{};
    for (Index k = 0; k < kStrip; ++k) {
      const Index at = source[static_cast<std::size_t>(k0 + k)];
      s[static_cast<std::size_t>(k)] = at >= 0 ? w[at] : 0.0F;
    }
    return s;
  }

  void pack_panel(const Panel& panel, const std::vector<Index>& source, Index columns,
                  const float* w) {
    const Index width = panel.vecs * lanes_, first = panel.vec * lanes_;
    const Index valid = std::min(width, op_.m - first);
    float* to = weights_.data() + words(first, filled_k());
    // Pieces of a few cache lines: each output's row of weights is a stream of its own.
    for (Index k0 = 0; k0 < filled_k(); k0 += kStrip) {
      const Index n = std::min(kStrip, filled_k() - k0);
      for (Index j = 0; j < width; ++j) {
        const Strip weights = j < valid ? strip(w + (first + j) * columns, source, k0) : Strip{};
        if (format_ == FcWeights::float32) {
          float* column = to + k0 * width + j;
          for (Index k = 0; k < n; ++k) column[k * width] = weights[static_cast<std::size_t>(k)];
          continue;
        }
        float* column = to + words(width, k0) + j / lanes_ * group().words * lanes_ + j % lanes_;
        const Index step = words(width, group().size);
        if (format_ == FcWeights::fixed24) {
          store_fixed(weights, n, scale_[static_cast<std::size_t>(first + j)], column, step);
        } else {
          store_blocks(weights, n, column, step);
        }
      }
    }
  }

  /// A group's words, at distances of a vector.
  template <class Words>
  void store_words(const Words& words, float* to) const {
    for (const auto& word : words) {
      std::memcpy(to, &word, sizeof word);
      to += lanes_;
    }
  }

  /// Groups of n weights of one output, each group's words from `to` on and `step` behind the last
  /// one's.
  void store_fixed(const Strip& weights, Index n, float scale, float* to, Index step) const {
    std::array<std::int32_t, kStrip> q;
    kernels::active().fc->to_fixed24(weights.data(), kStrip, scale > 0 ? 1 / (scale * 0x1p8F) : 0,
                                     q.data());
    for (Index k = 0; k < n; k += group().size, to += step) {
      const std::int32_t* g = q.data() + k;
      std::array<std::int32_t, 3> words;
      for (int i = 0; i < 3; ++i)
        words[static_cast<std::size_t>(i)] = g[i] * 256 + (g[3] >> (16 - 8 * i) & 0xFF);
      store_words(words, to);
    }
  }
  void store_blocks(const Strip& weights, Index n, float* to, Index step) const {
    for (Index k = 0; k < n; k += Block::kSize, to += step)
      store_words(Block(&weights[static_cast<std::size_t>(k)]).words(), to);
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
        pass.w = weights_.data() + words(first, filled_k()) + words(width, k);
        pass.k = std::min(piece, k_ - k);
        pass.scale = scale_.size() > 0 ? scale_.data() + first : nullptr;
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
  Index images_, k_;
  Strides out_;
  int threads_;
  Index lanes_;
  FcWeights format_;
  std::vector<std::vector<Panel>> panels_;  // for each of the threads
  Buffer weights_, scale_, bias_;
};

const char* reject(const LayerImpl& impl, const LayerProblem& p) {
  if (impl.in != Layout::chw && p.in[0].h == 1 && p.in[0].w == 1) {
    return "1x1 images: fc-chw reads the same memory";
  }
  return nullptr;
}

constexpr LayerImpl row(std::string_view name, Layout in, const Params& p) {
  return {name, "fc", in, Layout::chw, false, reject, make<FullyConnected>, &p, p.error_scale};
}

constexpr LayerImpl kRows[] = {
    row("fc-chw", Layout::chw, kFloat),
    row("fc-hcw", Layout::hcw, kFloat),
    row("fc-hwc", Layout::hwc, kFloat),
    row("fc-chw8c", Layout::chw8c, kFloat),
    row("fc-chw16c", Layout::chw16c, kFloat),
    row("fc-chw-fixed24", Layout::chw, kFixed),
    row("fc-hcw-fixed24", Layout::hcw, kFixed),
    row("fc-hwc-fixed24", Layout::hwc, kFixed),
    row("fc-chw8c-fixed24", Layout::chw8c, kFixed),
    row("fc-chw16c-fixed24", Layout::chw16c, kFixed),
    row("fc-chw-block20", Layout::chw, kBlock),
    row("fc-hcw-block20", Layout::hcw, kBlock),
    row("fc-hwc-block20", Layout::hwc, kBlock),
    row("fc-chw8c-block20", Layout::chw8c, kBlock),
    row("fc-chw16c-block20", Layout::chw16c, kBlock),
};

}  // namespace

std::span<const LayerImpl> fc_rows() { return kRows; }

}  // namespace convprim
