// Pooling: maximum or average over windows, in every layout.
//
// Windows are cut to the image when the layer is made ready; the kernels see first rows and counts.
// Threads share the output rows of all planes (CHW, HCW, blocked) or images (HWC).
#include <limits>
#include <numeric>
#include <vector>

#include "buffer.hpp"
#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

using Method = PoolOp::Method;

/// Windows along one axis.
struct Axis {
  std::vector<std::ptrdiff_t> first, count;  // elements inside the image
  std::vector<float> scale;                  // one over what average divides by; 0 for none
  bool empty = false;                        // some window is
};

Axis windows(Index extent, Index out, Index k, Index s, Index before, Index after, Index d,
             bool count_padding) {
  Axis a;
  for (Index o = 0; o < out; ++o) {
    Index start = o * s - before, taps = k;
    const Index area = std::min(start + k, extent + after) - start;
    if (start < 0) {
      const Index cut = (-start + d - 1) / d;
      start += cut * d;
      taps -= cut;
    }
    const Index inside = start < extent ? (extent - start + d - 1) / d : 0;
    taps = std::clamp<Index>(taps, 0, inside);
    a.first.push_back(taps > 0 ? start : 0);
    a.count.push_back(taps);
    a.empty |= taps == 0;
    const Index divisor = count_padding ? area : taps;
    a.scale.push_back(taps > 0 ? 1.0F / static_cast<float>(divisor) : 0.0F);
  }
  return a;
}

class Pool final : public PreparedLayer {
 public:
  Pool(const LayerImpl& impl, const LayerProblem& p)
      : layout_(impl.in),
        op_(op_of<PoolOp>(p)),
        in_shape_(p.in[0]),
        out_shape_(p.out[0]),
        in_(in_strides(impl, p)),
        out_(out_strides(impl, p)),
        threads_(p.threads),
        mask_(p.out.size() > 1) {
    if (mask_) mask_strides_ = out_strides(impl, p, 1);
    if (op_.global) {
      op_.kh = in_shape_.h;
      op_.kw = in_shape_.w;
      op_.sh = op_.sw = op_.dh = op_.dw = 1;
      op_.pt = op_.pl = op_.pb = op_.pr = 0;
    }
    y_ = windows(in_shape_.h, out_shape_.h, op_.kh, op_.sh, op_.pt, op_.pb, op_.dh,
                 op_.count_padding);
    x_ = windows(in_shape_.w, out_shape_.w, op_.kw, op_.sw, op_.pl, op_.pr, op_.dw,
                 op_.count_padding);
    whole_window_ = out_shape_.h == 1 && out_shape_.w == 1 && y_.count[0] == in_shape_.h &&
                    x_.count[0] == in_shape_.w && op_.dh == 1 && op_.dw == 1;
    // Vectors of scales are read whole.
    x_.scale.resize(x_.scale.size() + 16, 0.0F);
    if (planes()) {
      line_ = line_floats();
      // Lines of a chunk stay in the first-level cache.
      const Index rows = layout_ == Layout::chw ? out_shape_.h : out_shape_.c;
      chunk_ = std::clamp<Index>(4096 / line_, 1, rows);
      channels_.resize(static_cast<std::size_t>(out_shape_.c));
      std::iota(channels_.begin(), channels_.end(), 0);
    }
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(padded(line_ * chunk_) * threads_) * sizeof(float);
  }

  void run(const LayerArgs& args) const noexcept override {
    const float* in = args.in[0];
    float* out = args.out[0];
    parallel(threads_, [&](int thread, int team) {
      if (whole_planes()) {
        run_global(in, out, thread, team);
      } else if (planes()) {
        float* scratch = static_cast<float*>(args.workspace) + padded(line_ * chunk_) * thread;
        run_planes(in, out, scratch, thread, team);
      } else {
        run_pixels(in, out, thread, team);
      }
      if (mask_) run_mask(in, args.out[1], thread, team);
    });
  }

 private:
  bool planes() const { return layout_ == Layout::chw || layout_ == Layout::hcw; }
  bool whole_planes() const { return whole_window_ && layout_ == Layout::chw; }
  bool max() const { return op_.method == Method::max; }

  /// Floats of a padded row, as far as whole vectors of windows read it.
  Index line_floats() const {
    constexpr Index kMaxLanes = 16;
    const Index vectors = (out_shape_.w + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
    const Index read = vectors * op_.sw + (op_.kw - 1) * op_.dw + 1 + kMaxLanes;
    return padded(std::max(read, op_.pl + in_shape_.w));
  }

  /// CHW, window = image: a reduction of each plane.
  void run_global(const float* in, float* out, int thread, int team) const {
    const auto& kernels = *kernels::active().pool;
    const Index pixels = in_shape_.h * in_shape_.w;
    const Range r = share(in_shape_.n * in_shape_.c, thread, team, 16);
    for (Index i = r.begin; i < r.end; ++i) {
      float* to = out + out_.at(i / in_shape_.c, i % in_shape_.c, 0, 0);
      *to = max() ? kernels.max_run(in + i * pixels, pixels)
                  : kernels.sum_run(in + i * pixels, pixels) * (y_.scale[0] * x_.scale[0]);
    }
  }

  void run_planes(const float* in, float* out, float* scratch, int thread, int team) const {
    std::fill_n(scratch, line_ * chunk_, max() ? -std::numeric_limits<float>::infinity() : 0.0F);
    if (layout_ == Layout::chw) {
      run_chw(in, out, scratch, thread, team);
    } else {
      run_hcw(in, out, scratch, thread, team);
    }
  }

  /// The rows of each plane.
  void run_chw(const float* in, float* out, float* scratch, int thread, int team) const {
    kernels::PoolPlane list = columns();
    list.in_step = op_.dh * in_.h_stride;
    list.in_h = in_.h_stride;
    list.out_h = out_.h_stride;
    list.row = y_.first.data();
    list.rows = y_.count.data();
    list.scale_y = y_.scale.data();
    list.y_step = 1;
    share_rows(in_shape_.n * in_shape_.c, 1, out_shape_.h, thread, team,
               [&](Index plane, Index, Index begin, Index end) {
                 const Index n = plane / in_shape_.c, c = plane % in_shape_.c;
                 float* to = out + out_.at(n, c, 0, 0);
                 run_list(list, in + in_.at(n, c, 0, 0), to, begin, end, scratch);
                 if (!max() || !(x_.empty || y_.empty)) return;
                 for (Index y = begin; y < end; ++y) clear_empty(to + y * out_.h_stride, y);
               });
  }

  /// Row y of each channel: they lie side by side.
  void run_hcw(const float* in, float* out, float* scratch, int thread, int team) const {
    kernels::PoolPlane list = columns();
    list.in_step = op_.dh * in_.h_stride;
    list.in_h = in_.c_stride;
    list.out_h = out_.c_stride;
    list.row = channels_.data();
    list.y_step = 0;
    share_rows(in_shape_.n * out_shape_.h, 1, in_shape_.c, thread, team,
               [&](Index row, Index, Index begin, Index end) {
                 const Index n = row / out_shape_.h, y = row % out_shape_.h;
                 const auto at = static_cast<std::size_t>(y);
                 list.rows = &y_.count[at];
                 list.scale_y = &y_.scale[at];
                 float* to = out + out_.at(n, 0, y, 0);
                 run_list(list, in + in_.at(n, 0, y_.first[at], 0), to, begin, end, scratch);
                 if (!max() || !(x_.empty || y_.empty)) return;
                 for (Index c = begin; c < end; ++c) clear_empty(to + c * out_.c_stride, y);
               });
  }

  /// What CHW and HCW have in common.
  kernels::PoolPlane columns() const {
    kernels::PoolPlane list = {};
    list.w = in_shape_.w;
    list.ow = out_shape_.w;
    list.kw = op_.kw;
    list.sw = op_.sw;
    list.dw = op_.dw;
    list.pl = op_.pl;
    list.scale_x = x_.scale.data();
    list.line = line_;
    return list;
  }

  void run_list(const kernels::PoolPlane& list, const float* in, float* out, Index begin, Index end,
                float* scratch) const {
    const auto& kernels = *kernels::active().pool;
    const auto body = max() ? kernels.max_plane : kernels.avg_plane;
    for (Index i = begin; i < end; i += chunk_) {
      body(list, in, out, i, std::min(i + chunk_, end), scratch);
    }
  }

  /// The maximum of nothing is 0.
  void clear_empty(float* row, Index y) const {
    for (Index x = 0; x < out_shape_.w; ++x) {
      if (y_.count[static_cast<std::size_t>(y)] * x_.count[static_cast<std::size_t>(x)] == 0) {
        row[x] = 0;
      }
    }
  }

  void run_pixels(const float* in, float* out, int thread, int team) const {
    const auto& kernels = *kernels::active().pool;
    kernels::PoolPixels row = {
        out_shape_.w,    op_.kw,          op_.sw,        op_.pl, op_.dh, op_.dw,
        in_.h_stride,    in_.w_stride,    out_.w_stride, 0,      0,      x_.first.data(),
        x_.count.data(), x_.scale.data(),
    };
    // The columns between the first and the last window that the edges leave whole.
    const auto whole = [&](Index x) { return x_.count[static_cast<std::size_t>(x)] == op_.kw; };
    while (row.full_begin < row.ow && !whole(row.full_begin)) ++row.full_begin;
    row.full_end = row.full_begin;
    while (row.full_end < row.ow && whole(row.full_end)) ++row.full_end;
    // HWC with few rows: the channels are shared too.
    const Index channels = in_.block > 1 ? in_.block : in_shape_.c;
    const Index groups =
        in_.block > 1 || enough_rows(in_shape_.n * out_shape_.h, team) ? 1 : (channels + 63) / 64;
    const Index blocks = in_.block > 1 ? blocks_of(layout_, in_shape_) : groups;
    const Index step = in_.block > 1 ? in_.block : groups > 1 ? 64 : channels;
    share_rows(in_shape_.n, blocks, out_shape_.h, thread, team,
               [&](Index n, Index block, Index begin, Index end) {
                 const Index c = block * step;
                 const Index width = in_.block > 1 ? step : std::min(step, channels - c);
                 for (Index y = begin; y < end; ++y) {
                   const std::size_t at = static_cast<std::size_t>(y);
                   const auto body = max() ? kernels.max_pixels : kernels.avg_pixels;
                   body(row, in + in_.at(n, c, y_.first[at], 0), y_.count[at],
                        out + out_.at(n, c, y, 0), width, y_.scale[at]);
                 }
               });
  }

  /// Positions of the maxima, one by one: unpooling layers are rare.
  void run_mask(const float* in, float* mask, int thread, int team) const {
    const Shape& s = out_shape_;
    const Range r = share(s.n * s.c, thread, team);
    for (Index i = r.begin; i < r.end; ++i) {
      const Index n = i / s.c, c = i % s.c;
      for (Index y = 0; y < s.h; ++y) {
        for (Index x = 0; x < s.w; ++x) {
          mask[mask_strides_.at(n, c, y, x)] = static_cast<float>(
              position(in, n, c, static_cast<std::size_t>(y), static_cast<std::size_t>(x)));
        }
      }
    }
    team_barrier(team);
    if (thread == 0) zero_lanes(mask_strides_, s, mask, {0, s.n});
  }

  Index position(const float* in, Index n, Index c, std::size_t y, std::size_t x) const {
    Index best = 0;
    float top = 0;
    bool any = false;
    for (Index i = 0; i < y_.count[y]; ++i) {
      for (Index j = 0; j < x_.count[x]; ++j) {
        const Index h = y_.first[y] + i * op_.dh, w = x_.first[x] + j * op_.dw;
        const float v = in[in_.at(n, c, h, w)];
        if (any && !(v > top)) continue;
        any = true;
        top = v;
        best = h * in_shape_.w + w;
      }
    }
    return best;
  }

  Layout layout_;
  PoolOp op_;
  Shape in_shape_, out_shape_;
  Strides in_, out_, mask_strides_;
  int threads_;
  bool mask_;
  Axis y_, x_;
  bool whole_window_ = false;
  Index line_ = 0, chunk_ = 0;
  std::vector<std::ptrdiff_t> channels_;  // 0, 1, 2...
};

const char* reject(const LayerImpl&, const LayerProblem& p) {
  const PoolOp& op = op_of<PoolOp>(p);
  if (op.method == Method::avg && (op.dh != 1 || op.dw != 1)) return "average has no dilation";
  return nullptr;
}

constexpr LayerImpl kRows[] = {
    {"pool-chw", "pool", Layout::chw, Layout::chw, false, reject, make<Pool>},
    {"pool-hcw", "pool", Layout::hcw, Layout::hcw, false, reject, make<Pool>},
    {"pool-hwc", "pool", Layout::hwc, Layout::hwc, false, reject, make<Pool>},
    {"pool-chw8c", "pool", Layout::chw8c, Layout::chw8c, false, reject, make<Pool>},
    {"pool-chw16c", "pool", Layout::chw16c, Layout::chw16c, false, reject, make<Pool>},
};

}  // namespace

std::span<const LayerImpl> pool_rows() { return kRows; }

}  // namespace convprim
