// What the GEMM families (im2, kn2, mec, conv-1x1) share: the ways to pass a product of image and
// kernel matrices to sgemm, the packing of kernel matrices, and the way of a finished tile into the
// output tensor.
//
// A group's convolution is one product over `depth`, the taps and input channels of a patch:
//   ki: out[k][p] = sum over r of kernel[k][r] * image[r][p]    the tile is [channels][pixels]
//   ik: out[p][k] = sum over r of image[p][r] * kernel[r][k]    the tile is [pixels][channels]
// Either operand may be stored transposed, which the names of the published rows tell: `atb` passes
// the first one transposed, `abt` the second, `atbt` both. Source: Anderson and Gregg, CGO 2018.
#pragma once

#include "buffer.hpp"
#include "convprim/primitive.hpp"
#include "threads.hpp"

namespace convprim::gemm {

/// How a tile is passed to sgemm.
struct Form {
  bool ki;       ///< kernel x image; else image x kernel
  bool trans_a;  ///< the first operand is stored transposed
  bool trans_b;  ///< the second operand is stored transposed
  /// The kernel matrix is stored [depth][channels], else [channels][depth].
  constexpr bool depth_major() const { return ki ? trans_a : !trans_b; }
  /// The image or patch matrix is stored [pixels][depth] ("row"), else [depth][pixels] ("col").
  constexpr bool pixel_major() const { return ki ? trans_b : !trans_a; }
};
inline constexpr Form kAbIk{false, false, false}, kAbtIk{false, false, true},
    kAtbIk{false, true, false}, kAtbtIk{false, true, true};
inline constexpr Form kAbKi{true, false, false}, kAbtKi{true, false, true},
    kAtbKi{true, true, false}, kAtbtKi{true, true, true};

/// A matrix as stored: its first element and the distance of its rows.
struct Matrix {
  const float* data;
  Index ld;
};

/// tile = kernel and image multiplied in that form, plus beta * tile.
void multiply(const Form& form, Index channels, Index pixels, Index depth, Matrix kernel,
              Matrix image, float beta, float* tile, Index tile_ld);

/// Where the elements of one panel's filter go: strides of output channel, input channel, kernel
/// row and column.
struct KernelStrides {
  Index k, c, i, j;
};

/// The order of a patch's elements: input channel, kernel row, kernel column, outermost first.
enum class DepthOrder : std::uint8_t { cij, ijc, icj };

/// Strides of a kernel matrix with `depths` elements to a patch.
KernelStrides kernel_strides(const Scenario& s, DepthOrder order, bool depth_major);

/// The filter rearranged, panel after panel of that many output channels (a divisor of a group's;
/// 0: all of them).
Buffer pack_kernel(const Scenario& s, const float* filter, const KernelStrides& to,
                   Index panel = 0);

/// Quotient rounded up; a may be negative, b is positive.
constexpr Index ceil_div(Index a, Index b) { return a > 0 ? (a + b - 1) / b : -(-a / b); }

/// Outputs x in [0, count) whose input x*stride - pad + tap lies in [0, extent).
Range valid_outputs(Index count, Index extent, Index stride, Index pad, Index tap);

/// Calls body(y, x, length, at) for each output row that the pixels p (= y*ow + x) touch; `at` is
/// the run's distance from the first pixel.
template <class Body>
void for_runs(Range p, Index ow, Body&& body) {
  Index y = p.begin / ow, x = p.begin % ow;
  for (Index at = 0; at < p.end - p.begin; ++y, x = 0) {
    const Index length = std::min(ow - x, p.end - p.begin - at);
    body(y, x, length, at);
    at += length;
  }
}

/// The output tensor as the destination of tiles: layout, slice and epilogue. Tiles are [channels]
/// [pixels] (ki) or [pixels][channels]; those of ki in chw and of ik in hwc are multiplied straight
/// into the output, and if no tile is longer than an output row those of ki in hcw as well; others
/// are staged in a scratch tile.
class Output {
 public:
  enum class Tiles : std::uint8_t { any, single_rows };

  Output(const Scenario& s, Layout layout, bool ki, Tiles tiles, const Weights& weights,
         const Options& options);

  /// sgemm can write tiles where they belong.
  bool direct() const { return direct_; }
  /// Row distance of a direct tile.
  Index ld() const { return ki_ ? at_.c_stride : at_.w_stride; }
  /// First element of a direct tile.
  float* tile(const RunArgs& args, Index n, Index k, Index p) const {
    return args.out + at_.at(n, k, p / ow_, p % ow_);
  }
  /// The factor of what a direct tile held before: 1 where the residual lies in the output itself,
  /// so that multiplying must add to it.
  float beta(const RunArgs& args) const { return adds_in_place(args) ? 1.0F : 0.0F; }
  /// Bias, residual and clamp on channels k and pixels p of image n, held in a tile with rows `ld`
  /// apart; then stores the tile if it is a staged one.
  void finish(const RunArgs& args, Index n, Range k, Range p, float* tile, Index ld) const;
  std::size_t bytes() const { return bias_.bytes(); }

 private:
  bool adds_in_place(const RunArgs& args) const {
    return direct_ && epilogue_.residual && args.residual == args.out;
  }
  void finish_planes(const RunArgs& args, Index n, Range k, Range p, float* tile, Index ld) const;
  void finish_pixels(const RunArgs& args, Index n, Range k, Range p, float* tile, Index ld) const;
  void finish_transposed(const RunArgs& args, Index n, Range k, Range p, const float* tile,
                         Index ld) const;

  Layout layout_;
  bool ki_, direct_, trivial_;
  Index ow_;
  Epilogue epilogue_;
  Strides at_, residual_at_;
  Buffer bias_;
};

/// The output of one image cut into tiles of pixels and, for want of pixels, of a group's channels.
struct Tiles {
  Index all_pixels, tile_pixels, pixel_tiles;
  Index all_channels, tile_channels, channel_tiles;
  Index count() const { return pixel_tiles * channel_tiles; }
  Range pixels(Index tile) const {
    const Index first = tile / channel_tiles * tile_pixels;
    return {first, std::min(first + tile_pixels, all_pixels)};
  }
  Range channels(Index tile) const {
    const Index first = tile % channel_tiles * tile_channels;
    return {first, std::min(first + tile_channels, all_channels)};
  }
};

/// Tiles of about `wide` pixels, cut at multiples of `grain`, enough of them to keep the threads
/// busy; where that would make the tiles too narrow for an efficient product, the channels are cut.
Tiles split_tiles(const Scenario& s, Index wide, Index grain, int threads);

/// Zeros in a tile of either form.
void clear_tile(bool ki, Index channels, Index pixels, float* tile, Index ld);

/// Floats rounded up to whole cache lines.
constexpr Index cache_lines(Index floats) { return (floats + 15) / 16 * 16; }

}  // namespace convprim::gemm
