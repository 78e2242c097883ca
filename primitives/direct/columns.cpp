// direct-cols-*: direct convolution with vectors along the output row, between layouts whose rows
// are contiguous (chw, hcw).
//
//   for each band of output rows (input rows copied, zeros at their ends)
//     for each tile of M output channels, output row y, tile of Q vectors of columns
//       for each input channel c, tap (i, j)
//         sums[k][x] += rows[c][y*sh - pt + i*dh][x*sw - pl + j*dw] * weights[k][c][i][j]
//
// The copy of the rows costs 1/M of the multiply-adds; at strides above 1 it sorts the columns by
// their remainder, so that the tap at column x*sw + r is a whole vector again. A band is as many
// rows as fit in half of the L2 cache, so that weights are read once for a band. This is the loop
// order mchw of the textbook, tiled; Zhang et al., arXiv 1809.10170, on the order of its loops.
#include <algorithm>
#include <vector>

#include "buffer.hpp"
#include "convprim/cpu.hpp"
#include "kernels/kernels.hpp"
#include "primitives/registry.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

class Columns final : public Convolution {
 public:
  Columns(const Scenario& s, const Weights& weights, const Options& options, Layout in, Layout out)
      : s_(s),
        threads_(options.threads),
        epilogue_(options.epilogue),
        in_(strides(in, s.in())),
        out_(strides(out, s.out(), options.slice)),
        residual_(strides(out, s.out())),
        direct_(*kernels::active().direct) {
    plan_tiles();
    pack(weights);
    plan_rows(options.threads);
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(jobs_ * job_floats_) * sizeof(float);
  }
  std::size_t packed_bytes() const override { return weights_.bytes() + bias_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    parallel(team_of(threads_, jobs_), [&](int thread, int team) {
      for (Index job = thread; job < jobs_; job += team) run_share(args, job);
    });
  }

 private:
  /// Adjacent output channels of one group.
  struct Tile {
    Index first, count;
    Index c_begin;
    std::size_t weights;
  };

  void plan_tiles() {
    const Index lanes = direct_.lanes, vectors = ceil_div(s_.ow, lanes);
    Index most = kernels::kMaxColumnVectors;
    while (direct_.max_channels[most - 1] == 0) --most;
    pieces_ = ceil_div(vectors, most);
    const Index widest = ceil_div(vectors, pieces_);
    const Index channels = direct_.max_channels[widest - 1];
    const Index tiles = ceil_div(s_.mg(), channels);
    std::size_t at = 0;
    for (Index g = 0; g < s_.g; ++g) {
      for (Index i = 0; i < tiles; ++i) {
        const Range r = share(s_.mg(), static_cast<int>(i), static_cast<int>(tiles));
        tiles_.push_back({g * s_.mg() + r.begin, r.end - r.begin, g * s_.cg(), at});
        at += static_cast<std::size_t>((r.end - r.begin) * s_.cg() * s_.kh * s_.kw);
      }
    }
    weights_ = Buffer(at);
  }

  void pack(const Weights& weights) {
    bias_ = Buffer::zeros(static_cast<std::size_t>(s_.m));
    if (weights.bias != nullptr) std::copy_n(weights.bias, s_.m, bias_.data());
    const Index terms = s_.cg() * s_.kh * s_.kw;
    for (const Tile& tile : tiles_) {
      float* packed = weights_.data() + tile.weights;
      for (Index k = 0; k < tile.count; ++k) {
        const float* from = weights.filter + (tile.first + k) * terms;
        for (Index t = 0; t < terms; ++t) packed[t * tile.count + k] = from[t];
      }
    }
  }

  void plan_rows(int threads) {
    const Index lanes = direct_.lanes;
    // Columns of one remainder, as far as the last vector of the last tap reads.
    phase_ = ceil_div(ceil_div(s_.ow, lanes) * lanes + (s_.span_w() - 1) / s_.sw + 1, 16) * 16;
    phases_ = std::min(s_.sw, s_.span_w());
    row_ = s_.c * phases_ * phase_;
    const Index floats = static_cast<Index>(cache_bytes(2) / 2 / sizeof(float));
    const Index spare = std::max<Index>(0, floats / row_ - s_.span_h());
    band_ = std::min(s_.oh, 1 + spare / s_.sh);
    slots_ = std::min((band_ - 1) * s_.sh + s_.span_h(), s_.h);
    job_floats_ = slots_ * row_ + ceil_div(s_.kh * s_.kw, 16) * 16;  // rows, offsets of the taps
    // Rows are shared where there are enough of them, else output channels.
    const Index all_rows = s_.n * s_.oh, tiles = static_cast<Index>(tiles_.size());
    by_rows_ = all_rows >= 4 * threads || all_rows % threads == 0 || tiles < threads;
    jobs_ = std::min<Index>(threads, by_rows_ ? all_rows : tiles);
    if (by_rows_) band_ = std::min(band_, ceil_div(all_rows, jobs_));
  }

  void run_share(const RunArgs& args, Index job) const {
    const int part = static_cast<int>(job), parts = static_cast<int>(jobs_);
    const Range rows = by_rows_ ? share(s_.n * s_.oh, part, parts) : Range{0, s_.n * s_.oh};
    const Range tiles = by_rows_ ? Range{0, static_cast<Index>(tiles_.size())}
                                 : share(static_cast<Index>(tiles_.size()), part, parts);
    float* buffer = static_cast<float*>(args.workspace) + job * job_floats_;
    auto* offsets = static_cast<std::int32_t*>(static_cast<void*>(buffer + slots_ * row_));
    for (Index begin = rows.begin; begin < rows.end;) {
      const Index n = begin / s_.oh, y = begin % s_.oh;
      const Index end = std::min({y + band_, s_.oh, y + rows.end - begin});
      const Index first = std::max<Index>(0, y * s_.sh - s_.pt);
      const Index last = std::min(s_.h, (end - 1) * s_.sh - s_.pt + s_.span_h());
      for (Index r = first; r < last; ++r)
        copy_row(args.in + n * in_.n_stride, r, buffer + (r - first) * row_);
      for (Index t = tiles.begin; t < tiles.end; ++t) {
        for (Index row = y; row < end; ++row) {
          run_row(args, tiles_[static_cast<std::size_t>(t)], n, row, first, buffer, offsets);
        }
      }
      begin += end - y;
    }
  }

  /// All channels of input row r, with the padding, columns sorted by their remainder.
  void copy_row(const float* image, Index r, float* to) const {
    for (Index c = 0; c < s_.c; ++c) {
      const float* from = image + c * in_.c_stride + r * in_.h_stride;
      for (Index phase = 0; phase < phases_; ++phase, to += phase_) {
        // to[i] is column i*sw + phase - pl.
        const Index begin =
            std::clamp<Index>(ceil_div(std::max<Index>(0, s_.pl - phase), s_.sw), 0, phase_);
        const Index end = std::clamp<Index>(ceil_div(s_.w + s_.pl - phase, s_.sw), begin, phase_);
        std::fill(to, to + begin, 0.0F);
        const float* column = from + begin * s_.sw + phase - s_.pl;
        if (s_.sw == 1) {
          std::copy(column, column + (end - begin), to + begin);
        } else {
          for (Index i = begin; i < end; ++i) to[i] = column[(i - begin) * s_.sw];
        }
        std::fill(to + end, to + phase_, 0.0F);
      }
    }
  }

  void run_row(const RunArgs& args, const Tile& tile, Index n, Index y, Index first_row,
               const float* buffer, std::int32_t* offsets) const {
    const Index top = y * s_.sh - s_.pt;
    Index low = 0, high = s_.kh;
    while (low < s_.kh && top + low * s_.dh < 0) ++low;
    while (high > low && top + (high - 1) * s_.dh >= s_.h) --high;
    kernels::ColumnsTile t;
    t.channels = s_.cg();
    t.channel_stride = phases_ * phase_;
    t.weights_stride = s_.kh * s_.kw * tile.count;
    t.bias = bias_.data() + tile.first;
    t.lo = epilogue_.lo;
    t.hi = epilogue_.hi;
    t.out_stride = out_.c_stride;
    t.residual_stride = residual_.c_stride;
    t.offsets = offsets;
    const Index vectors = ceil_div(s_.ow, direct_.lanes);
    t.taps = 0;
    for (Index i = low; i < high; ++i) {
      for (Index j = 0; j < s_.kw; ++j) {
        const Index column = j * s_.dw;
        offsets[t.taps++] = static_cast<std::int32_t>((top + i * s_.dh - first_row) * row_ +
                                                      column % s_.sw * phase_ + column / s_.sw);
      }
    }
    t.weights = weights_.data() + tile.weights + low * s_.kw * tile.count;
    for (Index piece = 0; piece < pieces_; ++piece) {
      const Range v = share(vectors, static_cast<int>(piece), static_cast<int>(pieces_));
      const Index x = v.begin * direct_.lanes;
      t.in = buffer + tile.c_begin * t.channel_stride + x;
      t.columns = std::min(s_.ow, v.end * direct_.lanes) - x;
      t.out = args.out + out_.at(n, tile.first, y, x);
      t.residual =
          args.residual != nullptr ? args.residual + residual_.at(n, tile.first, y, x) : nullptr;
      direct_.columns[v.end - v.begin - 1][tile.count - 1](t);
    }
  }

  Scenario s_;
  int threads_;
  Epilogue epilogue_;
  Strides in_, out_, residual_;
  const kernels::DirectKernels& direct_;
  std::vector<Tile> tiles_;
  Buffer weights_, bias_;
  Index pieces_ = 1;  // column tiles of a row
  Index phase_ = 0, phases_ = 1,
        row_ = 0;               // floats of a channel's remainder; remainders; floats of a row
  Index band_ = 1, slots_ = 1;  // output rows at a time, input rows that they need
  Index job_floats_ = 0, jobs_ = 1;
  bool by_rows_ = true;
};

const char* reject(const Primitive&, const Scenario& s) {
  const double row = static_cast<double>(s.c) * static_cast<double>(s.w + s.ow + s.span_w() + 64) *
                     static_cast<double>(s.sw);
  if (row * static_cast<double>(s.span_h()) >= 0x1p31) return "rows of 2^31 floats or more";
  return nullptr;
}

std::unique_ptr<Convolution> prepare(const Primitive& p, const Scenario& s, const Weights& weights,
                                     const Options& options) {
  return std::make_unique<Columns>(s, weights, options, p.in, p.out);
}

constexpr Primitive row(std::string_view name, Layout in, Layout out) {
  return {name, Family::direct, in, out, reject, prepare};
}

constexpr Primitive kRows[] = {
    row("direct-cols-chw", Layout::chw, Layout::chw),
    row("direct-cols-hcw", Layout::hcw, Layout::hcw),
    row("direct-cols-chw-hcw", Layout::chw, Layout::hcw),
    row("direct-cols-hcw-chw", Layout::hcw, Layout::chw),
};

}  // namespace

std::span<const Primitive> direct_columns_rows() { return kRows; }

}  // namespace convprim
