// im2col and im2row: the patches of the image as a matrix, and one product with the kernel matrix.
//
//   patch[(c, i, j)][(y, x)] = in[c][y*sh - pt + i*dh][x*sw - pl + j*dw], zero outside the image
//   out = kernel * patch (ki: [channels][pixels]), or its transpose (ik: [pixels][channels])
//
// for each tile of output pixels:
//   for each group, for each chunk of the patch's depth:
//     write the tile of the patch matrix; multiply, adding to what the chunks before made
//   bias, residual and clamp on the tile
//
// Each thread has its tiles; where an image has too few pixels for that, the threads write each
// tile together and multiply it with their shares of the output channels.
//
// The patch matrix has kh*kw times the input's elements and is never made whole: a tile fits in the
// second-level cache, so that the product reads it from there. patches.hpp has the ways to write it
// and gemm.hpp those to pass it to sgemm; a row of the table below is one of each, and its layouts.
// Tiles in any other output layout than the product's own are staged.
// Source: Chellapilla, Puri and Simard (2006); the variants are those of Anderson and Gregg
// (CGO 2018).
#include "convprim/cpu.hpp"
#include "primitives/im2/gemm.hpp"
#include "primitives/im2/patches.hpp"
#include "primitives/registry.hpp"

namespace convprim {
namespace {

using namespace gemm;

enum class Style : std::uint8_t { scan, copy_self, copy_short, copy_long };

struct Im2 {
  Form form;
  Style style;
  bool by_row() const { return form.pixel_major(); }
  /// Block copies of im2row want the channels innermost.
  DepthOrder order() const {
    return by_row() && style != Style::scan ? DepthOrder::ijc : DepthOrder::cij;
  }
  auto writer() const {
    switch (style) {
      case Style::scan:
        return by_row() ? row_scan : col_scan;
      case Style::copy_self:
        return col_copy_self;
      case Style::copy_short:
        return by_row() ? row_copy_short : col_copy_short;
      case Style::copy_long:
        break;
    }
    return by_row() ? row_copy_long : col_copy_long;
  }
};

/// How the patch matrix of one image and group is cut.
struct Tiling {
  Index pixels, tiles;  // of the output image
  Index depth, chunks;  // of a patch
  bool shared;          // the threads work on the same tile, each on its share of the channels
};

/// Tiles of half the second-level cache, as wide as they can be for the product to be efficient,
/// and a multiple of the threads in number.
Tiling tiling(const Scenario& s, Index grain, int threads) {
  constexpr Index kWide = 1024, kWidest = 4096, kNarrow = 128, kFewChannels = 16;
  const auto budget = static_cast<Index>(cache_bytes(2) / 2 / sizeof(float));
  const Index all = s.oh * s.ow, depth = s.cg() * s.kh * s.kw;
  Tiling t{};
  Index wide = std::clamp(budget / depth, std::min(kWide, all), std::min(kWidest, all));
  wide = std::clamp<Index>(4 * budget / grain, 1, wide);  // a huge kernel's channel is not cut
  Index parts = ceil_div(threads, s.n);
  t.shared = parts > 1 && all / parts < kNarrow && s.mg() >= threads * kFewChannels;
  if (t.shared) parts = 1;
  t.pixels = ceil_div(all, std::min(all, ceil_div(ceil_div(all, wide), parts) * parts));
  t.tiles = ceil_div(all, t.pixels);
  const Index fits = std::max(grain, budget / t.pixels / grain * grain);
  t.depth = ceil_div(ceil_div(depth, ceil_div(depth, fits)), grain) * grain;
  t.chunks = ceil_div(depth, t.depth);
  return t;
}

class Im2Convolution final : public Convolution {
 public:
  Im2Convolution(const Primitive& row, const Scenario& s, const Weights& weights,
                 const Options& options)
      : s_(s),
        im2_(*static_cast<const Im2*>(row.params)),
        threads_(options.threads),
        depth_(s.cg() * s.kh * s.kw),
        grain_(im2_.order() == DepthOrder::cij ? s.kh * s.kw : 1),
        tiling_(tiling(s, grain_, options.threads)),
        in_(strides(row.in, s.in())),
        kernel_(pack_kernel(s, weights.filter,
                            kernel_strides(s, im2_.order(), im2_.form.depth_major()))),
        output_(s, row.out, im2_.form.ki, Output::Tiles::any, weights, options) {
    patch_floats_ = cache_lines(tiling_.pixels * tiling_.depth);
    tile_floats_ = output_.staged_floats(s.m, tiling_.pixels);
    const bool stages = im2_.style == Style::copy_long && !im2_.by_row();
    scratch_floats_ = stages ? cache_lines(copy_long_scratch(s, tiling_.pixels)) : 0;
  }

  std::size_t workspace_bytes() const override {
    const Index tiles = tiling_.shared ? 1 : threads_;
    const Index floats = tiles * (patch_floats_ + tile_floats_) + threads_ * scratch_floats_;
    return static_cast<std::size_t>(floats) * sizeof(float);
  }
  std::size_t packed_bytes() const override { return kernel_.bytes() + output_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    const Index items = s_.n * tiling_.tiles;
    parallel(threads_, [&](int thread, int team) {
      float* scratch = static_cast<float*>(args.workspace) + thread * scratch_floats_;
      float* tiles = static_cast<float*>(args.workspace) + threads_ * scratch_floats_;
      Worker worker{0, 1, tiles + thread * (patch_floats_ + tile_floats_), nullptr, scratch};
      if (tiling_.shared) worker = {thread, team, tiles, nullptr, scratch};
      worker.staged = worker.patch + patch_floats_;
      const Range mine = tiling_.shared ? Range{0, items} : share(items, thread, team);
      for (Index item = mine.begin; item < mine.end; ++item) {
        const Index first = item % tiling_.tiles * tiling_.pixels;
        const Range pixels{first, std::min(first + tiling_.pixels, s_.oh * s_.ow)};
        one_tile(args, item / tiling_.tiles, pixels, worker);
      }
    });
  }

 private:
  /// A thread's place among those that work on one tile, and their memory.
  struct Worker {
    int thread, team;
    float *patch, *staged, *scratch;
  };

  void one_tile(const RunArgs& args, Index n, Range pixels, const Worker& worker) const {
    const Index count = pixels.end - pixels.begin;
    const Form& form = im2_.form;
    const Tile tile = output_.tile(args, n, {0, s_.m}, pixels, worker.staged);
    const Range own = share(s_.mg(), worker.thread, worker.team, 16);
    for (Index g = 0; g < s_.g; ++g) {
      const float* image = args.in + in_.at(n, g * s_.cg(), 0, 0);
      for (Index r = 0; r < depth_; r += tiling_.depth) {
        const Index deep = std::min(tiling_.depth, depth_ - r);
        const Index patch_ld = form.pixel_major() ? deep : count;
        const Range part = share(deep, worker.thread, worker.team, grain_);
        if (part.begin < part.end) {
          float* patch = worker.patch + part.begin * (form.pixel_major() ? 1 : patch_ld);
          im2_.writer()({s_,
                         in_,
                         image,
                         {r + part.begin, r + part.end},
                         pixels,
                         patch,
                         patch_ld,
                         worker.scratch});
        }
        team_barrier(worker.team);
        if (own.begin < own.end) {
          multiply(form, deep, kernel(g, own.begin, r), {worker.patch, patch_ld},
                   r > 0 ? 1.0F : output_.beta(args),
                   tile.part({g * s_.mg() + own.begin, g * s_.mg() + own.end}, pixels));
        }
        team_barrier(worker.team);
      }
    }
    const Range done = share(s_.m, worker.thread, worker.team, 16);
    output_.finish(args, tile.part(done, pixels));
  }

  /// A group's kernel matrix from channel k and depth r on.
  Matrix kernel(Index g, Index k, Index r) const {
    const Index ld = im2_.form.depth_major() ? s_.mg() : depth_;
    const Index at = im2_.form.depth_major() ? r * ld + k : k * ld + r;
    return {kernel_.data() + g * s_.mg() * depth_ + at, ld};
  }

  Scenario s_;
  Im2 im2_;
  int threads_;
  Index depth_, grain_;
  Tiling tiling_;
  Strides in_;
  Buffer kernel_;
  Output output_;
  Index patch_floats_ = 0, tile_floats_ = 0, scratch_floats_ = 0;
};

const char* reject(const Primitive& row, const Scenario& s) {
  const Im2& im2 = *static_cast<const Im2*>(row.params);
  if (im2.style == Style::copy_short && !im2.by_row() && s.sw != 1) {
    return "needs column stride 1: its runs are pieces of image rows";
  }
  if (im2.style == Style::copy_long && im2.by_row() && (s.dw != 1 || s.g != 1)) {
    return "needs one group and column dilation 1: its runs span the channels of a kernel row";
  }
  return nullptr;
}

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<Im2Convolution>(row, s, weights, options);
}

constexpr Im2 kScanAbIk{kAbIk, Style::scan}, kScanAbtIk{kAbtIk, Style::scan},
    kScanAbtKi{kAbtKi, Style::scan}, kScanAtbtKi{kAtbtKi, Style::scan},
    kScanAbKi{kAbKi, Style::scan}, kScanAtbIk{kAtbIk, Style::scan}, kScanAtbKi{kAtbKi, Style::scan},
    kScanAtbtIk{kAtbtIk, Style::scan};
constexpr Im2 kSelfAbKi{kAbKi, Style::copy_self}, kSelfAtbIk{kAtbIk, Style::copy_self},
    kSelfAtbKi{kAtbKi, Style::copy_self}, kSelfAtbtIk{kAtbtIk, Style::copy_self};
constexpr Im2 kShortAbKi{kAbKi, Style::copy_short}, kShortAtbIk{kAtbIk, Style::copy_short},
    kShortAtbKi{kAtbKi, Style::copy_short}, kShortAtbtIk{kAtbtIk, Style::copy_short},
    kShortAbIk{kAbIk, Style::copy_short}, kShortAbtIk{kAbtIk, Style::copy_short},
    kShortAbtKi{kAbtKi, Style::copy_short}, kShortAtbtKi{kAtbtKi, Style::copy_short};
constexpr Im2 kLongAbKi{kAbKi, Style::copy_long}, kLongAtbIk{kAtbIk, Style::copy_long},
    kLongAtbKi{kAtbKi, Style::copy_long}, kLongAtbtIk{kAtbtIk, Style::copy_long},
    kLongAbIk{kAbIk, Style::copy_long}, kLongAbtIk{kAbtIk, Style::copy_long},
    kLongAbtKi{kAbtKi, Style::copy_long};

constexpr Primitive make(std::string_view name, Layout in, Layout out, const Im2& im2) {
  return {name, Family::im2, in, out, reject, prepare, &im2};
}

constexpr Layout kChw = Layout::chw, kHcw = Layout::hcw, kHwc = Layout::hwc;

constexpr Primitive kRows[] = {
    // as published
    make("im2col-copy-long-ab-ki", kChw, kChw, kLongAbKi),
    make("im2col-copy-long-atb-ik", kChw, kHwc, kLongAtbIk),
    make("im2col-copy-long-atb-ki", kChw, kChw, kLongAtbKi),
    make("im2col-copy-long-atbt-ik", kChw, kHwc, kLongAtbtIk),
    make("im2col-copy-self-ab-ki", kChw, kChw, kSelfAbKi),
    make("im2col-copy-self-atb-ik", kChw, kHwc, kSelfAtbIk),
    make("im2col-copy-self-atb-ki", kChw, kChw, kSelfAtbKi),
    make("im2col-copy-self-atbt-ik", kChw, kHwc, kSelfAtbtIk),
    make("im2col-copy-short-ab-ki", kChw, kChw, kShortAbKi),
    make("im2col-copy-short-atb-ik", kChw, kHwc, kShortAtbIk),
    make("im2col-copy-short-atb-ki", kChw, kChw, kShortAtbKi),
    make("im2col-copy-short-atbt-ik", kChw, kHwc, kShortAtbtIk),
    make("im2col-scan-ab-ki", kChw, kChw, kScanAbKi),
    make("im2col-scan-atb-ik", kChw, kHwc, kScanAtbIk),
    make("im2col-scan-atb-ki", kChw, kChw, kScanAtbKi),
    make("im2col-scan-atbt-ik", kChw, kHwc, kScanAtbtIk),
    make("im2row-copy-short-ab-ik", kHwc, kHwc, kShortAbIk),
    make("im2row-copy-short-abt-ik", kHwc, kHwc, kShortAbtIk),
    make("im2row-copy-short-abt-ki", kHwc, kChw, kShortAbtKi),
    make("im2row-copy-short-atbt-ki", kHwc, kChw, kShortAtbtKi),
    make("im2row-scan-ab-ik", kChw, kHwc, kScanAbIk),
    make("im2row-scan-abt-ik", kChw, kHwc, kScanAbtIk),
    make("im2row-scan-abt-ki", kChw, kChw, kScanAbtKi),
    make("im2row-scan-atbt-ki", kChw, kChw, kScanAtbtKi),
    // runs of a whole kernel row
    make("im2row-copy-long-ab-ik", kHwc, kHwc, kLongAbIk),
    make("im2row-copy-long-abt-ik", kHwc, kHwc, kLongAbtIk),
    make("im2row-copy-long-abt-ki", kHwc, kChw, kLongAbtKi),
    // hcw
    make("im2col-copy-long-hcw-ab-ki", kHcw, kHcw, kLongAbKi),
    make("im2col-copy-short-hcw-ab-ki", kHcw, kHcw, kShortAbKi),
    make("im2col-scan-hcw-ab-ki", kHcw, kHcw, kScanAbKi),
    make("im2col-copy-long-hcw-atb-ik", kHcw, kHwc, kLongAtbIk),
    make("im2row-scan-hcw-ab-ik", kHcw, kHwc, kScanAbIk),
    make("im2col-copy-long-chw-hcw-ab-ki", kChw, kHcw, kLongAbKi),
    make("im2row-copy-long-hwc-hcw-abt-ki", kHwc, kHcw, kLongAbtKi),
    make("im2col-copy-long-hcw-chw-ab-ki", kHcw, kChw, kLongAbKi),
    // into blocked layouts
    make("im2col-copy-long-chw8c-atb-ik", kChw, Layout::chw8c, kLongAtbIk),
    make("im2col-copy-long-chw16c-atb-ik", kChw, Layout::chw16c, kLongAtbIk),
    make("im2row-copy-short-chw8c-abt-ik", kHwc, Layout::chw8c, kShortAbtIk),
    make("im2row-copy-short-chw16c-abt-ik", kHwc, Layout::chw16c, kShortAbtIk),
};

}  // namespace

std::span<const Primitive> im2_rows() { return kRows; }

}  // namespace convprim
