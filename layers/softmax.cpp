// Softmax over the channels in every layout, over the other axes in CHW.
#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

class Softmax final : public PreparedLayer {
 public:
  Softmax(const LayerImpl& impl, const LayerProblem& p)
      : layout_(impl.in),
        op_(op_of<SoftmaxOp>(p)),
        shape_(p.in[0]),
        in_(in_strides(impl, p)),
        out_(out_strides(impl, p)),
        threads_(useful_threads(p.threads, 4 * shape_.count())) {}

  void run(const LayerArgs& args) const noexcept override {
    parallel(threads_, [&](int thread, int team) {
      const float* in = args.in[0];
      float* out = args.out[0];
      if (in_.block > 1 || layout_ == Layout::hwc || (op_.axis == 1 && one_pixel())) {
        run_pixels(in, out, thread, team);
      } else if (op_.axis == 3) {
        run_rows(in, out, thread, team);
      } else {
        run_columns(in, out, thread, team);
      }
    });
  }

 private:
  bool one_pixel() const { return shape_.h == 1 && shape_.w == 1; }

  /// Channels contiguous, or in blocks that are.
  void run_pixels(const float* in, float* out, int thread, int team) const {
    const auto& kernel = *kernels::active().softmax;
    const kernels::ChannelRuns runs = {in_.block > 1 ? in_.block : shape_.c, shape_.c, in_.c_stride,
                                       out_.c_stride};
    const Index pixels = shape_.h * shape_.w;
    const Range r = share(shape_.n * pixels, thread, team);
    for (Index i = r.begin; i < r.end; ++i) {
      const Index n = i / pixels, h = i % pixels / shape_.w, w = i % shape_.w;
      kernel.pixel(runs, in + in_.at(n, 0, h, w), out + out_.at(n, 0, h, w), op_.log);
    }
  }

  /// Over the width: each row by itself.
  void run_rows(const float* in, float* out, int thread, int team) const {
    const auto& kernel = *kernels::active().softmax;
    const kernels::ChannelRuns runs = {shape_.w, shape_.w, shape_.w, shape_.w};
    const Index rows = shape_.c * shape_.h;
    const Range r = share(shape_.n * rows, thread, team);
    for (Index i = r.begin; i < r.end; ++i) {
      const Index n = i / rows, c = i % rows / shape_.h, h = i % shape_.h;
      kernel.pixel(runs, in + in_.at(n, c, h, 0), out + out_.at(n, c, h, 0), op_.log);
    }
  }

  /// Over an axis outside of contiguous floats: vectors of those.
  void run_columns(const float* in, float* out, int thread, int team) const {
    const auto& kernel = *kernels::active().softmax;
    // Outer positions, elements of the axis, and contiguous floats inside it.
    Index outer = 1, extent = shape_.c, inner = shape_.h * shape_.w;
    Index in_step = in_.c_stride, out_step = out_.c_stride;
    if (layout_ == Layout::hcw) {
      outer = shape_.h;
      inner = shape_.w;
    } else if (op_.axis == 2) {
      outer = shape_.c;
      extent = shape_.h;
      inner = in_step = out_step = shape_.w;
    } else if (op_.axis == 0) {
      extent = shape_.n;
      inner = shape_.c * shape_.h * shape_.w;
      in_step = in_.n_stride;
      out_step = out_.n_stride;
    }
    const Index images = op_.axis == 0 ? 1 : shape_.n;
    const Index in_outer = layout_ == Layout::hcw ? in_.h_stride : in_.c_stride;
    const Index out_outer = layout_ == Layout::hcw ? out_.h_stride : out_.c_stride;
    const Range r = share(images * outer * inner, thread, team, 16);
    for (Index i = r.begin; i < r.end;) {
      const Index n = i / inner / outer, o = i / inner % outer, at = i % inner;
      const Index count = std::min(inner - at, r.end - i);
      kernel.columns(in + n * in_.n_stride + o * in_outer + at, in_step,
                     out + out_.base + n * out_.n_stride + o * out_outer + at, out_step, extent,
                     count, op_.log);
      i += count;
    }
  }

  Layout layout_;
  SoftmaxOp op_;
  Shape shape_;
  Strides in_, out_;
  int threads_;
};

const char* reject(const LayerImpl& impl, const LayerProblem& p) {
  if (impl.in != Layout::chw && op_of<SoftmaxOp>(p).axis != 1) {
    return "softmax over another axis than the channels: only in chw";
  }
  return nullptr;
}

constexpr LayerImpl kRows[] = {
    {"softmax-chw", "softmax", Layout::chw, Layout::chw, true, reject, make<Softmax>},
    {"softmax-hcw", "softmax", Layout::hcw, Layout::hcw, true, reject, make<Softmax>},
    {"softmax-hwc", "softmax", Layout::hwc, Layout::hwc, true, reject, make<Softmax>},
    {"softmax-chw8c", "softmax", Layout::chw8c, Layout::chw8c, true, reject, make<Softmax>},
    {"softmax-chw16c", "softmax", Layout::chw16c, Layout::chw16c, true, reject, make<Softmax>},
};

}  // namespace

std::span<const LayerImpl> softmax_rows() { return kRows; }

}  // namespace convprim
