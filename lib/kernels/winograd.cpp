// Inner loops of Winograd convolution, see winograd.hpp.
//
// A two-dimensional transform is the one-dimensional one along the columns of a tile, then along
// its rows. Points come in pairs a, -a; with q(x) the product over all other points, their rows of
// B^T are q(x)(x + a) and q(x)(x - a), so one computes x q(x) and q(x) once and adds and subtracts.
// In A^T it is the sum and the difference of the pair that are shared.
#include "kernels/winograd.hpp"

#include "kernels/simd.hpp"
#include "kernels/winograd_matrices.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

// Lanes
// -------------------------------------------------------------------------------------------------

/// V channels as one value: a float, or a vector of at most a register.
template <int V>
struct Lanes {
  using type = typename Pack<V>::type;
  static CONVPRIM_INLINE type load(const float* p) {
    return *reinterpret_cast<const typename Pack<V>::unaligned*>(p);
  }
  static CONVPRIM_INLINE void store(float* p, type v) {
    *reinterpret_cast<typename Pack<V>::unaligned*>(p) = v;
  }
  static CONVPRIM_INLINE type max(type a, type b) { return a > b ? a : b; }
  static CONVPRIM_INLINE type min(type a, type b) { return a < b ? a : b; }
};

template <>
struct Lanes<1> {
  using type = float;
  static CONVPRIM_INLINE float load(const float* p) { return *p; }
  static CONVPRIM_INLINE void store(float* p, float v) { *p = v; }
  static CONVPRIM_INLINE float max(float a, float b) { return a > b ? a : b; }
  static CONVPRIM_INLINE float min(float a, float b) { return a < b ? a : b; }
};

// One-dimensional transforms
// -------------------------------------------------------------------------------------------------

/// F(M, R) on values of type X.
template <int M, int R, class X>
struct Transform {
  static constexpr WinogradMatrices<M, R> kMat{};
  static constexpr int kT = M + R - 1;
  static constexpr int kPairs = kMat.kPoints.pairs;

  /// sum += the terms from I on of row J of B^T, divided by (x - a) if Half: the polynomial q of
  /// the pair J, J + 1.
  static consteval double half(int j, int i) {
    return (kMat.bt[j][i] - kMat.bt[j + 1][i]) / (2 * kMat.kPoints.at[j]);
  }
  static consteval double whole(int j, int i) { return (kMat.bt[j][i] + kMat.bt[j + 1][i]) / 2; }
  enum class Part { row, x_times_q, q };
  template <Part P>
  static consteval double coefficient(int j, int i) {
    return P == Part::row ? kMat.bt[j][i] : P == Part::q ? half(j, i) : whole(j, i);
  }
  template <Part P>
  static consteval int degree(int j) {
    int i = kT - 1;
    while (coefficient<P>(j, i) == 0) --i;
    return i;
  }
  template <Part P, int J, int I>
  static CONVPRIM_INLINE void add_terms(const X (&d)[kT], X& sum) {
    if constexpr (I >= 0) {
      constexpr auto c = static_cast<float>(coefficient<P>(J, I));
      if constexpr (c != 0) sum += c * d[I];
      add_terms<P, J, I - 1>(d, sum);
    }
  }
  /// All three polynomials are monic: the leading term needs no product.
  template <Part P, int J>
  static CONVPRIM_INLINE X polynomial(const X (&d)[kT]) {
    constexpr int top = degree<P>(J);
    X sum = d[top];
    add_terms<P, J, top - 1>(d, sum);
    return sum;
  }

  template <int P>
  static CONVPRIM_INLINE void input_pairs(const X (&d)[kT], X (&v)[kT]) {
    if constexpr (P < kPairs) {
      constexpr int j = 1 + 2 * P;
      constexpr auto a = static_cast<float>(kMat.kPoints.at[j]);
      const X xq = polynomial<Part::x_times_q, j>(d), q = polynomial<Part::q, j>(d);
      v[j] = xq + a * q;
      v[j + 1] = xq - a * q;
      input_pairs<P + 1>(d, v);
    }
  }

  /// v = B^T d.
  static CONVPRIM_INLINE void input(const X (&d)[kT], X (&v)[kT]) {
    if constexpr (kT == 1) {
      v[0] = d[0];
    } else {
      v[0] = polynomial<Part::row, 0>(d);
      input_pairs<0>(d, v);
      if constexpr (kMat.kPoints.unpaired) v[kT - 2] = polynomial<Part::row, kT - 2>(d);
      v[kT - 1] = polynomial<Part::row, kT - 1>(d);
    }
  }

  template <int I, int P>
  static CONVPRIM_INLINE void add_pairs(const X (&sum)[kPairs + 1],
                                        const X (&difference)[kPairs + 1], X& y) {
    if constexpr (P < kPairs) {
      constexpr auto c = static_cast<float>(kMat.at[I][1 + 2 * P]);
      y += c * (I % 2 == 0 ? sum[P] : difference[P]);
      add_pairs<I, P + 1>(sum, difference, y);
    }
  }
  template <int I>
  static CONVPRIM_INLINE void output_rows(const X (&s)[kT], const X (&sum)[kPairs + 1],
                                          const X (&difference)[kPairs + 1], X (&y)[M]) {
    if constexpr (I < M) {
      if constexpr (I == 0) {
        y[I] = s[0] + sum[0];
      } else {
        constexpr auto c = static_cast<float>(kMat.at[I][1]);
        y[I] = c * (I % 2 == 0 ? sum[0] : difference[0]);
      }
      add_pairs<I, 1>(sum, difference, y[I]);
      if constexpr (kMat.kPoints.unpaired) {
        constexpr auto c = static_cast<float>(kMat.at[I][kT - 2]);
        y[I] += c * s[kT - 2];
      }
      if constexpr (I == M - 1) y[I] += s[kT - 1];
      output_rows<I + 1>(s, sum, difference, y);
    }
  }

  /// y = A^T s.
  static CONVPRIM_INLINE void output(const X (&s)[kT], X (&y)[M]) {
    if constexpr (kT == 1) {
      y[0] = s[0];
    } else {
      X sum[kPairs + 1], difference[kPairs + 1];
      CONVPRIM_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        sum[p] = s[1 + 2 * p] + s[2 + 2 * p];
        difference[p] = s[1 + 2 * p] - s[2 + 2 * p];
      }
      output_rows<0>(s, sum, difference, y);
    }
  }
};

// Tiles
// -------------------------------------------------------------------------------------------------

template <int M, int R, int Dims, int V>
struct Tile {
  static constexpr int kW = V < kLanes ? V : kLanes;  // lanes handled at once
  using L = Lanes<kW>;
  using X = typename L::type;
  static constexpr int kMh = Dims == 2 ? M : 1, kRh = Dims == 2 ? R : 1;
  static constexpr int kTh = kMh + kRh - 1, kT = M + R - 1;
  using Down = Transform<kMh, kRh, X>;
  using Across = Transform<M, R, X>;

  template <bool Edge>
  static CONVPRIM_INLINE void input_lanes(const WinogradInput& a, const float* in, float* out) {
    X rows[kTh][kT];
    CONVPRIM_UNROLL
    for (int j = 0; j < kT; ++j) {
      X d[kTh], v[kTh];
      CONVPRIM_UNROLL
      for (int i = 0; i < kTh; ++i) {
        // The columns of the tile to the right, which mostly comes next.
        if (!Edge && j < M) __builtin_prefetch(in + i * a.h_stride + (j + kT) * a.w_stride);
        const bool inside =
            !Edge || (i >= a.y_begin && i < a.y_end && j >= a.x_begin && j < a.x_end);
        d[i] = inside ? L::load(in + i * a.h_stride + j * a.w_stride) : X{};
      }
      Down::input(d, v);
      CONVPRIM_UNROLL
      for (int i = 0; i < kTh; ++i) rows[i][j] = v[i];
    }
    CONVPRIM_UNROLL
    for (int i = 0; i < kTh; ++i) {
      X v[kT];
      Across::input(rows[i], v);
      CONVPRIM_UNROLL
      for (int j = 0; j < kT; ++j) L::store(out + (i * kT + j) * a.e_stride, v[j]);
    }
  }

  template <bool Edge>
  static void input_blocks(const WinogradInput& a) {
    for (std::ptrdiff_t b = 0; b < a.blocks; ++b) {
      const std::ptrdiff_t c = b * V;
      float* out = a.out + c / kWinogradBlock * a.block_stride + c % kWinogradBlock;
      for (int l = 0; l < V; l += kW) {
        input_lanes<Edge>(a, a.in + b * a.v_stride + l, out + l);
      }
    }
  }

  static void input(const WinogradInput& a) {
    const bool inner = a.y_begin <= 0 && a.x_begin <= 0 && a.y_end >= kTh && a.x_end >= kT;
    inner ? input_blocks<false>(a) : input_blocks<true>(a);
  }

  template <bool Edge, bool Residual>
  static CONVPRIM_INLINE void output_lanes(const WinogradOutput& a, const float* in,
                                           const float* bias, float* out, const float* residual) {
    X columns[kMh][kT];
    if (!Edge) {
      CONVPRIM_UNROLL
      for (int i = 0; i < kMh * M; ++i) {
        __builtin_prefetch(out + i / M * a.h_stride + (M + i % M) * a.w_stride, 1);
      }
    }
    CONVPRIM_UNROLL
    for (int j = 0; j < kT; ++j) {
      X s[kTh], y[kMh];
      CONVPRIM_UNROLL
      for (int i = 0; i < kTh; ++i) s[i] = L::load(in + (i * kT + j) * a.e_stride);
      Down::output(s, y);
      CONVPRIM_UNROLL
      for (int i = 0; i < kMh; ++i) columns[i][j] = y[i];
    }
    const X add = L::load(bias), lo = X{} + a.lo, hi = X{} + a.hi;
    CONVPRIM_UNROLL
    for (int i = 0; i < kMh; ++i) {
      X y[M];
      Across::output(columns[i], y);
      CONVPRIM_UNROLL
      for (int j = 0; j < M; ++j) {
        if (Edge && (i >= a.rows || j >= a.cols)) continue;
        X x = y[j] + add;
        if (Residual) x += L::load(residual + i * a.rh_stride + j * a.rw_stride);
        L::store(out + i * a.h_stride + j * a.w_stride, L::min(L::max(x, lo), hi));
      }
    }
  }

  template <bool Edge, bool Residual>
  static void output_blocks(const WinogradOutput& a) {
    for (std::ptrdiff_t b = 0; b < a.blocks; ++b) {
      const std::ptrdiff_t c = b * V;
      const float* in = a.in + c / kWinogradBlock * a.block_stride + c % kWinogradBlock;
      for (int l = 0; l < V; l += kW) {
        output_lanes<Edge, Residual>(a, in + l, a.bias + c + l, a.out + b * a.v_stride + l,
                                     Residual ? a.residual + b * a.rv_stride + l : nullptr);
      }
    }
  }

  static void output(const WinogradOutput& a) {
    const bool edge = a.rows < kMh || a.cols < M;
    if (a.residual != nullptr) {
      edge ? output_blocks<true, true>(a) : output_blocks<false, true>(a);
    } else {
      edge ? output_blocks<true, false>(a) : output_blocks<false, false>(a);
    }
  }

  static constexpr WinogradTransform kEntry = {M, R, Dims, V, input, output};
};

constexpr WinogradTransform kTransforms[] = {
    Tile<2, 3, 1, 1>::kEntry,  Tile<2, 3, 1, 4>::kEntry,  Tile<3, 3, 1, 1>::kEntry,
    Tile<3, 3, 1, 4>::kEntry,  Tile<2, 5, 1, 1>::kEntry,  Tile<2, 5, 1, 4>::kEntry,
    Tile<3, 5, 1, 1>::kEntry,  Tile<3, 5, 1, 4>::kEntry,  Tile<2, 7, 1, 16>::kEntry,
    Tile<4, 7, 1, 16>::kEntry, Tile<4, 3, 1, 16>::kEntry,  //
    Tile<2, 3, 2, 1>::kEntry,  Tile<2, 3, 2, 4>::kEntry,  Tile<2, 3, 2, 8>::kEntry,
    Tile<2, 3, 2, 16>::kEntry, Tile<3, 3, 2, 1>::kEntry,  Tile<3, 3, 2, 4>::kEntry,
    Tile<3, 3, 2, 8>::kEntry,  Tile<3, 3, 2, 16>::kEntry, Tile<4, 3, 2, 1>::kEntry,
    Tile<4, 3, 2, 4>::kEntry,  Tile<4, 3, 2, 8>::kEntry,  Tile<4, 3, 2, 16>::kEntry,
    Tile<6, 3, 2, 1>::kEntry,  Tile<6, 3, 2, 4>::kEntry,  Tile<6, 3, 2, 8>::kEntry,
    Tile<6, 3, 2, 16>::kEntry, Tile<2, 5, 2, 1>::kEntry,  Tile<2, 5, 2, 4>::kEntry,
    Tile<2, 5, 2, 8>::kEntry,  Tile<2, 5, 2, 16>::kEntry, Tile<3, 5, 2, 1>::kEntry,
    Tile<3, 5, 2, 4>::kEntry,  Tile<3, 5, 2, 8>::kEntry,  Tile<3, 5, 2, 16>::kEntry,
    Tile<4, 5, 2, 1>::kEntry,  Tile<4, 5, 2, 4>::kEntry,  Tile<4, 5, 2, 8>::kEntry,
    Tile<4, 5, 2, 16>::kEntry,
};

// Products
// -------------------------------------------------------------------------------------------------

constexpr int kPanelVectors = 2;
constexpr int kPanel = kPanelVectors * kLanes;
constexpr int kLine = 16;  // floats in a cache line
// 14 rows of 2 accumulators, 2 vectors of weights and a broadcast fill 32 registers.
// With factors by lane, 10 rows of 2 accumulators, 10 vectors of inputs and 2 of weights do.
constexpr int kMaxRows = kLaneFactors ? 10 : kRegisters == 32 ? 14 : 6;

/// R tiles times NV vectors of outputs; c holds the first row of each vector. Each step prefetches
/// at `ahead` and moves it on: hardware prefetchers alone leave a quarter of the time to waiting
/// for weights.
template <int R, int NV>
void micro(const WinogradGemm& g, const float* a, std::ptrdiff_t a_block, const float* b,
           float* const* c, const float* ahead, std::ptrdiff_t ahead_step) {
  Vec acc[R][NV] = {};
  const auto step = [&](const float* ak) __attribute__((always_inline)) {
    Vec w[NV];
    CONVPRIM_UNROLL
    for (int v = 0; v < NV; ++v) w[v] = load(b + v * kLanes);
    b += NV * kLanes;
    __builtin_prefetch(ahead, 0, 2);
    ahead += ahead_step;
    CONVPRIM_UNROLL
    for (int r = 0; r < R; ++r) {
      const Factor x = factor(ak + r * kWinogradBlock);
      CONVPRIM_UNROLL
      for (int v = 0; v < NV; ++v) add_product(acc[r][v], w[v], x);
    }
  };
  // As many terms as a register has floats, those of one tile with one load.
  [[maybe_unused]] const auto lanes = [&](const float* ak) __attribute__((always_inline)) {
    Vec x[R];
    CONVPRIM_UNROLL
    for (int r = 0; r < R; ++r) x[r] = load(ak + r * kWinogradBlock);
    for (int l = 0; l < kLanes; l += kLine / (NV * kLanes)) {
      __builtin_prefetch(ahead + l * ahead_step, 0, 2);
    }
    ahead += kLanes * ahead_step;
    CONVPRIM_UNROLL
    for (int l = 0; l < kLanes; ++l) {
      Vec w[NV];
      CONVPRIM_UNROLL
      for (int v = 0; v < NV; ++v) w[v] = load(b + (l * NV + v) * kLanes);
      CONVPRIM_UNROLL
      for (int r = 0; r < R; ++r) {
        CONVPRIM_UNROLL
        for (int v = 0; v < NV; ++v) add_product(acc[r][v], w[v], x[r], l);
      }
      asm volatile("" ::: "memory");
    }
    b += kLanes * NV * kLanes;
  };
  const std::ptrdiff_t whole = g.k / kWinogradBlock, rest = g.k % kWinogradBlock;
  for (std::ptrdiff_t tap = 0; tap < g.taps; ++tap) {
    const float* ak = a + tap * g.tap_stride;
    for (std::ptrdiff_t block = 0; block < whole; ++block, ak += a_block) {
      if constexpr (kLaneFactors) {
        _Pragma("GCC unroll 2") for (int i = 0; i < kWinogradBlock; i += kLanes) lanes(ak + i);
      } else {
        _Pragma("GCC unroll 4") for (int i = 0; i < kWinogradBlock; ++i) step(ak + i);
      }
    }
    for (std::ptrdiff_t i = 0; i < rest; ++i) step(ak + i);
  }
  CONVPRIM_UNROLL
  for (int v = 0; v < NV; ++v) {
    CONVPRIM_UNROLL
    for (int r = 0; r < R; ++r) store(c[v] + r * kWinogradBlock, acc[r][v]);
  }
}

using Micro = void (*)(const WinogradGemm&, const float*, std::ptrdiff_t, const float*,
                       float* const*, const float*, std::ptrdiff_t);

template <int NV>
struct Micros {
  Micro by_rows[kMaxRows + 1];
  template <int R>
  constexpr void fill() {
    by_rows[R] = micro<R, NV>;
    if constexpr (R > 1) fill<R - 1>();
  }
  constexpr Micros() : by_rows() { fill<kMaxRows>(); }
};
constexpr Micros<1> kMicro1;
constexpr Micros<kPanelVectors> kMicro2;

void gemm(const WinogradGemm& g) {
  // Register tiles as even as can be: 16 rows are 8 and 8, not 14 and 2.
  const std::ptrdiff_t chunks = (g.rows + kMaxRows - 1) / kMaxRows;
  const std::ptrdiff_t k_stored = (g.k + kWinogradBlock - 1) / kWinogradBlock * kWinogradBlock;
  const float* b = g.b;
  for (std::ptrdiff_t n = 0; n < g.n; n += kPanel) {
    const std::ptrdiff_t width = g.n - n < kPanel ? g.n - n : kPanel;
    const Micro* micros = width == kPanel ? kMicro2.by_rows : kMicro1.by_rows;
    float* c[kPanelVectors];
    for (int v = 0; v < kPanelVectors; ++v) {
      const std::ptrdiff_t column = n + v * kLanes;
      c[v] = g.c + column / kWinogradBlock * g.c_block + column % kWinogradBlock;
    }
    for (std::ptrdiff_t chunk = 0; chunk < chunks; ++chunk) {
      const std::ptrdiff_t from = g.rows * chunk / chunks, to = g.rows * (chunk + 1) / chunks;
      const float* a = g.a + from * (g.taps == 1 ? k_stored : kWinogradBlock);
      // The first register tiles bring a share each of the next panel into the level 2 cache: one
      // line for each channel, or every other one if there is one tile only.
      const std::ptrdiff_t step = chunks == 1 || kPanel < kLine ? kPanel : kLine;
      const bool brings = chunk * step < kPanel;
      const float* ahead = brings ? b + g.taps * g.k * (width + chunk * step) : a;
      micros[to - from](g, a, g.taps == 1 ? (to - from) * kWinogradBlock : g.a_block, b, c, ahead,
                        brings ? step : 0);
      for (float*& p : c) p += (to - from) * kWinogradBlock;
    }
    b += g.taps * g.k * width;
  }
}

// Layouts with the pixels of a channel side by side
// -------------------------------------------------------------------------------------------------

using Vec4 = Pack<4>::type;
using L4 = Lanes<4>;

CONVPRIM_INLINE void transpose4(Vec4 (&x)[4]) {
  const Vec4 a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5);
  const Vec4 b = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
  const Vec4 c = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
  const Vec4 d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
  x[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  x[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  x[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  x[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

void gather(const float* in, std::ptrdiff_t stride, std::ptrdiff_t channels, std::ptrdiff_t n,
            float* out) {
  std::ptrdiff_t c = 0;
  for (; c + 4 <= channels; c += 4) {
    const float* from = in + c * stride;
    std::ptrdiff_t i = 0;
    for (; i + 4 <= n; i += 4) {
      Vec4 x[4];
      for (int k = 0; k < 4; ++k) x[k] = L4::load(from + k * stride + i);
      transpose4(x);
      for (int k = 0; k < 4; ++k) L4::store(out + (i + k) * kWinogradBlock + c, x[k]);
    }
    for (; i < n; ++i) {
      for (int k = 0; k < 4; ++k) out[i * kWinogradBlock + c + k] = from[k * stride + i];
    }
  }
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    for (std::ptrdiff_t k = c; k < kWinogradBlock; ++k) {
      out[i * kWinogradBlock + k] = k < channels ? in[k * stride + i] : 0.0F;
    }
  }
}

void scatter(const float* in, std::ptrdiff_t channels, std::ptrdiff_t n, float* out,
             std::ptrdiff_t stride, const float* residual, std::ptrdiff_t r_stride, float lo,
             float hi) {
  const Vec4 vlo = Vec4{} + lo, vhi = Vec4{} + hi;
  const auto one = [&](std::ptrdiff_t c, std::ptrdiff_t i) {
    float x = in[i * kWinogradBlock + c];
    if (residual != nullptr) x += residual[c * r_stride + i];
    x = x > lo ? x : lo;
    out[c * stride + i] = x < hi ? x : hi;
  };
  std::ptrdiff_t c = 0;
  for (; c + 4 <= channels; c += 4) {
    std::ptrdiff_t i = 0;
    for (; i + 4 <= n; i += 4) {
      Vec4 x[4];
      for (int k = 0; k < 4; ++k) x[k] = L4::load(in + (i + k) * kWinogradBlock + c);
      transpose4(x);
      for (int k = 0; k < 4; ++k) {
        if (residual != nullptr) x[k] += L4::load(residual + (c + k) * r_stride + i);
        L4::store(out + (c + k) * stride + i, L4::min(L4::max(x[k], vlo), vhi));
      }
    }
    for (; i < n; ++i) {
      for (int k = 0; k < 4; ++k) one(c + k, i);
    }
  }
  for (; c < channels; ++c) {
    for (std::ptrdiff_t i = 0; i < n; ++i) one(c, i);
  }
}

}  // namespace

extern const WinogradKernels kWinograd;
const WinogradKernels kWinograd = {
    kTransforms, sizeof(kTransforms) / sizeof(kTransforms[0]), kPanel, kMaxRows, gemm, gather,
    scatter};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
