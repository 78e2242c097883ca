// Pooling, see pool.hpp.
//
// Planes: the rows of each window are combined first, vectors along the row, into a padded line of
// scratch memory; then the columns, from the line. All lines of a chunk are made before the first
// is read, so that no load waits for a store of half its bytes.
// Pixels: the channels of a pixel are vectors, and a window is a double loop around them.
#include "kernels/pool.hpp"

#include "kernels/vmath.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

struct MaxOf {
  static constexpr bool kScaled = false;
  static CONVPRIM_INLINE Vec start() { return broadcast(-kInfinity); }
  template <class T>
  static CONVPRIM_INLINE T join(T a, T b) {
    return a > b ? a : b;
  }
};

struct SumOf {
  static constexpr bool kScaled = true;
  static CONVPRIM_INLINE Vec start() { return Vec{}; }
  template <class T>
  static CONVPRIM_INLINE T join(T a, T b) {
    return a + b;
  }
};

/// line[x] = rows[0][x] joined with the next rows; R rows, or `rows` if R is 0.
template <class F, int R>
CONVPRIM_INLINE void join_rows(const float* in, std::ptrdiff_t step, std::ptrdiff_t rows,
                               float* line, std::ptrdiff_t w) {
  const std::ptrdiff_t count = R > 0 ? R : rows;
  std::ptrdiff_t x = 0;
  for (; x + kLanes <= w; x += kLanes) {
    Vec v = load(in + x);
    for (std::ptrdiff_t r = 1; r < count; ++r) v = F::join(v, load(in + r * step + x));
    store(line + x, v);
  }
  if (x < w) {
    Vec v = load_part(in + x, w - x);
    for (std::ptrdiff_t r = 1; r < count; ++r) {
      v = F::join(v, load_part(in + r * step + x, w - x));
    }
    store_part(line + x, v, w - x);
  }
}

// Even and odd lanes of a pair of vectors.
CONVPRIM_INLINE VecI lane_numbers() {
  VecI v{};
  CONVPRIM_UNROLL
  for (int l = 0; l < kLanes; ++l) v[l] = l;
  return v;
}
CONVPRIM_INLINE Vec even(Vec a, Vec b) { return __builtin_shuffle(a, b, lane_numbers() * 2); }
CONVPRIM_INLINE Vec odd(Vec a, Vec b) { return __builtin_shuffle(a, b, lane_numbers() * 2 + 1); }

/// The windows of kLanes output columns that start at line[0].
template <class F, int K, int S>
CONVPRIM_INLINE Vec join_columns(const PoolPlane& p, const float* line) {
  const std::ptrdiff_t kw = K > 0 ? K : p.kw;
  if constexpr (S == 1) {
    Vec v = load(line);
    for (std::ptrdiff_t j = 1; j < kw; ++j) v = F::join(v, load(line + j * p.dw));
    return v;
  } else if constexpr (S == 2) {
    Vec a = load(line), b = load(line + kLanes);
    Vec v = even(a, b);
    if (kw > 1) v = F::join(v, odd(a, b));
    for (std::ptrdiff_t j = 2; j < kw; j += 2) {
      a = load(line + j);
      b = load(line + j + kLanes);
      v = F::join(v, even(a, b));
      if (j + 1 < kw) v = F::join(v, odd(a, b));
    }
    return v;
  } else {
    Vec v = F::start();
    for (std::ptrdiff_t j = 0; j < kw; ++j) {
      Vec tap{};
      for (int l = 0; l < kLanes; ++l) tap[l] = line[l * p.sw + j * p.dw];
      v = F::join(v, tap);
    }
    return v;
  }
}

template <class F, int K, int S>
CONVPRIM_INLINE void finish_rows(const PoolPlane& p, float* out, std::ptrdiff_t begin,
                                 std::ptrdiff_t end, const float* scratch) {
  for (std::ptrdiff_t y = begin; y < end; ++y) {
    const float* line = scratch + (y - begin) * p.line;
    float* to = out + y * p.out_h;
    for (std::ptrdiff_t x = 0; x < p.ow; x += kLanes) {
      Vec v = join_columns<F, K, S>(p, line + x * (S > 0 ? S : p.sw));
      if constexpr (F::kScaled) v = v * (p.scale_y[y * p.y_step] * load(p.scale_x + x));
      store_part(to + x, v, p.ow - x);
    }
  }
}

/// Rows that fit into a register with a lane to spare, which holds what the method ignores: the
/// columns are combined by permutations of the joined rows, without scratch memory. K columns, or
/// kw if K is 0.
template <class F, int K>
CONVPRIM_INLINE void small_rows(const PoolPlane& p, const float* in, float* out,
                                std::ptrdiff_t begin, std::ptrdiff_t end) {
  constexpr std::ptrdiff_t kMost = 8;
  const std::ptrdiff_t kw = K > 0 ? K : p.kw;
  const VecI lane = lane_numbers();
  const int w = static_cast<int>(p.w);
  VecI index[kMost];
  for (std::ptrdiff_t j = 0; j < kw; ++j) {
    const VecI x = lane * static_cast<int>(p.sw) + static_cast<int>(j * p.dw - p.pl);
    index[j] = ((x >= 0) & (x < w)) ? x : VecI{} + w;
  }
  for (std::ptrdiff_t y = begin; y < end; ++y) {
    const float* row = in + p.row[y] * p.in_h;
    const std::ptrdiff_t rows = p.rows[y * p.y_step];
    Vec v = F::start();
    if (rows == 3) {
      v = F::join(F::join(load_part(row, w), load_part(row + p.in_step, w)),
                  load_part(row + 2 * p.in_step, w));
    } else {
      for (std::ptrdiff_t r = 0; r < rows; ++r) v = F::join(v, load_part(row + r * p.in_step, w));
    }
    v = lane < w ? v : F::start();
    Vec sum = __builtin_shuffle(v, index[0]);
    CONVPRIM_UNROLL
    for (std::ptrdiff_t j = 1; j < kw; ++j) sum = F::join(sum, __builtin_shuffle(v, index[j]));
    if constexpr (F::kScaled) sum = sum * (p.scale_y[y * p.y_step] * load(p.scale_x));
    store_part(out + y * p.out_h, sum, p.ow);
  }
}

template <class F>
void plane(const PoolPlane& p, const float* in, float* out, std::ptrdiff_t begin,
           std::ptrdiff_t end, float* scratch) {
  // SSE has no permutation by a variable.
  if (kLanes >= 8 && p.w < kLanes && p.ow <= kLanes && p.kw <= 8) {
    if (p.kw == 3) return small_rows<F, 3>(p, in, out, begin, end);
    if (p.kw == 2) return small_rows<F, 2>(p, in, out, begin, end);
    return small_rows<F, 0>(p, in, out, begin, end);
  }
  for (std::ptrdiff_t y = begin; y < end; ++y) {
    const float* first = in + p.row[y] * p.in_h;
    float* line = scratch + (y - begin) * p.line + p.pl;
    switch (p.rows[y * p.y_step]) {
      case 2:
        join_rows<F, 2>(first, p.in_step, 2, line, p.w);
        break;
      case 3:
        join_rows<F, 3>(first, p.in_step, 3, line, p.w);
        break;
      case 0: {
        const Vec nothing = F::start();
        for (std::ptrdiff_t x = 0; x < p.w; ++x) line[x] = nothing[0];
        break;
      }
      default:
        join_rows<F, 0>(first, p.in_step, p.rows[y * p.y_step], line, p.w);
    }
  }
  if (p.sw == 1) {
    if (p.kw == 3) return finish_rows<F, 3, 1>(p, out, begin, end, scratch);
    return finish_rows<F, 0, 1>(p, out, begin, end, scratch);
  }
  if (p.sw == 2 && p.dw == 1) {
    if (p.kw == 3) return finish_rows<F, 3, 2>(p, out, begin, end, scratch);
    if (p.kw == 2) return finish_rows<F, 2, 2>(p, out, begin, end, scratch);
    return finish_rows<F, 0, 2>(p, out, begin, end, scratch);
  }
  finish_rows<F, 0, 0>(p, out, begin, end, scratch);
}

/// A window of rows x cols pixels, KH x KW if those are not 0; the first tap starts the sum.
template <class F, int KH, int KW, class T, class Load>
CONVPRIM_INLINE T window(const PoolPixels& p, const float* in, std::ptrdiff_t rows,
                         std::ptrdiff_t cols, Load get) {
  const std::ptrdiff_t kh = KH > 0 ? KH : rows, kw = KW > 0 ? KW : cols;
  T v = get(in);
  for (std::ptrdiff_t j = 1; j < kw; ++j) v = F::join(v, get(in + j * p.dw * p.in_w));
  for (std::ptrdiff_t i = 1; i < kh; ++i) {
    // A sum of its own for each row: fewer roundings in global averages.
    const float* row = in + i * p.dh * p.in_h;
    T sum = get(row);
    for (std::ptrdiff_t j = 1; j < kw; ++j) sum = F::join(sum, get(row + j * p.dw * p.in_w));
    v = F::join(v, sum);
  }
  return v;
}

/// One output pixel of the given number of contiguous channels; blocks of B channels know it.
template <class F, int B, int KH, int KW>
CONVPRIM_INLINE void pixel(const PoolPixels& p, const float* in, std::ptrdiff_t rows,
                           std::ptrdiff_t cols, float* out, std::ptrdiff_t channels, float scale) {
  if constexpr (B > 0) {
    // Lanes that are there: a block of 8 is half a register of AVX-512, and two of SSE.
    constexpr int kWidth = B < kLanes ? B : kLanes;
    using Part = typename Pack<kWidth>::type;
    using Unaligned = typename Pack<kWidth>::unaligned;
    CONVPRIM_UNROLL
    for (int c = 0; c < B; c += kWidth) {
      Part v = window<F, KH, KW, Part>(p, in + c, rows, cols, [](const float* from) -> Part {
        return *reinterpret_cast<const Unaligned*>(from);
      });
      if constexpr (F::kScaled) v = v * scale;
      *reinterpret_cast<Unaligned*>(out + c) = v;
    }
  } else {
    std::ptrdiff_t c = 0;
    for (; c + kLanes <= channels; c += kLanes) {
      Vec v = window<F, KH, KW, Vec>(p, in + c, rows, cols,
                                     [](const float* from) { return load(from); });
      if constexpr (F::kScaled) v = v * scale;
      store(out + c, v);
    }
    if (c < channels) {
      const std::ptrdiff_t left = channels - c;
      Vec v = window<F, KH, KW, Vec>(p, in + c, rows, cols,
                                     [left](const float* from) { return load_part(from, left); });
      if constexpr (F::kScaled) v = v * scale;
      store_part(out + c, v, left);
    }
  }
}

template <class F, int B, int KH, int KW>
CONVPRIM_INLINE void pixel_range(const PoolPixels& p, const float* in, std::ptrdiff_t rows,
                                 float* out, std::ptrdiff_t channels, float scale_y,
                                 std::ptrdiff_t begin, std::ptrdiff_t end) {
  for (std::ptrdiff_t x = begin; x < end; ++x) {
    float* to = out + x * p.out_w;
    if (KW == 0 && (rows == 0 || p.cols[x] == 0)) {
      for (std::ptrdiff_t c = 0; c < channels; ++c) to[c] = 0;
      continue;
    }
    const std::ptrdiff_t first = KW > 0 ? x * p.sw - p.pl : p.col[x];
    pixel<F, B, KH, KW>(p, in + first * p.in_w, rows, KW > 0 ? KW : p.cols[x], to, channels,
                        F::kScaled ? scale_y * p.scale_x[x] : 1.0F);
  }
}

/// Columns whose windows are cut by the image's edge apart from those in the middle.
template <class F, int B>
void pixel_row(const PoolPixels& p, const float* in, std::ptrdiff_t rows, float* out,
               std::ptrdiff_t channels, float scale_y) {
  const std::ptrdiff_t a = p.full_begin, b = p.full_end;
  pixel_range<F, B, 0, 0>(p, in, rows, out, channels, scale_y, 0, a);
  if (rows == 3 && p.kw == 3) {
    pixel_range<F, B, 3, 3>(p, in, rows, out, channels, scale_y, a, b);
  } else if (rows == 2 && p.kw == 3) {
    pixel_range<F, B, 2, 3>(p, in, rows, out, channels, scale_y, a, b);
  } else if (rows == 2 && p.kw == 2) {
    pixel_range<F, B, 2, 2>(p, in, rows, out, channels, scale_y, a, b);
  } else {
    pixel_range<F, B, 0, 0>(p, in, rows, out, channels, scale_y, a, b);
  }
  pixel_range<F, B, 0, 0>(p, in, rows, out, channels, scale_y, b, p.ow);
}

template <class F>
void pixels(const PoolPixels& p, const float* in, std::ptrdiff_t rows, float* out,
            std::ptrdiff_t channels, float scale_y) {
  if (channels == 16) return pixel_row<F, 16>(p, in, rows, out, channels, scale_y);
  if (channels == 8) return pixel_row<F, 8>(p, in, rows, out, channels, scale_y);
  pixel_row<F, 0>(p, in, rows, out, channels, scale_y);
}

template <class F>
float run(const float* in, std::ptrdiff_t n) {
  constexpr int kChains = 4;
  Vec acc[kChains];
  CONVPRIM_UNROLL
  for (int k = 0; k < kChains; ++k) acc[k] = F::start();
  std::ptrdiff_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
    CONVPRIM_UNROLL
    for (int k = 0; k < kChains; ++k) acc[k] = F::join(acc[k], load(in + i + k * kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) acc[0] = F::join(acc[0], load(in + i));
  if (i < n) {
    const Vec rest = load_part(in + i, n - i);
    acc[1] = F::join(acc[1], lane_numbers() < static_cast<int>(n - i) ? rest : F::start());
  }
  Vec v = F::join(F::join(acc[0], acc[1]), F::join(acc[2], acc[3]));
  CONVPRIM_UNROLL
  for (int half = kLanes / 2; half > 0; half /= 2) {
    v = F::join(v, __builtin_shuffle(v, lane_numbers() ^ half));
  }
  return v[0];
}

}  // namespace

extern const PoolKernels kPool;
const PoolKernels kPool = {plane<MaxOf>,  plane<SumOf>, pixels<MaxOf>,
                           pixels<SumOf>, run<MaxOf>,   run<SumOf>};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
