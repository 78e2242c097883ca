// depthwise-chw, depthwise-hcw: depthwise convolution by vectors of columns, any number q of output
// channels to each input channel.
//
//   out[n][c*q + p][y][x] = sum over i, j of in[n][c][y*sh - pt + i*dh][x*sw - pl + j*dw]
//                           * w[c*q + p][i][j]
//
// A strip of input rows, sized for the L1 cache, is copied with its padding into a buffer in which
// each row is split into sw phases (columns p, p + sw, ...). In there no tap needs a test and the
// columns under one tap are neighbours whatever the stride. Loop order: images, channels, strips,
// output channels, blocks of 4 rows, vectors of columns; see lib/kernels/depthwise.cpp.
#include <algorithm>
#include <vector>

#include "buffer.hpp"
#include "kernels/kernels.hpp"
#include "primitives/registry.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

/// Floats of a strip that leave the L1 cache room for the output: 24 KiB.
constexpr Index kStripFloats = 6 * 1024;
/// Widest vector: padded rows are readable for one beyond the last column.
constexpr Index kWidest = 16;

class DepthwisePlanes final : public Convolution {
 public:
  DepthwisePlanes(Layout layout, const Scenario& s, const Weights& weights, const Options& options)
      : s_(s),
        threads_(options.threads),
        epilogue_(options.epilogue),
        in_(strides(layout, s.in())),
        out_(strides(layout, s.out(), options.slice)),
        added_(strides(layout, s.out())),
        filter_(static_cast<std::size_t>(s.filter_count())),
        bias_(Buffer::zeros(static_cast<std::size_t>(s.m))) {
    std::copy_n(weights.filter, s.filter_count(), filter_.data());
    if (weights.bias != nullptr) std::copy_n(weights.bias, s.m, bias_.data());
    const Index columns = (s.ow + kWidest - 1) / kWidest * kWidest + (s.span_w() - 1) / s.sw + 1;
    phase_ = (columns + kWidest - 1) / kWidest * kWidest;
    pitch_ = s.sw * phase_;
    for (Index j = 0; j < s.kw; ++j) {
      column_.push_back(j * s.dw % s.sw * phase_ + j * s.dw / s.sw);
    }
    const Index rows = kStripFloats / pitch_;
    strip_ = std::clamp<Index>((rows - s.span_h()) / s.sh + 1, std::min<Index>(4, s.oh), s.oh);
    strips_ = (s.oh + strip_ - 1) / strip_;
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * strip_floats()) * sizeof(float);
  }
  std::size_t packed_bytes() const override {
    return filter_.bytes() + bias_.bytes() + column_.size() * sizeof(Index);
  }

  void run(const RunArgs& args) const noexcept override {
    const Index items = s_.n * s_.c * strips_;
    parallel(team_of(threads_, items), [&](int thread, int team) {
      float* strip = static_cast<float*>(args.workspace) + thread * strip_floats();
      const Range r = share(items, thread, team);
      for (Index item = r.begin; item < r.end; ++item) {
        run_strip(args, item / strips_ / s_.c, item / strips_ % s_.c, item % strips_, strip);
      }
    });
  }

 private:
  Index strip_rows(Index rows) const { return (rows - 1) * s_.sh + s_.span_h(); }
  Index strip_floats() const { return strip_rows(strip_) * pitch_; }

  void run_strip(const RunArgs& args, Index n, Index c, Index index, float* strip) const {
    const auto& k = *kernels::active().depthwise;
    const Index y = index * strip_, rows = std::min(strip_, s_.oh - y);
    kernels::DepthwisePad pad;
    pad.in = args.in + in_.at(n, c, 0, 0);
    pad.in_row = in_.h_stride;
    pad.h = s_.h, pad.w = s_.w;
    pad.first = y * s_.sh - s_.pt;
    pad.rows = strip_rows(rows);
    pad.pl = s_.pl, pad.sw = s_.sw;
    pad.phase = phase_;
    pad.out = strip;
    k.pad(pad);

    for (Index m = c * s_.mg(); m < (c + 1) * s_.mg(); ++m) {
      kernels::DepthwisePlane a;
      a.in = strip;
      a.pitch = pitch_;
      a.kh = s_.kh, a.kw = s_.kw, a.sh = s_.sh, a.dh = s_.dh;
      a.column = column_.data();
      a.weights = filter_.data() + m * s_.kh * s_.kw;
      a.bias = bias_[static_cast<std::size_t>(m)];
      a.lo = epilogue_.lo, a.hi = epilogue_.hi;
      a.out = args.out + out_.at(n, m, y, 0);
      a.out_row = out_.h_stride;
      a.residual = epilogue_.residual ? args.residual + added_.at(n, m, y, 0) : nullptr;
      a.residual_row = added_.h_stride;
      a.rows = rows, a.ow = s_.ow;
      k.plane(a);
    }
  }

  Scenario s_;
  int threads_;
  Epilogue epilogue_;
  Strides in_, out_, added_;
  Buffer filter_, bias_;
  Index phase_ = 0, pitch_ = 0;   // floats of a padded row's phase, of a padded row
  Index strip_ = 0, strips_ = 0;  // output rows in a strip, strips in a plane
  std::vector<std::ptrdiff_t> column_;
};

const char* reject(const Primitive&, const Scenario& s) {
  return s.cg() != 1 ? "needs one input channel in each group" : nullptr;
}

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<DepthwisePlanes>(row.in, s, weights, options);
}

constexpr Primitive kRows[] = {
    {"depthwise-chw", Family::depthwise, Layout::chw, Layout::chw, reject, prepare},
    {"depthwise-hcw", Family::depthwise, Layout::hcw, Layout::hcw, reject, prepare},
};

}  // namespace

std::span<const Primitive> depthwise_planes_rows() { return kRows; }

}  // namespace convprim
