// What the GEMM families (im2, kn2, mec, conv-1x1) share: the ways to pass a product of image and
// kernel matrices to sgemm, the packing of kernel matrices, the cutting of the output into tiles,
// and their way into the output tensor.
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

/// Channels k and pixels p of image n, as products make them: [channels][pixels] (ki) or
/// [pixels][channels].
struct Tile {
  bool ki;
  Index n;
  Range k, p;
  float* data;
  Index ld;  ///< distance of rows
  Index channels() const { return k.end - k.begin; }
  Index pixels() const { return p.end - p.begin; }
  /// Element of one channel and pixel, both counted as k and p are.
  float* at(Index channel, Index pixel) const {
    channel -= k.begin, pixel -= p.begin;
    return data + (ki ? channel * ld + pixel : pixel * ld + channel);
  }
  Tile part(Range channels, Range pixels) const {
    return {ki, n, channels, pixels, at(channels.begin, pixels.begin), ld};
  }
};

/// A tile whose rows follow each other.
inline Tile dense_tile(bool ki, Index n, Range k, Range p, float* data) {
  return {ki, n, k, p, data, ki ? p.end - p.begin : k.end - k.begin};
}

/// tile = kernel and image multiplied in that form, plus beta * tile.
void multiply(const Form& form, Index depth, Matrix kernel, Matrix image, float beta,
              const Tile& tile);

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

/// Floats rounded up to whole cache lines.
constexpr Index cache_lines(Index floats) { return (floats + 15) / 16 * 16; }

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

/// The output tensor as the destination of tiles: layout, slice and epilogue. Tiles of ki in chw
/// and of ik in hwc are multiplied straight into the output, and if no tile is longer than an
/// output row those of ki in hcw as well; others are staged in the workspace.
class Output {
 public:
  enum class Tiles : std::uint8_t { any, single_rows };

  Output(const Scenario& s, Layout layout, bool ki, Tiles tiles, const Weights& weights,
         const Options& options);

  /// Workspace to stage a tile of so many channels and pixels: none where sgemm can write tiles
  /// where they belong.
  Index staged_floats(Index channels, Index pixels) const {
    return direct_ ? 0 : cache_lines(channels * pixels);
  }
  /// Where to make a tile: in the output, or staged.
  Tile tile(const RunArgs& args, Index n, Range k, Range p, float* staged = nullptr) const;
  /// The factor of what a tile held before: 1 where the residual lies in the output itself, so that
  /// multiplying must add to it.
  float beta(const RunArgs& args) const { return adds_in_place(args) ? 1.0F : 0.0F; }
  /// Prepares a tile for products that all add to it.
  void clear(const RunArgs& args, const Tile& tile) const;
  /// Bias, residual and clamp on a tile or a part of it; then stores it if it is staged.
  void finish(const RunArgs& args, const Tile& tile) const;
  std::size_t bytes() const { return bias_.bytes(); }

 private:
  bool adds_in_place(const RunArgs& args) const {
    return direct_ && epilogue_.residual && args.residual == args.out;
  }
  void finish_planes(const RunArgs& args, const Tile& tile) const;
  void finish_pixels(const RunArgs& args, const Tile& tile) const;
  void finish_transposed(const RunArgs& args, const Tile& tile) const;

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

/// Shares the tiles of all images among threads, each with all groups: body(thread, n, g, k, p),
/// channels counted over all groups.
template <class Body>
void for_tiles(const Scenario& s, const Tiles& tiles, int threads, Body&& body) {
  const Index items = s.n * tiles.count();
  parallel(team_of(threads, items), [&](int thread, int team) {
    const Range mine = share(items, thread, team);
    for (Index item = mine.begin; item < mine.end; ++item) {
      const Index n = item / tiles.count(), tile = item % tiles.count();
      const Range k = tiles.channels(tile);
      for (Index g = 0; g < s.g; ++g) {
        body(thread, n, g, Range{g * s.mg() + k.begin, g * s.mg() + k.end}, tiles.pixels(tile));
      }
    }
  });
}

}  // namespace convprim::gemm
