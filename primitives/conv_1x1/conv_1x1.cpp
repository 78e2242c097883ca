// conv-1x1-gemm: a 1x1 convolution is one product of the image itself with the kernel matrix.
//
//   ki: out[k][p] = sum over c of kernel[k][c] * image[c][p]
//   ik: out[p][k] = sum over c of image[p][c] * kernel[c][k]
//
// for each tile of output pixels (and of output channels, where pixels are few):
//   for each group: multiply, straight from the input into the output; bias, residual and clamp
//
// No extra space. Where output pixels are not input pixels one to one (stride, padding), and in
// hcw, each output row is a product of its own: stride s makes the pixels of an image row s times
// as far apart, which a row distance can say in hwc, but no argument of sgemm can in chw and hcw.
// Output pixels that see padding only get no product.
// Source: the variants are those of Anderson and Gregg (CGO 2018).
#include "convprim/cpu.hpp"
#include "primitives/im2/gemm.hpp"
#include "primitives/registry.hpp"

namespace convprim {
namespace {

using namespace gemm;

class Conv1x1 final : public Convolution {
 public:
  Conv1x1(const Primitive& row, const Scenario& s, const Weights& weights, const Options& options)
      : s_(s),
        form_(*static_cast<const Form*>(row.params)),
        threads_(options.threads),
        flat_(row.in != Layout::hcw && s.unit_stride() && s.pt == 0 && s.pl == 0 && s.ow == s.w &&
              s.oh <= s.h),
        in_(strides(row.in, s.in())),
        kernel_(pack_kernel(s, weights.filter,
                            kernel_strides(s, DepthOrder::cij, form_.depth_major()))),
        output_(s, row.out, form_.ki, flat_ ? Output::Tiles::any : Output::Tiles::single_rows,
                weights, options) {
    const auto budget = static_cast<Index>(cache_bytes(2) / 2 / sizeof(float));
    tiles_ = split_tiles(s, std::max<Index>(512, budget / (s.c + s.m)), flat_ ? 1 : s.ow, threads_);
  }

  std::size_t workspace_bytes() const override { return 0; }
  std::size_t packed_bytes() const override { return kernel_.bytes() + output_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    for_tiles(s_, tiles_, threads_, [&](int, Index n, Index g, Range k, Range pixels) {
      const Index step = flat_ ? pixels.end - pixels.begin : s_.ow;
      for (Index p = pixels.begin; p < pixels.end; p += step) {
        const Tile tile = output_.tile(args, n, k, {p, p + step});
        if (flat_) {
          product(args, g, tile, p);
        } else {
          row_product(args, g, tile);
        }
        output_.finish(args, tile);
      }
    });
  }

 private:
  /// One output row, of which only some columns may see the image.
  void row_product(const RunArgs& args, Index g, const Tile& tile) const {
    const Index row = tile.p.begin / s_.ow * s_.sh - s_.pt;
    const Range x =
        row >= 0 && row < s_.h ? valid_outputs(s_.ow, s_.w, s_.sw, s_.pl, 0) : Range{s_.ow, s_.ow};
    if (x.begin > 0 || x.end < s_.ow) output_.clear(args, tile);
    if (x.begin == x.end) return;
    const Range inside{tile.p.begin + x.begin, tile.p.begin + x.end};
    product(args, g, tile.part(tile.k, inside), row * s_.w + x.begin * s_.sw - s_.pl);
  }

  /// Output pixels that see input pixels from `first` on.
  void product(const RunArgs& args, Index g, const Tile& tile, Index first) const {
    const Index ld = form_.depth_major() ? s_.mg() : s_.cg();
    const float* kernel = kernel_.data() + g * s_.mg() * s_.cg() +
                          (tile.k.begin - g * s_.mg()) * (form_.depth_major() ? 1 : s_.cg());
    const float* image = args.in + in_.at(tile.n, g * s_.cg(), first / s_.w, first % s_.w);
    const Index image_ld = form_.pixel_major() ? in_.w_stride * s_.sw : in_.c_stride;
    multiply(form_, s_.cg(), {kernel, ld}, {image, image_ld}, output_.beta(args), tile);
  }

  Scenario s_;
  Form form_;
  int threads_;
  bool flat_;
  Strides in_;
  Buffer kernel_;
  Output output_;
  Tiles tiles_;
};

const char* reject(const Primitive& row, const Scenario& s) {
  if (s.kh != 1 || s.kw != 1) return "needs a 1x1 kernel";
  if (row.in != Layout::hwc && s.sw != 1) {
    return "needs column stride 1: sgemm takes the pixels of a plane only as they follow each "
           "other";
  }
  return nullptr;
}

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<Conv1x1>(row, s, weights, options);
}

constexpr Primitive make(std::string_view name, Layout in, Layout out, const Form& form) {
  return {name, Family::conv_1x1, in, out, reject, prepare, &form};
}

constexpr Primitive kRows[] = {
    // as published
    make("conv-1x1-gemm-ab-ik", Layout::hwc, Layout::hwc, kAbIk),
    make("conv-1x1-gemm-ab-ki", Layout::chw, Layout::chw, kAbKi),
    make("conv-1x1-gemm-abt-ik", Layout::hwc, Layout::hwc, kAbtIk),
    make("conv-1x1-gemm-abt-ki", Layout::hwc, Layout::chw, kAbtKi),
    make("conv-1x1-gemm-atb-ik", Layout::chw, Layout::hwc, kAtbIk),
    make("conv-1x1-gemm-atb-ki", Layout::chw, Layout::chw, kAtbKi),
    make("conv-1x1-gemm-atbt-ik", Layout::chw, Layout::hwc, kAtbtIk),
    make("conv-1x1-gemm-atbt-ki", Layout::hwc, Layout::chw, kAtbtKi),
    // hcw: a product for each output row
    make("conv-1x1-gemm-hcw-ab-ki", Layout::hcw, Layout::hcw, kAbKi),
    make("conv-1x1-gemm-hcw-atb-ik", Layout::hcw, Layout::hwc, kAtbIk),
};

}  // namespace

std::span<const Primitive> conv_1x1_rows() { return kRows; }

}  // namespace convprim
