// Transposes of matrices by square blocks that lie in registers, see transpose.hpp.
//
// A block of T x T floats is T loads, log2(T) rounds of two-operand shuffles and T stores. Edges
// are covered by blocks that overlap their neighbours, or by narrower blocks: a single element
// moves alone only in matrices with fewer than four rows and columns.
#include "kernels/transpose.hpp"

#include "kernels/simd.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

using std::ptrdiff_t;

template <int V>
struct PackIndex {
  using type __attribute__((vector_size(V * 4))) = std::int32_t;
};

template <int V>
using P = typename Pack<V>::type;

constexpr int smaller(int a, int b) { return a < b ? a : b; }

[[maybe_unused]] CONVPRIM_INLINE P<8> join(P<4> a, P<4> b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
}
[[maybe_unused]] CONVPRIM_INLINE P<16> join(P<8> a, P<8> b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// Register transposes
// ----------------------------------------------------------------------------------------------
// Two rounds work inside groups of four lanes, the others move whole groups: the only shuffles that
// are one instruction everywhere.

CONVPRIM_INLINE void transpose_registers(P<4> (&r)[4]) {
  using I = PackIndex<4>::type;
  const P<4> a = __builtin_shuffle(r[0], r[1], I{0, 4, 1, 5});
  const P<4> b = __builtin_shuffle(r[0], r[1], I{2, 6, 3, 7});
  const P<4> c = __builtin_shuffle(r[2], r[3], I{0, 4, 1, 5});
  const P<4> d = __builtin_shuffle(r[2], r[3], I{2, 6, 3, 7});
  r[0] = __builtin_shuffle(a, c, I{0, 1, 4, 5});
  r[1] = __builtin_shuffle(a, c, I{2, 3, 6, 7});
  r[2] = __builtin_shuffle(b, d, I{0, 1, 4, 5});
  r[3] = __builtin_shuffle(b, d, I{2, 3, 6, 7});
}

#if defined(CONVPRIM_KERNELS_AVX2) || defined(CONVPRIM_KERNELS_AVX512)
/// Four registers: the 4 x 4 floats of each group of four lanes.
CONVPRIM_INLINE void transpose_groups(P<8>* r) {
  using I = PackIndex<8>::type;
  const P<8> a = __builtin_shuffle(r[0], r[1], I{0, 8, 1, 9, 4, 12, 5, 13});
  const P<8> b = __builtin_shuffle(r[0], r[1], I{2, 10, 3, 11, 6, 14, 7, 15});
  const P<8> c = __builtin_shuffle(r[2], r[3], I{0, 8, 1, 9, 4, 12, 5, 13});
  const P<8> d = __builtin_shuffle(r[2], r[3], I{2, 10, 3, 11, 6, 14, 7, 15});
  r[0] = __builtin_shuffle(a, c, I{0, 1, 8, 9, 4, 5, 12, 13});
  r[1] = __builtin_shuffle(a, c, I{2, 3, 10, 11, 6, 7, 14, 15});
  r[2] = __builtin_shuffle(b, d, I{0, 1, 8, 9, 4, 5, 12, 13});
  r[3] = __builtin_shuffle(b, d, I{2, 3, 10, 11, 6, 7, 14, 15});
}

CONVPRIM_INLINE void transpose_registers(P<8> (&r)[8]) {
  using I = PackIndex<8>::type;
  CONVPRIM_UNROLL
  for (int g = 0; g < 8; g += 4) transpose_groups(&r[g]);
  CONVPRIM_UNROLL
  for (int k = 0; k < 4; ++k) {
    const P<8> a = r[k], b = r[k + 4];
    r[k] = __builtin_shuffle(a, b, I{0, 1, 2, 3, 8, 9, 10, 11});
    r[k + 4] = __builtin_shuffle(a, b, I{4, 5, 6, 7, 12, 13, 14, 15});
  }
}
#endif

#if defined(CONVPRIM_KERNELS_AVX512)
CONVPRIM_INLINE void transpose_groups(P<16>* r) {
  using I = PackIndex<16>::type;
  constexpr I kLow = {0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29};
  constexpr I kHigh = {2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31};
  constexpr I kLow2 = {0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29};
  constexpr I kHigh2 = {2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31};
  const P<16> a = __builtin_shuffle(r[0], r[1], kLow);
  const P<16> b = __builtin_shuffle(r[0], r[1], kHigh);
  const P<16> c = __builtin_shuffle(r[2], r[3], kLow);
  const P<16> d = __builtin_shuffle(r[2], r[3], kHigh);
  r[0] = __builtin_shuffle(a, c, kLow2);
  r[1] = __builtin_shuffle(a, c, kHigh2);
  r[2] = __builtin_shuffle(b, d, kLow2);
  r[3] = __builtin_shuffle(b, d, kHigh2);
}

/// Two registers' groups 0 and 2, and 1 and 3.
CONVPRIM_INLINE void part_groups(P<16>& a, P<16>& b) {
  using I = PackIndex<16>::type;
  constexpr I kEven = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
  constexpr I kOdd = {4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31};
  const P<16> even = __builtin_shuffle(a, b, kEven);
  b = __builtin_shuffle(a, b, kOdd);
  a = even;
}

CONVPRIM_INLINE void transpose_registers(P<16> (&r)[16]) {
  CONVPRIM_UNROLL
  for (int g = 0; g < 16; g += 4) transpose_groups(&r[g]);
  CONVPRIM_UNROLL
  for (int k = 0; k < 4; ++k) {
    part_groups(r[k], r[k + 4]);
    part_groups(r[k + 8], r[k + 12]);
    part_groups(r[k], r[k + 8]);
    part_groups(r[k + 4], r[k + 12]);
  }
}
#endif

/// One block: T columns of the first `rows` source rows (zeros in the rest) become T floats of the
/// first `cols` destination rows.
template <int T>
CONVPRIM_INLINE void move_block(const float* src, ptrdiff_t src_ld, ptrdiff_t rows, float* dst,
                                ptrdiff_t dst_ld, ptrdiff_t cols) {
  P<T> r[T];
  CONVPRIM_UNROLL
  for (int i = 0; i < T; ++i) r[i] = i < rows ? loadv<T>(src + i * src_ld) : P<T>{};
  transpose_registers(r);
  CONVPRIM_UNROLL
  for (int i = 0; i < T; ++i) {
    if (i < cols) storev<T>(dst + i * dst_ld, r[i]);
  }
}

/// T rows, of which C floats each become C whole vectors; T is kLanes, C a half or a quarter of it.
/// Only the first `cols` are stored.
template <int T, int C>
CONVPRIM_INLINE void move_tall(const float* src, ptrdiff_t src_ld, float* dst, ptrdiff_t dst_ld,
                               ptrdiff_t cols) {
  static_assert(C == 4 || (T == 16 && C == 8));
  P<T> r[C];
  CONVPRIM_UNROLL
  for (int k = 0; k < C; ++k) {
    if constexpr (C == 8) {  // 0 beside 4, 8 beside 12
      const float* p = src + (k < 4 ? k : k + 4) * src_ld;
      r[k] = join(loadv<8>(p), loadv<8>(p + 4 * src_ld));
    } else {
      const float* p = src + k * src_ld;
      const P<8> low = join(loadv<4>(p), loadv<4>(p + 4 * src_ld));
      if constexpr (T == 16) {
        r[k] = join(low, join(loadv<4>(p + 8 * src_ld), loadv<4>(p + 12 * src_ld)));
      } else {
        r[k] = low;
      }
    }
  }
  CONVPRIM_UNROLL
  for (int g = 0; g < C; g += 4) transpose_groups(&r[g]);
  if constexpr (C == 8) {
    CONVPRIM_UNROLL
    for (int k = 0; k < 4; ++k) part_groups(r[k], r[k + 4]);
  }
  CONVPRIM_UNROLL
  for (int k = 0; k < C; ++k) {
    if (k < cols) storev<T>(dst + k * dst_ld, r[k]);
  }
}

// Copies of rows
// ----------------------------------------------------------------------------------------------

/// n floats, V <= n < 2V or a multiple of V more: whole vectors and one that overlaps.
template <int V>
CONVPRIM_INLINE void copy_row(ptrdiff_t n, const float* src, float* dst) {
  ptrdiff_t i = 0;
  for (; i + V <= n; i += V) storev<V>(dst + i, loadv<V>(src + i));
  if (i < n) storev<V>(dst + n - V, loadv<V>(src + n - V));
}

/// Rows of planes, from one pair of strides to another.
struct Planes {
  ptrdiff_t planes, rows, n;
  const float* src;
  ptrdiff_t src_plane, src_ld;
  float* dst;
  ptrdiff_t dst_plane, dst_ld;
};

#if defined(CONVPRIM_KERNELS_AVX512)
/// Rows of seven floats, as the last layers of many networks have them: sixteen that touch in the
/// destination are seven whole vectors. at: where the rows of a group lie, `rows` of them, a
/// multiple of 16. Goes from group to group, `step` apart, while nothing from `end` on is read, up
/// to `groups`; returns how many are done.
__attribute__((noinline)) ptrdiff_t copy_sevens(ptrdiff_t groups, ptrdiff_t rows,
                                                const ptrdiff_t* at, ptrdiff_t step,
                                                const float* src, const float* end, float* dst) {
  // Two rows lie in a register, one from its first lane on, one from the ninth; a vector's floats
  // lie in two such registers.
  VecI from[7];
  CONVPRIM_UNROLL
  for (int v = 0; v < 7; ++v) {
    CONVPRIM_UNROLL
    for (int l = 0; l < 16; ++l) {
      const int i = v * 16 + l, first = v * 16 / 14;
      from[v][l] = (i / 7 - 2 * first) * 8 + i % 7;
    }
  }
  ptrdiff_t group = 0;
  for (; group < groups && src + at[rows - 1] + 8 <= end; ++group, src += step) {
    for (ptrdiff_t r = 0; r < rows; r += 16, dst += 112) {
      Vec pair[8];
      CONVPRIM_UNROLL
      for (int p = 0; p < 8; ++p) {
        pair[p] = join(loadv<8>(src + at[r + 2 * p]), loadv<8>(src + at[r + 2 * p + 1]));
      }
      CONVPRIM_UNROLL
      for (int v = 0; v < 7; ++v) {
        const int first = v * 16 / 14;
        store(dst + v * 16, __builtin_shuffle(pair[first], pair[first + 1], from[v]));
      }
    }
  }
  return group;
}
#endif

/// V <= n.
template <int V>
CONVPRIM_INLINE void copy_planes_by(const Planes& p) {
  [[maybe_unused]] const float* const end =
      p.src + (p.planes - 1) * p.src_plane + (p.rows - 1) * p.src_ld + p.n;
  for (ptrdiff_t plane = 0; plane < p.planes; ++plane) {
    const float* src = p.src + plane * p.src_plane;
    float* dst = p.dst + plane * p.dst_plane;
    ptrdiff_t i = 0;
    if constexpr (2 * V == kLanes) {
      // Two rows of half a vector are one where they touch.
      const ptrdiff_t joined = p.n == V && p.dst_ld == V ? p.rows / 2 * 2 : 0;
      for (; i < joined; i += 2, src += 2 * p.src_ld, dst += 2 * V) {
        storev<2 * V>(dst, join(loadv<V>(src), loadv<V>(src + p.src_ld)));
      }
    }
    if constexpr (2 * V <= kLanes) {
      // Where rows touch, one vector serves: the next row's store mends what is too much.
      const bool more = plane + 1 < p.planes && p.dst_plane == p.rows * p.n;
      const ptrdiff_t mended = p.n < 2 * V && p.dst_ld == p.n ? p.rows - (more ? 0 : 1) : 0;
      for (; i < mended && src + 2 * V <= end; ++i, src += p.src_ld, dst += p.dst_ld) {
        storev<2 * V>(dst, loadv<2 * V>(src));
      }
    }
    const ptrdiff_t single = p.n == V ? p.rows : 0;
    for (; i < single; ++i, src += p.src_ld, dst += p.dst_ld) storev<V>(dst, loadv<V>(src));
    for (; i < p.rows; ++i, src += p.src_ld, dst += p.dst_ld) copy_row<V>(p.n, src, dst);
  }
}

#if defined(CONVPRIM_KERNELS_AVX512)
/// n and dst_ld are 7.
__attribute__((noinline)) void copy_planes_of_sevens(Planes p) {
  const float* const end = p.src + (p.planes - 1) * p.src_plane + (p.rows - 1) * p.src_ld + 7;
  ptrdiff_t at[16 * 16];
  if (p.rows >= 16) {  // plane by plane
    for (ptrdiff_t i = 0; i < 16; ++i) at[i] = i * p.src_ld;
    for (; p.planes > 0; --p.planes, p.src += p.src_plane, p.dst += p.dst_plane) {
      const ptrdiff_t done =
          16 * copy_sevens(p.rows / 16, 16, at, 16 * p.src_ld, p.src, end, p.dst);
      if (done == p.rows) continue;
      copy_planes_by<4>(
          {1, p.rows - done, 7, p.src + done * p.src_ld, 0, p.src_ld, p.dst + done * 7, 0, 7});
    }
    return;
  }
  if (p.planes >= 16 && p.dst_plane == p.rows * 7) {  // the rows of sixteen planes
    for (ptrdiff_t i = 0; i < 16 * p.rows; ++i) {
      at[i] = i / p.rows * p.src_plane + i % p.rows * p.src_ld;
    }
    const ptrdiff_t done =
        16 * copy_sevens(p.planes / 16, 16 * p.rows, at, 16 * p.src_plane, p.src, end, p.dst);
    p.src += done * p.src_plane, p.dst += done * p.dst_plane, p.planes -= done;
  }
  if (p.planes > 0) copy_planes_by<4>(p);
}
#endif

void copy_planes(const Planes& p) {
#if defined(CONVPRIM_KERNELS_AVX512)
  if (p.n == 7 && p.dst_ld == 7) return copy_planes_of_sevens(p);
#endif
  if (p.n >= kLanes) {
    copy_planes_by<kLanes>(p);
  } else if (p.n >= 8) {
    copy_planes_by<smaller(kLanes, 8)>(p);
  } else if (p.n >= 4) {
    copy_planes_by<4>(p);
  } else {
    for (ptrdiff_t plane = 0; plane < p.planes; ++plane)
      for (ptrdiff_t i = 0; i < p.rows; ++i)
        for (ptrdiff_t j = 0; j < p.n; ++j)
          p.dst[plane * p.dst_plane + i * p.dst_ld + j] =
              p.src[plane * p.src_plane + i * p.src_ld + j];
  }
}

void copy_planes(ptrdiff_t planes, ptrdiff_t rows, ptrdiff_t n, const float* src,
                 ptrdiff_t src_plane, ptrdiff_t src_ld, float* dst, ptrdiff_t dst_plane,
                 ptrdiff_t dst_ld) {
  copy_planes({planes, rows, n, src, src_plane, src_ld, dst, dst_plane, dst_ld});
}

void copy_rows(ptrdiff_t rows, ptrdiff_t n, const float* src, ptrdiff_t src_ld, float* dst,
               ptrdiff_t dst_ld) {
  copy_planes({1, rows, n, src, 0, src_ld, dst, 0, dst_ld});
}

// General matrices
// ----------------------------------------------------------------------------------------------

/// R rows, R < 4: the destination's rows are R floats.
template <int R>
CONVPRIM_INLINE void few_rows(ptrdiff_t cols, const float* src, ptrdiff_t src_ld, float* dst,
                              ptrdiff_t dst_ld) {
  ptrdiff_t j = 0;
  // Where destination rows touch, four floats are stored and the next row's store mends the excess.
  const bool dense = R > 1 && dst_ld == R;
  for (; j + 4 <= cols; j += 4) {
    P<4> r[4] = {};
    CONVPRIM_UNROLL
    for (int i = 0; i < R; ++i) r[i] = loadv<4>(src + i * src_ld + j);
    transpose_registers(r);
    CONVPRIM_UNROLL
    for (int k = 0; k < 4; ++k) {
      float* p = dst + (j + k) * dst_ld;
      if (dense && k < 3) {
        storev<4>(p, r[k]);
      } else {
        CONVPRIM_UNROLL
        for (int i = 0; i < R; ++i) p[i] = r[k][i];
      }
    }
  }
  for (; j < cols; ++j) {
    CONVPRIM_UNROLL
    for (int i = 0; i < R; ++i) dst[j * dst_ld + i] = src[i * src_ld + j];
  }
}

/// Q columns, Q < 4: the source's rows are Q floats.
template <int Q>
CONVPRIM_INLINE void few_cols(ptrdiff_t rows, const float* src, ptrdiff_t src_ld, float* dst,
                              ptrdiff_t dst_ld) {
  ptrdiff_t i = 0;
  // Four floats are loaded of each row; those beyond Q belong to later rows.
  for (; (i + 3) * src_ld + 4 <= (rows - 1) * src_ld + Q; i += 4) {
    P<4> r[4];
    CONVPRIM_UNROLL
    for (int k = 0; k < 4; ++k) r[k] = loadv<4>(src + (i + k) * src_ld);
    transpose_registers(r);
    CONVPRIM_UNROLL
    for (int q = 0; q < Q; ++q) storev<4>(dst + q * dst_ld + i, r[q]);
  }
  for (; i < rows; ++i) {
    CONVPRIM_UNROLL
    for (int q = 0; q < Q; ++q) dst[q * dst_ld + i] = src[i * src_ld + q];
  }
}

/// Where the last block of a dimension starts and how wide it is: the narrowest of 4, 8, ... T that
/// covers the rest n % T; it may overlap the block before.
template <int T>
CONVPRIM_INLINE ptrdiff_t tail_width(ptrdiff_t n) {
  const ptrdiff_t rest = n % T;
  if (rest == 0) return 0;
  ptrdiff_t width = 4;
  while (width < rest) width *= 2;
  return width;
}

/// Rows of 4 to T - 1 columns, T > 4, as whole vectors; rows is T or more. `more`: floats that may
/// be read after the last.
template <int T>
__attribute__((noinline)) void few_columns(ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t more,
                                           const float* src, ptrdiff_t src_ld, float* dst,
                                           ptrdiff_t dst_ld) {
  for (ptrdiff_t i = 0; i < rows; i += T) {
    if (i + T > rows) i = rows - T;
    const float* a = src + i * src_ld;
    float* b = dst + i;
    if constexpr (T == 16) {
      const ptrdiff_t room = cols + more + (rows - T - i) * src_ld;
      if (cols > 8 && room >= 16) {
        move_block<16>(a, src_ld, 16, b, dst_ld, cols);
        continue;
      }
      if (cols > 4 && room >= 8) {
        move_tall<16, 8>(a, src_ld, b, dst_ld, cols);
        if (cols > 8) move_tall<16, 8>(a + cols - 8, src_ld, b + (cols - 8) * dst_ld, dst_ld, 8);
        continue;
      }
    }
    move_tall<T, 4>(a, src_ld, b, dst_ld, 4);
    if (cols > 4) move_tall<T, 4>(a + cols - 4, src_ld, b + (cols - 4) * dst_ld, dst_ld, 4);
  }
}

template <int T>
struct Transposer {
  /// rows is T or more. Block by block along the rows, so that all of these are read at once.
  static CONVPRIM_INLINE void whole(ptrdiff_t rows, ptrdiff_t cols, const float* src,
                                    ptrdiff_t src_ld, float* dst, ptrdiff_t dst_ld) {
    if constexpr (T > 4) {
      if (cols < T) return few_columns<T>(rows, cols, 0, src, src_ld, dst, dst_ld);
    }
    const ptrdiff_t tail = tail_width<T>(cols);
    const ptrdiff_t main = tail == T ? cols : cols / T * T;
    const ptrdiff_t rest = main < cols ? tail : 0;
    for (ptrdiff_t i = 0; i < rows; i += T) {
      if (i + T > rows) i = rows - T;
      for (ptrdiff_t j = 0; j < main; j += T) {
        if (j + T > cols) j = cols - T;
        move_block<T>(src + i * src_ld + j, src_ld, T, dst + j * dst_ld + i, dst_ld, T);
      }
      if constexpr (T > 4) {
        const ptrdiff_t j = cols - rest;
        if (rest != 0) {
          few_columns<T>(T, rest, (rows - T - i) * src_ld, src + i * src_ld + j, src_ld,
                         dst + j * dst_ld + i, dst_ld);
        }
      }
    }
  }

  /// rows and cols are 4 or more.
  static void run(ptrdiff_t rows, ptrdiff_t cols, const float* src, ptrdiff_t src_ld, float* dst,
                  ptrdiff_t dst_ld) {
    if constexpr (T > 4) {
      if (rows < T) return Transposer<T / 2>::run(rows, cols, src, src_ld, dst, dst_ld);
      const ptrdiff_t tail = tail_width<T>(rows);
      const ptrdiff_t main = tail == T || cols < T ? rows : rows / T * T;
      whole(main, cols, src, src_ld, dst, dst_ld);
      if (main < rows) {
        const ptrdiff_t i = rows - tail;
        Transposer<T / 2>::run(tail, cols, src + i * src_ld, src_ld, dst + i, dst_ld);
      }
    } else {
      whole(rows, cols, src, src_ld, dst, dst_ld);
    }
  }
};

/// Five to seven rows where the destination's rows touch: blocks of 8 x 8, of which each stored row
/// mends what is too much of the one before. Returns how many columns are done; four or more are
/// left.
ptrdiff_t short_columns([[maybe_unused]] ptrdiff_t rows, [[maybe_unused]] ptrdiff_t cols,
                        [[maybe_unused]] const float* src, [[maybe_unused]] ptrdiff_t src_ld,
                        [[maybe_unused]] float* dst, [[maybe_unused]] ptrdiff_t dst_ld) {
  ptrdiff_t j = 0;
  if constexpr (kLanes >= 8) {
    if (rows <= 4 || rows >= 8 || dst_ld != rows) return 0;
    for (; j + 12 <= cols; j += 8) move_block<8>(src + j, src_ld, rows, dst + j * rows, rows, 8);
  }
  return j;
}

void transpose(ptrdiff_t rows, ptrdiff_t cols, const float* src, ptrdiff_t src_ld, float* dst,
               ptrdiff_t dst_ld) {
  if ((rows == 1 && dst_ld == 1) || (cols == 1 && src_ld == 1)) {
    copy_rows(1, rows * cols, src, 0, dst, 0);
  } else if (rows >= 4 && cols >= 4) {
    const ptrdiff_t done = short_columns(rows, cols, src, src_ld, dst, dst_ld);
    Transposer<kLanes>::run(rows, cols - done, src + done, src_ld, dst + done * dst_ld, dst_ld);
  } else if (rows < 4 && rows <= cols) {
    if (rows == 1) few_rows<1>(cols, src, src_ld, dst, dst_ld);
    if (rows == 2) few_rows<2>(cols, src, src_ld, dst, dst_ld);
    if (rows == 3) few_rows<3>(cols, src, src_ld, dst, dst_ld);
  } else {
    if (cols == 1) few_cols<1>(rows, src, src_ld, dst, dst_ld);
    if (cols == 2) few_cols<2>(rows, src, src_ld, dst, dst_ld);
    if (cols == 3) few_cols<3>(rows, src, src_ld, dst, dst_ld);
  }
}

/// Eight columns at a time: as many stores as an L1 cache keeps lines of one set, where all of
/// these may fall into one. rows is T or more, cols is 8 or more.
template <int T>
CONVPRIM_INLINE void to_planes_by(ptrdiff_t rows, ptrdiff_t cols, const float* src,
                                  ptrdiff_t src_ld, float* dst, ptrdiff_t dst_ld) {
  for (ptrdiff_t j = 0; j < cols; j += 8) {
    if (j + 8 > cols) j = cols - 8;
    const float* next = src + rows * (src_ld + j);  // this group's part of the next call's rows
    for (ptrdiff_t i = 0; i < rows; i += T, next += T * 8) {
      if (i + T > rows) i = rows - T;
      CONVPRIM_UNROLL
      for (int line = 0; line < T * 8; line += 16) __builtin_prefetch(next + line);
      const float* a = src + i * src_ld + j;
      float* b = dst + j * dst_ld + i;
      if constexpr (T == 16) {
        move_tall<16, 8>(a, src_ld, b, dst_ld, 8);
      } else {
        CONVPRIM_UNROLL
        for (int k = 0; k < 8; k += T) {
          move_block<T>(a + k, src_ld, T, b + k * dst_ld, dst_ld, T);
        }
      }
    }
  }
}

void to_planes(ptrdiff_t rows, ptrdiff_t cols, const float* src, ptrdiff_t src_ld, float* dst,
               ptrdiff_t dst_ld) {
  if (rows >= kLanes && cols >= 8) {
    to_planes_by<kLanes>(rows, cols, src, src_ld, dst, dst_ld);
  } else {
    transpose(rows, cols, src, src_ld, dst, dst_ld);
  }
}

// Channel blocks
// ----------------------------------------------------------------------------------------------

template <int T, int B>
CONVPRIM_INLINE void to_block_cols(ptrdiff_t valid, ptrdiff_t cols, const float* src,
                                   ptrdiff_t src_ld, float* dst) {
  for (ptrdiff_t j = 0; j < cols; j += T) {
    if (j + T > cols) j = cols - T;
    CONVPRIM_UNROLL
    for (int i = 0; i < B; i += T) {
      move_block<T>(src + i * src_ld + j, src_ld, valid - i, dst + j * B + i, B, T);
    }
  }
}

template <int T, int B>
CONVPRIM_INLINE void to_block_any(ptrdiff_t valid, ptrdiff_t cols, const float* src,
                                  ptrdiff_t src_ld, float* dst) {
  if (cols >= T) {
    // A full block's loads are unconditional.
    if (valid == B) {
      to_block_cols<T, B>(B, cols, src, src_ld, dst);
    } else {
      to_block_cols<T, B>(valid, cols, src, src_ld, dst);
    }
  } else if constexpr (T > 4) {
    to_block_any<T / 2, B>(valid, cols, src, src_ld, dst);
  } else {
    for (ptrdiff_t j = 0; j < cols; ++j)
      for (ptrdiff_t i = 0; i < B; ++i) dst[j * B + i] = i < valid ? src[i * src_ld + j] : 0.0F;
  }
}

void to_block(ptrdiff_t block, ptrdiff_t valid, ptrdiff_t cols, const float* src, ptrdiff_t src_ld,
              float* dst) {
  if (block == 8) {
    to_block_any<smaller(kLanes, 8), 8>(valid, cols, src, src_ld, dst);
  } else {
    to_block_any<kLanes, 16>(valid, cols, src, src_ld, dst);
  }
}

/// Floats of a block that are prefetched: beside many streams of stores the processor does not look
/// ahead by itself.
constexpr ptrdiff_t kAhead = 1024;

template <int T, int B>
CONVPRIM_INLINE void from_block_rows(ptrdiff_t valid, ptrdiff_t cols, const float* src, float* dst,
                                     ptrdiff_t dst_ld) {
  for (ptrdiff_t j = 0; j < cols; j += T) {
    if (j + T > cols) j = cols - T;
    CONVPRIM_UNROLL
    for (int line = 0; line < T * B; line += 16) {
      __builtin_prefetch(src + j * B + kAhead + line);
    }
    CONVPRIM_UNROLL
    for (int i = 0; i < B; i += T) {
      move_block<T>(src + j * B + i, B, T, dst + i * dst_ld + j, dst_ld, valid - i);
    }
  }
}

template <int T, int B>
CONVPRIM_INLINE void from_block_any(ptrdiff_t valid, ptrdiff_t cols, const float* src, float* dst,
                                    ptrdiff_t dst_ld) {
  if (cols >= T) {
    if (valid == B) {
      from_block_rows<T, B>(B, cols, src, dst, dst_ld);
    } else {
      from_block_rows<T, B>(valid, cols, src, dst, dst_ld);
    }
  } else if constexpr (T > 4) {
    from_block_any<T / 2, B>(valid, cols, src, dst, dst_ld);
  } else {
    for (ptrdiff_t i = 0; i < valid; ++i)
      for (ptrdiff_t j = 0; j < cols; ++j) dst[i * dst_ld + j] = src[j * B + i];
  }
}

void from_block(ptrdiff_t block, ptrdiff_t valid, ptrdiff_t cols, const float* src, float* dst,
                ptrdiff_t dst_ld) {
  if (block == 8) {
    from_block_any<smaller(kLanes, 8), 8>(valid, cols, src, dst, dst_ld);
  } else {
    from_block_any<kLanes, 16>(valid, cols, src, dst, dst_ld);
  }
}

// Rows of lanes
// ----------------------------------------------------------------------------------------------

/// A row's pieces of 8, 4, 2 and 1 floats, as `valid` says.
template <int L>
CONVPRIM_INLINE void copy_pieces(int valid, const float* src, float* dst) {
  int at = 0;
  if constexpr (L > 8) {
    if ((valid & 8) != 0) storev<8>(dst, loadv<8>(src)), at = 8;
  }
  if ((valid & 4) != 0) storev<4>(dst + at, loadv<4>(src + at)), at += 4;
  if ((valid & 2) != 0) dst[at] = src[at], dst[at + 1] = src[at + 1], at += 2;
  if ((valid & 1) != 0) dst[at] = src[at];
}

template <int L>
CONVPRIM_INLINE void copy_lanes_by(ptrdiff_t rows, ptrdiff_t valid, const float* src,
                                   ptrdiff_t src_ld, float* dst, ptrdiff_t dst_ld) {
  if (valid == L) return copy_planes_by<L>({1, rows, L, src, 0, src_ld, dst, 0, dst_ld});
  // Whole rows are loaded while they end before the last named element, and masked.
  using I = typename PackIndex<L>::type;
  I mask{};
  for (int l = 0; l < L; ++l) mask[l] = l < valid ? -1 : 0;
  const ptrdiff_t last = (rows - 1) * src_ld + valid;
  ptrdiff_t i = 0;
  for (; i < rows && i * src_ld + L <= last; ++i) {
    storev<L>(dst + i * dst_ld, (P<L>)((I)loadv<L>(src + i * src_ld) & mask));
  }
  for (; i < rows; ++i) {
    storev<L>(dst + i * dst_ld, P<L>{});
    copy_pieces<L>(static_cast<int>(valid), src + i * src_ld, dst + i * dst_ld);
  }
}

void join_halves(ptrdiff_t rows, const float* first, const float* second, float* dst,
                 ptrdiff_t dst_ld) {
  for (ptrdiff_t i = 0; i < rows; ++i, first += 8, second += 8, dst += dst_ld) {
    if constexpr (kLanes == 16) {
      storev<16>(dst, join(loadv<8>(first), loadv<8>(second)));
    } else {
      storev<8>(dst, loadv<8>(first));
      storev<8>(dst + 8, loadv<8>(second));
    }
  }
}

void split_halves(ptrdiff_t rows, const float* src, ptrdiff_t src_ld, float* first, float* second) {
  ptrdiff_t i = 0;
  if constexpr (kLanes == 16) {
    for (; i + 2 <= rows; i += 2, src += 2 * src_ld, first += 16, second += 16) {
      const P<16> a = loadv<16>(src), b = loadv<16>(src + src_ld);
      storev<16>(first, __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20,
                                                21, 22, 23));
      storev<16>(second, __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27,
                                                 28, 29, 30, 31));
    }
  }
  for (; i < rows; ++i, src += src_ld, first += 8, second += 8) {
    storev<8>(first, loadv<8>(src));
    storev<8>(second, loadv<8>(src + 8));
  }
}

void copy_lanes(ptrdiff_t rows, ptrdiff_t valid, ptrdiff_t lanes, const float* src,
                ptrdiff_t src_ld, float* dst, ptrdiff_t dst_ld) {
  if (lanes == 8) {
    copy_lanes_by<8>(rows, valid, src, src_ld, dst, dst_ld);
  } else {
    copy_lanes_by<16>(rows, valid, src, src_ld, dst, dst_ld);
  }
}

}  // namespace

extern const TransposeKernels kTranspose;
const TransposeKernels kTranspose = {transpose,   to_planes,  to_block,    from_block,  copy_rows,
                                     copy_planes, copy_lanes, join_halves, split_halves};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
