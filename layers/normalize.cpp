// L2 normalisation over the channels of each pixel, in every layout, or over the whole image, in
// CHW: out = in / sqrt(sum of in^2 + eps) * scale. Source: Liu, Rabinovich, Berg, "ParseNet",
// section 3.3.
#include <cmath>

#include "buffer.hpp"
#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

class Normalize final : public PreparedLayer {
 public:
  Normalize(const LayerImpl& impl, const LayerProblem& p)
      : layout_(impl.in),
        op_(op_of<NormalizeOp>(p)),
        shape_(p.in[0]),
        in_(in_strides(impl, p)),
        out_(out_strides(impl, p)),
        threads_(useful_threads(p.threads, 3 * shape_.count())),
        scale_(Buffer::zeros(static_cast<std::size_t>(padded(shape_.c) + 16))) {
    const std::vector<float>& scale = *p.blobs[0].data;
    for (Index c = 0; c < shape_.c; ++c) {
      const auto i = static_cast<std::size_t>(c);
      scale_[i] = scale[scale.size() == 1 ? 0 : i];
    }
  }

  std::size_t packed_bytes() const override { return scale_.bytes(); }
  /// Each thread's part of the image's sum, on a cache line of its own.
  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_) * 8 * sizeof(double);
  }

  void run(const LayerArgs& args) const noexcept override {
    parallel(threads_, [&](int thread, int team) {
      const float* in = args.in[0];
      float* out = args.out[0];
      if (op_.across_spatial) {
        run_images(in, out, static_cast<double*>(args.workspace), thread, team);
      } else if (in_.block > 1 || layout_ == Layout::hwc) {
        run_pixels(in, out, thread, team);
      } else {
        run_columns(in, out, thread, team);
      }
    });
  }

 private:
  void run_pixels(const float* in, float* out, int thread, int team) const {
    const auto& kernel = *kernels::active().softmax;
    const kernels::ChannelRuns runs = {in_.block > 1 ? in_.block : shape_.c, shape_.c, in_.c_stride,
                                       out_.c_stride};
    const Index pixels = shape_.h * shape_.w;
    const Range r = share(shape_.n * pixels, thread, team);
    for (Index i = r.begin; i < r.end; ++i) {
      const Index n = i / pixels, h = i % pixels / shape_.w, w = i % shape_.w;
      kernel.normalize_pixel(runs, in + in_.at(n, 0, h, w), out + out_.at(n, 0, h, w),
                             scale_.data(), op_.eps);
    }
  }

  void run_columns(const float* in, float* out, int thread, int team) const {
    const auto& kernel = *kernels::active().softmax;
    const bool hcw = layout_ == Layout::hcw;
    const Index inner = hcw ? shape_.w : shape_.h * shape_.w, outer = hcw ? shape_.h : 1;
    const Range r = share(shape_.n * outer * inner, thread, team, 16);
    for (Index i = r.begin; i < r.end;) {
      const Index n = i / inner / outer, h = i / inner % outer, at = i % inner;
      const Index count = std::min(inner - at, r.end - i);
      kernel.normalize_columns(in + in_.at(n, 0, h, 0) + at, in_.c_stride,
                               out + out_.at(n, 0, h, 0) + at, out_.c_stride, shape_.c, count,
                               scale_.data(), op_.eps);
      i += count;
    }
  }

  void run_images(const float* in, float* out, double* sums, int thread, int team) const {
    const auto& elementwise = *kernels::active().elementwise;
    const auto& kernel = *kernels::active().softmax;
    constexpr Index kPiece = 1024;  // floats summed in float; the pieces in double
    const Index pixels = shape_.h * shape_.w, image = shape_.c * pixels;
    for (Index n = 0; n < shape_.n; ++n) {
      const Range r = share(image, thread, team, 16);
      double sum = 0;
      for (Index i = r.begin; i < r.end; i += kPiece) {
        sum += static_cast<double>(
            kernel.square_run(in + n * in_.n_stride + i, std::min(kPiece, r.end - i)));
      }
      sums[thread * 8] = sum;
      team_barrier(team);
      double total = static_cast<double>(op_.eps);
      for (int t = 0; t < team; ++t) total += sums[t * 8];
      const auto factor = static_cast<float>(1 / std::sqrt(total));
      const Range planes = share(shape_.c, thread, team);
      for (Index c = planes.begin; c < planes.end; ++c) {
        elementwise.affine_channel(in + in_.at(n, c, 0, 0), out + out_.at(n, c, 0, 0), pixels,
                                   factor * scale_[static_cast<std::size_t>(c)], 0);
      }
      team_barrier(team);
    }
  }

  Layout layout_;
  NormalizeOp op_;
  Shape shape_;
  Strides in_, out_;
  int threads_;
  Buffer scale_;
};

const char* reject(const LayerImpl& impl, const LayerProblem& p) {
  if (impl.in != Layout::chw && op_of<NormalizeOp>(p).across_spatial) {
    return "normalisation over the whole image: only in chw";
  }
  return nullptr;
}

constexpr LayerImpl kRows[] = {
    {"normalize-chw", "normalize", Layout::chw, Layout::chw, true, reject, make<Normalize>},
    {"normalize-hcw", "normalize", Layout::hcw, Layout::hcw, true, reject, make<Normalize>},
    {"normalize-hwc", "normalize", Layout::hwc, Layout::hwc, true, reject, make<Normalize>},
    {"normalize-chw8c", "normalize", Layout::chw8c, Layout::chw8c, true, reject, make<Normalize>},
    {"normalize-chw16c", "normalize", Layout::chw16c, Layout::chw16c, true, reject,
     make<Normalize>},
};

}  // namespace

std::span<const LayerImpl> normalize_rows() { return kRows; }

}  // namespace convprim
