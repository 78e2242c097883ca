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
    staged_floats_ = output_.staged_floats(tiles_.tile_channels, tiles_.tile_pixels);
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * thread_floats()) * sizeof(float);
  }
  std::size_t packed_bytes() const override { return kernel_.bytes() + output_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    for_tiles(s_, tiles_, threads_, [&](int thread, Index n, Index g, Range k, Range p) {
      band(args, n, g, k, p, static_cast<float*>(args.workspace) + thread * thread_floats());
    });
  }

 private:
  Index thread_floats() const { return product_floats_ + staged_floats_; }

  void band(const RunArgs& args, Index n, Index g, Range channels, Range pixels, float* own) const {
    const Tile tile = output_.tile(args, n, channels, pixels, own + product_floats_);
    output_.clear(args, tile);
    const Range rows{pixels.begin / s_.ow, pixels.end / s_.ow};
    const bool depth_major = form_.depth_major();
    const Index k = channels.begin - g * s_.mg();
    const Index depth = s_.cg() * s_.kh * s_.kw;
    const Index image_ld = form_.pixel_major() ? in_.w_stride : in_.c_stride;
    for (Index i = 0; i < s_.kh; ++i) {
      for (Index j = 0; j < s_.kw; ++j) {
        const Tap tap = make_tap(s_, i, j, rows);
        if (tap.empty()) continue;
        const Index r = (i * s_.kw + j) * s_.cg(), from_row = tap.y.begin + tap.down;
        const float* kernel =
            kernel_.data() + g * s_.mg() * depth + (depth_major ? r * s_.mg() + k : k * depth + r);
        const Tile product = dense_tile(form_.ki, n, channels,
                                        {from_row * s_.w, (tap.y.end + tap.down) * s_.w}, own);
        multiply(form_, s_.cg(), {kernel, depth_major ? s_.mg() : depth},
                 {args.in + in_.at(n, g * s_.cg(), from_row, 0), image_ld}, 0, product);
        shift_add(s_, tap, product, tile);
      }
    }
    output_.finish(args, tile);
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
