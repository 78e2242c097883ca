// The conversion routines. Each pair of layouts comes down to transposes of matrices or to copies
// of rows, see lib/kernels/transpose.hpp:
//
//   chw  <-> hwc      one C x HW matrix per image         hcw  <-> hwc  one C x W matrix per row
//   chw  <-> chwBc    one B x HW matrix per block         chw  <-> hcw  rows of W floats
//   hwc  <-> chwBc    rows of B floats                    8c  <-> 16c   rows of 8 floats
//
// hcw <-> chwBc has no routine: chains serve it.
//
// Work is cut into tiles of pixels, small enough that a tile's cache lines, touched once per group
// of channels, are still in the L2 cache when the next group comes, and large enough for the
// prefetchers.
#include "convprim/conversion.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/kernels.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

/// Floats of a tile of all channels.
constexpr Index kTileFloats = 16 * 1024;
/// Channels that are moved together where stores run along planes: two lines of each pixel, or one
/// where the planes' lines share few sets of the L1 cache.
constexpr Index kGroup = 32;
/// Pixels of a tile where these are too few even for one: runs of stores that are long enough, of
/// pixels that mostly stay in a cache until all channels are moved.
constexpr Index kFewSetsTile = 128;
/// Pixels of planes that are moved whole: next to other tiles' their lines would be shared.
constexpr Index kShortPlane = 64;
/// From this many blocks of channels on, hwc is written pixel by pixel, so that stores run on:
/// strided ones fall into few sets of the L1 cache where the stride is a power of two.
constexpr Index kRunBlocks = 16;
/// Floats of a row for which a copy's own cost counts.
constexpr Index kShortRow = 16;
/// Floats of short rows that are moved together, so that they stay in the L1 cache.
constexpr Index kShortTile = 4096;
/// Pixels of a tile of one channel block.
constexpr Index kBlockTile = 1024;

/// Pixels in a tile: a multiple of 16, so that tiles end with cache lines where planes do.
Index tile_pixels(Index channels) { return std::max<Index>(16, kTileFloats / channels / 16 * 16); }

/// How many lines, that many floats apart, stay in the L1 cache until all of each is written.
Index kept_lines(Index stride) {
  constexpr Index kWay = 1024, kLines = 8;  // floats of a way of the cache; lines of a set
  return kLines * kWay / std::gcd(stride, kWay);
}

/// Likewise for a tile whose pixels are stored that many floats apart.
Index tile_pixels(Index channels, Index stride) {
  return std::max<Index>(16, std::min(tile_pixels(channels), kept_lines(stride)));
}

Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

/// A thread takes at least 64 KiB: less is not worth waking one for.
int useful_threads(const Shape& s, int threads) {
  return team_of(threads, 1 + s.count() / (16 * 1024));
}

/// body(outer, first pixel, pixels) over all tiles of `pixels` pixels in each of `outer` matrices.
template <class Body>
void for_tiles(const Shape& s, int threads, Index outer, Index pixels, Index tile, Body&& body) {
  const Index tiles = ceil_div(pixels, tile);
  parallel_for(useful_threads(s, threads), outer * tiles, [&](Index item) {
    const Index first = item % tiles * tile;
    body(item / tiles, first, std::min(tile, pixels - first));
  });
}

/// chw or hcw to hwc, and back: a matrix of channels x pixels for each image, or for each row.
template <Layout kPlanar, bool kToHwc>
void planar_hwc(const Shape& s, const float* in, float* out, const ChannelSlice& slice,
                int threads) noexcept {
  const auto& k = *kernels::active().transpose;
  const Layout from = kToHwc ? kPlanar : Layout::hwc, to = kToHwc ? Layout::hwc : kPlanar;
  const Strides src = strides(from, s), dst = strides(to, s, slice);
  const Index rows = kPlanar == Layout::hcw ? s.h : 1;
  const Index pixels = kPlanar == Layout::hcw ? s.w : s.h * s.w;
  const bool few_sets = !kToHwc && pixels >= kShortRow && kept_lines(dst.c_stride) < kGroup / 2;
  const Index tile = pixels <= std::min(kShortPlane, kept_lines(dst.w_stride)) ? pixels
                     : kToHwc   ? tile_pixels(s.c, dst.w_stride)
                     : few_sets ? kFewSetsTile
                                : tile_pixels(s.c);
  for_tiles(s, threads, s.n * rows, pixels, tile, [&](Index outer, Index first, Index count) {
    const Index n = outer / rows, h = outer % rows;
    const float* a = in + src.at(n, 0, h, 0) + first * src.w_stride;
    float* b = out + dst.at(n, 0, h, 0) + first * dst.w_stride;
    if constexpr (kToHwc) {
      k.transpose(s.c, count, a, src.c_stride, b, dst.w_stride);
    } else if (few_sets) {
      k.to_planes(count, s.c, a, src.w_stride, b, dst.c_stride);
    } else {
      // Group by group, so that stores run along the planes, if these are longer than a store.
      const Index most = pixels < kShortRow                  ? s.c
                         : kept_lines(dst.c_stride) < kGroup ? kGroup / 2
                                                             : kGroup;
      for (Index c = 0; c < s.c;) {
        const Index group = s.c - c < 2 * most ? s.c - c : most;
        k.transpose(count, group, a + c, src.w_stride, b + c * dst.c_stride, dst.c_stride);
        c += group;
      }
    }
  });
}

/// chw to blocked and back, block by block.
template <Layout kBlocked, bool kToBlocked>
void chw_blocked(const Shape& s, const float* in, float* out, const ChannelSlice& slice,
                 int threads) noexcept {
  const auto& k = *kernels::active().transpose;
  constexpr Index kB = block(kBlocked);
  const Layout from = kToBlocked ? Layout::chw : kBlocked, to = kToBlocked ? kBlocked : Layout::chw;
  const Strides src = strides(from, s), dst = strides(to, s, slice);
  const Index blocks = ceil_div(s.c, kB);
  const bool few_sets = !kToBlocked && kept_lines(dst.c_stride) < kB;
  for_tiles(s, threads, s.n * blocks, s.h * s.w, few_sets ? kFewSetsTile : kBlockTile,
            [&](Index outer, Index first, Index count) {
              const Index n = outer / blocks, c = outer % blocks * kB;
              const Index valid = std::min(kB, s.c - c);
              const float* a = in + src.at(n, c, 0, 0) + first * src.w_stride;
              float* b = out + dst.at(n, c, 0, 0) + first * dst.w_stride;
              if constexpr (kToBlocked) {
                k.to_block(kB, valid, count, a, src.c_stride, b);
              } else if (few_sets) {
                k.to_planes(count, valid, a, kB, b, dst.c_stride);
              } else {
                k.from_block(kB, valid, count, a, b, dst.c_stride);
              }
            });
}

/// hwc to blocked and back, by tiles of pixels.
template <Layout kBlocked, bool kToBlocked>
void hwc_blocked(const Shape& s, const float* in, float* out, const ChannelSlice& slice,
                 int threads) noexcept {
  const auto& k = *kernels::active().transpose;
  constexpr Index kB = block(kBlocked);
  const Layout from = kToBlocked ? Layout::hwc : kBlocked, to = kToBlocked ? kBlocked : Layout::hwc;
  const Strides src = strides(from, s), dst = strides(to, s, slice);
  for_tiles(s, threads, s.n, s.h * s.w, tile_pixels(s.c), [&](Index n, Index first, Index count) {
    Index whole = 0;
    if (!kToBlocked && s.c >= kRunBlocks * kB) {
      whole = s.c / kB;
      const float* a = in + src.at(n, 0, 0, 0) + first * src.w_stride;
      float* b = out + dst.at(n, 0, 0, 0) + first * dst.w_stride;
      k.copy_planes(count, whole, kB, a, kB, src.c_stride, b, dst.w_stride, kB);
    }
    for (Index c = whole * kB; c < s.c; c += kB) {
      const Index valid = std::min(kB, s.c - c);
      const float* a = in + src.at(n, c, 0, 0) + first * src.w_stride;
      float* b = out + dst.at(n, c, 0, 0) + first * dst.w_stride;
      if (kB == 8 && c + 16 <= s.c) {  // two blocks at a time
        if constexpr (kToBlocked) {
          k.split_halves(count, a, src.w_stride, b, b + dst.c_stride);
        } else {
          k.join_halves(count, a, a + src.c_stride, b, dst.w_stride);
        }
        c += kB;
        continue;
      }
      if (kToBlocked || valid == kB) {
        k.copy_lanes(count, valid, kB, a, src.w_stride, b, dst.w_stride);
      } else {
        k.copy_rows(count, valid, a, src.w_stride, b, dst.w_stride);
      }
    }
  });
}

/// chw8c to chw16c and back: two blocks of 8 for each of 16.
template <bool kWiden>
void blocked_blocked(const Shape& s, const float* in, float* out, const ChannelSlice& slice,
                     int threads) noexcept {
  const auto& k = *kernels::active().transpose;
  const Layout from = kWiden ? Layout::chw8c : Layout::chw16c;
  const Layout to = kWiden ? Layout::chw16c : Layout::chw8c;
  const Strides src = strides(from, s), dst = strides(to, s, slice);
  const Index blocks = ceil_div(s.c, 16);
  for_tiles(s, threads, s.n * blocks, s.h * s.w, kBlockTile,
            [&](Index outer, Index first, Index count) {
              const Index n = outer / blocks, c = outer % blocks * 16;
              const float* a = in + src.at(n, c, 0, 0) + first * src.w_stride;
              float* b = out + dst.at(n, c, 0, 0) + first * dst.w_stride;
              const bool both = c + 8 < s.c;
              if (both && kWiden) {
                k.join_halves(count, a, a + src.c_stride, b, dst.w_stride);
              } else if (both) {
                k.split_halves(count, a, src.w_stride, b, b + dst.c_stride);
              } else {  // no second half: zeros in the wider
                k.copy_lanes(count, 8, 8, a, src.w_stride, b, dst.w_stride);
                if (kWiden) k.copy_lanes(count, 0, 8, a, src.w_stride, b + 8, dst.w_stride);
              }
            });
}

/// chw to hcw and back: channels and rows swap places.
template <bool kToHcw>
void chw_hcw(const Shape& s, const float* in, float* out, const ChannelSlice& slice,
             int threads) noexcept {
  const auto& k = *kernels::active().transpose;
  const Layout from = kToHcw ? Layout::chw : Layout::hcw, to = kToHcw ? Layout::hcw : Layout::chw;
  const Strides src = strides(from, s), dst = strides(to, s, slice);
  // Runs of less than a few cache lines would waste what is fetched around them.
  const Index tile = std::max<Index>(ceil_div(128, s.w), kTileFloats / (s.c * s.w));
  for_tiles(s, threads, s.n, s.h, tile, [&](Index n, Index first, Index count) {
    const float* a = in + src.at(n, 0, first, 0);
    float* b = out + dst.at(n, 0, first, 0);
    // Short rows are copied in the order in which they are stored, some channels at a time.
    if (kToHcw && s.w < kShortRow) {
      const Index most = std::max<Index>(16, kShortTile / (count * s.w) / 16 * 16);
      for (Index c = 0; c < s.c; c += most) {
        k.copy_planes(count, std::min(most, s.c - c), s.w, a + c * src.c_stride, src.h_stride,
                      src.c_stride, b + c * dst.c_stride, dst.h_stride, dst.c_stride);
      }
    } else {
      k.copy_planes(s.c, count, s.w, a, src.c_stride, src.h_stride, b, dst.c_stride, dst.h_stride);
    }
  });
}

constexpr Conversion kConversions[] = {
    {"chw-to-hcw", Layout::chw, Layout::hcw, chw_hcw<true>},
    {"hcw-to-chw", Layout::hcw, Layout::chw, chw_hcw<false>},
    {"chw-to-hwc", Layout::chw, Layout::hwc, planar_hwc<Layout::chw, true>},
    {"hwc-to-chw", Layout::hwc, Layout::chw, planar_hwc<Layout::chw, false>},
    {"hcw-to-hwc", Layout::hcw, Layout::hwc, planar_hwc<Layout::hcw, true>},
    {"hwc-to-hcw", Layout::hwc, Layout::hcw, planar_hwc<Layout::hcw, false>},
    {"chw-to-chw8c", Layout::chw, Layout::chw8c, chw_blocked<Layout::chw8c, true>},
    {"chw8c-to-chw", Layout::chw8c, Layout::chw, chw_blocked<Layout::chw8c, false>},
    {"chw-to-chw16c", Layout::chw, Layout::chw16c, chw_blocked<Layout::chw16c, true>},
    {"chw16c-to-chw", Layout::chw16c, Layout::chw, chw_blocked<Layout::chw16c, false>},
    {"hwc-to-chw8c", Layout::hwc, Layout::chw8c, hwc_blocked<Layout::chw8c, true>},
    {"chw8c-to-hwc", Layout::chw8c, Layout::hwc, hwc_blocked<Layout::chw8c, false>},
    {"hwc-to-chw16c", Layout::hwc, Layout::chw16c, hwc_blocked<Layout::chw16c, true>},
    {"chw16c-to-hwc", Layout::chw16c, Layout::hwc, hwc_blocked<Layout::chw16c, false>},
    {"chw8c-to-chw16c", Layout::chw8c, Layout::chw16c, blocked_blocked<true>},
    {"chw16c-to-chw8c", Layout::chw16c, Layout::chw8c, blocked_blocked<false>},
};

}  // namespace

std::span<const Conversion> conversions() { return kConversions; }

const Conversion* find_conversion(std::string_view name) {
  for (const Conversion& c : kConversions) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

}  // namespace convprim
