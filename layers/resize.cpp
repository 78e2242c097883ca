// Resizing, in every layout. Nearest neighbours are a copy by tables of offsets; bilinear mixes two
// rows into a line of scratch memory, then the line's columns.
#include <cmath>
#include <vector>

#include "layers/common.hpp"
#include "layers/registry.hpp"
#include "layers/table_copy.hpp"

namespace convprim {
namespace {

/// Where on an axis of `in` elements output o of `out` lies.
double coordinate(const ResizeOp& op, Index o, Index in, Index out) {
  const auto i = static_cast<double>(in), n = static_cast<double>(out), p = static_cast<double>(o);
  switch (op.coordinate) {
    case ResizeOp::Coordinate::asymmetric:
      return p * i / n;
    case ResizeOp::Coordinate::half_pixel:
      return (p + 0.5) * i / n - 0.5;
    case ResizeOp::Coordinate::align_corners:
      return out == 1 ? 0 : p * (i - 1) / (n - 1);
  }
  return 0;
}

Index nearest(const ResizeOp& op, Index o, Index in, Index out) {
  const double p = coordinate(op, o, in, out);
  double r = std::floor(p);
  switch (op.round) {
    case ResizeOp::Round::floor:
      break;
    case ResizeOp::Round::ceil:
      r = std::ceil(p);
      break;
    case ResizeOp::Round::prefer_floor:
      r = std::ceil(p - 0.5);
      break;
    case ResizeOp::Round::prefer_ceil:
      r = std::floor(p + 0.5);
      break;
  }
  return std::clamp<Index>(static_cast<Index>(r), 0, in - 1);
}

class Nearest final : public PreparedLayer {
 public:
  Nearest(const LayerImpl& impl, const LayerProblem& p)
      : shape_(p.out[0]),
        out_(out_strides(impl, p)),
        threads_(useful_threads(p.threads, 2 * shape_.count())) {
    const ResizeOp& op = op_of<ResizeOp>(p);
    const Strides in = in_strides(impl, p);
    const Shape& from = p.in[0];
    const Index extents[4] = {shape_.n, shape_.c, shape_.h, shape_.w};
    std::array<AxisTable, 4> axes;
    for (int a = 0; a < 4; ++a) {
      auto& axis = axes[static_cast<std::size_t>(a)];
      axis.out = axis_offsets(out_, a, extents[a]);
      if (a < 2) {
        axis.in = axis_offsets(in, a, extents[a]);
        continue;
      }
      const Index count = a == 2 ? from.h : from.w, step = a == 2 ? in.h_stride : in.w_stride;
      for (Index o = 0; o < extents[a]; ++o) {
        axis.in.push_back(nearest(op, o, count, extents[a]) * step);
      }
    }
    copies_.add(0, in.base, 0, out_.base, axes);
  }

  void run(const LayerArgs& args) const noexcept override {
    parallel(threads_, [&](int thread, int team) {
      copies_.run(args.in, args.out, thread, team);
      zero_lanes(out_, shape_, args.out[0], share(shape_.n, thread, team));
    });
  }

 private:
  Shape shape_;
  Strides out_;
  int threads_;
  TableCopy copies_;
};

/// The two elements that an output lies between, and how far from the first.
struct Between {
  std::vector<std::ptrdiff_t> a, b;
  std::vector<float> t;
};

Between between(const ResizeOp& op, Index in, Index out, Index step) {
  Between r;
  for (Index o = 0; o < out; ++o) {
    const double p = coordinate(op, o, in, out), down = std::floor(p);
    const auto i = static_cast<Index>(down);
    r.a.push_back(std::clamp<Index>(i, 0, in - 1) * step);
    r.b.push_back(std::clamp<Index>(i + 1, 0, in - 1) * step);
    r.t.push_back(static_cast<float>(p - down));
  }
  return r;
}

class Bilinear final : public PreparedLayer {
 public:
  Bilinear(const LayerImpl& impl, const LayerProblem& p)
      : in_shape_(p.in[0]),
        shape_(p.out[0]),
        in_(in_strides(impl, p)),
        out_(out_strides(impl, p)),
        // Images are planes of rows, of blocks of channels, or of all channels (HWC).
        lanes_(in_.block > 1            ? in_.block
               : impl.in == Layout::hwc ? in_shape_.c
                                        : 1),
        planes_(impl.in == Layout::hwc ? 1 : blocks_of(impl.in, in_shape_)),
        threads_(useful_threads(p.threads, 2 * shape_.count())),
        y_(between(op_of<ResizeOp>(p), in_shape_.h, shape_.h, in_.h_stride)),
        x_(between(op_of<ResizeOp>(p), in_shape_.w, shape_.w, lanes_)) {}

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(line() * threads_) * sizeof(float);
  }

  void run(const LayerArgs& args) const noexcept override {
    const auto& kernel = *kernels::active().resize;
    parallel(threads_, [&](int thread, int team) {
      float* mixed = static_cast<float*>(args.workspace) + line() * thread;
      const Range r = share(shape_.n * planes_ * shape_.h, thread, team);
      for (Index i = r.begin; i < r.end; ++i) {
        const Index y = i % shape_.h, c = i / shape_.h % planes_, n = i / shape_.h / planes_;
        const auto at = static_cast<std::size_t>(y);
        const Index channel = c * (in_.block > 1 ? in_.block : 1);
        const float* plane = args.in[0] + in_.at(n, channel, 0, 0);
        float* to = args.out[0] + out_.at(n, channel, y, 0);
        kernel.lerp_rows(plane + y_.a[at], plane + y_.b[at], y_.t[at], mixed, in_shape_.w * lanes_);
        if (out_.w_stride == 1) {
          kernel.lerp_columns(mixed, x_.a.data(), x_.b.data(), x_.t.data(), to, shape_.w);
        } else {
          kernel.lerp_pixels(mixed, x_.a.data(), x_.b.data(), x_.t.data(), lanes_, to,
                             out_.w_stride, shape_.w);
        }
      }
    });
  }

 private:
  Index line() const { return padded(in_shape_.w * lanes_); }

  Shape in_shape_, shape_;
  Strides in_, out_;
  Index lanes_, planes_;
  int threads_;
  Between y_, x_;
};

std::unique_ptr<PreparedLayer> prepare(const LayerImpl& impl, const LayerProblem& p) {
  if (op_of<ResizeOp>(p).method == ResizeOp::Method::nearest) return make<Nearest>(impl, p);
  return make<Bilinear>(impl, p);
}

constexpr LayerImpl kRows[] = {
    {"resize-chw", "resize", Layout::chw, Layout::chw, false, accept, prepare},
    {"resize-hcw", "resize", Layout::hcw, Layout::hcw, false, accept, prepare},
    {"resize-hwc", "resize", Layout::hwc, Layout::hwc, false, accept, prepare},
    {"resize-chw8c", "resize", Layout::chw8c, Layout::chw8c, false, accept, prepare},
    {"resize-chw16c", "resize", Layout::chw16c, Layout::chw16c, false, accept, prepare},
};

}  // namespace

std::span<const LayerImpl> resize_rows() { return kRows; }

}  // namespace convprim
