// fft-8x8-*, fft-16x16-*, fft-32x32-*: products in the frequency domain, tile by tile, with
// overlap-save.
//
// An input tile of T x T pixels gives (T - kh + 1) x (T - kw + 1) outputs (kh, kw: what the dilated
// kernel spans); neighbouring tiles overlap by the rest. For each tile t, frequency f
//
//   Y(f, t, k) = sum over c of X(f, t, c) * conj(F(f, c, k)),
//
// a complex matrix product for each of the T^2/2 + 2 frequencies that are not redundant. Loops:
//
//   blocks of tiles
//     tiles x vectors of input channels:    load the tile, transform it
//     frequencies x panels of outputs:      multiply
//     tiles x vectors of output channels:   transform back, epilogue, store
//
// A stride makes phases: the pixels at (y*sh + a, x*sw + b) are an image of their own for each a <
// sh, b < sw, and the taps that meet them a small dense kernel. The convolution is the sum over the
// phases at stride 1, so that phases are treated as further channels (a polyphase decomposition);
// those without taps are left out. c above runs over the phases of all channels, phase by phase.
//
// Each of the three loops is shared out among the threads. A vector's lanes are channels
// throughout, so that the transforms are plain vector code; channel-major layouts are transposed on
// the way in and out. The Gauss rows take three real products for a complex one, at the price of a
// third plane in both operands. Source: Zlateski, Jia, Li, Durand, arXiv 1809.07851 (its "regular"
// and "Gauss" FFT). The transforms are ours: these rows need no FFTW.
#include <algorithm>
#include <vector>

#include "buffer.hpp"
#include "convprim/cpu.hpp"
#include "kernels/kernels.hpp"
#include "primitives/fft/spectral_filter.hpp"
#include "primitives/registry.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

constexpr std::size_t kPackedLimit = std::size_t{1} << 30;
constexpr std::size_t kWorkspaceLimit = std::size_t{1} << 30;

/// A row's own columns.
struct Variant {
  int tile;    ///< 0, 1, 2: 8, 16, 32 pixels
  bool gauss;  ///< three products instead of four
};

Index round_up(Index x, Index unit) { return (x + unit - 1) / unit * unit; }

/// An odd number of cache lines: frequencies then fall into different cache sets.
Index odd_lines(Index floats) { return round_up(floats, 16) | 16; }

/// Phases along one axis that have taps: the residues of the taps' places modulo the stride.
std::vector<Index> phases_of(Index kernel, Index dilation, Index stride) {
  std::vector<Index> all;
  for (Index i = 0; i < std::min(kernel, stride); ++i) all.push_back(i * dilation % stride);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

/// Places that a phase's kernel spans.
Index phase_span(Index span, Index stride) { return (span - 1) / stride + 1; }

/// Extents that follow from the scenario, the row and the instruction set.
struct Geometry {
  Geometry(const Scenario& s, const Variant& v, int threads)
      : transform(kernels::active().fft->tiles[v.tile]),
        lanes(kernels::active().lanes),
        planes(v.gauss ? 3 : 2),
        t(transform.size),
        frequencies(transform.frequencies),
        phases_y(phases_of(s.kh, s.dh, s.sh)),
        phases_x(phases_of(s.kw, s.dw, s.sw)),
        dense(s),
        out_h(t - phase_span(s.span_h(), s.sh) + 1),
        out_w(t - phase_span(s.span_w(), s.sw) + 1),
        tiles_y((s.oh + out_h - 1) / out_h),
        tiles_x((s.ow + out_w - 1) / out_w),
        tiles(s.n * tiles_y * tiles_x),
        group_vectors(SpectralFilter::group_vectors(s)),
        m_vectors(s.g * group_vectors) {
    dense.c *= static_cast<Index>(phases_y.size() * phases_x.size());
    c_vectors = (dense.c + lanes - 1) / lanes;
    x_position = planes * c_vectors * lanes;
    y_position = 2 * m_vectors * lanes;
    const auto& products = *kernels::active().complex;
    const Index unit = v.gauss ? products.gauss_positions : products.positions;
    const Index per_tile = frequencies * (x_position + y_position);
    // The spectra of a block of tiles stay in the second-level caches where three register tiles'
    // worth do; fewer would read the filter's spectra too often.
    const auto cache = static_cast<Index>(cache_bytes(2) / sizeof(float)) * threads;
    const Index most = std::max(cache / per_tile, 3 * unit);
    const Index blocks = (tiles + most - 1) / most;
    block = std::min(tiles, round_up((tiles + blocks - 1) / blocks, unit));
    x_frequency = odd_lines(block * x_position);
    y_frequency = odd_lines(block * y_position);
    tile_floats = t * t * lanes;
    scratch_floats = kernels::fft_scratch_floats(static_cast<int>(t), static_cast<int>(lanes));
  }
  Index spectra_floats() const { return frequencies * (x_frequency + y_frequency); }
  Index thread_floats() const { return 2 * tile_floats + scratch_floats; }

  const kernels::TileFft& transform;
  Index lanes, planes, t, frequencies;
  std::vector<Index> phases_y, phases_x;
  Scenario dense;                  // with the phases as channels
  Index out_h, out_w;              // outputs of one tile
  Index tiles_y, tiles_x, tiles;   // tiles of an image, of the batch
  Index group_vectors, m_vectors;  // vectors of output channels in a group, in all
  Index c_vectors = 0;             // vectors of input channels, phases included
  Index x_position, y_position;    // floats of one tile at one frequency
  Index x_frequency, y_frequency;  // floats from one frequency to the next
  Index block;                     // tiles transformed at a time
  Index tile_floats, scratch_floats;
};

class TileFftConvolution final : public Convolution {
 public:
  TileFftConvolution(const Primitive& row, const Scenario& s, const Weights& weights,
                     const Options& options)
      : s_(s),
        v_(*static_cast<const Variant*>(row.params)),
        g_(s, v_, options.threads),
        threads_(options.threads),
        epilogue_(options.epilogue),
        in_(strides(row.in, s.in())),
        residual_(strides(row.out, s.out())),
        out_(strides(row.out, s.out(), options.slice)),
        filter_(g_.dense, g_.frequencies, 1, v_.gauss),
        bias_(Buffer::zeros(static_cast<std::size_t>(g_.m_vectors * g_.lanes))) {
    if (weights.bias != nullptr) {
      for (Index group = 0; group < s.g; ++group) {
        std::copy_n(weights.bias + group * s.mg(), s.mg(),
                    bias_.data() + group * g_.group_vectors * g_.lanes);
      }
    }
    pack(weights.filter);
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(g_.spectra_floats() + threads_ * g_.thread_floats()) * 4;
  }
  std::size_t packed_bytes() const override { return filter_.bytes() + bias_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    auto* x = static_cast<float*>(args.workspace);
    float* y = x + g_.frequencies * g_.x_frequency;
    float* scratch = y + g_.frequencies * g_.y_frequency;
    const auto panels = static_cast<Index>(filter_.panels().size());
    parallel(threads_, [&](int thread, int team) {
      float* own = scratch + thread * g_.thread_floats();
      for (Index first = 0; first < g_.tiles; first += g_.block) {
        const Index count = std::min(g_.block, g_.tiles - first);
        const Range loads = share(count * g_.c_vectors, thread, team);
        for (Index i = loads.begin; i < loads.end; ++i) {
          const Index tile = i / g_.c_vectors, v = i % g_.c_vectors;
          transform_input(args.in, first + tile, v, x + tile * g_.x_position + v * g_.lanes, own);
        }
        team_barrier(team);
        const Range products = share(g_.frequencies * panels, thread, team);
        for (Index i = products.begin; i < products.end; ++i) {
          filter_.multiply(i / panels, filter_.panels()[static_cast<std::size_t>(i % panels)],
                           count, x, {g_.x_frequency, g_.x_position}, 0, y,
                           {g_.y_frequency, g_.y_position});
        }
        team_barrier(team);
        // The next block's input may be transformed meanwhile: x has been read, y is written only
        // after the next barrier.
        const Range stores = share(count * g_.m_vectors, thread, team);
        for (Index i = stores.begin; i < stores.end; ++i) {
          const Index tile = i / g_.m_vectors, v = i % g_.m_vectors;
          transform_output(args, first + tile, v, y + tile * g_.y_position + v * g_.lanes, own);
        }
      }
    });
  }

 private:
  /// Where a tile begins, in output coordinates.
  struct Place {
    Index n, y, x;
  };
  Place place(Index tile) const {
    const Index in_image = tile % (g_.tiles_y * g_.tiles_x);
    return {tile / (g_.tiles_y * g_.tiles_x), in_image / g_.tiles_x * g_.out_h,
            in_image % g_.tiles_x * g_.out_w};
  }

  void pack(const float* filter) {
    SpectralFilter::Transform transform{g_.t, g_.t, {}};
    const Index half = g_.t / 2;  // the columns 0 and T/2 come first
    for (Index x = 0; x <= half; ++x) {
      for (Index y = 0; y < g_.t; ++y) {
        const bool real = x % half == 0;
        transform.order.push_back(real && y > half ? -1
                                  : real           ? x / half * (half + 1) + y
                                                   : 2 * (half + 1) + (x - 1) * g_.t + y);
      }
    }
    std::vector<SpectralFilter::Part> parts;
    for (Index y : g_.phases_y) {
      for (Index x : g_.phases_x) {
        parts.push_back({0, static_cast<Index>(parts.size()) * s_.cg(),
                         taps_of(y, s_.kh, s_.dh, s_.sh), taps_of(x, s_.kw, s_.dw, s_.sw)});
      }
    }
    filter_.fill(s_, filter, transform, parts, threads_);
  }

  /// The taps that a phase meets along one axis, and where on its image.
  static std::vector<SpectralFilter::Tap> taps_of(Index phase, Index kernel, Index dilation,
                                                  Index stride) {
    std::vector<SpectralFilter::Tap> taps;
    for (Index i = 0; i < kernel; ++i) {
      if (i * dilation % stride == phase) taps.push_back({i, i * dilation / stride});
    }
    return taps;
  }

  struct Phase {
    Index y, x;
  };
  /// The phase of a channel of the dense problem's group.
  Phase phase_of(Index c) const {
    const auto phase = static_cast<std::size_t>(c / s_.cg());
    return {g_.phases_y[phase / g_.phases_x.size()], g_.phases_x[phase % g_.phases_x.size()]};
  }

  void transform_input(const float* in, Index tile, Index vector, float* x, float* own) const {
    const Place at = place(tile);
    const Index first = vector * g_.lanes, valid = std::min(g_.lanes, g_.dense.c - first);
    const bool inside = at.y * s_.sh >= s_.pt && at.x * s_.sw >= s_.pl &&
                        (at.y + g_.t) * s_.sh <= s_.h + s_.pt &&
                        (at.x + g_.t) * s_.sw <= s_.w + s_.pl;
    if (!inside || valid < g_.lanes) std::fill_n(own, g_.tile_floats, 0.0F);
    for (Index lane = 0; lane < valid;) {
      // Channels in the same group and phase; with one phase groups follow on without a break.
      const Index group = (first + lane) / g_.dense.cg(), c = (first + lane) % g_.dense.cg();
      const Index left = valid - lane;
      const Index run = g_.dense.c == s_.c ? left : std::min(left, s_.cg() - c % s_.cg());
      const Phase phase = phase_of(c);
      Strides st = in_;
      st.base += (phase.y - s_.pt) * in_.h_stride + (phase.x - s_.pl) * in_.w_stride;
      st.h_stride *= s_.sh;
      st.w_stride *= s_.sw;
      const Box box{edge(s_.pt - phase.y, s_.sh, at.y), edge(s_.h + s_.pt - phase.y, s_.sh, at.y),
                    edge(s_.pl - phase.x, s_.sw, at.x), edge(s_.w + s_.pl - phase.x, s_.sw, at.x)};
      load(in, st, at.n, group * s_.cg() + c % s_.cg(), run, at.y, at.x, box, own + lane);
      lane += run;
    }
    g_.transform.forward(own, x, {g_.x_frequency, g_.c_vectors * g_.lanes}, v_.gauss,
                         own + 2 * g_.tile_floats);
  }

  /// The first place of a tile, which begins at `begin`, whose pixel is at or after n: of the
  /// image's two edges, counted from the phase's first pixel.
  Index edge(Index n, Index stride, Index begin) const {
    const Index place = n > 0 ? (n + stride - 1) / stride : n / stride;  // rounded up
    return std::clamp<Index>(place - begin, 0, g_.t);
  }

  void transform_output(const RunArgs& args, Index tile, Index vector, const float* y,
                        float* own) const {
    const Place at = place(tile);
    const Index group = vector / g_.group_vectors;
    const Index k = vector % g_.group_vectors * g_.lanes;  // in the group
    const Index m = group * s_.mg() + k, valid = std::min(g_.lanes, s_.mg() - k);
    const Box box{0, std::min(g_.out_h, s_.oh - at.y), 0, std::min(g_.out_w, s_.ow - at.x)};
    g_.transform.inverse(y, {g_.y_frequency, g_.m_vectors * g_.lanes}, box.y_end, own,
                         own + 2 * g_.tile_floats);
    float* residual = nullptr;
    if (epilogue_.residual) {
      residual = own + g_.tile_floats;
      std::fill_n(residual, g_.tile_floats, 0.0F);
      load(args.residual, residual_, at.n, m, valid, at.y, at.x, box, residual);
    }
    kernels_.fft->finish(own, residual, bias_.data() + vector * g_.lanes, epilogue_.lo,
                         epilogue_.hi, static_cast<int>(valid), box.y_end * g_.t);
    store(args.out, at, m, valid, box, own);
  }

  /// Part of a tile, in pixels of the tile.
  struct Box {
    Index y_begin, y_end, x_begin, x_end;
  };

  /// Calls body(channel, lane, count) for the runs of `valid` channels from c on that lie in one
  /// block each (runs that a layout without blocks does not have).
  template <class Body>
  static void for_each_run(const Strides& st, Index c, Index valid, Body&& body) {
    for (Index lane = 0; lane < valid;) {
      const Index run = std::min(valid - lane, st.block - (c + lane) % st.block);
      body(c + lane, lane, run);
      lane += run;
    }
  }

  /// The box of the tile that begins at (y0, x0) of a tensor, for `valid` channels from c on, into
  /// [T][T][lanes].
  void load(const float* from, const Strides& st, Index n, Index c, Index valid, Index y0, Index x0,
            const Box& box, float* tile) const {
    const auto& move = *kernels_.transpose;
    const Index cols = box.x_end - box.x_begin;
    if (cols <= 0) return;
    for (Index y = box.y_begin; y < box.y_end; ++y) {
      float* to = tile + (y * g_.t + box.x_begin) * g_.lanes;
      if (st.w_stride == 1 && st.block == 1) {
        move.transpose(valid, cols, from + st.at(n, c, y0 + y, x0 + box.x_begin), st.c_stride, to,
                       g_.lanes);
      } else if (st.block == 1 && st.c_stride == 1) {
        move.copy_rows(cols, valid, from + st.at(n, c, y0 + y, x0 + box.x_begin), st.w_stride, to,
                       g_.lanes);
      } else if (st.block == 1) {
        const float* row = from + st.at(n, c, y0 + y, x0 + box.x_begin);
        for (Index x = 0; x < cols; ++x) {
          for (Index lane = 0; lane < valid; ++lane) {
            to[x * g_.lanes + lane] = row[lane * st.c_stride + x * st.w_stride];
          }
        }
      } else {
        for_each_run(st, c, valid, [&](Index channel, Index lane, Index run) {
          move.copy_rows(cols, run, from + st.at(n, channel, y0 + y, x0 + box.x_begin), st.w_stride,
                         to + lane, g_.lanes);
        });
      }
    }
  }

  /// The reverse, into the output; the vector that ends the last block zeroes its padding lanes.
  void store(float* out, const Place& at, Index m, Index valid, const Box& box,
             const float* tile) const {
    const auto& move = *kernels_.transpose;
    const Index padding = m + valid == s_.m ? round_up(s_.m, out_.block) - s_.m : 0;
    for (Index y = 0; y < box.y_end; ++y) {
      const float* from = tile + y * g_.t * g_.lanes;
      float* to = out + out_.at(at.n, 0, at.y + y, at.x);
      if (out_.w_stride == 1 && out_.block == 1) {
        move.transpose(box.x_end, valid, from, g_.lanes, to + m * out_.c_stride, out_.c_stride);
      } else if (out_.block == 1) {
        move.copy_rows(box.x_end, valid, from, g_.lanes, to + m * out_.c_stride, out_.w_stride);
      } else {
        for_each_run(out_, m, valid, [&](Index channel, Index lane, Index run) {
          move.copy_rows(box.x_end, run, from + lane, g_.lanes,
                         to + channel / out_.block * out_.c_stride + channel % out_.block,
                         out_.w_stride);
        });
        if (padding == 0) continue;
        float* lanes = to + s_.m / out_.block * out_.c_stride + s_.m % out_.block;
        for (Index x = 0; x < box.x_end; ++x) std::fill_n(lanes + x * out_.w_stride, padding, 0.0F);
      }
    }
  }

  const kernels::Kernels& kernels_ = kernels::active();
  Scenario s_;
  Variant v_;
  Geometry g_;
  int threads_;
  Epilogue epilogue_;
  Strides in_, residual_, out_;
  SpectralFilter filter_;
  Buffer bias_;
};

const char* reject(const Primitive& row, const Scenario& s) {
  const auto& v = *static_cast<const Variant*>(row.params);
  const int size = kernels::active().fft->tiles[v.tile].size;
  if (phase_span(s.span_h(), s.sh) > size || phase_span(s.span_w(), s.sw) > size) {
    return "the kernel is larger than the tile";
  }
  const Geometry g(s, v, 1);
  if (static_cast<std::size_t>(SpectralFilter::floats(g.dense, g.frequencies, 1, v.gauss)) >
      kPackedLimit / 4) {
    return "the spectra of the filters exceed 1 GiB";
  }
  if (static_cast<std::size_t>(g.spectra_floats()) > kWorkspaceLimit / 4) {
    return "the spectra of a block of tiles exceed 1 GiB";
  }
  return nullptr;
}

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<TileFftConvolution>(row, s, weights, options);
}

constexpr Variant k8 = {0, false}, k16 = {1, false}, k32 = {2, false};
constexpr Variant kGauss8 = {0, true}, kGauss16 = {1, true};

constexpr Primitive row(std::string_view name, const Variant& variant, Layout layout) {
  return {name, Family::fft, layout, layout, reject, prepare, &variant, 1, true};
}

constexpr Primitive kRows[] = {
    row("fft-8x8-chw", k8, Layout::chw),
    row("fft-8x8-hcw", k8, Layout::hcw),
    row("fft-8x8-hwc", k8, Layout::hwc),
    row("fft-8x8-chw8c", k8, Layout::chw8c),
    row("fft-8x8-chw16c", k8, Layout::chw16c),
    row("fft-16x16-chw", k16, Layout::chw),
    row("fft-16x16-hcw", k16, Layout::hcw),
    row("fft-16x16-hwc", k16, Layout::hwc),
    row("fft-16x16-chw8c", k16, Layout::chw8c),
    row("fft-16x16-chw16c", k16, Layout::chw16c),
    row("fft-32x32-chw", k32, Layout::chw),
    row("fft-32x32-hwc", k32, Layout::hwc),
    row("fft-gauss-8x8-hwc", kGauss8, Layout::hwc),
    row("fft-gauss-16x16-chw", kGauss16, Layout::chw),
    row("fft-gauss-16x16-hwc", kGauss16, Layout::hwc),
};

}  // namespace

std::span<const Primitive> fft_tile_rows() { return kRows; }

}  // namespace convprim
