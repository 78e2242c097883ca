// Fully connected layers: matrix times vector, or times a few vectors, over packed weights.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convprim::kernels {

/// How a panel holds the weights of up to kFcVecs vectors of outputs. The elements of the sum come
/// in groups, the last filled up with zeros; K is their number so filled.
enum class FcWeights {
  float32,  ///< floats, [K][vecs * lanes]
  /// Fixed point of 24 bits with a scale for each output: three quarters of the bytes. Four weights
  /// of an output are three words: each of the first three weights in the upper bits of its word,
  /// the fourth in the words' low bytes, its highest byte first. [K / 4][vecs][3][lanes].
  fixed24,
  /// Eight weights of an output, of 19 bits each, and the exponent that they share are five words
  /// a to e: five eighths of the bytes. Weights 0 to 4 are in the upper bits of a word each, and so
  /// leave it 13 lower ones. Weight 5 begins in those of a and ends in the upper 6 of b, weight 6
  /// in c and d, weight 7 in e and the next 6 of b. The exponent is that of a float, its highest
  /// bit the lowest of b, the others the lowest 7 of d. [K / 8][vecs][5][lanes].
  block20,
};
inline constexpr int kFcFormats = 3;

/// Elements of the sum in a group, and the 32-bit words that hold one output's weights for them.
struct FcGroup {
  int size, words;
};
constexpr FcGroup fc_group(FcWeights format) {
  return format == FcWeights::block20   ? FcGroup{8, 5}
         : format == FcWeights::fixed24 ? FcGroup{4, 3}
                                        : FcGroup{4, 4};
}

inline constexpr int kFcVecs = 4;
/// Images that one pass over a panel serves, at most.
inline constexpr int kFcImages = 6;

/// One pass over (part of) a panel.
struct FcPass {
  const float* x;         ///< first image's elements
  std::ptrdiff_t x_step;  ///< from one image to the next
  const void* w;          ///< weights of whole groups, one stream
  std::ptrdiff_t k;  ///< elements of the sum; only the last pass of a panel ends within a group
  /// Of fixed24: what a weight is a multiple of, times 2^-8, for each of vecs * lanes outputs.
  const float* scale;
  const float* bias;  ///< added to the sums, vecs * lanes of them; null: add to what `out` holds
  float* out;
  std::ptrdiff_t out_step;  ///< from one image to the next
  std::ptrdiff_t valid;     ///< outputs that exist, at most vecs * lanes
  float lo, hi;             ///< the result is clamped
};

struct FcKernels {
  /// Images that a pass serves best: register tiles have this height.
  int images;
  /// The pass for [format][vecs - 1][images - 1].
  void (*pass[kFcFormats][kFcVecs][kFcImages])(const FcPass&);
  /// q = w * per_unit, of a magnitude of 2^23 at most, rounded to 24 bits; n a multiple of 16.
  void (*to_fixed24)(const float* w, std::ptrdiff_t n, float per_unit, std::int32_t* q);
};

}  // namespace convprim::kernels
