// kn2row-aa, kn2col-aa: kn2 that accumulates inside the product.
//
// for each band of output rows:
//   for each kernel column j, for each kernel row i:
//     out[k][p] += sum over c of W_ij[k][c] * in[c][p + shift(i, j)]      (one product)
//   bias, residual and clamp on the band
//
// Where the output is as wide as the image, a tap is one shift of the image laid out flat, so that
// all rows of a band are one product whose operands and result lie where they are, each product
// over the one before. But a shift along the row makes the outputs at its ends see pixels of the
// row before or behind, where padding should be. Those columns, the same for all taps of a kernel
// column, are set aside before its products and put back after them: for each row of the band,
// (kw - 1) * dw elements at most. Where the widths differ, each output row is a product of its own,
// over the columns that see the image only.
// Source: Anderson, Vasudevan, Keane and Gregg, arXiv 1709.03395 (accumulating algorithm); the way
// the row ends are kept right is our own.
#include "convprim/cpu.hpp"
#include "primitives/kn2/kn2.hpp"
#include "primitives/registry.hpp"

namespace convprim {
namespace {

using namespace gemm;

/// Pixels of a tile: what the second-level cache holds of the output and the image; or much less,
/// where OpenBLAS's AVX-512 code then multiplies without packing its operands (up to a million
/// multiply-adds). That is faster by a third if the kernel matrix is the depth-major one.
Index tile_pixels(const Scenario& s, const Form& form) {
  const auto budget = static_cast<Index>(cache_bytes(2) / 2 / sizeof(float));
  const Index small = 1000000 / (s.cg() * s.mg()) / s.ow * s.ow;
  if (isa() == Isa::avx512 && form.depth_major() && small >= 96) return small;
  return std::max<Index>(512, budget / (s.cg() + s.mg()));
}

class Kn2Aa final : public Convolution {
 public:
  Kn2Aa(const Primitive& row, const Scenario& s, const Weights& weights, const Options& options)
      : s_(s),
        form_(*static_cast<const Form*>(row.params)),
        threads_(options.threads),
        flat_(s.ow == s.w),
        in_(strides(row.in, s.in())),
        kernel_(pack_kernel(s, weights.filter,
                            kernel_strides(s, DepthOrder::ijc, form_.depth_major()))),
        output_(s, row.out, form_.ki, Output::Tiles::any, weights, options) {
    tiles_ = split_tiles(s, tile_pixels(s, form_), s.ow, threads_);
    for (Index j = 0; j < s.kw; ++j) {
      const Range x = make_tap(s, 0, j, {0, s.oh}).x;
      ends_ = std::max(ends_, s.ow - (x.end - x.begin));
    }
    // The tap whose products reach every output comes first: it need not find zeros there.
    for (Index j = 0; j < s.kw; ++j) {
      for (Index i = 0; i < s.kh; ++i) {
        if (whole(make_tap(s, i, j, {0, s.oh}), {0, s.oh})) first_i_ = i, first_j_ = j;
      }
    }
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * ends_floats()) * sizeof(float);
  }
  std::size_t packed_bytes() const override { return kernel_.bytes() + output_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    for_tiles(s_, tiles_, threads_, [&](int thread, Index n, Index g, Range k, Range p) {
      band(args, n, g, k, p, static_cast<float*>(args.workspace) + thread * ends_floats());
    });
  }

 private:
  /// Elements set aside: of each channel and row of a tile.
  Index ends_floats() const {
    return flat_ ? cache_lines(ends_ * tiles_.tile_channels * (tiles_.tile_pixels / s_.ow)) : 0;
  }
  bool whole(const Tap& t, Range rows) const {
    return t.y.begin == rows.begin && t.y.end == rows.end && t.x.begin == 0 && t.x.end == s_.ow;
  }

  void band(const RunArgs& args, Index n, Index g, Range channels, Range pixels, float* own) const {
    const Tile tile = output_.tile(args, n, channels, pixels);
    if (first_i_ >= 0) {
      product(args, g, tile, first_i_, first_j_, output_.beta(args));
    } else {
      output_.clear(args, tile);
    }
    for (Index j = 0; j < s_.kw; ++j) {
      const Range x = make_tap(s_, 0, j, {0, s_.oh}).x;
      if (x.begin == x.end) continue;
      if (flat_) swap_ends(tile, x, own, true);
      for (Index i = 0; i < s_.kh; ++i) {
        if (i != first_i_ || j != first_j_) product(args, g, tile, i, j, 1);
      }
      if (flat_) swap_ends(tile, x, own, false);
    }
    output_.finish(args, tile);
  }

  /// What one tap adds to the tile.
  void product(const RunArgs& args, Index g, const Tile& tile, Index i, Index j, float beta) const {
    const Tap t = make_tap(s_, i, j, {tile.p.begin / s_.ow, tile.p.end / s_.ow});
    if (t.empty()) return;
    const bool depth_major = form_.depth_major();
    const Index depth = s_.cg() * s_.kh * s_.kw, r = (i * s_.kw + j) * s_.cg();
    const Index k = tile.k.begin - g * s_.mg();
    const Matrix kernel{
        kernel_.data() + g * s_.mg() * depth + (depth_major ? r * s_.mg() + k : k * depth + r),
        depth_major ? s_.mg() : depth};
    const Index image_ld = form_.pixel_major() ? in_.w_stride : in_.c_stride;
    const Index rows = flat_ ? t.y.end - t.y.begin : 1;
    for (Index y = t.y.begin; y < t.y.end; y += rows) {
      const float* image = args.in + in_.at(tile.n, g * s_.cg(), y + t.down, t.x.begin + t.right);
      const Range seen{y * s_.ow + t.x.begin, (y + rows - 1) * s_.ow + t.x.end};
      multiply(form_, s_.cg(), kernel, {image, image_ld}, beta, tile.part(tile.k, seen));
    }
  }

  /// Copies the columns outside x to `aside`, or back.
  void swap_ends(const Tile& tile, Range x, float* aside, bool out) const {
    const Index ends[] = {0, x.begin, x.end, s_.ow};
    const Index lines = tile.ki ? tile.channels() : 1, run = tile.ki ? 1 : tile.channels();
    const Index step = tile.ki ? 1 : tile.ld;
    for (Index k = 0; k < lines; ++k) {
      for (Index p = tile.p.begin; p < tile.p.end; p += s_.ow) {
        float* row = tile.at(tile.k.begin + k, p);
        for (const Index* end : {ends, ends + 2}) {
          for (Index e = end[0]; e < end[1]; ++e, aside += run) {
            if (out) {
              std::copy_n(row + e * step, run, aside);
            } else {
              std::copy_n(aside, run, row + e * step);
            }
          }
        }
      }
    }
  }

  Scenario s_;
  Form form_;
  int threads_;
  bool flat_;
  Strides in_;
  Buffer kernel_;
  Output output_;
  Tiles tiles_;
  Index ends_ = 0;                     // columns that any tap sees no image at
  Index first_i_ = -1, first_j_ = -1;  // the tap that goes first, if there is one
};

const char* reject(const Primitive&, const Scenario& s) { return reject_kn2(s); }

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<Kn2Aa>(row, s, weights, options);
}

constexpr Primitive make(std::string_view name, Layout in, Layout out, const Form& form) {
  return {name, Family::kn2, in, out, reject, prepare, &form};
}

constexpr Primitive kRows[] = {
    // as published
    make("kn2row-aa-ab", Layout::chw, Layout::chw, kAbKi),
    make("kn2row-aa-abt", Layout::hwc, Layout::chw, kAbtKi),
    make("kn2row-aa-atb", Layout::chw, Layout::chw, kAtbKi),
    make("kn2row-aa-atbt", Layout::hwc, Layout::chw, kAtbtKi),
    // image x kernel
    make("kn2col-aa-ab", Layout::hwc, Layout::hwc, kAbIk),
    make("kn2col-aa-abt", Layout::hwc, Layout::hwc, kAbtIk),
    make("kn2col-aa-atb", Layout::chw, Layout::hwc, kAtbIk),
};

}  // namespace

std::span<const Primitive> kn2_aa_rows() { return kRows; }

}  // namespace convprim
