// direct-first-chw-*: convolution of an image with up to 4 channels (the first layer of a network),
// register-blocked; input CHW, any kernel, stride, padding and dilation.
//
//   out[n][k][y][x] = sum over c, i, j of in[n][c][y*sh - pt + i*dh][x*sw - pl + j*dw]
//                     * filter[k][c][i][j]
//
// Neither lanes nor blocks of input channels are there to work on, so the vectors run over output
// channels (HWC, CHW8c, CHW16c) or over output columns (CHW, HCW). A strip of input rows is copied
// with its padding into a buffer in which each row is split into sw phases (columns p, p + sw,
// ...): there each tap of an output row is a run of neighbours, and (c, i, j) becomes one list of
// offsets.
//
// Loop order: images, strips, (copy,) blocks of output channels, rows, tiles of columns, taps. A
// block's weights (147 taps x 32 channels: 19 KB) and the rows under one output row stay in the L1
// cache, a strip in L2. Sources: Georganas et al., arXiv 1808.05567, section 3 (register blocking);
// Zhang et al., arXiv 1809.10170 (no patch matrix). The phase-split strip is ours.
#include <algorithm>
#include <vector>

#include "buffer.hpp"
#include "kernels/kernels.hpp"
#include "primitives/registry.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

constexpr Index kMostChannels = 4;
/// Floats of a strip: a part of the L2 cache, and many rows, since neighbouring strips overlap.
constexpr Index kStripFloats = 32 * 1024;
/// Columns beyond the last that the kernels may read.
constexpr Index kOverrun = 16;

class FirstLayer final : public Convolution {
 public:
  FirstLayer(Layout out, const Scenario& s, const Weights& weights, const Options& options)
      : s_(s),
        threads_(options.threads),
        epilogue_(options.epilogue),
        in_(strides(Layout::chw, s.in())),
        out_(strides(out, s.out(), options.slice)),
        added_(strides(out, s.out())),
        by_channels_(out != Layout::chw && out != Layout::hcw),
        stored_(stored_channels(out, s.m)) {
    const Index columns = s.ow + kOverrun + (s.span_w() - 1) / s.sw + 1;
    phase_ = (columns + 15) / 16 * 16;
    pitch_ = s.sw * phase_;
    const Index rows = kStripFloats / (s.c * pitch_);
    strip_ = std::clamp<Index>((rows - s.span_h()) / s.sh + 1, 1, s.oh);
    // No thread shall wait long for another one's strip.
    strip_ = std::min(strip_, (s.oh + 4 * threads_ - 1) / (4 * threads_));
    strips_ = (s.oh + strip_ - 1) / strip_;
    for (Index c = 0; c < s.c; ++c)
      for (Index i = 0; i < s.kh; ++i)
        for (Index j = 0; j < s.kw; ++j)
          offsets_.push_back((c * strip_rows(strip_) + i * s.dh) * pitch_ +
                             j * s.dw % s.sw * phase_ + j * s.dw / s.sw);
    lanes_ = kernels::active().lanes;
    if (by_channels_) {
      piece_ = std::min<Index>(lanes_, out_.block > 1 ? out_.block : lanes_);
      block_ = s.m > lanes_ ? 2 * lanes_ : lanes_;
    } else {
      block_ = kernels::kFirstChannels;
    }
    pack(weights);
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * strip_floats()) * sizeof(float);
  }
  std::size_t packed_bytes() const override {
    return packed_.bytes() +
           (offsets_.size() + places_.size() + added_places_.size()) * sizeof(Index);
  }

  void run(const RunArgs& args) const noexcept override {
    const Index items = s_.n * strips_;
    parallel(team_of(threads_, items), [&](int thread, int team) {
      float* strip = static_cast<float*>(args.workspace) + thread * strip_floats();
      const Range r = share(items, thread, team);
      for (Index item = r.begin; item < r.end; ++item) {
        run_strip(args, item / strips_, item % strips_, strip);
      }
    });
  }

 private:
  Index strip_rows(Index rows) const { return (rows - 1) * s_.sh + s_.span_h(); }
  Index strip_floats() const { return s_.c * strip_rows(strip_) * pitch_; }
  Index blocks() const { return (stored_ + block_ - 1) / block_; }
  /// Packed channels of block b: the last one may need one register only.
  Index width(Index b) const {
    return by_channels_ && stored_ - b * block_ <= lanes_ ? lanes_ : block_;
  }

  void pack(const Weights& weights) {
    const auto taps = static_cast<Index>(offsets_.size());
    const Index head = by_channels_ ? 3 : 1;  // bias, lo, hi or only bias
    packed_block_ = (head + taps) * block_;
    packed_ = Buffer::zeros(static_cast<std::size_t>(blocks() * packed_block_));
    for (Index m = 0; m < s_.m; ++m) {
      const Index step = width(m / block_);
      float* p = packed_.data() + m / block_ * packed_block_ + m % block_;
      p[0] = weights.bias != nullptr ? weights.bias[m] : 0.0F;
      if (by_channels_) {
        p[step] = epilogue_.lo;
        p[2 * step] = epilogue_.hi;
      }
      for (Index t = 0; t < taps; ++t) p[(head + t) * step] = weights.filter[m * taps + t];
    }
    if (!by_channels_) return;
    for (Index m = 0; m < blocks() * block_; m += piece_) {
      places_.push_back(out_.at(0, m, 0, 0));
      added_places_.push_back(added_.at(0, m, 0, 0));
    }
  }

  void run_strip(const RunArgs& args, Index n, Index index, float* strip) const {
    const auto& k = kernels::active();
    const Index y = index * strip_, rows = std::min(strip_, s_.oh - y);
    for (Index c = 0; c < s_.c; ++c) {
      kernels::DepthwisePad pad;
      pad.in = args.in + in_.at(n, c, 0, 0);
      pad.in_row = in_.h_stride;
      pad.h = s_.h, pad.w = s_.w;
      pad.first = y * s_.sh - s_.pt;
      pad.rows = strip_rows(rows);
      pad.pl = s_.pl, pad.sw = s_.sw;
      pad.phase = phase_;
      pad.out = strip + c * strip_rows(strip_) * pitch_;
      k.depthwise->pad(pad);
    }
    for (Index b = 0; b < blocks(); ++b) {
      for (Index row = 0; row < rows; ++row)
        run_row(args, n, y + row, b, strip + row * s_.sh * pitch_);
    }
  }

  void run_row(const RunArgs& args, Index n, Index y, Index b, const float* in) const {
    const auto& k = *kernels::active().first_layer;
    const Index m = b * block_;
    kernels::FirstRow a;
    a.in = in;
    a.taps = static_cast<Index>(offsets_.size());
    a.offsets = offsets_.data();
    a.ow = s_.ow;
    a.packed = packed_.data() + b * packed_block_;
    if (by_channels_) {
      a.vectors = width(b) / lanes_;
      a.lanes = std::min(block_, stored_ - m);
      a.piece = piece_;
      a.out = args.out + n * out_.n_stride + y * out_.h_stride;
      a.out_col = out_.w_stride;
      a.places = places_.data() + m / piece_;
      a.residual =
          epilogue_.residual ? args.residual + n * added_.n_stride + y * added_.h_stride : nullptr;
      a.residual_col = added_.w_stride;
      a.residual_places = added_places_.data() + m / piece_;
      k.by_channels(a);
    } else {
      a.channels = std::min(block_, s_.m - m);
      a.out = args.out + out_.at(n, m, y, 0);
      a.out_channel = out_.c_stride;
      a.residual = epilogue_.residual ? args.residual + added_.at(n, m, y, 0) : nullptr;
      a.residual_channel = added_.c_stride;
      a.lo = epilogue_.lo, a.hi = epilogue_.hi;
      k.by_columns(a);
    }
  }

  Scenario s_;
  int threads_;
  Epilogue epilogue_;
  Strides in_, out_, added_;
  bool by_channels_;
  Index stored_;                         // output channels, padding lanes included
  Index phase_ = 0, pitch_ = 0;          // floats of a strip row's phase, of a strip row
  Index strip_ = 0, strips_ = 0;         // output rows in a strip, strips in an image
  Index lanes_ = 0;                      // of a register
  Index block_ = 0;                      // output channels in a block
  Index piece_ = 0;                      // output channels of a register that lie together
  Index packed_block_ = 0;               // packed floats of a block
  std::vector<std::ptrdiff_t> offsets_;  // of the taps in a strip
  std::vector<std::ptrdiff_t> places_, added_places_;  // of the pieces in output and residual
  Buffer packed_;
};

const char* reject(const Primitive&, const Scenario& s) {
  if (s.g != 1) return "needs a single group";
  if (s.c > kMostChannels) return "made for at most 4 input channels";
  return nullptr;
}

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<FirstLayer>(row.out, s, weights, options);
}

constexpr Primitive kRows[] = {
    {"direct-first-chw-hwc", Family::direct, Layout::chw, Layout::hwc, reject, prepare},
    {"direct-first-chw-chw16c", Family::direct, Layout::chw, Layout::chw16c, reject, prepare},
    {"direct-first-chw-chw8c", Family::direct, Layout::chw, Layout::chw8c, reject, prepare},
    {"direct-first-chw", Family::direct, Layout::chw, Layout::chw, reject, prepare},
    {"direct-first-chw-hcw", Family::direct, Layout::chw, Layout::hcw, reject, prepare},
};

}  // namespace

std::span<const Primitive> first_layer_rows() { return kRows; }

}  // namespace convprim
