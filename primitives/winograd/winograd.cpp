// Winograd convolution: minimal filtering F(m, r) in two dimensions, or in one along the rows.
//
//   out tile = A^T [sum over c of (G w_c G^T) * (B^T in_c B)] A        (Lavin and Gray, 1509.09308)
//
// The filters are transformed once, in prepare(). run() goes over the tiles in batches that stay in
// the level 2 cache: transform a batch's tiles, then for each block of output channels t*t products
// [tiles x C] * [C x M], then that block's output transform with the epilogue, straight into the
// output. A one-dimensional F(m, r) transforms 1 x t pixels and sums over the other axis of the
// kernel inside the product, each transformed row serving all rows of the kernel; a k x 1 kernel is
// the same with the axes exchanged.
//
// Threads take batches; where there are few tiles and many weights they share each batch and split
// the output channels, so that each weight is read by one core only.
#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "blas.hpp"
#include "buffer.hpp"
#include "convprim/cpu.hpp"
#include "kernels/kernels.hpp"
#include "kernels/winograd_matrices.hpp"
#include "primitives/registry.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

constexpr Index kBlock = kernels::kWinogradBlock;
constexpr Index kOutputs = 64;  // outputs whose products stand between the two loops at a time
constexpr Index kFewTiles = 64;
constexpr Index kSegment = 16;  // tiles staged at a time where channels are not side by side

/// A row's own columns.
struct Params {
  int m, r;
  int dims;
  int v;      // channels in a vector of the transforms
  bool blas;  // the products by OpenBLAS, on plain matrices
};

Index round_up(Index x, Index to) { return (x + to - 1) / to * to; }
Index ceil_div(Index x, Index by) { return (x + by - 1) / by; }

// Filters
// -------------------------------------------------------------------------------------------------

/// G as a plain array, row-major [t][r].
struct FilterTransform {
  const double* g;
  int t, r;
};

template <int M, int R>
FilterTransform filter_transform() {
  static constexpr kernels::WinogradMatrices<M, R> matrices;
  return {&matrices.g[0][0], M + R - 1, R};
}

FilterTransform filter_transform(int m, int r) {
  switch (10 * m + r) {
    case 23:
      return filter_transform<2, 3>();
    case 33:
      return filter_transform<3, 3>();
    case 43:
      return filter_transform<4, 3>();
    case 63:
      return filter_transform<6, 3>();
    case 25:
      return filter_transform<2, 5>();
    case 35:
      return filter_transform<3, 5>();
    case 45:
      return filter_transform<4, 5>();
    case 27:
      return filter_transform<2, 7>();
    case 47:
      return filter_transform<4, 7>();
    default:
      return filter_transform<1, 1>();
  }
}

constexpr int kMaxTile = kernels::kMaxWinogradTile;
constexpr int kMaxKernel = 7;

/// A block of filters that lie `stride` apart, each of kh x kw taps, transformed with `down` and
/// `across` into elements[t_down][t_across] of kBlock floats; in double, rounded once.
struct FilterBlock {
  const float* taps;
  Index stride, h_stride, w_stride;
  Index count;  // up to kBlock; zeros after them
};

void transform_filters(const FilterTransform& down, const FilterTransform& across,
                       const FilterBlock& filters, float* elements, Index e_stride) {
  double half[kMaxTile][kMaxKernel][kBlock] = {};
  for (int k = 0; k < down.r; ++k) {
    for (int j = 0; j < across.r; ++j) {
      double tap[kBlock] = {};
      for (Index f = 0; f < filters.count; ++f) {
        tap[f] = filters.taps[f * filters.stride + k * filters.h_stride + j * filters.w_stride];
      }
      for (int i = 0; i < down.t; ++i) {
        const double g = down.g[i * down.r + k];
        for (Index f = 0; f < kBlock; ++f) half[i][j][f] += g * tap[f];
      }
    }
  }
  for (int i = 0; i < down.t; ++i) {
    for (int j = 0; j < across.t; ++j) {
      double sum[kBlock] = {};
      for (int k = 0; k < across.r; ++k) {
        const double g = across.g[j * across.r + k];
        for (Index f = 0; f < kBlock; ++f) sum[f] += half[i][k][f] * g;
      }
      float* to = elements + (i * across.t + j) * e_stride;
      for (Index f = 0; f < kBlock; ++f) to[f] = static_cast<float>(sum[f]);
    }
  }
}

// Geometry
// -------------------------------------------------------------------------------------------------

/// The problem with the axis of a one-dimensional transform made the second one.
struct Axes {
  Index h, w, oh, ow, pt, pl;
  Index in_h, in_w, out_h, out_w, res_h, res_w;  // strides
  Index kh, kw, filter_h, filter_w;
};

/// How the driver reaches a tensor's channels.
enum class Access {
  vectors,  // V channels of a group lie side by side
  rows,     // a channel's pixels lie side by side
  scalars   // neither: a group that starts inside a block
};

Access access(Layout layout, Index group_channels, Index groups) {
  if (layout == Layout::chw || layout == Layout::hcw) return Access::rows;
  if (groups > 1 && group_channels % block(layout) != 0) return Access::scalars;
  return Access::vectors;
}

class Winograd final : public Convolution {
 public:
  Winograd(const Primitive& row, const Scenario& s, const Weights& weights, const Options& options);

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(data_sets_ * data_floats_ + threads_ * thread_floats_) *
           sizeof(float);
  }
  std::size_t packed_bytes() const override { return filter_.bytes() + bias_.bytes(); }
  void run(const RunArgs& args) const noexcept override;

 private:
  /// A thread's scratch memory.
  struct Scratch {
    float* products;  // [element][channel block][tile][16]
    float* stage;
  };
  /// Tiles [first, first + count) of one group. Tiles are numbered through all images.
  struct Batch {
    Index group, first, count;
  };
  /// A tile's place.
  struct Place {
    Index n, y, x;  // y and x of its first pixel in the output
  };

  /// Where a tile's transformed input goes.
  struct Slot {
    float* data;
    Index block_stride;  // between 16 channels
  };

  class Walk;

  void choose_batches(int threads);
  void cut_outputs(int parts);
  void pack(const Weights& weights, int threads);
  Batch batch(Index i) const;
  void transform_input(const RunArgs& args, const Batch& b, Range blocks, float* data,
                       float* stage) const;
  void input_vectors(const float* in, const Place& p, const Batch& b, Range blocks,
                     const Slot& to) const;
  void input_staged(const float* in, Walk& at, const Batch& b, Range blocks, float* data,
                    float* stage) const;
  void multiply(const Batch& b, Index m_block, const float* data, float* products) const;
  void transform_output(const RunArgs& args, const Batch& b, Index m_block,
                        const Scratch& scratch) const;
  void output_vectors(const RunArgs& args, const Place& p, const Batch& b, Index channel,
                      Index channels, const float* products, float* stage) const;
  void output_staged(const RunArgs& args, const Place& p, Index tiles, const Batch& b,
                     Index channel, Index channels, const float* products, float* stage) const;

  Index data_tiles(Index count) const { return count + (taps_ - 1) * tiles_x_; }
  Index block_first(Index m_block) const { return m_starts_[static_cast<std::size_t>(m_block)]; }
  Index block_size(Index m_block) const { return block_first(m_block + 1) - block_first(m_block); }

  Params p_;
  const kernels::WinogradKernels& k_;
  const kernels::WinogradTransform* transform_ = nullptr;
  Index n_, g_, cg_, mg_;
  Axes axes_{};
  Strides in_, out_, res_;
  Access in_access_, out_access_;
  Epilogue epilogue_;
  bool zero_tail_ = false;  // the clamp would move the zeros of the padding lanes

  int t_, th_, mh_;  // tile: th_ x t_ pixels in, mh_ x m out
  Index elements_, taps_;
  Index tiles_y_, tiles_x_;                                       // per image
  Index rows_per_batch_ = 0, tiles_per_batch_ = 0, batches_ = 0;  // batches of one group
  Index m_padded_, m_step_ = 0, m_blocks_ = 0;
  std::vector<Index> m_starts_;  // first output of each block, and the end
  bool split_outputs_ = false;
  std::vector<Index>
      m_shares_;  // first block of each thread that has outputs of its own, and the end
  int threads_ = 1;

  Index data_block_ = 0, data_element_ = 0, data_floats_ = 0, data_sets_ = 0;
  Index product_block_ = 0, product_element_ = 0, stage_floats_ = 0, thread_floats_ = 0;
  Buffer filter_;  // [group][block of outputs][element][panel][tap][c][column]
  Buffer bias_;    // [group][m_padded_]
};

/// Goes over the first tiles of a batch in order. With several taps a batch lies in one image, and
/// its input in more rows than its output.
class Winograd::Walk {
 public:
  Walk(const Winograd& w, const Batch& b, Index tiles) : w_(w), batch_(b), tiles_(tiles) {
    const Index per_image = w.tiles_y_ * w.tiles_x_, at = b.first % per_image;
    place_ = {b.first / per_image, at / w.tiles_x_ * w.mh_, at % w.tiles_x_ * w.p_.m};
    chunks_ = ceil_div(b.count, w.k_.max_rows);
    chunk_end_ = b.count / chunks_;
  }
  bool done() const { return tile_ == tiles_; }
  Index tile() const { return tile_; }
  const Place& place() const { return place_; }
  /// Tiles from here on in the same row, as many as are staged at a time.
  Index run() const {
    return std::min({kSegment, tiles_ - tile_, w_.tiles_x_ - place_.x / w_.p_.m});
  }
  void next() {
    ++tile_;
    if (w_.taps_ == 1 && tile_ == chunk_end_) {
      ++chunk_;
      chunk_begin_ = chunk_end_;
      chunk_end_ = batch_.count * (chunk_ + 1) / chunks_;
    }
    place_.x += w_.p_.m;
    if (place_.x < w_.axes_.ow) return;
    place_.x = 0;
    place_.y += w_.mh_;
    if (w_.taps_ > 1 || place_.y < w_.axes_.oh) return;
    place_.y = 0;
    ++place_.n;
  }
  /// Where this tile's transformed input goes: one chunk for each register tile of the product.
  Slot slot(float* data) const {
    const Index c_padded = round_up(w_.cg_, kBlock);
    if (w_.p_.blas) return {data + tile_ * c_padded, kBlock};
    if (w_.taps_ > 1) return {data + tile_ * kBlock, w_.data_block_};
    return {data + chunk_begin_ * c_padded + (tile_ - chunk_begin_) * kBlock,
            (chunk_end_ - chunk_begin_) * kBlock};
  }

 private:
  const Winograd& w_;
  const Batch& batch_;
  Index tiles_, tile_ = 0;
  Place place_;
  Index chunks_, chunk_ = 0, chunk_begin_ = 0, chunk_end_;
};

Winograd::Winograd(const Primitive& row, const Scenario& s, const Weights& weights,
                   const Options& options)
    : p_(*static_cast<const Params*>(row.params)),
      k_(*kernels::active().winograd),
      n_(s.n),
      g_(s.g),
      cg_(s.cg()),
      mg_(s.mg()),
      in_(strides(row.in, s.in())),
      out_(strides(row.out, s.out(), options.slice)),
      res_(strides(row.out, s.out())),
      in_access_(access(row.in, s.cg(), s.g)),
      out_access_(access(row.out, s.mg(), s.g)),
      epilogue_(options.epilogue) {
  for (int i = 0; i < k_.transform_count; ++i) {
    const auto& t = k_.transforms[i];
    if (t.m == p_.m && t.r == p_.r && t.dims == p_.dims && t.v == p_.v) transform_ = &t;
  }
  axes_ = {s.h,           s.w,           s.oh,          s.ow,
           s.pt,          s.pl,          in_.h_stride,  in_.w_stride,
           out_.h_stride, out_.w_stride, res_.h_stride, res_.w_stride,
           s.kh,          s.kw,          s.kw,          1};
  if (p_.dims == 1 && s.kw != p_.r) {
    axes_ = {s.w,           s.h,           s.ow,         s.oh,          s.pl,
             s.pt,          in_.w_stride,  in_.h_stride, out_.w_stride, out_.h_stride,
             res_.w_stride, res_.h_stride, s.kw,         s.kh,          1,
             s.kw};
  }
  // Rows of pixels are only side by side along the second axis.
  if (in_access_ == Access::rows && axes_.in_w != 1) in_access_ = Access::scalars;
  if (out_access_ == Access::rows && axes_.out_w != 1) out_access_ = Access::scalars;
  zero_tail_ = epilogue_.lo > 0 || epilogue_.hi < 0;

  t_ = p_.m + p_.r - 1;
  th_ = p_.dims == 2 ? t_ : 1;
  mh_ = p_.dims == 2 ? p_.m : 1;
  elements_ = th_ * t_;
  taps_ = p_.dims == 2 ? 1 : axes_.kh;
  tiles_y_ = ceil_div(axes_.oh, mh_);
  tiles_x_ = ceil_div(axes_.ow, p_.m);
  m_padded_ = round_up(mg_, kBlock);
  choose_batches(options.threads);
  pack(weights, options.threads);
}

void Winograd::choose_batches(int threads) {
  const Index tiles = n_ * tiles_y_ * tiles_x_, rows = k_.max_rows;
  const Index c_padded = round_up(cg_, kBlock);
  const Index l2 = static_cast<Index>(cache_bytes(2));
  const Index filter_bytes = elements_ * taps_ * cg_ * m_padded_ * 4;

  // A batch of two to eight register tiles whose data takes about a third of the level 2 cache: the
  // weights, which stream past, and the tensors need the rest.
  m_step_ = p_.blas ? m_padded_ : std::min(m_padded_, kOutputs);
  const Index tile_bytes = elements_ * (c_padded + m_step_) * 4;
  Index want =
      std::clamp(l2 * 5 / 16 / tile_bytes / rows, ceil_div(28, rows), ceil_div(112, rows)) * rows;
  // Weights that do not stay in the cache are read once if one batch can do all.
  if (filter_bytes > l2 && tiles <= kFewTiles) want = std::max(want, tiles);

  if (taps_ > 1) {
    const Index most = std::max<Index>(want / tiles_x_, 2 * taps_);
    rows_per_batch_ = ceil_div(tiles_y_, ceil_div(tiles_y_, most));
    tiles_per_batch_ = rows_per_batch_ * tiles_x_;
    batches_ = n_ * ceil_div(tiles_y_, rows_per_batch_);
  } else {
    Index count = ceil_div(tiles, want);
    if (count > 1) count = std::min(round_up(count, threads), ceil_div(tiles, rows));
    tiles_per_batch_ = ceil_div(tiles, count);
    batches_ = ceil_div(tiles, tiles_per_batch_);
  }
  if (threads > 1 && !p_.blas && batches_ * g_ < threads) {
    // Fewer batches than threads: the threads split the outputs of each.
    split_outputs_ = true;
  }
  threads_ = team_of(threads, split_outputs_ ? m_padded_ / kBlock : batches_ * g_);
  cut_outputs(split_outputs_ ? threads_ : 1);

  const Index data_tiles_max = data_tiles(tiles_per_batch_);
  if (p_.blas) {
    data_block_ = kBlock;
    data_element_ = data_tiles_max * c_padded + kBlock;
    product_block_ = kBlock;
    product_element_ = tiles_per_batch_ * m_padded_ + kBlock;
  } else {
    data_block_ = data_tiles_max * kBlock;
    data_element_ = c_padded / kBlock * data_block_ + kBlock;
    product_block_ = tiles_per_batch_ * kBlock;
    product_element_ = m_step_ / kBlock * product_block_ + kBlock;
  }
  data_floats_ = elements_ * data_element_;
  data_sets_ = split_outputs_ ? std::min<Index>(2, batches_ * g_) : threads_;
  const Index segment = std::min(kSegment, tiles_x_);
  stage_floats_ = std::max<Index>(th_ * ((segment - 1) * p_.m + t_), mh_ * segment * p_.m) * kBlock;
  thread_floats_ = elements_ * product_element_ + stage_floats_;
}

/// Cuts the outputs into as many equal parts, and these into blocks of m_step_ at most.
void Winograd::cut_outputs(int parts) {
  for (int part = 0; part < parts; ++part) {
    const Range r = share(m_padded_, part, parts, kBlock);
    m_shares_.push_back(static_cast<Index>(m_starts_.size()));
    for (Index m = r.begin; m < r.end; m += m_step_) m_starts_.push_back(m);
  }
  m_blocks_ = static_cast<Index>(m_starts_.size());
  m_shares_.push_back(m_blocks_);
  m_starts_.push_back(m_padded_);
}

void Winograd::pack(const Weights& weights, int threads) {
  bias_ = Buffer::zeros(static_cast<std::size_t>(g_ * m_padded_));
  if (weights.bias != nullptr) {
    for (Index g = 0; g < g_; ++g) {
      std::copy_n(weights.bias + g * mg_, mg_, bias_.data() + g * m_padded_);
    }
  }
  filter_ = Buffer(static_cast<std::size_t>(g_ * m_padded_ * elements_ * taps_ * cg_));
  const FilterTransform across = filter_transform(p_.m, p_.r);
  const FilterTransform down = p_.dims == 2 ? across : filter_transform(1, 1);
  const Index depth = taps_ * cg_, per_filter = cg_ * axes_.kh * axes_.kw;
  const Index runs = m_padded_ / kBlock;
  // A narrow panel splits a block into several, which lie a panel apart.
  const Index panel = p_.blas ? m_padded_ : k_.panel, width = std::min(panel, kBlock);
  parallel_for(threads, g_ * runs, [&](Index run) {
    const Index g = run / runs, m = run % runs * kBlock;
    const Index mb =
        std::upper_bound(m_starts_.begin(), m_starts_.end(), m) - m_starts_.begin() - 1;
    const Index first = m - block_first(mb), size = block_size(mb);
    float* block = filter_.data() + (g * m_padded_ + block_first(mb)) * elements_ * depth;
    FilterBlock filters{nullptr, per_filter, axes_.filter_h, axes_.filter_w,
                        std::min(kBlock, mg_ - m)};
    float elements[kMaxTile * kMaxTile * kBlock];
    for (Index c = 0; c < cg_; ++c) {
      for (Index tap = 0; tap < taps_; ++tap) {
        filters.taps = weights.filter + (g * mg_ + m) * per_filter + c * axes_.kh * axes_.kw +
                       tap * axes_.filter_h;
        transform_filters(down, across, filters, elements, kBlock);
        for (Index from = 0; from < kBlock; from += width) {
          const Index column = first + from, p = column / panel;
          const Index columns = std::min(panel, size - p * panel);
          float* to = block + p * panel * depth + (tap * cg_ + c) * columns + column % panel;
          for (Index e = 0; e < elements_; ++e) {
            std::copy_n(elements + e * kBlock + from, width, to + e * size * depth);
          }
        }
      }
    }
  });
}

Winograd::Batch Winograd::batch(Index i) const {
  const Index group = i / batches_;
  i %= batches_;
  if (taps_ == 1) {
    const Index first = i * tiles_per_batch_;
    return {group, first, std::min(tiles_per_batch_, n_ * tiles_y_ * tiles_x_ - first)};
  }
  const Index per_image = ceil_div(tiles_y_, rows_per_batch_);
  const Index row = i % per_image * rows_per_batch_;
  return {group, (i / per_image * tiles_y_ + row) * tiles_x_,
          std::min(rows_per_batch_, tiles_y_ - row) * tiles_x_};
}

// Input
// -------------------------------------------------------------------------------------------------

void Winograd::transform_input(const RunArgs& args, const Batch& b, Range blocks, float* data,
                               float* stage) const {
  if (in_access_ != Access::vectors) {
    for (Walk at(*this, b, data_tiles(b.count)); !at.done();) {
      input_staged(args.in, at, b, blocks, data, stage);
    }
    return;
  }
  // Along a pixel's channels where they are all side by side, else along the row of tiles.
  const Index step = in_.block == 1 ? blocks.end - blocks.begin : 1;
  for (Index block = blocks.begin; block < blocks.end; block += step) {
    for (Walk at(*this, b, data_tiles(b.count)); !at.done(); at.next()) {
      input_vectors(args.in, at.place(), b, {block, block + step}, at.slot(data));
    }
  }
}

void Winograd::input_vectors(const float* in, const Place& p, const Batch& b, Range blocks,
                             const Slot& to) const {
  const Index y = p.y - axes_.pt, x = p.x - axes_.pl;
  const auto limit = [](Index v, int most) {
    return static_cast<int>(std::clamp<Index>(v, 0, most));
  };
  kernels::WinogradInput a{};
  a.h_stride = axes_.in_h, a.w_stride = axes_.in_w;
  a.v_stride = in_.block == 1 ? p_.v : in_.c_stride * p_.v / in_.block;
  a.y_begin = limit(-y, th_), a.y_end = limit(axes_.h - y, th_);
  a.x_begin = limit(-x, t_), a.x_end = limit(axes_.w - x, t_);
  a.e_stride = data_element_, a.block_stride = to.block_stride;

  const Index begin = blocks.begin * kBlock, end = std::min(blocks.end * kBlock, cg_);
  // Blocked layouts store zeros beyond the last channel, so that every run of V is whole.
  const Index whole = in_.block > 1 ? ceil_div(end - begin, p_.v) : (end - begin) / p_.v;
  const auto origin = [&](Index channel) {
    return in_.at(p.n, b.group * cg_ + channel, 0, 0) + y * axes_.in_h + x * axes_.in_w;
  };
  a.in = in + origin(begin), a.out = to.data + blocks.begin * to.block_stride, a.blocks = whole;
  transform_->input(a);

  const Index done = begin + whole * p_.v;
  if (done >= end) return;
  // The last channels, fewer than V: a copy of the tile with zeros after them.
  float patch[kMaxTile * kMaxTile * kBlock];
  std::fill_n(patch, elements_ * p_.v, 0.0F);
  for (Index i = a.y_begin; i < a.y_end; ++i) {
    for (Index j = a.x_begin; j < a.x_end; ++j) {
      std::copy_n(in + origin(done) + i * axes_.in_h + j * axes_.in_w, end - done,
                  patch + (i * t_ + j) * p_.v);
    }
  }
  a.in = patch, a.h_stride = static_cast<Index>(t_) * p_.v, a.w_stride = p_.v;
  a.y_begin = a.x_begin = 0, a.y_end = th_, a.x_end = t_;
  a.blocks = 1;
  a.out = to.data + done / kBlock * to.block_stride + done % kBlock;
  transform_->input(a);
}

void Winograd::input_staged(const float* in, Walk& at, const Batch& b, Range blocks, float* data,
                            float* stage) const {
  const Place p = at.place();
  const Index tiles = at.run();
  const Index y = p.y - axes_.pt, x = p.x - axes_.pl;
  const Index cols = (tiles - 1) * p_.m + t_;
  const Index x_begin = std::clamp<Index>(-x, 0, cols),
              x_end = std::clamp<Index>(axes_.w - x, 0, cols);
  kernels::WinogradInput a{};
  a.h_stride = cols * kBlock, a.w_stride = kBlock, a.v_stride = p_.v;
  a.y_end = th_, a.x_end = t_;
  a.blocks = kBlock / p_.v;
  a.e_stride = data_element_;
  for (Index block = blocks.begin; block < blocks.end; ++block) {
    const Index channels = std::min(kBlock, cg_ - block * kBlock);
    const Index first = b.group * cg_ + block * kBlock;
    for (Index i = 0; i < th_; ++i) {
      float* to = stage + i * cols * kBlock;
      const bool inside = y + i >= 0 && y + i < axes_.h && x_end > x_begin;
      if (!inside) {
        std::fill_n(to, cols * kBlock, 0.0F);
        continue;
      }
      std::fill_n(to, x_begin * kBlock, 0.0F);
      std::fill_n(to + x_end * kBlock, (cols - x_end) * kBlock, 0.0F);
      const Index line = (y + i) * axes_.in_h + x * axes_.in_w;
      if (in_access_ == Access::rows) {
        k_.gather(in + in_.at(p.n, first, 0, 0) + line + x_begin, in_.c_stride, channels,
                  x_end - x_begin, to + x_begin * kBlock);
        continue;
      }
      for (Index j = x_begin; j < x_end; ++j) {
        for (Index c = 0; c < kBlock; ++c) {
          to[j * kBlock + c] =
              c < channels ? in[in_.at(p.n, first + c, 0, 0) + line + j * axes_.in_w] : 0.0F;
        }
      }
    }
    Walk to_tile = at;
    for (Index i = 0; i < tiles; ++i, to_tile.next()) {
      const Slot to = to_tile.slot(data);
      a.in = stage + i * p_.m * kBlock;
      a.out = to.data + block * to.block_stride, a.block_stride = to.block_stride;
      transform_->input(a);
    }
  }
  for (Index i = 0; i < tiles; ++i) at.next();
}

// Products
// -------------------------------------------------------------------------------------------------

void Winograd::multiply(const Batch& b, Index m_block, const float* data, float* products) const {
  const Index depth = taps_ * cg_, size = block_size(m_block);
  const float* filter =
      filter_.data() + (b.group * m_padded_ + block_first(m_block)) * elements_ * depth;
  for (Index e = 0; e < elements_; ++e, filter += size * depth) {
    const float* a = data + e * data_element_;
    float* c = products + e * product_element_;
    if (p_.blas) {
      const Index lda = round_up(cg_, kBlock);
      for (Index tap = 0; tap < taps_; ++tap) {
        sgemm(false, false, b.count, mg_, cg_, 1, a + tap * tiles_x_ * lda, lda,
              filter + tap * cg_ * size, size, tap == 0 ? 0.0F : 1.0F, c, size);
      }
    } else {
      k_.gemm({a, data_block_, tiles_x_ * kBlock, b.count, taps_, cg_, size, filter, c,
               product_block_});
    }
  }
}

// Output
// -------------------------------------------------------------------------------------------------

void Winograd::transform_output(const RunArgs& args, const Batch& b, Index m_block,
                                const Scratch& scratch) const {
  const Index channel = block_first(m_block);
  const Index channels = std::min(block_size(m_block), mg_ - channel);
  const Index tile_stride = p_.blas ? m_padded_ : kBlock;
  if (out_access_ != Access::vectors) {
    for (Walk at(*this, b, b.count); !at.done();) {
      const Index run = at.run();
      output_staged(args, at.place(), run, b, channel, channels,
                    scratch.products + at.tile() * tile_stride, scratch.stage);
      for (Index i = 0; i < run; ++i) at.next();
    }
    return;
  }
  const Index step = out_.block == 1 ? channels : kBlock;
  for (Index c = 0; c < channels; c += step) {
    const float* products = scratch.products + c / kBlock * product_block_;
    for (Walk at(*this, b, b.count); !at.done(); at.next()) {
      output_vectors(args, at.place(), b, channel + c, std::min(step, channels - c),
                     products + at.tile() * tile_stride, scratch.stage);
    }
  }
}

void Winograd::output_vectors(const RunArgs& args, const Place& p, const Batch& b, Index channel,
                              Index channels, const float* products, float* stage) const {
  const auto runs = [&](const Strides& s) {
    return s.block == 1 ? p_.v : s.c_stride * p_.v / s.block;
  };
  const Index first = b.group * mg_ + channel;
  const Index to = out_.at(p.n, first, 0, 0) + p.y * axes_.out_h + p.x * axes_.out_w;
  const Index add = res_.at(p.n, first, 0, 0) + p.y * axes_.res_h + p.x * axes_.res_w;
  kernels::WinogradOutput a{};
  a.in = products, a.e_stride = product_element_, a.block_stride = product_block_;
  a.out = args.out + to;
  a.h_stride = axes_.out_h, a.w_stride = axes_.out_w, a.v_stride = runs(out_);
  a.residual = epilogue_.residual ? args.residual + add : nullptr;
  a.rh_stride = axes_.res_h, a.rw_stride = axes_.res_w, a.rv_stride = runs(res_);
  a.bias = bias_.data() + b.group * m_padded_ + channel;
  a.lo = epilogue_.lo, a.hi = epilogue_.hi;
  a.rows = static_cast<int>(std::min<Index>(mh_, axes_.oh - p.y));
  a.cols = static_cast<int>(std::min<Index>(p_.m, axes_.ow - p.x));
  // Padding lanes come out as zeros unless the clamp moves them.
  const bool whole_blocks = out_.block > 1 && !zero_tail_;
  a.blocks = whole_blocks ? ceil_div(channels, p_.v) : channels / p_.v;
  transform_->output(a);

  const Index done = a.blocks * p_.v;
  if (done >= channels) return;
  // The last channels, fewer than V, by way of the stage.
  a.in += done / kBlock * product_block_ + done % kBlock;
  a.bias += done;
  a.out = stage, a.h_stride = static_cast<Index>(p_.m) * p_.v, a.w_stride = p_.v;
  a.residual = nullptr, a.blocks = 1;
  a.lo = -std::numeric_limits<float>::infinity(), a.hi = std::numeric_limits<float>::infinity();
  transform_->output(a);
  const Index tail = channels - done, lanes = out_.block > 1 ? p_.v : tail;
  for (Index i = 0; i < a.rows; ++i) {
    for (Index j = 0; j < a.cols; ++j) {
      const float* from = stage + (i * p_.m + j) * p_.v;
      const Index pixel = i * axes_.out_h + j * axes_.out_w + out_.at(0, first + done, 0, 0) -
                          out_.at(0, first, 0, 0);
      const Index other = i * axes_.res_h + j * axes_.res_w + res_.at(0, first + done, 0, 0) -
                          res_.at(0, first, 0, 0);
      for (Index c = 0; c < lanes; ++c) {
        float x = from[c];
        if (epilogue_.residual) x += args.residual[add + other + c];
        args.out[to + pixel + c] = c < tail ? std::clamp(x, epilogue_.lo, epilogue_.hi) : 0.0F;
      }
    }
  }
}

void Winograd::output_staged(const RunArgs& args, const Place& p, Index tiles, const Batch& b,
                             Index channel, Index channels, const float* products,
                             float* stage) const {
  const Index cols = tiles * p_.m, tile_stride = p_.blas ? m_padded_ : kBlock;
  const Index rows = std::min<Index>(mh_, axes_.oh - p.y), used = std::min(cols, axes_.ow - p.x);
  kernels::WinogradOutput a{};
  a.e_stride = product_element_, a.block_stride = product_block_;
  a.h_stride = cols * kBlock, a.w_stride = kBlock, a.v_stride = p_.v;
  a.lo = -std::numeric_limits<float>::infinity(), a.hi = std::numeric_limits<float>::infinity();
  a.rows = mh_, a.cols = p_.m, a.blocks = kBlock / p_.v;
  for (Index c = 0; c < channels; c += kBlock) {
    a.bias = bias_.data() + b.group * m_padded_ + channel + c;
    for (Index tile = 0; tile < tiles; ++tile) {
      a.in = products + c / kBlock * product_block_ + tile * tile_stride;
      a.out = stage + tile * p_.m * kBlock;
      transform_->output(a);
    }
    const Index lanes = std::min(kBlock, channels - c), first = b.group * mg_ + channel + c;
    for (Index i = 0; i < rows; ++i) {
      const float* from = stage + i * cols * kBlock;
      const Index line = (p.y + i) * axes_.out_h + p.x * axes_.out_w;
      const Index other = (p.y + i) * axes_.res_h + p.x * axes_.res_w;
      if (out_access_ == Access::rows) {
        k_.scatter(from, lanes, used, args.out + out_.at(p.n, first, 0, 0) + line, out_.c_stride,
                   epilogue_.residual ? args.residual + res_.at(p.n, first, 0, 0) + other : nullptr,
                   res_.c_stride, epilogue_.lo, epilogue_.hi);
        continue;
      }
      // The group that ends the tensor also writes the padding lanes of its last block.
      const bool last = b.group == g_ - 1 && channel + c + lanes == mg_;
      const Index zeros = last ? round_up(g_ * mg_, out_.block) - g_ * mg_ : 0;
      for (Index j = 0; j < used; ++j) {
        for (Index l = 0; l < lanes; ++l) {
          float x = from[j * kBlock + l];
          if (epilogue_.residual) {
            x += args.residual[res_.at(p.n, first + l, 0, 0) + other + j * axes_.res_w];
          }
          args.out[out_.at(p.n, first + l, 0, 0) + line + j * axes_.out_w] =
              std::clamp(x, epilogue_.lo, epilogue_.hi);
        }
        for (Index l = lanes; l < lanes + zeros; ++l) {
          args.out[out_.at(p.n, first + l, 0, 0) + line + j * axes_.out_w] = 0.0F;
        }
      }
    }
  }
}

void Winograd::run(const RunArgs& args) const noexcept {
  const Index blocks = ceil_div(cg_, kBlock), batches = batches_ * g_;
  auto* const workspace = static_cast<float*>(args.workspace);
  float* const own = workspace + data_sets_ * data_floats_;
  parallel(threads_, [&](int thread, int team) {
    const Scratch scratch{own + thread * thread_floats_ + stage_floats_,
                          own + thread * thread_floats_};
    const auto finish = [&](const Batch& b, Index m_block, const float* data) {
      multiply(b, m_block, data, scratch.products);
      transform_output(args, b, m_block, scratch);
    };
    if (split_outputs_) {
      const Range in = share(blocks, thread, team);
      for (Index i = 0; i < batches; ++i) {
        // Two sets of data: whoever is done fills the next while others still read the last.
        float* data = workspace + i % 2 * data_floats_;
        const Batch b = batch(i);
        transform_input(args, b, in, data, scratch.stage);
        team_barrier(team);
        for (int part = thread; part < threads_; part += team) {
          const auto at = static_cast<std::size_t>(part);
          for (Index mb = m_shares_[at]; mb < m_shares_[at + 1]; ++mb) finish(b, mb, data);
        }
      }
      return;
    }
    float* data = workspace + thread * data_floats_;
    const Range mine = share(batches, thread, team);
    for (Index i = mine.begin; i < mine.end; ++i) {
      const Batch b = batch(i);
      transform_input(args, b, {0, blocks}, data, scratch.stage);
      for (Index mb = 0; mb < m_blocks_; ++mb) finish(b, mb, data);
    }
  });
}

// Rows
// -------------------------------------------------------------------------------------------------

/// Error of F(m, r) relative to a plain sum of products: three times the largest that checkconv
/// --accuracy found over its long suite, five seeds and all instruction sets.
constexpr float error_scale(const Params& p) {
  struct Entry {
    int m, r;
    float one, two;  // dimensions
  };
  constexpr Entry kScales[] = {{2, 3, 1, 1},     {3, 3, 1.3F, 2.1F}, {4, 3, 2, 3},
                               {6, 3, 4, 17.5F}, {2, 5, 1.7F, 6},    {3, 5, 1.8F, 6.5F},
                               {4, 5, 4, 14},    {2, 7, 10, 0},      {4, 7, 10, 0}};
  for (const Entry& e : kScales) {
    if (e.m == p.m && e.r == p.r) return p.dims == 1 ? e.one : e.two;
  }
  return 1;
}

const char* reject(const Primitive& row, const Scenario& s) {
  const Params& p = *static_cast<const Params*>(row.params);
  if (!s.unit_stride()) return "needs stride 1";
  if (!s.undilated()) return "needs a dense kernel";
  if (p.dims == 2 && (s.kh != p.r || s.kw != p.r)) {
    return p.r == 3 ? "needs a 3x3 kernel" : "needs a 5x5 kernel";
  }
  if (p.dims == 1 && s.kh != p.r && s.kw != p.r) {
    return p.r == 3   ? "needs a kernel of 3 rows or columns"
           : p.r == 5 ? "needs a kernel of 5 rows or columns"
                      : "needs a kernel of 7 rows or columns";
  }
  return nullptr;
}

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<Winograd>(row, s, weights, options);
}

struct Row {
  std::string_view name;
  Layout in, out;
  Params params;
};

constexpr Row kTable[] = {
    // Published by Anderson and Gregg.
    {"winograd-2-3", Layout::hwc, Layout::hwc, {2, 3, 1, 1, true}},
    {"winograd-2-3-vec-4", Layout::hwc, Layout::hwc, {2, 3, 1, 4, false}},
    {"winograd-3-3", Layout::hwc, Layout::hwc, {3, 3, 1, 1, true}},
    {"winograd-3-3-vec-4", Layout::hwc, Layout::hwc, {3, 3, 1, 4, false}},
    {"winograd-2-5", Layout::hwc, Layout::hwc, {2, 5, 1, 1, true}},
    {"winograd-2-5-vec-4", Layout::hwc, Layout::hwc, {2, 5, 1, 4, false}},
    {"winograd-3-5", Layout::hwc, Layout::hwc, {3, 5, 1, 1, true}},
    {"winograd-3-5-vec-4", Layout::hwc, Layout::hwc, {3, 5, 1, 4, false}},
    {"winograd-2x2-3x3", Layout::hwc, Layout::hwc, {2, 3, 2, 1, true}},
    {"winograd-2x2-3x3-vec-4", Layout::hwc, Layout::hwc, {2, 3, 2, 4, false}},
    {"winograd-2x2-3x3-vec-8", Layout::hwc, Layout::hwc, {2, 3, 2, 8, false}},
    {"winograd-2x2-3x3-vec-16", Layout::hwc, Layout::hwc, {2, 3, 2, 16, false}},
    {"winograd-3x3-3x3", Layout::hwc, Layout::hwc, {3, 3, 2, 1, true}},
    {"winograd-3x3-3x3-vec-4", Layout::hwc, Layout::hwc, {3, 3, 2, 4, false}},
    {"winograd-3x3-3x3-vec-8", Layout::hwc, Layout::hwc, {3, 3, 2, 8, false}},
    {"winograd-3x3-3x3-vec-16", Layout::hwc, Layout::hwc, {3, 3, 2, 16, false}},
    {"winograd-4x4-3x3", Layout::hwc, Layout::hwc, {4, 3, 2, 1, true}},
    {"winograd-4x4-3x3-vec-4", Layout::hwc, Layout::hwc, {4, 3, 2, 4, false}},
    {"winograd-4x4-3x3-vec-8", Layout::hwc, Layout::hwc, {4, 3, 2, 8, false}},
    {"winograd-4x4-3x3-vec-16", Layout::hwc, Layout::hwc, {4, 3, 2, 16, false}},
    {"winograd-2x2-5x5", Layout::hwc, Layout::hwc, {2, 5, 2, 1, true}},
    {"winograd-2x2-5x5-vec-4", Layout::hwc, Layout::hwc, {2, 5, 2, 4, false}},
    {"winograd-2x2-5x5-vec-8", Layout::hwc, Layout::hwc, {2, 5, 2, 8, false}},
    {"winograd-2x2-5x5-vec-16", Layout::hwc, Layout::hwc, {2, 5, 2, 16, false}},
    {"winograd-3x3-5x5", Layout::hwc, Layout::hwc, {3, 5, 2, 1, true}},
    {"winograd-3x3-5x5-vec-4", Layout::hwc, Layout::hwc, {3, 5, 2, 4, false}},
    {"winograd-3x3-5x5-vec-8", Layout::hwc, Layout::hwc, {3, 5, 2, 8, false}},
    {"winograd-3x3-5x5-vec-16", Layout::hwc, Layout::hwc, {3, 5, 2, 16, false}},
    {"winograd-4x4-5x5", Layout::hwc, Layout::hwc, {4, 5, 2, 1, true}},
    {"winograd-4x4-5x5-vec-4", Layout::hwc, Layout::hwc, {4, 5, 2, 4, false}},
    {"winograd-4x4-5x5-vec-8", Layout::hwc, Layout::hwc, {4, 5, 2, 8, false}},
    {"winograd-4x4-5x5-vec-16", Layout::hwc, Layout::hwc, {4, 5, 2, 16, false}},
    // Ours: F(6x6, 3x3), F(m, 7) and the other layouts.
    {"winograd-6x6-3x3", Layout::hwc, Layout::hwc, {6, 3, 2, 1, true}},
    {"winograd-6x6-3x3-vec-4", Layout::hwc, Layout::hwc, {6, 3, 2, 4, false}},
    {"winograd-6x6-3x3-vec-8", Layout::hwc, Layout::hwc, {6, 3, 2, 8, false}},
    {"winograd-6x6-3x3-vec-16", Layout::hwc, Layout::hwc, {6, 3, 2, 16, false}},
    {"winograd-4-3-vec-16", Layout::hwc, Layout::hwc, {4, 3, 1, 16, false}},
    {"winograd-2-7-vec-16", Layout::hwc, Layout::hwc, {2, 7, 1, 16, false}},
    {"winograd-4-7-vec-16", Layout::hwc, Layout::hwc, {4, 7, 1, 16, false}},
    {"winograd-4-3-chw16c", Layout::chw16c, Layout::chw16c, {4, 3, 1, 16, false}},
    {"winograd-2-7-chw16c", Layout::chw16c, Layout::chw16c, {2, 7, 1, 16, false}},
    {"winograd-4-7-chw16c", Layout::chw16c, Layout::chw16c, {4, 7, 1, 16, false}},
    {"winograd-2x2-3x3-chw", Layout::chw, Layout::chw, {2, 3, 2, 16, false}},
    {"winograd-4x4-3x3-chw", Layout::chw, Layout::chw, {4, 3, 2, 16, false}},
    {"winograd-6x6-3x3-chw", Layout::chw, Layout::chw, {6, 3, 2, 16, false}},
    {"winograd-2x2-5x5-chw", Layout::chw, Layout::chw, {2, 5, 2, 16, false}},
    {"winograd-4x4-5x5-chw", Layout::chw, Layout::chw, {4, 5, 2, 16, false}},
    {"winograd-2x2-3x3-hcw", Layout::hcw, Layout::hcw, {2, 3, 2, 16, false}},
    {"winograd-4x4-3x3-hcw", Layout::hcw, Layout::hcw, {4, 3, 2, 16, false}},
    {"winograd-6x6-3x3-hcw", Layout::hcw, Layout::hcw, {6, 3, 2, 16, false}},
    {"winograd-2x2-5x5-hcw", Layout::hcw, Layout::hcw, {2, 5, 2, 16, false}},
    {"winograd-4x4-5x5-hcw", Layout::hcw, Layout::hcw, {4, 5, 2, 16, false}},
    {"winograd-2x2-3x3-chw8c", Layout::chw8c, Layout::chw8c, {2, 3, 2, 8, false}},
    {"winograd-4x4-3x3-chw8c", Layout::chw8c, Layout::chw8c, {4, 3, 2, 8, false}},
    {"winograd-6x6-3x3-chw8c", Layout::chw8c, Layout::chw8c, {6, 3, 2, 8, false}},
    {"winograd-2x2-5x5-chw8c", Layout::chw8c, Layout::chw8c, {2, 5, 2, 8, false}},
    {"winograd-4x4-5x5-chw8c", Layout::chw8c, Layout::chw8c, {4, 5, 2, 8, false}},
    {"winograd-2x2-3x3-chw16c", Layout::chw16c, Layout::chw16c, {2, 3, 2, 16, false}},
    {"winograd-4x4-3x3-chw16c", Layout::chw16c, Layout::chw16c, {4, 3, 2, 16, false}},
    {"winograd-6x6-3x3-chw16c", Layout::chw16c, Layout::chw16c, {6, 3, 2, 16, false}},
    {"winograd-2x2-5x5-chw16c", Layout::chw16c, Layout::chw16c, {2, 5, 2, 16, false}},
    {"winograd-4x4-5x5-chw16c", Layout::chw16c, Layout::chw16c, {4, 5, 2, 16, false}},
    {"winograd-4x4-3x3-chw-chw16c", Layout::chw, Layout::chw16c, {4, 3, 2, 16, false}},
    {"winograd-4x4-3x3-chw-hwc", Layout::chw, Layout::hwc, {4, 3, 2, 16, false}},
    {"winograd-4x4-3x3-hwc-chw", Layout::hwc, Layout::chw, {4, 3, 2, 16, false}},
};

constexpr auto kRows = [] {
  std::array<Primitive, std::size(kTable)> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = kTable[i];
    rows[i] = {row.name,    Family::winograd,        row.in, row.out, reject, prepare,
               &row.params, error_scale(row.params), true};
  }
  return rows;
}();

}  // namespace

std::span<const Primitive> winograd_rows() { return kRows; }

}  // namespace convprim
