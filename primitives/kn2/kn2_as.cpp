// kn2row-as, kn2col-as: kn2 that accumulates by shifted adding, one product for each tap.
//
// for each band of output rows:
//   for each tap (i, j):
//     T = W_ij * the image rows that the band sees through it              (one product)
//     out += T, shifted by the tap's place in the kernel
//   bias, residual and clamp on the band
//
// The extra space is T, as large as the band of the output, and the band itself once more where it
// is made in another order than the output's (kn2col-as makes [pixels][channels] and writes chw, as
// published). Each tap's product covers whole image rows, of which unequal widths leave some
// unused. Source: Anderson, Vasudevan, Keane and Gregg, arXiv 1709.03395.
#include "convprim/cpu.hpp"
#include "primitives/kn2/kn2.hpp"
#include "primitives/registry.hpp"

namespace convprim {
namespace {

using namespace gemm;

class Kn2As final : public Convolution {
 public:
  Kn2As(const Primitive& row, const Scenario& s, const Weights& weights, const Options& options)
      : s_(s),
        form_(*static_cast<const Form*>(row.params)),
        threads_(options.threads),
        in_(strides(row.in, s.in())),
        kernel_(pack_kernel(s, weights.filter,
                            kernel_strides(s, DepthOrder::ijc, form_.depth_major()))),
        output_(s, row.out, form_.ki, Output::Tiles::any, weights, options) {
    const auto budget = static_cast<Index>(cache_bytes(2) / 2 / sizeof(float));
    tiles_ = split_tiles(s, std::max<Index>(512, budget / (s.cg() + 2 * s.mg())), s.ow, threads_);
    const Index rows = tiles_.tile_pixels / s.ow;
    product_floats_ = cache_lines(rows * s.w * tiles_.tile_channels);
    staged_floats_ = output_.direct() ? 0 : cache_lines(tiles_.tile_pixels * tiles_.tile_channels);
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * (product_floats_ + staged_floats_)) * sizeof(float);
  }
  std::size_t packed_bytes() const override { return kernel_.bytes() + output_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    const Index items = s_.n * tiles_.count();
    parallel(threads_, [&](int thread, int team) {
      float* own =
          static_cast<float*>(args.workspace) + thread * (product_floats_ + staged_floats_);
      const Range mine = share(items, thread, team);
      for (Index item = mine.begin; item < mine.end; ++item) {
        const Range pixels = tiles_.pixels(item % tiles_.count());
        for (Index g = 0; g < s_.g; ++g) {
          band(args, item / tiles_.count(), g, tiles_.channels(item % tiles_.count()),
               {pixels.begin / s_.ow, pixels.end / s_.ow}, own);
        }
      }
    });
  }

 private:
  void band(const RunArgs& args, Index n, Index g, Range k, Range rows, float* own) const {
    const Index count = k.end - k.begin;
    const Range channels{g * s_.mg() + k.begin, g * s_.mg() + k.end};
    const Range pixels{rows.begin * s_.ow, rows.end * s_.ow};
    const bool direct = output_.direct(), depth_major = form_.depth_major();
    float* tile =
        direct ? output_.tile(args, n, channels.begin, pixels.begin) : own + product_floats_;
    const Index ld = direct ? output_.ld() : form_.ki ? pixels.end - pixels.begin : count;
    if (!direct || output_.beta(args) == 0.0F) {
      clear_tile(form_.ki, count, pixels.end - pixels.begin, tile, ld);
    }
    const Index depth = s_.cg() * s_.kh * s_.kw;
    const Index image_ld = form_.pixel_major() ? in_.w_stride : in_.c_stride;
    for (Index i = 0; i < s_.kh; ++i) {
      for (Index j = 0; j < s_.kw; ++j) {
        const Tap tap = make_tap(s_, i, j, rows);
        if (tap.empty()) continue;
        const Index r = (i * s_.kw + j) * s_.cg(), from_row = tap.y.begin + tap.down;
        const float* kernel = kernel_.data() + g * s_.mg() * depth +
                              (depth_major ? r * s_.mg() + k.begin : k.begin * depth + r);
        const Index seen = (tap.y.end - tap.y.begin) * s_.w;
        const Index product_ld = form_.ki ? seen : count;
        multiply(form_, count, seen, s_.cg(), {kernel, depth_major ? s_.mg() : depth},
                 {args.in + in_.at(n, g * s_.cg(), from_row, 0), image_ld}, 0, own, product_ld);
        shift_add(s_, form_.ki, count, tap, own, product_ld, from_row, tile, ld, rows.begin);
      }
    }
    output_.finish(args, n, channels, pixels, tile, ld);
  }

  Scenario s_;
  Form form_;
  int threads_;
  Strides in_;
  Buffer kernel_;
  Output output_;
  Tiles tiles_;
  Index product_floats_ = 0, staged_floats_ = 0;
};

const char* reject(const Primitive&, const Scenario& s) { return reject_kn2(s); }

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<Kn2As>(row, s, weights, options);
}

constexpr Primitive make(std::string_view name, Layout in, Layout out, const Form& form) {
  return {name, Family::kn2, in, out, reject, prepare, &form};
}

constexpr Primitive kRows[] = {
    // as published
    make("kn2col-as", Layout::hwc, Layout::chw, kAbIk),
    make("kn2row-as", Layout::chw, Layout::chw, kAbKi),
    // without the transposition
    make("kn2col-as-hwc", Layout::hwc, Layout::hwc, kAbIk),
};

}  // namespace

std::span<const Primitive> kn2_as_rows() { return kRows; }

}  // namespace convprim
