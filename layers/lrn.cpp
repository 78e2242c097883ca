// Local response normalisation, across channels or within each, in every layout.
//
//   out = in / (k + alpha / size^(1 or 2) * sum of in^2 over the window)^beta
//
// Source: Krizhevsky, Sutskever, Hinton, "ImageNet classification with deep convolutional neural
// networks", section 3.3. Across channels, planes are taken in runs of pixels short enough that the
// channels of a window stay in the first-level cache.
#include <cmath>

#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

class Lrn final : public PreparedLayer {
 public:
  Lrn(const LayerImpl& impl, const LayerProblem& p)
      : layout_(impl.in),
        within_(op_of<LrnOp>(p).within_channel),
        shape_(p.in[0]),
        in_(in_strides(impl, p)),
        out_(out_strides(impl, p)),
        threads_(p.threads) {
    const LrnOp& op = op_of<LrnOp>(p);
    const auto size = static_cast<float>(op.size);
    params_ = {(op.size - 1) / 2, op.size - 1 - (op.size - 1) / 2,
               op.alpha / (within_ ? size * size : size), op.beta, op.k};
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(scratch_floats() * threads_) * sizeof(float);
  }

  void run(const LayerArgs& args) const noexcept override {
    parallel(threads_, [&](int thread, int team) {
      float* scratch = static_cast<float*>(args.workspace) + scratch_floats() * thread;
      if (within_) {
        run_within(args.in[0], args.out[0], scratch, thread, team);
      } else if (planes()) {
        run_planes(args.in[0], args.out[0], thread, team);
      } else {
        run_pixels(args.in[0], args.out[0], scratch, thread, team);
      }
    });
  }

 private:
  bool planes() const { return layout_ == Layout::chw || layout_ == Layout::hcw; }

  Index scratch_floats() const {
    constexpr Index kMaxLanes = 16;
    const Index window = params_.before + params_.after;
    if (within_) return padded(row_floats() + window * step() + 2 * kMaxLanes);
    return planes() ? 0 : padded(stored_channels(layout_, shape_.c) + window + 4 * kMaxLanes);
  }

  /// Contiguous floats of a row of one plane, or of one block or image of pixels.
  Index row_floats() const { return shape_.w * step(); }
  /// Floats between neighbouring columns.
  Index step() const { return in_.w_stride; }

  void run_planes(const float* in, float* out, int thread, int team) const {
    const auto& kernel = *kernels::active().lrn;
    constexpr Index kRun = 1024;
    // HCW has a run for each row; CHW's planes are cut evenly.
    const bool chw = layout_ == Layout::chw;
    const Index plane = chw ? shape_.h * shape_.w : shape_.w;
    const Index images = chw ? shape_.n : shape_.n * shape_.h;
    Index runs = (plane + kRun - 1) / kRun;
    if (images * runs < 2 * team) runs = std::min((plane + 63) / 64, Index{2} * team);
    const Range r = share(images * runs, thread, team);
    for (Index i = r.begin; i < r.end; ++i) {
      const Index n = chw ? i / runs : i / runs / shape_.h, h = chw ? 0 : i / runs % shape_.h;
      const Range pixels = share(plane, static_cast<int>(i % runs), static_cast<int>(runs), 16);
      kernel.planes(params_, in + in_.at(n, 0, h, 0) + pixels.begin, in_.c_stride,
                    out + out_.at(n, 0, h, 0) + pixels.begin, out_.c_stride, shape_.c,
                    pixels.end - pixels.begin);
    }
  }

  void run_pixels(const float* in, float* out, float* scratch, int thread, int team) const {
    const auto& kernel = *kernels::active().lrn;
    const Index pixels = shape_.h * shape_.w;
    const Index kernel_block = in_.block > 1 ? in_.block : 0;
    const Index channels = in_.block > 1 ? stored_channels(layout_, shape_.c) : shape_.c;
    const Range r = share(shape_.n * pixels, thread, team, 2);
    for (Index i = r.begin; i < r.end;) {
      const Index n = i / pixels, first = i % pixels;
      const Index count = std::min(pixels - first, r.end - i);
      kernel.pixels(params_, in + in_.at(n, 0, 0, 0) + first * in_.w_stride, in_.w_stride,
                    in_.c_stride, out + out_.at(n, 0, 0, 0) + first * out_.w_stride, out_.w_stride,
                    out_.c_stride, kernel_block, channels, count, scratch);
      i += count;
    }
  }

  /// Rows of each plane, block or image: a window's columns are `step` floats apart in all of them.
  void run_within(const float* in, float* out, float* scratch, int thread, int team) const {
    const auto& kernel = *kernels::active().lrn;
    const Index planes = layout_ == Layout::hwc ? 1 : blocks_of(layout_, shape_);
    const Range r = share(shape_.n * planes * shape_.h, thread, team);
    for (Index i = r.begin; i < r.end; ++i) {
      const Index h = i % shape_.h, c = i / shape_.h % planes * in_.block;
      const Index n = i / shape_.h / planes;
      const Index first = std::max<Index>(0, h - params_.before);
      const Index last = std::min(shape_.h - 1, h + params_.after);
      kernel.within(params_, in + in_.at(n, c, first, 0), in_.h_stride, last - first + 1,
                    in + in_.at(n, c, h, 0), out + out_.at(n, c, h, 0), step(), row_floats(),
                    scratch);
    }
  }

  Layout layout_;
  bool within_;
  Shape shape_;
  Strides in_, out_;
  int threads_;
  kernels::LrnParams params_{};
};

const char* reject(const LayerImpl& impl, const LayerProblem& p) {
  if (impl.out == Layout::hwc && p.slice.sliced() && op_of<LrnOp>(p).within_channel) {
    return "within channels: rows of a slice of hwc are not contiguous";
  }
  return nullptr;
}

constexpr LayerImpl kRows[] = {
    {"lrn-chw", "lrn", Layout::chw, Layout::chw, false, reject, make<Lrn>},
    {"lrn-hcw", "lrn", Layout::hcw, Layout::hcw, false, reject, make<Lrn>},
    {"lrn-hwc", "lrn", Layout::hwc, Layout::hwc, false, reject, make<Lrn>},
    {"lrn-chw8c", "lrn", Layout::chw8c, Layout::chw8c, false, reject, make<Lrn>},
    {"lrn-chw16c", "lrn", Layout::chw16c, Layout::chw16c, false, reject, make<Lrn>},
};

}  // namespace

std::span<const LayerImpl> lrn_rows() { return kRows; }

}  // namespace convprim
