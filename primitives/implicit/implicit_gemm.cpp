// implicit-gemm-*: convolution as one product of packed weights with a patch matrix that is never
// made: an indirection table tells where each of its rows lies in the image.
//
//   for each tile of output pixels (the image as one list), panel of output channels
//     for each tap (i, j), input channel c: sums[p][k] += in(p, i, j)[c] * weights[k][i][j][c]
//
// Tiles run over the ends of rows, so that 7x7 images fill them as well as large ones, and each run
// of channels is as long as the layout lets it be. Pixels outside the image point to zeros. A 1x1
// convolution is the plain GEMM. Dukhan, arXiv 1907.02129 (the indirect convolution algorithm).
#include "primitives/direct/tiled.hpp"
#include "primitives/registry.hpp"

namespace convprim {
namespace {

constexpr Tiling kFlatTiles{Tiling::Tiles::flat, 0};

const char* reject(const Primitive& p, const Scenario& s) { return tiled_reject(s, p.in); }

std::unique_ptr<Convolution> prepare(const Primitive& p, const Scenario& s, const Weights& weights,
                                     const Options& options) {
  return make_tiled(s, weights, options, p.in, p.out, kFlatTiles);
}

constexpr Primitive row(std::string_view name, Layout in, Layout out) {
  return {name, Family::implicit, in, out, reject, prepare};
}

constexpr Primitive kRows[] = {
    row("implicit-gemm-hwc", Layout::hwc, Layout::hwc),
    row("implicit-gemm-chw16c", Layout::chw16c, Layout::chw16c),
    row("implicit-gemm-chw8c", Layout::chw8c, Layout::chw8c),
};

}  // namespace

std::span<const Primitive> implicit_gemm_rows() { return kRows; }

}  // namespace convprim
