// Convolution by register tiles over packed weights.
//
//   for each group of tiles that fits a cache
//     for each panel of output channels
//       for each tile (P pixels) of the group: the kernel of gemm.hpp
//         for each block of input channels, tap, channel: P x V vectors of sums
//
// Output channels are cut into panels of V vectors; panel weights lie in the order in which the
// kernel reads them. Pixels outside the image read a run of zeros, so that edges need no branch;
// taps that are outside for a whole tile are skipped. Panels do not cross groups where m/g is a
// multiple of the vector; elsewhere a panel reads the channels of all its groups, with zero weights
// for those of the others.
//
// Which operand is streamed: a group of tiles reads all of a thread's weights. If these stay in the
// L2 cache, groups are small, so that their input stays in L1; if not, a group's input fills half
// of L2, so that weights come from further away as seldom as possible. Threads share pixels or
// panels, whichever balances better and reads less.
#include "primitives/direct/tiled.hpp"

#include <algorithm>
#include <vector>

#include "buffer.hpp"
#include "convprim/cpu.hpp"
#include "kernels/kernels.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

using kernels::GemmPanel;
using kernels::GemmTile;

constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

/// Floats of zeros that edge tiles read, except where one block alone needs more.
constexpr Index kMaxZeros = 16384;

/// Cycles for a byte that another core's cache holds; 0.25 to 0.6 do as well.
constexpr double kCrossing = 0.4;

/// Flat tiles keep an offset for each pixel and tap; beyond this many they are not worth it.
constexpr Index kMaxFlatOffsets = 32768;

class Tiled final : public Convolution {
 public:
  Tiled(const Scenario& s, const Weights& weights, const Options& options, Layout in, Layout out,
        const Tiling& tiling)
      : s_(s), threads_(options.threads), in_(strides(in, s.in())), gemm_(*kernels::active().gemm) {
    plan_channels(in, tiling);
    plan_panels(options, out);
    pack(weights);
    plan_tiles(tiling);
    plan_sums();
    zeros_ = Buffer::zeros(static_cast<std::size_t>(reach_));
    plan_schedule();
  }

  std::size_t workspace_bytes() const override { return 0; }
  std::size_t packed_bytes() const override {
    return weights_.bytes() + bias_.bytes() + zeros_.bytes() +
           offsets_.size() * sizeof(std::int32_t);
  }

  void run(const RunArgs& args) const noexcept override {
    const int planned = static_cast<int>(pixel_shares_ * panel_shares_);
    parallel(planned, [&](int thread, int team) {
      for (int job = thread; job < planned; job += team) run_share(args, job);
    });
  }

 private:
  /// Output channels of one panel; `first` counts stored channels.
  struct Panel {
    GemmPanel args;
    Index first;
    int vectors;
    Index kind = 0;             // among panels that read different numbers of channels
    Index c_begin, channels;    // input channels that it reads
    std::size_t weights, bias;  // offsets
  };
  /// A tile's columns (rows mode) or pixels (flat mode).
  struct Column {
    Index out_pixel;
    std::size_t offsets;
    Range kernel_rows;  // that are inside the image for any pixel (all, in rows mode)
    int pixels;
    bool inside;  // all taps of all pixels that are not in rows above or below the image
    bool even;    // and the pixels are equally far apart
  };
  /// An output row (rows mode).
  struct Row {
    Index out_pixel, in_offset;
    Range kernel_rows;
    Index kind = 0;  // among rows with different kernel rows
  };
  /// The order of the sum for tiles that use some of the kernel's rows, and panels that read a
  /// number of channels.
  struct Sum {
    Range kernel_rows;
    bool inside;
    Index channels;
    std::vector<kernels::GemmRun> runs;
    std::vector<kernels::GemmGroup> groups;
  };

  void plan_channels(Layout in, const Tiling& tiling) {
    c_align_ = block(in);
    if (c_align_ > 1) {
      c_block_ = c_align_;
      step_ = 1;
    } else if (in == Layout::hwc) {
      c_block_ = tiling.channel_block > 0 ? std::min(tiling.channel_block, s_.c) : s_.c;
      step_ = 1;
    } else {
      c_block_ = std::min<Index>(tiling.channel_block > 0 ? tiling.channel_block : 16, s_.c);
      step_ = in_.c_stride;
    }
    block_stride_ = c_align_ > 1 ? in_.c_stride : c_block_ * step_;
    // Edge tiles find the addresses of their pixels anew for each tap of each chunk: chunks have 64
    // channels unless that makes the zeros, which reach as far as a chunk, too many.
    const Index most = kMaxZeros / std::max<Index>(block_stride_, 1) + 1;
    if (c_align_ > 1) chunk_ = std::min(ceil_div(64, c_block_), most);
  }

  /// Cuts [first, first + vectors) vectors of output channels into panels.
  void plan_panels(const Options& options, Layout out) {
    const Index lanes = gemm_.lanes, stored = stored_channels(out, s_.m);
    const Strides to = strides(out, s_.out(), options.slice), added = strides(out, s_.out());
    const bool by_group = s_.g > 1 && s_.mg() % lanes == 0;
    const Index unit = by_group ? s_.mg() : stored;
    const Index vectors = ceil_div(unit, lanes);
    const Index pixels = s_.oh * s_.ow;
    // Two vectors a tile balance loads and multiply-adds best; an odd count ends in three. With few
    // pixels more vectors make up for them.
    Index usual = 2;
    if (pixels <= gemm_.max_pixels[3]) usual = 4;
    if (vectors == 3) usual = 3;
    usual_ = std::min(usual, vectors);
    max_pixels_ = gemm_.max_pixels[usual_ - 1];
    out_base_ = to.base;
    out_image_ = to.n_stride;
    out_pixel_ = to.w_stride;
    residual_image_ = added.n_stride;
    residual_pixel_ = added.w_stride;
    row_gap_ = to.h_stride - s_.ow * to.w_stride;
    residual_row_gap_ = added.h_stride - s_.ow * added.w_stride;
    for (Index first = 0; first < stored; first += unit) {
      for (Index v = 0; v < vectors;) {
        const Index left = vectors - v;
        Index take = std::min(usual, left);
        if (left == 3 && gemm_.max_pixels[2] > 0) take = 3;
        add_panel(options, out, to, added, first + v * lanes, static_cast<int>(take),
                  std::min(stored, first + unit));
        v += take;
      }
    }
  }

  void add_panel(const Options& options, Layout out, const Strides& to, const Strides& added,
                 Index first, int vectors, Index limit) {
    const Index lanes = gemm_.lanes, width = vectors * lanes;
    Panel p{};
    p.first = first;
    p.vectors = vectors;
    GemmPanel& a = p.args;
    a.valid = std::max<Index>(0, std::min(first + width, s_.m) - first);
    a.stored = std::min(first + width, limit) - first;
    a.valid = std::min(a.valid, a.stored);
    a.lo = options.epilogue.lo;
    a.hi = options.epilogue.hi;
    // The kernel sees hwc as one block of all channels.
    const bool contiguous = out == Layout::hwc;
    a.block = contiguous ? stored_channels(out, s_.m) : block(out);
    a.lane = first % a.block;
    a.store = GemmPanel::Store::parts;
    if (a.valid == width && a.block % lanes == 0) a.store = GemmPanel::Store::whole;
    if (a.valid == width && contiguous) a.store = GemmPanel::Store::whole;
    if (a.valid == width && a.block == 8 && lanes == 16) a.store = GemmPanel::Store::halves;
    const auto target = [&](GemmPanel::Target& t, const Strides& s) {
      t.block_stride = s.c_stride;
      t.pixel_stride = s.w_stride;
      t.offset = first / a.block * s.c_stride;
      const Index piece = a.store == GemmPanel::Store::halves ? lanes / 2 : lanes;
      for (Index v = 0; v < width / piece; ++v) {
        const Index c = a.lane + v * piece;
        t.vectors[v] = t.offset + c / a.block * s.c_stride + c % a.block;
      }
    };
    target(a.out, to);
    target(a.residual, added);
    const Index group = first / s_.mg(), last = (first + std::max<Index>(a.valid, 1) - 1) / s_.mg();
    // A panel of padding lanes alone reads nothing.
    p.c_begin = a.valid > 0 ? group * s_.cg() / c_align_ * c_align_ : 0;
    p.channels = a.valid > 0 ? (last + 1) * s_.cg() - p.c_begin : 0;
    a.step = step_;
    a.in_offset = c_align_ > 1 ? p.c_begin / c_align_ * in_.c_stride : p.c_begin * step_;
    p.weights = weight_floats_;
    p.bias = bias_floats_;
    weight_floats_ += static_cast<std::size_t>(p.channels * s_.kh * s_.kw * width);
    bias_floats_ += static_cast<std::size_t>(width);
    panels_.push_back(p);
  }

  void pack(const Weights& weights) {
    weights_ = Buffer::zeros(weight_floats_);
    bias_ = Buffer::zeros(bias_floats_);
    const Index taps = s_.kh * s_.kw;
    for (Panel& p : panels_) {
      GemmPanel& a = p.args;
      float* packed = weights_.data() + p.weights;
      float* bias = bias_.data() + p.bias;
      a.weights = packed;
      a.bias = bias;
      const Index width = p.vectors * gemm_.lanes;
      for (Index lane = 0; lane < a.valid; ++lane) {
        const Index k = p.first + lane;
        if (weights.bias != nullptr) bias[lane] = weights.bias[k];
        const Index shift =
            k / s_.mg() * s_.cg() - p.c_begin;  // of its group in the panel's channels
        for (Index c = 0; c < s_.cg(); ++c) {
          const float* from = weights.filter + (k * s_.cg() + c) * taps;
          for (Index t = 0; t < taps; ++t)
            packed[term(p.channels, t, shift + c) * width + lane] = from[t];
        }
      }
    }
  }

  /// Row of the packed weights of channel c out of `channels` and a tap: chunks of channels are
  /// outermost, taps next.
  Index term(Index channels, Index tap, Index c) const {
    const Index chunk = c_block_ * chunk_, first = c / chunk * chunk;
    return first * s_.kh * s_.kw + tap * std::min(chunk, channels - first) + c - first;
  }

  /// First tap index whose input position is inside [0, extent), and one past the last such.
  static Range taps_inside(Index first, Index dilation, Index count, Index extent) {
    Index low = 0, high = count;
    while (low < count && first + low * dilation < 0) ++low;
    while (high > low && first + (high - 1) * dilation >= extent) --high;
    return {low, high};
  }

  void plan_tiles(const Tiling& tiling) {
    const Index taps = s_.kh * s_.kw, pixels = s_.oh * s_.ow;
    const bool flat = tiling.tiles == Tiling::Tiles::flat && row_gap_ == 0 &&
                      residual_row_gap_ == 0 && pixels * taps <= kMaxFlatOffsets;
    const Index line = flat ? pixels : s_.ow;
    if (widen(flat, line)) max_pixels_ = gemm_.max_even[usual_ - 1];
    const Index count = ceil_div(line, max_pixels_);
    for (Index i = 0; i < count; ++i) {
      const Range r = share(line, static_cast<int>(i), static_cast<int>(count));
      columns_.push_back(flat ? flat_tile(r.begin, r.end) : row_tile(r.begin, r.end));
    }
    if (flat) {
      rows_.push_back({0, 0, {0, s_.kh}, 0});
      return;
    }
    for (Index y = 0; y < s_.oh; ++y) {
      const Index top = y * s_.sh - s_.pt;
      const Range i = taps_inside(top, s_.dh, s_.kh, s_.h);
      const bool any = i.begin < i.end;
      rows_.push_back({y * s_.ow, any ? (top + i.begin * s_.dh) * in_.h_stride : 0, i, 0});
    }
  }

  /// Whether tiles as wide as even ones can be are fewer, those that are not even being run in
  /// parts.
  bool widen(bool flat, Index line) const {
    const Index narrow = max_pixels_, wide = gemm_.max_even[usual_ - 1];
    if (wide <= narrow) return false;
    // Pixels a whole way of the L1 cache apart would push each other out of it.
    if (step_ == 1 && s_.sw * in_.w_stride * 4 % 4096 == 0) return false;
    const Index count = ceil_div(line, wide);
    Index parts = 0;
    for (Index i = 0; i < count; ++i) {
      const Range r = share(line, static_cast<int>(i), static_cast<int>(count));
      const bool one = flat ? even_pixels(r) : inside_columns(r);
      parts += one ? 1 : ceil_div(r.end - r.begin, narrow);
    }
    return parts < ceil_div(line, narrow);
  }

  bool inside_columns(Range r) const {
    return r.begin * s_.sw >= s_.pl && (r.end - 1) * s_.sw - s_.pl + (s_.kw - 1) * s_.dw < s_.w;
  }

  /// True if all taps of these pixels of the flat image lie inside, and the pixels equally far
  /// apart.
  bool even_pixels(Range r) const {
    const auto inside = [](Index first, Index span, Index extent) {
      return first >= 0 && first + span <= extent;
    };
    const auto place = [&](Index p) {
      return p / s_.ow * s_.sh * in_.h_stride + p % s_.ow * s_.sw * in_.w_stride;
    };
    for (Index p = r.begin; p < r.end; ++p) {
      if (!inside(p / s_.ow * s_.sh - s_.pt, s_.span_h(), s_.h) ||
          !inside(p % s_.ow * s_.sw - s_.pl, s_.span_w(), s_.w) ||
          (p > r.begin && place(p) - place(p - 1) != s_.sw * in_.w_stride)) {
        return false;
      }
    }
    return true;
  }

  Column row_tile(Index begin, Index end) {
    const bool even = inside_columns({begin, end});
    Column tile{begin, offsets_.size(), {0, s_.kh}, static_cast<int>(end - begin), true, even};
    for (Index i = 0; i < s_.kh; ++i) {
      for (Index j = 0; j < s_.kw; ++j) {
        for (Index x = begin; x < end; ++x) {
          const Index column = x * s_.sw - s_.pl + j * s_.dw;
          const bool inside = column >= 0 && column < s_.w;
          tile.inside = tile.inside && inside;
          add_offset(inside ? i * s_.dh * in_.h_stride + column * in_.w_stride : -1);
        }
        pad_offsets(end - begin);
      }
    }
    return tile;
  }

  Column flat_tile(Index begin, Index end) {
    Range rows{s_.kh, 0};  // kernel rows that any pixel needs
    for (Index p = begin; p < end; ++p) {
      const Range own = taps_inside(p / s_.ow * s_.sh - s_.pt, s_.dh, s_.kh, s_.h);
      if (own.begin >= own.end) continue;
      rows = {std::min(rows.begin, own.begin), std::max(rows.end, own.end)};
    }
    if (rows.begin >= rows.end) rows = {0, 0};
    const bool even = even_pixels({begin, end});
    Column tile{begin, offsets_.size(), rows, static_cast<int>(end - begin), true, even};
    for (Index i = rows.begin; i < rows.end; ++i) {
      for (Index j = 0; j < s_.kw; ++j) {
        for (Index p = begin; p < end; ++p) {
          const Index row = p / s_.ow * s_.sh - s_.pt + i * s_.dh;
          const Index column = p % s_.ow * s_.sw - s_.pl + j * s_.dw;
          const bool inside = row >= 0 && row < s_.h && column >= 0 && column < s_.w;
          tile.inside = tile.inside && inside;
          add_offset(inside ? row * in_.h_stride + column * in_.w_stride : -1);
        }
        pad_offsets(end - begin);
      }
    }
    return tile;
  }

  void add_offset(Index offset) { offsets_.push_back(static_cast<std::int32_t>(offset)); }
  /// Every tap has max_pixels_ offsets, so that tiles of all sizes share the orders of the sum.
  void pad_offsets(Index pixels) { offsets_.insert(offsets_.end(), max_pixels_ - pixels, -1); }

  static Range common(Range a, Range b) {
    return {std::max(a.begin, b.begin),
            std::max(std::max(a.begin, b.begin), std::min(a.end, b.end))};
  }

  /// A sum for each kind of row, column and kind of panel.
  void plan_sums() {
    std::vector<Index> depths;  // of the kinds of panels
    for (Panel& panel : panels_) {
      panel.kind = std::find(depths.begin(), depths.end(), panel.channels) - depths.begin();
      if (panel.kind == static_cast<Index>(depths.size())) depths.push_back(panel.channels);
    }
    panel_kinds_ = static_cast<Index>(depths.size());
    std::vector<Range> kinds;
    for (Row& row : rows_) {
      const auto same = [&](Range r) {
        return r.begin == row.kernel_rows.begin && r.end == row.kernel_rows.end;
      };
      row.kind = std::find_if(kinds.begin(), kinds.end(), same) - kinds.begin();
      if (row.kind < static_cast<Index>(kinds.size())) continue;
      kinds.push_back(row.kernel_rows);
      for (const Column& column : columns_) {
        const Range rows = common(row.kernel_rows, column.kernel_rows);
        for (Index channels : depths) {
          const Sum* sum = find_sum(rows, column.inside, channels);
          if (sum == nullptr) {
            sums_.push_back(make_sum(rows, column.inside, channels));
            sum = sums_.back().get();
          }
          sum_of_.push_back(sum);
        }
      }
    }
  }

  const Sum* find_sum(Range rows, bool inside, Index channels) const {
    for (const auto& sum : sums_) {
      if (sum->kernel_rows.begin == rows.begin && sum->kernel_rows.end == rows.end &&
          sum->inside == inside && sum->channels == channels) {
        return sum.get();
      }
    }
    return nullptr;
  }

  std::unique_ptr<Sum> make_sum(Range rows, bool inside, Index channels) {
    auto sum = std::make_unique<Sum>();
    sum->kernel_rows = rows;
    sum->inside = inside;
    sum->channels = channels;
    std::vector<std::size_t> starts;  // of the groups' runs
    const auto add_group = [&](Index shift, Index row) {
      starts.push_back(sum->runs.size());
      sum->groups.push_back({nullptr, 0, shift, row});
    };
    if (inside && rows.begin < rows.end) add_group(0, 0);
    for (Index first = 0; first < channels; first += c_block_ * chunk_) {
      const Index end = std::min(first + c_block_ * chunk_, channels);
      for (Index i = rows.begin; i < rows.end; ++i) {
        for (Index j = 0; j < s_.kw; ++j) {
          const Index tap = i * s_.kw + j, row = (i - rows.begin) * s_.kw + j;
          Index base = (i - rows.begin) * s_.dh * in_.h_stride + j * s_.dw * in_.w_stride +
                       first / c_block_ * block_stride_;
          if (!inside) {
            add_group(first / c_block_ * block_stride_, row * max_pixels_);
            base = 0;
            reach_ = std::max(reach_, (ceil_div(end - first, c_block_) - 1) * block_stride_ +
                                          (c_block_ - 1) * step_ + 1);
          }
          for (Index c = first; c < end; c += c_block_) {
            add_run(sum->runs, starts.back(), base + (c - first) / c_block_ * block_stride_,
                    term(channels, tap, c), std::min(c_block_, end - c));
          }
        }
      }
    }
    for (std::size_t g = 0; g < starts.size(); ++g) {
      const std::size_t end = g + 1 < starts.size() ? starts[g + 1] : sum->runs.size();
      sum->groups[g].runs = sum->runs.data() + starts[g];
      sum->groups[g].run_count = static_cast<std::ptrdiff_t>(end - starts[g]);
    }
    return sum;
  }

  /// Appends a run, to the one before it where both go on without a gap.
  void add_run(std::vector<kernels::GemmRun>& runs, std::size_t start, Index at, Index first_term,
               Index terms) {
    const auto narrow = [](Index x) { return static_cast<std::int32_t>(x); };
    if (runs.size() > start) {
      kernels::GemmRun& last = runs.back();
      if (last.at + last.terms * step_ == at && last.first_term + last.terms == first_term) {
        last.terms += narrow(terms);
        return;
      }
    }
    runs.push_back({narrow(at), narrow(first_term), narrow(terms)});
  }

  void plan_schedule() {
    tiles_ = static_cast<Index>(rows_.size() * columns_.size());
    const Index all_tiles = s_.n * tiles_, all_panels = static_cast<Index>(panels_.size());
    const double weight_bytes = static_cast<double>(weights_.bytes());
    const double in_bytes = 4.0 * static_cast<double>(s_.in().count());
    const double macs = s_.macs() / threads_ / 32;  // cycles on a wide machine
    double best = 0;
    for (Index by_panel = 1; by_panel <= threads_; ++by_panel) {
      if (threads_ % by_panel != 0) continue;
      const Index by_pixel = threads_ / by_panel;
      const double compute = macs * static_cast<double>(ceil_div(all_tiles, by_pixel) * by_pixel) *
                             static_cast<double>(ceil_div(all_panels, by_panel) * by_panel) /
                             static_cast<double>(all_tiles * all_panels);
      const double traffic =
          weight_bytes / static_cast<double>(by_panel) + in_bytes / static_cast<double>(by_pixel);
      // Threads that share panels read pixels that lie in each other's caches.
      const double crossing = in_bytes * static_cast<double>(by_panel - 1) / threads_;
      const double cost = compute + traffic / 16 + crossing * kCrossing;
      if (by_panel == 1 || cost < best) {
        best = cost;
        panel_shares_ = by_panel;
        pixel_shares_ = by_pixel;
      }
    }
    const double l2 = static_cast<double>(cache_bytes(2)), l1 = static_cast<double>(cache_bytes(1));
    const double share_bytes = weight_bytes / static_cast<double>(panel_shares_);
    const double tile_bytes =
        std::max(4.0, in_bytes / static_cast<double>(s_.n) / static_cast<double>(tiles_));
    const double room = share_bytes <= l2 / 2 ? l1 / 2 : l2 / 2;
    group_ = std::max<Index>(1, static_cast<Index>(room / tile_bytes));
    weights_far_ = share_bytes > l2 / 2;
    // The input of 1x1 convolutions comes as fast as it is used: worth fetching ahead if it lies in
    // one piece.
    in_ahead_ = s_.kh == 1 && s_.kw == 1 && s_.unit_stride() && s_.pt == 0 && s_.pl == 0 &&
                s_.oh == s_.h && s_.ow == s_.w && step_ == 1 && in_bytes > l1;
  }

  void run_share(const RunArgs& args, Index job) const {
    const Range tiles = share(s_.n * tiles_, static_cast<int>(job / panel_shares_),
                              static_cast<int>(pixel_shares_));
    const Range panels =
        share(static_cast<Index>(panels_.size()), static_cast<int>(job % panel_shares_),
              static_cast<int>(panel_shares_));
    for (Index begin = tiles.begin; begin < tiles.end; begin += group_) {
      const Index end = std::min(begin + group_, tiles.end);
      const Place first = place(begin), next = place(end);
      for (Index p = panels.begin; p < panels.end; ++p) {
        const Panel& panel = panels_[static_cast<std::size_t>(p)];
        Place at = first;
        for (Index t = begin; t < end; ++t, advance(at)) {
          Ahead ahead = next_weights(panels, p, t - begin, end < tiles.end);
          if (in_ahead_ && !weights_far_ && end < tiles.end) {
            ahead = next_input(args, panel, next, (p - panels.begin) * (end - begin) + t - begin);
          }
          run_tile(args, panel, at, ahead);
        }
      }
    }
  }

  /// Where a tile is.
  struct Place {
    Index n, row, column;
  };
  Place place(Index tile) const {
    const auto columns = static_cast<Index>(columns_.size());
    return {tile / tiles_, tile % tiles_ / columns, tile % columns};
  }
  void advance(Place& at) const {
    if (++at.column < static_cast<Index>(columns_.size())) return;
    at.column = 0;
    if (++at.row < static_cast<Index>(rows_.size())) return;
    at.row = 0;
    ++at.n;
  }

  /// What a tile fetches for later ones.
  struct Ahead {
    const float* from;
    Index at, term;  // GemmTile::prefetch_at, prefetch_term
  };

  /// The part-th piece of the weights after panel p, if they come from beyond L2.
  Ahead next_weights(Range panels, Index p, Index part, bool more_groups) const {
    const Panel& panel = panels_[static_cast<std::size_t>(p)];
    const Index parts = panel.vectors * gemm_.lanes / kernels::kPrefetch;
    const Index next = p + 1 < panels.end ? p + 1 : panels.begin;
    if (!weights_far_ || part >= parts || (next == panels.begin && !more_groups)) {
      return {panel.args.weights, 0, 0};
    }
    const Index piece = panel.channels * s_.kh * s_.kw * kernels::kPrefetch;
    return {panels_[static_cast<std::size_t>(next)].args.weights + part * piece, 0,
            kernels::kPrefetch};
  }

  /// The part-th piece of the input of the group that starts with the tile at `at`.
  Ahead next_input(const RunArgs& args, const Panel& panel, const Place& at, Index part) const {
    const Row& row = rows_[static_cast<std::size_t>(at.row)];
    const Column& column = columns_[static_cast<std::size_t>(at.column)];
    const float* from = args.in + at.n * in_.n_stride + panel.args.in_offset +
                        (row.out_pixel + column.out_pixel) * in_.w_stride;
    // hwc: pixels lie one behind the other, and so do the pieces. Blocked: a piece of each block.
    const bool blocked = c_align_ > 1;
    const Index piece = (blocked ? c_align_ : panel.channels) * kernels::kPrefetch;
    const Index floats = group_ * max_pixels_ * (blocked ? c_align_ : s_.c);
    if (part * piece >= floats) return {panel.args.weights, 0, 0};
    if (blocked) return {from + part * piece, 1, 0};
    return {from + part * piece, 0, kernels::kPrefetch};
  }

  void run_tile(const RunArgs& args, const Panel& panel, const Place& at, Ahead ahead) const {
    const Row& row = rows_[static_cast<std::size_t>(at.row)];
    const Column& column = columns_[static_cast<std::size_t>(at.column)];
    const Index n = at.n, y = at.row, pixel = row.out_pixel + column.out_pixel;
    GemmTile tile;
    tile.in = args.in + n * in_.n_stride + row.in_offset;
    tile.zeros = zeros_.data();
    tile.prefetch = ahead.from;
    tile.prefetch_at = ahead.at;
    tile.prefetch_term = ahead.term;
    tile.offsets = offsets_.data() + column.offsets;
    tile.pixel_step = s_.sw * in_.w_stride;
    const auto columns = static_cast<Index>(columns_.size());
    const Sum& sum = *sum_of_[static_cast<std::size_t>(
        (row.kind * columns + at.column) * panel_kinds_ + panel.kind)];
    tile.groups = sum.groups.data();
    tile.group_count = static_cast<std::ptrdiff_t>(sum.groups.size());
    tile.out = args.out + out_base_ + n * out_image_ + pixel * out_pixel_ + y * row_gap_;
    tile.residual = args.residual == nullptr ? nullptr
                                             : args.residual + n * residual_image_ +
                                                   pixel * residual_pixel_ + y * residual_row_gap_;
    // A panel of more vectors than usual takes fewer pixels at a time.
    const int v = panel.vectors - 1;
    const bool even = column.even && gemm_.max_even[v] > 0;
    const int most = even ? gemm_.max_even[v] : gemm_.max_pixels[v];
    const auto& kernels = even ? gemm_.even[step_ == 1][v] : gemm_.tile[step_ == 1][v];
    if (column.pixels <= most) {
      kernels[column.pixels - 1](panel.args, tile);
      return;
    }
    const int parts = (column.pixels + most - 1) / most;
    for (int part = 0; part < parts; ++part) {
      const Range r = share(column.pixels, part, parts);
      GemmTile piece = tile;
      piece.offsets += r.begin;
      piece.out += r.begin * out_pixel_;
      if (piece.residual != nullptr) piece.residual += r.begin * residual_pixel_;
      kernels[r.end - r.begin - 1](panel.args, piece);
    }
  }

  Scenario s_;
  Index threads_;
  Strides in_;
  const kernels::GemmKernels& gemm_;
  // Input channels: alignment of a panel's first, block of the outermost loop, distance of
  // neighbours and of blocks.
  Index c_align_ = 1, c_block_ = 1, step_ = 1, block_stride_ = 0, chunk_ = 1, reach_ = 1;
  // Output: offset of the slice, distances of images and pixels; what is between the end of a row
  // and the next, if anything.
  Index out_base_ = 0, out_image_ = 0, out_pixel_ = 0, row_gap_ = 0;
  Index residual_image_ = 0, residual_pixel_ = 0, residual_row_gap_ = 0;
  std::vector<Panel> panels_;
  std::size_t weight_floats_ = 0, bias_floats_ = 0;
  Buffer weights_, bias_, zeros_;
  // Tiles of an image: rows x columns.
  Index usual_ = 1;  // vectors of a panel
  Index max_pixels_ = 1, tiles_ = 0;
  std::vector<Row> rows_;
  std::vector<Column> columns_;
  std::vector<std::int32_t> offsets_;
  std::vector<std::unique_ptr<Sum>> sums_;
  std::vector<const Sum*> sum_of_;  // [kind of row][column][kind of panel]
  Index panel_kinds_ = 1;
  Index pixel_shares_ = 1, panel_shares_ = 1, group_ = 1;
  bool weights_far_ = false, in_ahead_ = false;
};

}  // namespace

const char* tiled_reject(const Scenario& s, Layout in) {
  const Strides st = strides(in, s.in());
  // Offsets inside an image have 32 bits.
  if (static_cast<double>(st.n_stride) >= 0x1p31) return "an image of 2^31 floats or more";
  return nullptr;
}

std::unique_ptr<Convolution> make_tiled(const Scenario& s, const Weights& weights,
                                        const Options& options, Layout in, Layout out,
                                        const Tiling& tiling) {
  return std::make_unique<Tiled>(s, weights, options, in, out, tiling);
}

}  // namespace convprim
