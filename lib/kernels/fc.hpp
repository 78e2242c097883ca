// Fully connected layers: matrix times vector, or times a few vectors, over packed weights.
#pragma once

#include <cstddef>

namespace convprim::kernels {

/// A panel holds the weights of up to kFcVecs vectors of outputs: [k][vecs * lanes].
inline constexpr int kFcVecs = 4;
/// Images that one pass over a panel serves, at most.
inline constexpr int kFcImages = 6;

/// One pass over (part of) a panel.
struct FcPass {
  const float* x;         ///< first image's elements
  std::ptrdiff_t x_step;  ///< from one image to the next
  const float* w;         ///< weights [k][vecs * lanes], one stream
  std::ptrdiff_t k;
  const float* bias;  ///< added to the sums, vecs * lanes of them; null: add to what `out` holds
  float* out;
  std::ptrdiff_t out_step;  ///< from one image to the next
  std::ptrdiff_t valid;     ///< outputs that exist, at most vecs * lanes
  float lo, hi;             ///< the result is clamped
};

struct FcKernels {
  /// Images that a pass serves best: register tiles have this height.
  int images;
  /// The pass for [vecs - 1][images - 1].
  void (*pass[kFcVecs][kFcImages])(const FcPass&);
};

}  // namespace convprim::kernels
