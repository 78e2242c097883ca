// Element-wise functions with constants for each channel, in every layout: affine, batchnorm
// (which is one), prelu.
//
// In HWC and the blocked layouts the constants are vectors that repeat from pixel to pixel. They
// are stored as often as it takes to fill whole registers, so that a run of pixels is one loop
// without remainders; in CHW and HCW a run has one constant.
#include <cmath>
#include <numeric>

#include "buffer.hpp"
#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

/// Constants of one channel; PReLU uses the first only.
struct Constants {
  std::vector<float> scale, shift;
};

Constants affine_constants(const LayerProblem& p) { return {*p.blobs[0].data, *p.blobs[1].data}; }

/// Caffe's BatchNorm: scale = gamma / sqrt(variance/divisor + eps), shift = beta - mean/divisor *
/// scale.
Constants batchnorm_constants(const LayerProblem& p) {
  const std::vector<float>&mean = *p.blobs[0].data, &variance = *p.blobs[1].data;
  const double divisor = (*p.blobs[2].data)[0];
  const double factor = divisor == 0 ? 0 : 1 / divisor;
  const double eps = op_of<BatchNormOp>(p).eps;
  Constants k;
  for (std::size_t c = 0; c < mean.size(); ++c) {
    const double gamma = p.blobs.size() > 3 ? (*p.blobs[3].data)[c] : 1;
    const double beta = p.blobs.size() > 4 ? (*p.blobs[4].data)[c] : 0;
    const double scale = gamma / std::sqrt(variance[c] * factor + eps);
    k.scale.push_back(static_cast<float>(scale));
    k.shift.push_back(static_cast<float>(beta - mean[c] * factor * scale));
  }
  return k;
}

Constants prelu_constants(const LayerProblem& p) {
  const std::vector<float>& slope = *p.blobs[0].data;
  Constants k;
  for (Index c = 0; c < p.in[0].c; ++c) {
    k.scale.push_back(slope[slope.size() == 1 ? 0 : static_cast<std::size_t>(c)]);
    k.shift.push_back(0);
  }
  return k;
}

template <bool Prelu>
class Channelwise final : public PreparedLayer {
 public:
  Channelwise(const LayerImpl& impl, const LayerProblem& p, const Constants& k)
      : layout_(impl.out),
        shape_(p.out[0]),
        in_(in_strides(impl, p)),
        out_(out_strides(impl, p)),
        sliced_(p.slice.sliced()),
        threads_(useful_threads(p.threads, 2 * shape_.count())) {
    const Index lanes = kernels::active().lanes;
    // Channels that one run goes through, and repetitions until whole registers are full.
    width_ = in_.block > 1 ? in_.block : layout_ == Layout::hwc ? shape_.c : 1;
    period_ = layout_ == Layout::hwc ? std::lcm(width_, lanes) : std::max(width_, lanes);
    constexpr Index kLongest = 8192;
    if (layout_ == Layout::hwc && (sliced_ || period_ > kLongest)) period_ = padded(width_);
    const Index groups = layout_ == Layout::hwc ? 1 : blocks_of(layout_, shape_);
    scale_ = Buffer::zeros(static_cast<std::size_t>(groups * period_));
    shift_ = Buffer::zeros(static_cast<std::size_t>(groups * period_));
    for (Index i = 0; i < groups * period_; ++i) {
      const Index c = i / period_ * width_ + i % period_ % width_;
      if (c >= shape_.c) continue;
      scale_[static_cast<std::size_t>(i)] = k.scale[static_cast<std::size_t>(c)];
      shift_[static_cast<std::size_t>(i)] = k.shift[static_cast<std::size_t>(c)];
    }
  }

  std::size_t packed_bytes() const override { return scale_.bytes() + shift_.bytes(); }

  void run(const LayerArgs& args) const noexcept override {
    parallel(threads_, [&](int thread, int team) {
      if (layout_ == Layout::hwc) {
        run_hwc(args.in[0], args.out[0], thread, team);
      } else {
        run_groups(args.in[0], args.out[0], thread, team);
      }
    });
  }

 private:
  void apply(const float* in, float* out, Index n, Index group) const {
    const auto& kernels = *kernels::active().elementwise;
    const float* scale = scale_.data() + group * period_;
    if constexpr (Prelu) {
      kernels.prelu_periodic(in, out, n, scale, period_);
    } else {
      kernels.affine_periodic(in, out, n, scale, shift_.data() + group * period_, period_);
    }
  }

  void run_hwc(const float* in, float* out, int thread, int team) const {
    const Index pixels = shape_.n * shape_.h * shape_.w;
    if (period_ % width_ == 0 && !sliced_) {
      const Range r = share(pixels, thread, team, period_ / width_);
      apply(in + r.begin * width_, out + r.begin * width_, (r.end - r.begin) * width_, 0);
      return;
    }
    const Range r = share(pixels, thread, team);
    for (Index i = r.begin; i < r.end; ++i) {
      apply(in + i * width_, out + out_.base + i * out_.w_stride, width_, 0);
    }
  }

  /// Planes (CHW), rows of planes (HCW) or planes of blocks.
  void run_groups(const float* in, float* out, int thread, int team) const {
    const bool hcw = layout_ == Layout::hcw;
    const Index groups = blocks_of(layout_, shape_);
    const Index outer = hcw ? shape_.n * shape_.h : shape_.n;
    const Index length = (hcw ? shape_.w : shape_.h * shape_.w) * width_;
    const Range r = share(outer * groups * length, thread, team, 16);
    for (Index i = r.begin; i < r.end;) {
      const Index o = i / length / groups, group = i / length % groups, at = i % length;
      const Index n = hcw ? o / shape_.h : o, h = hcw ? o % shape_.h : 0;
      const Index count = std::min(length - at, r.end - i);
      apply(in + in_.at(n, group * width_, h, 0) + at, out + out_.at(n, group * width_, h, 0) + at,
            count, group);
      i += count;
    }
  }

  Layout layout_;
  Shape shape_;
  Strides in_, out_;
  bool sliced_;
  int threads_;
  Index width_ = 1, period_ = 1;
  Buffer scale_, shift_;
};

std::unique_ptr<PreparedLayer> affine(const LayerImpl& impl, const LayerProblem& p) {
  return std::make_unique<Channelwise<false>>(impl, p, affine_constants(p));
}

std::unique_ptr<PreparedLayer> batchnorm(const LayerImpl& impl, const LayerProblem& p) {
  return std::make_unique<Channelwise<false>>(impl, p, batchnorm_constants(p));
}

std::unique_ptr<PreparedLayer> prelu(const LayerImpl& impl, const LayerProblem& p) {
  return std::make_unique<Channelwise<true>>(impl, p, prelu_constants(p));
}

constexpr LayerImpl kRows[] = {
    {"affine-chw", "affine", Layout::chw, Layout::chw, true, accept, affine},
    {"affine-hcw", "affine", Layout::hcw, Layout::hcw, true, accept, affine},
    {"affine-hwc", "affine", Layout::hwc, Layout::hwc, true, accept, affine},
    {"affine-chw8c", "affine", Layout::chw8c, Layout::chw8c, true, accept, affine},
    {"affine-chw16c", "affine", Layout::chw16c, Layout::chw16c, true, accept, affine},
    {"batchnorm-chw", "batchnorm", Layout::chw, Layout::chw, true, accept, batchnorm},
    {"batchnorm-hcw", "batchnorm", Layout::hcw, Layout::hcw, true, accept, batchnorm},
    {"batchnorm-hwc", "batchnorm", Layout::hwc, Layout::hwc, true, accept, batchnorm},
    {"batchnorm-chw8c", "batchnorm", Layout::chw8c, Layout::chw8c, true, accept, batchnorm},
    {"batchnorm-chw16c", "batchnorm", Layout::chw16c, Layout::chw16c, true, accept, batchnorm},
    {"prelu-chw", "prelu", Layout::chw, Layout::chw, true, accept, prelu},
    {"prelu-hcw", "prelu", Layout::hcw, Layout::hcw, true, accept, prelu},
    {"prelu-hwc", "prelu", Layout::hwc, Layout::hwc, true, accept, prelu},
    {"prelu-chw8c", "prelu", Layout::chw8c, Layout::chw8c, true, accept, prelu},
    {"prelu-chw16c", "prelu", Layout::chw16c, Layout::chw16c, true, accept, prelu},
};

}  // namespace

std::span<const LayerImpl> channelwise_rows() { return kRows; }

}  // namespace convprim
