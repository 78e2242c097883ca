// Tensor shapes and the orders in which their elements lie in memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// Extents, strides and element offsets: 64 bits throughout, so that no product overflows.
using Index = std::int64_t;

/// Extents of a four-dimensional tensor. A tensor of rank 2 (fully connected layers) has h = w = 1.
struct Shape {
  Index n = 1;  ///< images
  Index c = 1;  ///< channels
  Index h = 1;  ///< rows
  Index w = 1;  ///< columns
  /// Elements without any padding of the channels.
  Index count() const { return n * c * h * w; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// Order of one image's dimensions in memory, outermost first; the batch is always outside.
/// The blocked layouts split the channels into blocks of 8 or 16, [ceil(C/b)][H][W][b]; the lanes
/// of the last block beyond C are stored as zeros: every producer writes them, every consumer may
/// rely on them.
enum class Layout : std::uint8_t { chw, hcw, hwc, chw8c, chw16c };

inline constexpr int kLayoutCount = 5;
inline constexpr std::array<Layout, kLayoutCount> kLayouts = {Layout::chw, Layout::hcw, Layout::hwc,
                                                              Layout::chw8c, Layout::chw16c};

/// "chw", "hcw", "hwc", "chw8c" or "chw16c".
std::string_view name(Layout layout);

/// The layout of that name (lower case); nothing if there is none.
std::optional<Layout> layout_of(std::string_view name);

/// Channels in a block: 8 or 16 for the blocked layouts, 1 for the others.
constexpr Index block(Layout layout) {
  return layout == Layout::chw8c ? 8 : layout == Layout::chw16c ? 16 : 1;
}

/// Channels as stored: c rounded up to a whole number of blocks.
constexpr Index stored_channels(Layout layout, Index c) {
  const Index b = block(layout);
  return (c + b - 1) / b * b;
}

/// Floats that a tensor of this shape takes in this layout, padding lanes included.
constexpr Index element_count(Layout layout, const Shape& s) {
  return s.n * stored_channels(layout, s.c) * s.h * s.w;
}

/// Offset in floats of element (n, c, h, w) of a tensor of shape s.
constexpr Index offset(Layout layout, const Shape& s, Index n, Index c, Index h, Index w) {
  const Index image = stored_channels(layout, s.c) * s.h * s.w * n;
  switch (layout) {
    case Layout::chw:
      return image + (c * s.h + h) * s.w + w;
    case Layout::hcw:
      return image + (h * s.c + c) * s.w + w;
    case Layout::hwc:
      return image + (h * s.w + w) * s.c + c;
    case Layout::chw8c:
    case Layout::chw16c: {
      const Index b = block(layout);
      return image + ((c / b * s.h + h) * s.w + w) * b + c % b;
    }
  }
  return 0;
}

/// True if a tensor of shape s lies in memory in the same order in both layouts, so that a
/// conversion between them moves nothing (for example 1x1 images with C a multiple of the block).
bool same_memory(Layout a, Layout b, const Shape& s);

/// A range of channels inside a larger tensor of the same n, h, w and layout: where a producer puts
/// its output when a concatenation follows. The default stands for a tensor of its own.
struct ChannelSlice {
  Index channels = 0;  ///< channels of the whole tensor; 0: the tensor is not sliced
  Index begin = 0;     ///< first channel of the slice, a multiple of the block in blocked layouts
  /// True if the output lies inside a larger tensor.
  bool sliced() const { return channels != 0; }
  friend bool operator==(const ChannelSlice&, const ChannelSlice&) = default;
};

/// Strides in floats of a tensor, or of a channel slice of one, for code that serves several
/// layouts. Element (n, c, h, w) lies at base + n*n_stride + (c/block)*c_stride + h*h_stride +
/// w*w_stride + c%block, the pointer being that of the whole tensor.
struct Strides {
  Index base = 0;      ///< offset of the slice's first element; 0 for a whole tensor
  Index n_stride = 0;  ///< from one image to the next
  Index c_stride = 0;  ///< from one channel (or block of channels) to the next
  Index h_stride = 0;  ///< from one row to the next
  Index w_stride = 0;  ///< from one column to the next
  Index block = 1;     ///< channels in a block, contiguous in memory
  /// Offset of one element from the start of the whole tensor.
  Index at(Index n, Index c, Index h, Index w) const {
    return base + n * n_stride + c / block * c_stride + h * h_stride + w * w_stride + c % block;
  }
};

/// Strides of a tensor of shape s; with a slice, s is the shape of the slice itself (s.c channels
/// out of slice.channels).
Strides strides(Layout layout, const Shape& s, const ChannelSlice& slice = {});

}  // namespace convprim
#pragma GCC visibility pop
