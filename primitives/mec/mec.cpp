// mec: memory-efficient convolution. The image is lowered in one dimension only, and each output
// row is one product with a part of the lowered matrix; the parts of neighbouring rows overlap.
//
//   mec-col            L[(q, c, j)][x] = in[q - pt][x*sw - pl + j*dw][c]
//                      out row y = kernel * rows (y*sh + i*dh, c, j) of L, i = 0..kh-1
//   mec-row-partition  L[x][(q, j, c)], the same elements; out row y = a partition of L's columns
//
// for each band of output rows, for each piece of their columns, for each group:
//   for each output row: lower the image rows that no row of the band before has; multiply
//   bias, residual and clamp on the row
//
// L has kw*C*H*Wo elements where the patch matrix has kh*kw*C*Ho*Wo; here it is made in bands that
// fit in the second-level cache. With dilation the lowered rows of the same residue modulo dh lie
// together, so that kernel rows stay neighbours.
// Source: Cho and Brand, arXiv 1706.06873 (their solution with one product for each output row).
#include <numeric>

#include "convprim/cpu.hpp"
#include "primitives/im2/gemm.hpp"
#include "primitives/im2/patches.hpp"
#include "primitives/registry.hpp"

namespace convprim {
namespace {

using namespace gemm;

class Mec final : public Convolution {
 public:
  Mec(const Primitive& row, const Scenario& s, const Weights& weights, const Options& options)
      : s_(s),
        form_(*static_cast<const Form*>(row.params)),
        threads_(options.threads),
        in_(strides(row.in, s.in())),
        kernel_(
            pack_kernel(s, weights.filter,
                        kernel_strides(s, form_.pixel_major() ? DepthOrder::ijc : DepthOrder::icj,
                                       form_.depth_major()))),
        output_(s, row.out, form_.ki, Output::Tiles::single_rows, weights, options) {
    const Index common = std::gcd(s.sh, s.dh);
    period_ = s.dh / common;
    shift_ = s.sh / common;
    slice_ = s.kw * s.cg();
    const auto budget = static_cast<Index>(cache_bytes(2) / 2 / sizeof(float));
    // As many columns as leave room for a few output rows, but enough for an efficient product.
    const Index few = lowered_rows(std::min<Index>(s.oh, 4)) * slice_;
    columns_ = std::min(s.ow, std::max<Index>(256, budget / few));
    columns_ = ceil_div(s.ow, ceil_div(s.ow, columns_));
    const Index most = ceil_div(s.n * s.oh, threads_);
    for (band_ = 1; band_ < std::min(s.oh, most); ++band_) {
      if (lowered_rows(band_ + 1) * slice_ * columns_ > budget) break;
    }
    bands_ = ceil_div(s.oh, band_);
    band_ = ceil_div(s.oh, bands_);
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * thread_floats()) * sizeof(float);
  }
  std::size_t packed_bytes() const override { return kernel_.bytes() + output_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    const Index pieces = ceil_div(s_.ow, columns_);
    parallel(threads_, [&](int thread, int team) {
      float* own = static_cast<float*>(args.workspace) + thread * thread_floats();
      const Range items = share(s_.n * bands_ * pieces, thread, team);
      for (Index item = items.begin; item < items.end; ++item) {
        const Index n = item / (bands_ * pieces), y = item / pieces % bands_ * band_;
        const Index x = item % pieces * columns_;
        for (Index g = 0; g < s_.g; ++g) {
          band(args, n, g, {y, std::min(y + band_, s_.oh)}, {x, std::min(x + columns_, s_.ow)},
               own);
        }
      }
    });
  }

 private:
  /// Lowered rows of a band: slots (residues) of equal length.
  Index lowered_rows(Index band) const { return std::min(period_, band) * slot_rows(band); }
  Index slot_rows(Index band) const { return (band - 1) / period_ * shift_ + s_.kh; }
  Index thread_floats() const { return cache_lines(lowered_rows(band_) * slice_ * columns_); }

  void band(const RunArgs& args, Index n, Index g, Range rows, Range columns,
            float* lowered) const {
    const Index width = columns.end - columns.begin, depth = s_.kh * slice_;
    const Index slot = slot_rows(rows.end - rows.begin);
    const Index all_rows = lowered_rows(rows.end - rows.begin);
    // Distance of lowered rows, and of the lowered matrix's rows.
    const Index step = form_.pixel_major() ? slice_ : slice_ * width;
    const Index ld = form_.pixel_major() ? all_rows * slice_ : width;
    const float* kernel = kernel_.data() + g * s_.mg() * depth;
    const Range channels{g * s_.mg(), (g + 1) * s_.mg()};
    for (Index b = 0; b < rows.end - rows.begin; ++b) {
      const Index y = rows.begin + b;
      float* part = lowered + (b % period_ * slot + b / period_ * shift_) * step;
      // The output row before this one in the slot has lowered all kernel rows but the last ones.
      for (Index i = b < period_ ? 0 : std::max<Index>(0, s_.kh - shift_); i < s_.kh; ++i) {
        const Index row = y * s_.sh - s_.pt + i * s_.dh;
        const float* image =
            row >= 0 && row < s_.h ? args.in + in_.at(n, g * s_.cg(), row, 0) : nullptr;
        lower_row(image, columns, part + i * step, ld);
      }
      const Index p = y * s_.ow + columns.begin;
      const Tile tile = output_.tile(args, n, channels, {p, p + width});
      multiply(form_, depth, {kernel, form_.depth_major() ? s_.mg() : depth}, {part, ld},
               output_.beta(args), tile);
      output_.finish(args, tile);
    }
  }

  /// One image row (null: zeros) in all channels of a group, as the kernel columns see it.
  void lower_row(const float* image, Range columns, float* to, Index ld) const {
    if (form_.pixel_major()) {
      const Index run = s_.g == 1 && s_.dw == 1 ? s_.kw : 1;
      for (Index x = columns.begin; x < columns.end; ++x, to += ld) {
        for (Index j = 0; j < s_.kw; j += run) {
          copy_columns(s_, in_.w_stride, image, x, j, {0, run * s_.cg()}, to + j * s_.cg());
        }
      }
      return;
    }
    for (Index c = 0; c < s_.cg(); ++c) {
      const float* row = image != nullptr ? image + c * in_.c_stride : nullptr;
      for (Index j = 0; j < s_.kw; ++j, to += ld) {
        gather_row(s_, in_.w_stride, row, j, columns, s_.sw == 1, to);
      }
    }
  }

  Scenario s_;
  Form form_;
  int threads_;
  Strides in_;
  Buffer kernel_;
  Output output_;
  Index period_ = 0, shift_ = 0;  // output rows apart whose lowered rows overlap, and by how much
  Index slice_ = 0;               // depth of one kernel row
  Index columns_ = 0, band_ = 0, bands_ = 0;
};

const char* reject(const Primitive&, const Scenario&) { return nullptr; }

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<Mec>(row, s, weights, options);
}

constexpr Primitive make(std::string_view name, Layout in, Layout out, const Form& form) {
  return {name, Family::mec, in, out, reject, prepare, &form};
}

constexpr Primitive kRows[] = {
    // as published
    make("mec-col", Layout::hcw, Layout::hwc, kAtbIk),
    make("mec-row-partition", Layout::hwc, Layout::hwc, kAbIk),
    // kernel x image: chw and hcw out
    make("mec-col-hcw-ki", Layout::hcw, Layout::hcw, kAbKi),
    make("mec-col-hcw-chw-ki", Layout::hcw, Layout::chw, kAbKi),
    make("mec-col-chw-ki", Layout::chw, Layout::chw, kAbKi),
    make("mec-row-partition-hcw-ki", Layout::hwc, Layout::hcw, kAbtKi),
};

}  // namespace

std::span<const Primitive> mec_rows() { return kRows; }

}  // namespace convprim
