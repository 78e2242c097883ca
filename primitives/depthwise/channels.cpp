// depthwise-hwc, depthwise-chw8c, depthwise-chw16c: depthwise convolution by vectors of channels.
//
//   out[n][y][x][c] = sum over i, j of in[n][y*sh - pt + i*dh][x*sw - pl + j*dw][c] * w[i][j][c]
//
// Loop order: images, (blocks of channels,) rows, tiles of up to 8 columns, groups of V channels,
// kernel rows; a tile's sums stay in registers, see lib/kernels/depthwise.cpp. Kernel rows outside
// the image are left out of the loop, columns outside it only cost a test in the first and the last
// tile of a row. Nothing is padded or copied, so that the memory traffic is input + output.
//
// Source: the scheme of Zhang, Franchetti and Low, "High Performance Zero-Memory Overhead Direct
// Convolutions" (arXiv 1809.10170), with one input channel to each output channel.
#include <algorithm>

#include "buffer.hpp"
#include "kernels/kernels.hpp"
#include "primitives/registry.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

/// Floats of the input rows that a block of output rows advances over: a part of the L1 cache.
constexpr Index kRowsFloats = 4 * 1024;

class DepthwiseChannels final : public Convolution {
 public:
  DepthwiseChannels(Layout layout, const Scenario& s, const Weights& weights,
                    const Options& options)
      : s_(s),
        threads_(options.threads),
        residual_(options.epilogue.residual),
        in_(strides(layout, s.in())),
        out_(strides(layout, s.out(), options.slice)),
        added_(strides(layout, s.out())),
        rows_(layout == Layout::chw8c ? kernels::active().depthwise->rows8
                                      : kernels::active().depthwise->rows) {
    const Index lanes = kernels::active().lanes;
    v_ = layout == Layout::chw8c ? std::min<Index>(8, lanes) : lanes;
    const Index channels = stored_channels(layout, s.c);
    const Index groups = (channels + v_ - 1) / v_;
    const Index taps = s.kh * s.kw;
    group_ = (3 + taps) * v_;
    // The kernel does two rows at a time where it can.
    row_block_ = std::max<Index>(2, kRowsFloats / (s.sh * in_.h_stride));
    packed_ = Buffer::zeros(static_cast<std::size_t>(groups * group_));
    for (Index c = 0; c < s.c; ++c) {
      float* p = packed_.data() + c / v_ * group_ + c % v_;
      p[0] = weights.bias != nullptr ? weights.bias[c] : 0.0F;
      p[v_] = options.epilogue.lo;
      p[2 * v_] = options.epilogue.hi;
      for (Index t = 0; t < taps; ++t) p[(3 + t) * v_] = weights.filter[c * taps + t];
    }
  }

  std::size_t workspace_bytes() const override { return 0; }
  std::size_t packed_bytes() const override { return packed_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    // In a blocked layout a row is one block's; else it has all channels.
    const Index blocks = in_.block > 1 ? (s_.c + in_.block - 1) / in_.block : 1;
    parallel(team_of(threads_, s_.n * blocks * s_.oh), [&](int thread, int team) {
      share_rows(s_.n, blocks, s_.oh, thread, team,
                 [&](Index n, Index block, Index begin, Index end) {
                   for (Index y = begin; y < end;) y += run_rows(args, n, block, y, end - y);
                 });
    });
  }

 private:
  /// Kernel rows i that lie in the image under output row y: 0 <= y*sh - pt + i*dh < h.
  Range kernel_rows(Index y) const {
    const Index top = y * s_.sh - s_.pt;
    const Index first = top < 0 ? (-top + s_.dh - 1) / s_.dh : 0;
    const Index end = top < s_.h ? std::min(s_.kh, (s_.h - 1 - top) / s_.dh + 1) : 0;
    return first < end ? Range{first, end} : Range{0, 0};
  }

  /// Output rows from y on with the same kernel rows in the image, at most `most`: returns how
  /// many.
  Index run_rows(const RunArgs& args, Index n, Index block, Index y, Index most) const {
    const Index c = block * in_.block;
    const Index channels = in_.block > 1 ? in_.block : s_.c;
    const Range inside = kernel_rows(y);
    most = std::min({most, s_.oh - y, row_block_});
    Index count = 1;
    while (count < most) {
      const Range next = kernel_rows(y + count);
      if (next.begin != inside.begin || next.end != inside.end) break;
      ++count;
    }
    kernels::DepthwiseRows a;
    a.rows = inside.end - inside.begin;
    a.first_row = inside.begin;
    a.in = args.in + in_.at(n, c, a.rows > 0 ? y * s_.sh - s_.pt + inside.begin * s_.dh : 0, 0);
    a.in_row = s_.dh * in_.h_stride;
    a.in_col = in_.w_stride;
    a.in_next = s_.sh * in_.h_stride;
    a.w = s_.w;
    a.kw = s_.kw, a.sw = s_.sw, a.dw = s_.dw, a.pl = s_.pl;
    a.packed = packed_.data() + c / v_ * group_;
    a.packed_group = group_;
    a.out = args.out + out_.at(n, c, y, 0);
    a.out_col = out_.w_stride;
    a.out_next = out_.h_stride;
    a.residual = residual_ ? args.residual + added_.at(n, c, y, 0) : nullptr;
    a.residual_col = added_.w_stride;
    a.residual_next = added_.h_stride;
    a.oh = count, a.ow = s_.ow;
    a.groups = channels / v_;
    a.tail = channels % v_;
    rows_(a);
    return count;
  }

  Scenario s_;
  int threads_;
  bool residual_;
  Strides in_, out_, added_;
  void (*rows_)(const kernels::DepthwiseRows&);
  Index v_ = 0;          // channels in a group
  Index group_ = 0;      // packed floats of a group
  Index row_block_ = 1;  // output rows that are done together
  Buffer packed_;
};

const char* reject(const Primitive&, const Scenario& s) {
  if (s.cg() != 1) return "needs one input channel in each group";
  if (s.m != s.c) return "needs one output channel in each group";
  return nullptr;
}

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<DepthwiseChannels>(row.in, s, weights, options);
}

constexpr Primitive kRows[] = {
    {"depthwise-hwc", Family::depthwise, Layout::hwc, Layout::hwc, reject, prepare},
    {"depthwise-chw8c", Family::depthwise, Layout::chw8c, Layout::chw8c, reject, prepare},
    {"depthwise-chw16c", Family::depthwise, Layout::chw16c, Layout::chw16c, reject, prepare},
};

}  // namespace

std::span<const Primitive> depthwise_channels_rows() { return kRows; }

}  // namespace convprim
