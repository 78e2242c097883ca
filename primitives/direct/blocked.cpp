// direct-*: register-blocked direct convolution.
//
//   for each output row y, tile of columns, panel of output channels (sums in registers)
//     for each block of input channels, tap (i, j), channel c of the block
//       sums[x][k] += in[c][y*sh - pt + i*dh][x*sw - pl + j*dw] * weights[k][c][i][j]
//
// Vectors run along the output channels; the input is read in place, a float at a time, broadcast.
// Channel blocks are outside the taps so that the rows that a tile reads stay in L1 for all taps.
// Georganas et al., arXiv 1808.05567 (blocked layouts, register blocking over columns); Zhang et
// al., arXiv 1809.10170 (no packing of the image, zero memory overhead).
#include "primitives/direct/tiled.hpp"
#include "primitives/registry.hpp"

namespace convprim {
namespace {

constexpr Tiling kRowTiles{Tiling::Tiles::rows, 32};

const char* reject(const Primitive& p, const Scenario& s) { return tiled_reject(s, p.in); }

std::unique_ptr<Convolution> prepare(const Primitive& p, const Scenario& s, const Weights& weights,
                                     const Options& options) {
  return make_tiled(s, weights, options, p.in, p.out, kRowTiles);
}

constexpr Primitive row(std::string_view name, Layout in, Layout out) {
  return {name, Family::direct, in, out, reject, prepare};
}

constexpr Primitive kRows[] = {
    row("direct-chw16c", Layout::chw16c, Layout::chw16c),
    row("direct-chw8c", Layout::chw8c, Layout::chw8c),
    row("direct-hwc", Layout::hwc, Layout::hwc),
    row("direct-chw16c-hwc", Layout::chw16c, Layout::hwc),
    row("direct-hwc-chw16c", Layout::hwc, Layout::chw16c),
    row("direct-hcw", Layout::hcw, Layout::hcw),
    row("direct-hcw-hwc", Layout::hcw, Layout::hwc),
    row("direct-hcw-chw16c", Layout::hcw, Layout::chw16c),
    row("direct-hcw-chw", Layout::hcw, Layout::chw),
    row("direct-hwc-hcw", Layout::hwc, Layout::hcw),
    row("direct-chw16c-hcw", Layout::chw16c, Layout::hcw),
    row("direct-chw16c-chw", Layout::chw16c, Layout::chw),
};

}  // namespace

std::span<const Primitive> direct_blocked_rows() { return kRows; }

}  // namespace convprim
