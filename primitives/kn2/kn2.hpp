// What the kn2 algorithms share: the taps of the kernel as shifts of the whole image.
//
// kn2 takes a K x K convolution as K*K products of a 1x1 kernel with the whole image, each shifted
// by its tap's place in the kernel and added up:
//   out[k][y][x] = sum over taps (i, j) of (W_ij * image)[k][y - pt + i*dh][x - pl + j*dw]
// Source: Vasudevan, Anderson and Gregg, arXiv 1704.04428; Anderson et al., arXiv 1709.03395.
#pragma once

#include "primitives/im2/gemm.hpp"

namespace convprim::gemm {

/// A kernel tap and the outputs that it adds to: output (y, x) takes from input (y + down,
/// x + right).
struct Tap {
  Index down, right;
  Range y, x;
  bool empty() const { return y.begin == y.end || x.begin == x.end; }
};

/// Tap (i, j), its outputs cut to `rows`.
Tap make_tap(const Scenario& s, Index i, Index j, Range rows);

/// Adds a tap's product, whose pixels are those of the input, to a tile of as many channels whose
/// pixels are those of the output; both hold whole rows, in the same form (ki or not).
void shift_add(const Scenario& s, const Tap& tap, const Tile& product, const Tile& sums);

/// Why kn2 does not do.
const char* reject_kn2(const Scenario& s);

}  // namespace convprim::gemm
