// What the GEMM families share, see gemm.hpp.
#include "primitives/im2/gemm.hpp"

#include <cassert>
#include <cstring>

#include "blas.hpp"
#include "kernels/kernels.hpp"

namespace convprim::gemm {

void multiply(const Form& form, Index depth, Matrix kernel, Matrix image, float beta,
              const Tile& tile) {
  if (form.ki) {
    sgemm(form.trans_a, form.trans_b, tile.channels(), tile.pixels(), depth, 1, kernel.data,
          kernel.ld, image.data, image.ld, beta, tile.data, tile.ld);
  } else {
    sgemm(form.trans_a, form.trans_b, tile.pixels(), tile.channels(), depth, 1, image.data,
          image.ld, kernel.data, kernel.ld, beta, tile.data, tile.ld);
  }
}

KernelStrides kernel_strides(const Scenario& s, DepthOrder order, bool depth_major) {
  const Index depth = s.cg() * s.kh * s.kw, step = depth_major ? s.mg() : 1;
  const Index k = depth_major ? 1 : depth;
  switch (order) {
    case DepthOrder::cij:
      return {k, step * s.kh * s.kw, step * s.kw, step};
    case DepthOrder::ijc:
      return {k, step, step * s.kw * s.cg(), step * s.cg()};
    case DepthOrder::icj:
      return {k, step * s.kw, step * s.cg() * s.kw, step};
  }
  return {};
}

Buffer pack_kernel(const Scenario& s, const float* filter, const KernelStrides& to, Index panel) {
  Buffer packed(static_cast<std::size_t>(s.filter_count()));
  if (panel == 0) panel = s.mg();
  for (Index k = 0; k < s.m; ++k) {
    float* channel = packed.data() + k / panel * panel * s.cg() * s.kh * s.kw + k % panel * to.k;
    for (Index c = 0; c < s.cg(); ++c) {
      for (Index i = 0; i < s.kh; ++i) {
        for (Index j = 0; j < s.kw; ++j) channel[c * to.c + i * to.i + j * to.j] = *filter++;
      }
    }
  }
  return packed;
}

Range valid_outputs(Index count, Index extent, Index stride, Index pad, Index tap) {
  const Index first = std::clamp<Index>(ceil_div(pad - tap, stride), 0, count);
  const Index last = std::clamp<Index>(ceil_div(extent + pad - tap, stride), first, count);
  return {first, last};
}

Output::Output(const Scenario& s, Layout layout, bool ki, Tiles tiles, const Weights& weights,
               const Options& options)
    : layout_(layout),
      ki_(ki),
      direct_(layout == (ki ? Layout::chw : Layout::hwc) ||
              (ki && layout == Layout::hcw && tiles == Tiles::single_rows)),
      trivial_(weights.bias == nullptr && !options.epilogue.residual && !options.epilogue.clamps()),
      ow_(s.ow),
      epilogue_(options.epilogue),
      at_(strides(layout, s.out(), options.slice)),
      residual_at_(strides(layout, s.out())),
      bias_(Buffer::zeros(static_cast<std::size_t>(s.m))) {
  if (weights.bias != nullptr) std::copy_n(weights.bias, s.m, bias_.data());
}

Tile Output::tile(const RunArgs& args, Index n, Range k, Range p, float* staged) const {
  if (direct_) {
    float* first = args.out + at_.at(n, k.begin, p.begin / ow_, p.begin % ow_);
    return {ki_, n, k, p, first, ki_ ? at_.c_stride : at_.w_stride};
  }
  assert(staged != nullptr);
  return dense_tile(ki_, n, k, p, staged);
}

void Output::clear(const RunArgs& args, const Tile& tile) const {
  if (adds_in_place(args)) return;
  const Index rows = ki_ ? tile.channels() : tile.pixels();
  const Index length = ki_ ? tile.pixels() : tile.channels();
  for (Index i = 0; i < rows; ++i) std::fill_n(tile.data + i * tile.ld, length, 0.0F);
}

void Output::finish(const RunArgs& args, const Tile& tile) const {
  if (direct_ && trivial_) return;
  if (ki_) {
    finish_planes(args, tile);
  } else if (layout_ == Layout::chw || layout_ == Layout::hcw) {
    finish_transposed(args, tile);
  } else {
    finish_pixels(args, tile);
  }
}

/// [channels][pixels] to chw (in place) or hcw: runs of one channel.
void Output::finish_planes(const RunArgs& args, const Tile& tile) const {
  const auto& kernels = *kernels::active().elementwise;
  const float* residual = epilogue_.residual && !adds_in_place(args) ? args.residual : nullptr;
  const Range p = tile.p;
  for (Index c = tile.k.begin; c < tile.k.end; ++c) {
    float* row = tile.at(c, p.begin);
    const float bias = bias_[static_cast<std::size_t>(c)];
    const auto run = [&](Index y, Index x, Index length, Index at) {
      const float* added =
          residual != nullptr ? residual + residual_at_.at(tile.n, c, y, x) : nullptr;
      if (!trivial_) {
        kernels.epilogue_channel(row + at, added, bias, epilogue_.lo, epilogue_.hi, length);
      }
      if (!direct_) {
        std::memcpy(args.out + at_.at(tile.n, c, y, x), row + at,
                    static_cast<std::size_t>(length) * sizeof(float));
      }
    };
    if (layout_ == Layout::chw) {  // rows of a plane follow each other
      run(p.begin / ow_, p.begin % ow_, p.end - p.begin, 0);
    } else {
      for_runs(p, ow_, run);
    }
  }
}

/// [pixels][channels] to hwc (in place) or a blocked layout: runs of one pixel's channels.
void Output::finish_pixels(const RunArgs& args, const Tile& tile) const {
  const auto& kernels = *kernels::active().elementwise;
  const float* residual = epilogue_.residual && !adds_in_place(args) ? args.residual : nullptr;
  const Index width = direct_ ? tile.channels() : at_.block;
  for (Index q = tile.p.begin; q < tile.p.end; ++q) {
    const Index y = q / ow_, x = q % ow_;
    for (Index c = tile.k.begin; c < tile.k.end; c += width) {
      float* lanes = tile.at(c, q);
      const Index used = std::min(width, tile.k.end - c);
      if (!trivial_) {
        const float* added =
            residual != nullptr ? residual + residual_at_.at(tile.n, c, y, x) : nullptr;
        kernels.epilogue_pixel(lanes, added, bias_.data() + c, epilogue_.lo, epilogue_.hi, used);
      }
      if (direct_) continue;
      float* to = args.out + at_.at(tile.n, c, y, x);
      std::memcpy(to, lanes, static_cast<std::size_t>(used) * sizeof(float));
      std::fill(to + used, to + width, 0.0F);
    }
  }
}

/// [pixels][channels] to chw or hcw.
void Output::finish_transposed(const RunArgs& args, const Tile& tile) const {
  const auto& kernels = *kernels::active().elementwise;
  constexpr Index kRun = 64;
  float line[kRun];
  for_runs(tile.p, ow_, [&](Index y, Index x, Index length, Index at) {
    for (Index c = tile.k.begin; c < tile.k.end; ++c) {
      for (Index done = 0; done < length; done += kRun) {
        const Index some = std::min(kRun, length - done);
        const float* from = tile.at(c, tile.p.begin + at + done);
        for (Index i = 0; i < some; ++i) line[i] = from[i * tile.ld];
        const float* added =
            epilogue_.residual ? args.residual + residual_at_.at(tile.n, c, y, x + done) : nullptr;
        kernels.epilogue_channel(line, added, bias_[static_cast<std::size_t>(c)], epilogue_.lo,
                                 epilogue_.hi, some);
        std::memcpy(args.out + at_.at(tile.n, c, y, x + done), line,
                    static_cast<std::size_t>(some) * sizeof(float));
      }
    }
  });
}

Tiles split_tiles(const Scenario& s, Index wide, Index grain, int threads) {
  constexpr Index kNarrow = 128, kFewChannels = 16;
  const Index all = s.oh * s.ow, grains = ceil_div(all, grain);
  Tiles t{};
  t.all_pixels = all;
  t.all_channels = s.mg();
  const Index parts = ceil_div(threads, s.n);  // wanted of each image
  Index tiles = std::min(grains, ceil_div(all, wide));
  const Index more = std::min(grains, ceil_div(tiles, parts) * parts);
  t.channel_tiles = 1;
  if (all / more >= kNarrow || tiles >= 2 * parts) {
    tiles = more;
  } else {
    t.channel_tiles =
        std::clamp(ceil_div(parts, tiles), Index{1}, std::max<Index>(1, s.mg() / kFewChannels));
  }
  t.tile_pixels = ceil_div(grains, tiles) * grain;
  t.pixel_tiles = ceil_div(all, t.tile_pixels);
  t.tile_channels = ceil_div(ceil_div(s.mg(), t.channel_tiles), kFewChannels) * kFewChannels;
  t.channel_tiles = ceil_div(s.mg(), t.tile_channels);
  return t;
}

}  // namespace convprim::gemm
