// kn2row, kn2col: kn2 as first published: one product makes the planes of all taps, which are then
// shifted and added.
//
// for each band of output rows, for each panel of output channels:
//   planes[(i, j, k)][p] = sum over c of W[k][c][i][j] * in[c][p], for all pixels that the band
//   sees for each tap (i, j): out += planes (i, j, all k), shifted by the tap's place in the kernel
//   bias, residual and clamp on the band
//
// kn2row makes [taps][channels][pixels] (kernel x image), kn2col [pixels][taps][channels] (image x
// kernel), from hwc both. The extra space is kh*kw*M*H*W in the paper; a band of rows and a panel
// of channels at a time needs that share of it, and computes the (kh-1)*dh image rows between two
// bands twice. kn2col writes chw as published, through a tile of its own order. Source: Vasudevan,
// Anderson and Gregg, arXiv 1704.04428.
#include "primitives/kn2/kn2.hpp"
#include "convprim/cpu.hpp"
#include "primitives/registry.hpp"

namespace convprim {
namespace {

using namespace gemm;

/// Planes that cannot be cut below this many bytes are refused.
constexpr Index kMostBytes = Index{1} << 30;

/// How the work is cut: bands of output rows, panels of a group's output channels.
struct Cut {
  Index rows, bands, input_rows;  // input rows that a band sees
  Index panel, panels;
  Index plane_floats;
};

/// Panels of equal size, for the packing's sake: a divisor of the group's channels.
Index panel_of(Index channels, Index wanted) {
  for (Index panel = std::min(channels, wanted); panel >= 8; --panel) {
    if (channels % panel == 0) return panel;
  }
  return channels;
}

Cut cut(const Scenario& s, int threads) {
  const auto budget = static_cast<Index>(cache_bytes(2) / sizeof(float));
  const Index taps = s.kh * s.kw, halo = (s.kh - 1) * s.dh;
  Cut c{};
  c.panel = panel_of(s.mg(), 64);
  c.panels = s.mg() / c.panel;
  // A band as high as the halo, or more where it fits, and one for each thread.
  const Index row_floats = taps * c.panel * s.w;
  const Index fits = std::clamp(budget / row_floats - halo, std::max<Index>(1, halo), s.oh);
  const Index busy = ceil_div(threads, s.n * c.panels);
  c.bands = std::min(s.oh, ceil_div(ceil_div(s.oh, std::min(fits, s.oh)), busy) * busy);
  c.rows = ceil_div(s.oh, c.bands);
  c.bands = ceil_div(s.oh, c.rows);
  c.input_rows = std::min(s.h, c.rows + halo);
  c.plane_floats = cache_lines(row_floats * c.input_rows);
  return c;
}

class Kn2 final : public Convolution {
 public:
  Kn2(const Primitive& row, const Scenario& s, const Weights& weights, const Options& options)
      : s_(s),
        form_(*static_cast<const Form*>(row.params)),
        threads_(options.threads),
        taps_(s.kh * s.kw),
        cut_(cut(s, options.threads)),
        in_(strides(row.in, s.in())),
        kernel_(pack(s, weights.filter)),
        output_(s, row.out, form_.ki, Output::Tiles::any, weights, options),
        staged_floats_(output_.staged_floats(cut_.panel, cut_.rows * s.ow)) {}

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * thread_floats()) * sizeof(float);
  }
  std::size_t packed_bytes() const override { return kernel_.bytes() + output_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    parallel(threads_, [&](int thread, int team) {
      float* own = static_cast<float*>(args.workspace) + thread * thread_floats();
      const Range items = share(s_.n * s_.g * cut_.panels * cut_.bands, thread, team);
      for (Index item = items.begin; item < items.end; ++item) {
        const Index first = item % cut_.bands * cut_.rows, panel = item / cut_.bands;
        const Index n = panel / (s_.g * cut_.panels);
        band(args, n, panel % (s_.g * cut_.panels), {first, std::min(first + cut_.rows, s_.oh)},
             own);
      }
    });
  }

 private:
  Index thread_floats() const { return cut_.plane_floats + staged_floats_; }

  /// Panel after panel: [taps][panel][c] for kernel x image, [c][taps][panel] for image x kernel.
  Buffer pack(const Scenario& s, const float* filter) const {
    const Index panel = cut_.panel, cg = s.cg();
    const KernelStrides to = form_.ki ? KernelStrides{cg, 1, s.kw * panel * cg, panel * cg}
                                      : KernelStrides{1, taps_ * panel, s.kw * panel, panel};
    return pack_kernel(s, filter, to, panel);
  }

  /// One band of one panel; panels are counted over all groups.
  void band(const RunArgs& args, Index n, Index panel, Range rows, float* own) const {
    const Index count = cut_.panel, g = panel / cut_.panels;
    const Tile tile = output_.tile(args, n, {panel * count, (panel + 1) * count},
                                   {rows.begin * s_.ow, rows.end * s_.ow}, own + cut_.plane_floats);
    output_.clear(args, tile);
    // The image rows that the band sees through any tap.
    const Index above = std::max<Index>(0, rows.begin - s_.pt);
    const Index below = std::min(s_.h, rows.end - 1 - s_.pt + (s_.kh - 1) * s_.dh + 1);
    if (above < below) {
      const Index wide = taps_ * count;
      const Tile planes = dense_tile(form_.ki, n, {0, wide}, {above * s_.w, below * s_.w}, own);
      multiply(form_, s_.cg(),
               {kernel_.data() + panel * wide * s_.cg(), form_.depth_major() ? wide : s_.cg()},
               {args.in + in_.at(n, g * s_.cg(), above, 0), in_.w_stride}, 0, planes);
      for (Index t = 0; t < taps_; ++t) {
        const Tap tap = make_tap(s_, t / s_.kw, t % s_.kw, rows);
        if (tap.empty()) continue;
        shift_add(s_, tap, planes.part({t * count, (t + 1) * count}, planes.p), tile);
      }
    }
    output_.finish(args, tile);
  }

  Scenario s_;
  Form form_;
  int threads_;
  Index taps_;
  Cut cut_;
  Strides in_;
  Buffer kernel_;
  Output output_;
  Index staged_floats_;
};

const char* reject(const Primitive&, const Scenario& s) {
  if (const char* why = reject_kn2(s)) return why;
  return cut(s, 1).plane_floats > kMostBytes / static_cast<Index>(sizeof(float))
             ? "its planes need more than 1 GiB"
             : nullptr;
}

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<Kn2>(row, s, weights, options);
}

constexpr Primitive make(std::string_view name, Layout in, Layout out, const Form& form) {
  return {name, Family::kn2, in, out, reject, prepare, &form};
}

constexpr Primitive kRows[] = {
    // as published
    make("kn2col", Layout::hwc, Layout::chw, kAbIk),
    make("kn2row", Layout::hwc, Layout::chw, kAbtKi),
    // without the transposition
    make("kn2col-hwc", Layout::hwc, Layout::hwc, kAbIk),
};

}  // namespace

std::span<const Primitive> kn2_rows() { return kRows; }

}  // namespace convprim
