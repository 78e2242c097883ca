// mec-aa: memory-efficient convolution that accumulates inside the product, one product for each
// kernel row and band instead of one for each output row.
//
//   mec-col-aa  L[(c, j)][(q, x)] = in[c][q - pt][x*sw - pl + j*dw]
//   mec-row-aa  L[(q, x)][(j, c)], the same elements
//   out[all rows y of a band] += kernel row i * L[rows y*sh + i*dh]     for i = 0..kh-1
//
// for each band of output rows, for each group, for each chunk of its channels:
//   lower the image rows that the band sees
//   for each kernel row i: multiply, adding to what the chunks and rows before made
//   bias, residual and clamp on the band
//
// With the image rows outside the kernel columns and channels, what a kernel row sees at
// consecutive output rows follows each other in L, so that small images make long products too:
// the algorithm of mec.cpp makes them as short as an output row. L is no larger than there. With
// stride or dilation, rows that no output row sees together lie in slots of their own (RowSlots).
// Source: lowering after Cho and Brand, arXiv 1706.06873; accumulation as in kn2row-aa (Anderson et
// al., arXiv 1709.03395). The combination is our own.
#include "convprim/cpu.hpp"
#include "primitives/im2/gemm.hpp"
#include "primitives/im2/patches.hpp"
#include "primitives/registry.hpp"

namespace convprim {
namespace {

using namespace gemm;

class MecAa final : public Convolution {
 public:
  MecAa(const Primitive& row, const Scenario& s, const Weights& weights, const Options& options)
      : s_(s),
        form_(*static_cast<const Form*>(row.params)),
        threads_(options.threads),
        slice_(s.kw * s.cg()),
        in_(strides(row.in, s.in())),
        kernel_(
            pack_kernel(s, weights.filter,
                        kernel_strides(s, form_.pixel_major() ? DepthOrder::ijc : DepthOrder::icj,
                                       form_.depth_major()))),
        output_(s, row.out, form_.ki, Output::Tiles::any, weights, options) {
    const auto budget = static_cast<Index>(cache_bytes(2) / 2 / sizeof(float));
    tiles_ = split_tiles(s, 1024, s.ow, threads_);
    lowered_ = RowSlots(s, tiles_.tile_pixels / s.ow).count() * s.ow;
    // Chunks of whole channels where the kernel columns follow each other.
    const Index grain = form_.pixel_major() ? 1 : s.kw;
    const Index fits = std::max(grain, budget / lowered_ / grain * grain);
    chunk_ = ceil_div(ceil_div(slice_, ceil_div(slice_, fits)), grain) * grain;
    staged_ = output_.staged_floats(tiles_.tile_channels, tiles_.tile_pixels);
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
  Index thread_floats() const { return cache_lines(lowered_ * chunk_) + staged_; }

  void band(const RunArgs& args, Index n, Index g, Range channels, Range pixels, float* own) const {
    const Tile tile = output_.tile(args, n, channels, pixels, own + cache_lines(lowered_ * chunk_));
    const Range rows{pixels.begin / s_.ow, pixels.end / s_.ow};
    const RowSlots slots(s_, rows.end - rows.begin);
    const Index k = channels.begin - g * s_.mg();
    const Index depth = s_.kh * slice_, kernel_ld = form_.depth_major() ? s_.mg() : depth;
    for (Index r = 0; r < slice_; r += chunk_) {
      const Range part{r, std::min(r + chunk_, slice_)};
      const Index deep = part.end - part.begin;
      const Index ld = form_.pixel_major() ? deep : slots.count() * s_.ow;
      lower(args.in + in_.at(n, g * s_.cg(), 0, 0), rows, slots, part, own, ld);
      for (Index i = 0; i < s_.kh; ++i) {
        const Index at = i * slice_ + r;
        const float* kernel = kernel_.data() + g * s_.mg() * depth +
                              (form_.depth_major() ? at * s_.mg() + k : k * depth + at);
        const float* seen = own + slots.first(i) * s_.ow * (form_.pixel_major() ? ld : 1);
        multiply(form_, deep, {kernel, kernel_ld}, {seen, ld},
                 r > 0 || i > 0 ? 1.0F : output_.beta(args), tile);
      }
    }
    output_.finish(args, tile);
  }

  /// Elements `part` of the lowered matrix's depth, for all image rows that the band sees.
  void lower(const float* image, Range rows, const RowSlots& slots, Range part, float* lowered,
             Index ld) const {
    for (Index i = 0; i < s_.kh; ++i) {
      for (Index b = slots.fresh(i); b < rows.end - rows.begin; ++b) {
        const Index row = (rows.begin + b) * s_.sh - s_.pt + i * s_.dh;
        const bool inside = row >= 0 && row < s_.h;
        const float* from = inside ? image + row * in_.h_stride : nullptr;
        const Index at = (slots.first(i) + b) * s_.ow;
        if (form_.pixel_major()) {
          lower_pixels(from, part, lowered + at * ld, ld);
        } else {
          lower_planes(from, part, lowered + at, ld);
        }
      }
    }
  }

  /// One image row, [x][(j, c)].
  void lower_pixels(const float* row, Range part, float* to, Index ld) const {
    const Index run = s_.g == 1 && s_.dw == 1 ? slice_ : s_.cg();
    for (Index x = 0; x < s_.ow; ++x, to += ld) {
      for (Index r = part.begin; r < part.end;) {
        const Index begin = r % run, end = std::min(run, begin + part.end - r);
        copy_columns(s_, in_.w_stride, row, x, r / run * (run / s_.cg()), {begin, end},
                     to + r - part.begin);
        r += end - begin;
      }
    }
  }

  /// One image row, [(c, j)][x].
  void lower_planes(const float* row, Range part, float* to, Index ld) const {
    for (Index r = part.begin; r < part.end; ++r, to += ld) {
      const float* channel = row != nullptr ? row + r / s_.kw * in_.c_stride : nullptr;
      gather_row(s_, in_.w_stride, channel, r % s_.kw, {0, s_.ow}, s_.sw == 1, to);
    }
  }

  Scenario s_;
  Form form_;
  int threads_;
  Index slice_;  // depth of one kernel row
  Strides in_;
  Buffer kernel_;
  Output output_;
  Tiles tiles_;
  Index lowered_ = 0, chunk_ = 0;  // pixels of L, and how much of its depth is made at a time
  Index staged_ = 0;
};

const char* reject(const Primitive&, const Scenario&) { return nullptr; }

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<MecAa>(row, s, weights, options);
}

constexpr Primitive make(std::string_view name, Layout in, Layout out, const Form& form) {
  return {name, Family::mec, in, out, reject, prepare, &form};
}

constexpr Primitive kRows[] = {
    make("mec-col-aa-ki", Layout::chw, Layout::chw, kAbKi),
    make("mec-col-aa-ik", Layout::chw, Layout::hwc, kAtbIk),
    make("mec-col-aa-hcw-ki", Layout::hcw, Layout::hcw, kAbKi),
    make("mec-col-aa-hcw-chw-ki", Layout::hcw, Layout::chw, kAbKi),
    make("mec-col-aa-hcw-ik", Layout::hcw, Layout::hwc, kAtbIk),
    make("mec-row-aa-ik", Layout::hwc, Layout::hwc, kAbIk),
    make("mec-row-aa-ki", Layout::hwc, Layout::chw, kAbtKi),
};

}  // namespace

std::span<const Primitive> mec_aa_rows() { return kRows; }

}  // namespace convprim
