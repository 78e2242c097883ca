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
};

template <>
struct Lanes<1> {
  using type = float;
  static CONVPRIM_INLINE float load(const float* p) { return *p; }
  static CONVPRIM_INLINE void store(float* p, float v) { *p = v; }
};

// Factors
// -------------------------------------------------------------------------------------------------

/// The factors of F(M, R) that are neither 0, 1 nor -1.
template <int M, int R>
struct Factors {
  static constexpr WinogradMatrices<M, R> kMat{};
  static constexpr int kT = M + R - 1;

  /// Row J of B^T, or x q(x) and q(x) of the pair J, J + 1.
  enum class Part { row, x_times_q, q };
  static constexpr double coefficient(Part part, int j, int i) {
    switch (part) {
      case Part::row:
        return kMat.bt[j][i];
      case Part::x_times_q:
        return (kMat.bt[j][i] + kMat.bt[j + 1][i]) / 2;
      default:
        return (kMat.bt[j][i] - kMat.bt[j + 1][i]) / (2 * kMat.kPoints.at[j]);
    }
  }
  static constexpr int degree(Part part, int j) {
    int i = kT - 1;
    while (coefficient(part, j, i) == 0) --i;
    return i;
  }
};

/// Values without their signs, each once.
struct FactorTable {
  float at[40] = {};
  int count = 0;
  constexpr int find(float c) const {
    int i = 0;
    while (i < count && at[i] != (c < 0 ? -c : c)) ++i;
    return i;
  }
  constexpr void add(double c) {
    const auto value = static_cast<float>(c < 0 ? -c : c);
    if (value != 0 && value != 1 && find(value) == count) at[count++] = value;
  }
};

template <int M, int R>
constexpr FactorTable input_factors() {
  using F = Factors<M, R>;
  using Part = typename F::Part;
  FactorTable table;
  const auto add = [&](Part part, int j) {
    for (int i = 0; i < F::degree(part, j); ++i) table.add(F::coefficient(part, j, i));
  };
  for (int p = 0; p < F::kMat.kPoints.pairs; ++p) {
    add(Part::x_times_q, 1 + 2 * p);
    add(Part::q, 1 + 2 * p);
    table.add(F::kMat.kPoints.at[1 + 2 * p]);
  }
  add(Part::row, 0);
  if (F::kMat.kPoints.unpaired) add(Part::row, F::kT - 2);
  add(Part::row, F::kT - 1);
  return table;
}

template <int M, int R>
constexpr FactorTable output_factors() {
  FactorTable table;
  for (const auto& row : WinogradMatrices<M, R>().at) {
    for (double c : row) table.add(c);
  }
  return table;
}

/// Factors as constants in the code.
struct Constants {
  template <float C, class X>
  static CONVPRIM_INLINE X times(X x) {
    return C * x;
  }
  template <float C, class X>
  static CONVPRIM_INLINE void add(X& sum, X x) {
    sum += C * x;
  }
  template <float C, class X>
  static CONVPRIM_INLINE void subtract(X& sum, X x) {
    sum -= C * x;
  }
};

/// Factors as lanes of registers: there are too many for a register each.
template <const FactorTable& T>
class LaneBank {
 public:
  CONVPRIM_INLINE LaneBank() {
    CONVPRIM_UNROLL
    for (int i = 0; i < kCount; ++i) {
      bank_[i] = load(T.at + i * kLanes);
      asm("" : "+w"(bank_[i]));
    }
  }
  template <float C>
  CONVPRIM_INLINE Vec times(Vec x) const {
    constexpr int i = T.find(C);
    if constexpr (C == 1) {
      return x;
    } else {
      static_assert(C > 0);
      return product(x, bank_[i / kLanes], i % kLanes);
    }
  }
  template <float C>
  CONVPRIM_INLINE void add(Vec& sum, Vec x) const {
    constexpr int i = T.find(C);
    if constexpr (C == 1 || C == -1) {
      sum += C * x;
    } else if constexpr (C > 0) {
      add_product(sum, x, bank_[i / kLanes], i % kLanes);
    } else {
      subtract_product(sum, x, bank_[i / kLanes], i % kLanes);
    }
  }
  template <float C>
  CONVPRIM_INLINE void subtract(Vec& sum, Vec x) const {
    add<-C>(sum, x);
  }

 private:
  static constexpr int kCount = (T.count + kLanes - 1) / kLanes;
  Vec bank_[kCount + 1];
};

template <int M, int R>
constexpr FactorTable kInputFactors = input_factors<M, R>();
template <int M, int R>
constexpr FactorTable kOutputFactors = output_factors<M, R>();

template <bool Lanes, const FactorTable& T>
struct BankOf {
  using type = Constants;
};
template <const FactorTable& T>
struct BankOf<true, T> {
  using type = LaneBank<T>;
};

// One-dimensional transforms
// -------------------------------------------------------------------------------------------------

/// F(M, R) on values of type X.
template <int M, int R, class X>
struct Transform {
  using F = Factors<M, R>;
  using Part = typename F::Part;
  static constexpr WinogradMatrices<M, R> kMat{};
  static constexpr int kT = M + R - 1;
  static constexpr int kPairs = kMat.kPoints.pairs;
  static constexpr bool kInLanes = kLaneFactors && sizeof(X) == sizeof(Vec);
  using InputBank = typename BankOf<kInLanes, kInputFactors<M, R>>::type;
  using OutputBank = typename BankOf<kInLanes, kOutputFactors<M, R>>::type;

  /// sum += the terms from I on of a polynomial.
  template <Part P, int J, int I, class B>
  static CONVPRIM_INLINE void add_terms(const X (&d)[kT], X& sum, const B& bank) {
    if constexpr (I >= 0) {
      constexpr auto c = static_cast<float>(F::coefficient(P, J, I));
      if constexpr (c != 0) bank.template add<c>(sum, d[I]);
      add_terms<P, J, I - 1>(d, sum, bank);
    }
  }
  /// All three polynomials are monic: the leading term needs no product.
  template <Part P, int J, class B>
  static CONVPRIM_INLINE X polynomial(const X (&d)[kT], const B& bank) {
    constexpr int top = F::degree(P, J);
    X sum = d[top];
    add_terms<P, J, top - 1>(d, sum, bank);
    return sum;
  }

  template <int P, class B>
  static CONVPRIM_INLINE void input_pairs(const X (&d)[kT], X (&v)[kT], const B& bank) {
    if constexpr (P < kPairs) {
      constexpr int j = 1 + 2 * P;
      constexpr auto a = static_cast<float>(kMat.kPoints.at[j]);
      const X xq = polynomial<Part::x_times_q, j>(d, bank), q = polynomial<Part::q, j>(d, bank);
      v[j] = v[j + 1] = xq;
      bank.template add<a>(v[j], q);
      bank.template subtract<a>(v[j + 1], q);
      input_pairs<P + 1>(d, v, bank);
    }
  }

  /// v = B^T d.
  template <class B>
  static CONVPRIM_INLINE void input(const X (&d)[kT], X (&v)[kT], const B& bank) {
    if constexpr (kT == 1) {
      v[0] = d[0];
    } else {
      v[0] = polynomial<Part::row, 0>(d, bank);
      input_pairs<0>(d, v, bank);
      if constexpr (kMat.kPoints.unpaired) v[kT - 2] = polynomial<Part::row, kT - 2>(d, bank);
      v[kT - 1] = polynomial<Part::row, kT - 1>(d, bank);
    }
  }

  template <int I, int P, class B>
  static CONVPRIM_INLINE void add_pairs(const X (&sum)[kPairs + 1],
                                        const X (&difference)[kPairs + 1], X& y, const B& bank) {
    if constexpr (P < kPairs) {
      constexpr auto c = static_cast<float>(kMat.at[I][1 + 2 * P]);
      bank.template add<c>(y, I % 2 == 0 ? sum[P] : difference[P]);
      add_pairs<I, P + 1>(sum, difference, y, bank);
    }
  }
  template <int I, class B>
  static CONVPRIM_INLINE void output_rows(const X (&s)[kT], const X (&sum)[kPairs + 1],
                                          const X (&difference)[kPairs + 1], X (&y)[M],
                                          const B& bank) {
    if constexpr (I < M) {
      if constexpr (I == 0) {
        y[I] = s[0] + sum[0];
      } else {
        constexpr auto c = static_cast<float>(kMat.at[I][1]);
        y[I] = bank.template times<c>(I % 2 == 0 ? sum[0] : difference[0]);
      }
      add_pairs<I, 1>(sum, difference, y[I], bank);
      if constexpr (kMat.kPoints.unpaired) {
        constexpr auto c = static_cast<float>(kMat.at[I][kT - 2]);
        bank.template add<c>(y[I], s[kT - 2]);
      }
      if constexpr (I == M - 1) y[I] += s[kT - 1];
      output_rows<I + 1>(s, sum, difference, y, bank);
    }
  }

  /// y = A^T s.
  template <class B>
  static CONVPRIM_INLINE void output(const X (&s)[kT], X (&y)[M], const B& bank) {
    if constexpr (kT == 1) {
      y[0] = s[0];
    } else {
      X sum[kPairs + 1], difference[kPairs + 1];
      CONVPRIM_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        sum[p] = s[1 + 2 * p] + s[2 + 2 * p];
        difference[p] = s[1 + 2 * p] - s[2 + 2 * p];
      }
      output_rows<0>(s, sum, difference, y, bank);
    }
  }
};

// Tiles
// -------------------------------------------------------------------------------------------------

/// Multiples of a distance for loops, hidden from the compiler, which would else compute addresses
/// by steps.
template <int N>
struct Multiples {
  std::ptrdiff_t at[N];
  CONVPRIM_INLINE explicit Multiples(std::ptrdiff_t step) {
    CONVPRIM_UNROLL
    for (int i = 0; i < N; ++i) {
      at[i] = i * step;
      asm("" : "+r"(at[i]));
    }
  }
};

/// f(from, to, i) for i from 0 to N - 1, in a loop (of two) or one after the other; the places move
/// on by a step each time.
template <bool Loop, int N, class From, class To, class F>
CONVPRIM_INLINE void each(const From* from, std::ptrdiff_t from_step, To* to,
                          std::ptrdiff_t to_step, const F& f) {
  if constexpr (Loop) {
    _Pragma("GCC unroll 2") for (int i = 0; i < N; ++i) {
      asm("" : "+r"(from), "+r"(to));  // else there are more pointers, and sums of them
      f(from, to, i);
      from += from_step;
      to += to_step;
    }
  } else {
    CONVPRIM_UNROLL
    for (int i = 0; i < N; ++i) f(from + i * from_step, to + i * to_step, i);
  }
}

template <int M, int R, int Dims, int V>
struct Tile {
  static constexpr int kW = V < kLanes ? V : kLanes;  // lanes handled at once
  using L = Lanes<kW>;
  using X = typename L::type;
  static constexpr int kMh = Dims == 2 ? M : 1, kRh = Dims == 2 ? R : 1;
  static constexpr int kTh = kMh + kRh - 1, kT = M + R - 1;
  using Down = Transform<kMh, kRh, X>;
  using Across = Transform<M, R, X>;
  // A tile that is more than the registers hold goes through memory by whole columns and rows: what
  // the compiler would move to and fro of an unrolled one is more.
  static constexpr bool kInputLoops = Across::kInLanes && kTh * kT > 16;
  static constexpr bool kOutputLoops = Across::kInLanes && kMh * kT > 16;

  /// Of lanes that lie in one cache line the first ones fetch the next tile's.
  static CONVPRIM_INLINE bool fetches(std::ptrdiff_t channel) {
    return !Across::kInLanes || channel % kWinogradBlock == 0;
  }

  struct InputPlaces {
    Multiples<kTh> row;
    Multiples<kT> element;
    typename Across::InputBank bank;
    CONVPRIM_INLINE explicit InputPlaces(const WinogradInput& a)
        : row(a.h_stride), element(a.e_stride) {}
  };

  template <bool Edge, bool Fetch>
  static CONVPRIM_INLINE void input_lanes(const WinogradInput& a, const InputPlaces& places,
                                          const float* in, float* out) {
    X rows[kTh][kT];
    const auto column = [&](const float* from, X* to, int j) __attribute__((always_inline)) {
      X d[kTh], v[kTh];
      CONVPRIM_UNROLL
      for (int i = 0; i < kTh; ++i) {
        // The columns of the tile to the right, which mostly comes next.
        if (Fetch && j < M) {
          __builtin_prefetch(kInputLoops ? from + places.row.at[i] + kT * a.w_stride
                                         : in + i * a.h_stride + (j + kT) * a.w_stride);
        }
        const bool inside =
            !Edge || (i >= a.y_begin && i < a.y_end && j >= a.x_begin && j < a.x_end);
        if constexpr (kInputLoops) {
          d[i] = inside ? L::load(from + places.row.at[i]) : X{};
        } else {
          d[i] = inside ? L::load(in + i * a.h_stride + j * a.w_stride) : X{};
        }
      }
      Down::input(d, v, places.bank);
      CONVPRIM_UNROLL
      for (int i = 0; i < kTh; ++i) to[i * kT] = v[i];
    };
    each<kInputLoops, kT>(in, a.w_stride, &rows[0][0], 1, column);
    const auto row = [&](const X* from, float* to, int i) __attribute__((always_inline)) {
      X d[kT], v[kT];
      CONVPRIM_UNROLL
      for (int j = 0; j < kT; ++j) d[j] = from[j];
      Across::input(d, v, places.bank);
      CONVPRIM_UNROLL
      for (int j = 0; j < kT; ++j) {
        L::store(kInputLoops ? to + places.element.at[j] : out + (i * kT + j) * a.e_stride, v[j]);
      }
    };
    each<kInputLoops, kTh>(&rows[0][0], kT, out, kT * a.e_stride, row);
  }

  template <bool Edge>
  CONVPRIM_IN_ORDER static void input_blocks(const WinogradInput& a) {
    const InputPlaces places(a);
    for (std::ptrdiff_t b = 0; b < a.blocks; ++b) {
      const std::ptrdiff_t c = b * V;
      float* out = a.out + c / kWinogradBlock * a.block_stride + c % kWinogradBlock;
      for (int l = 0; l < V; l += kW) {
        const float* from = a.in + b * a.v_stride + l;
        if (!Edge && fetches(c + l)) {
          input_lanes<Edge, true>(a, places, from, out + l);
        } else {
          input_lanes<Edge, false>(a, places, from, out + l);
        }
      }
    }
  }

  static void input(const WinogradInput& a) {
    const bool inner = a.y_begin <= 0 && a.x_begin <= 0 && a.y_end >= kTh && a.x_end >= kT;
    inner ? input_blocks<false>(a) : input_blocks<true>(a);
  }

  struct OutputPlaces {
    Multiples<kTh> row;  // of the transformed tile
    Multiples<M> column;
    typename Across::OutputBank bank;
    CONVPRIM_INLINE explicit OutputPlaces(const WinogradOutput& a)
        : row(kT * a.e_stride), column(a.w_stride) {}
  };

  template <bool Edge, bool Residual>
  static CONVPRIM_INLINE void output_lanes(const WinogradOutput& a, const OutputPlaces& places,
                                           const float* in, const float* bias, float* out,
                                           const float* residual, bool fetch) {
    X rows[kMh][kT];
    if (!Edge && fetch) {
      CONVPRIM_UNROLL
      for (int i = 0; i < kMh * M; ++i) {
        __builtin_prefetch(out + i / M * a.h_stride + (M + i % M) * a.w_stride, 1);
      }
    }
    const auto column = [&](const float* from, X* to, int j) __attribute__((always_inline)) {
      X s[kTh], y[kMh];
      CONVPRIM_UNROLL
      for (int i = 0; i < kTh; ++i) {
        s[i] = L::load(kOutputLoops ? from + places.row.at[i] : in + (i * kT + j) * a.e_stride);
      }
      Down::output(s, y, places.bank);
      CONVPRIM_UNROLL
      for (int i = 0; i < kMh; ++i) to[i * kT] = y[i];
    };
    each<kOutputLoops, kT>(in, a.e_stride, &rows[0][0], 1, column);
    const X add = L::load(bias), lo = X{} + a.lo, hi = X{} + a.hi;
    const auto row = [&](const X* from, float* to, int i) __attribute__((always_inline)) {
      X s[kT], y[M];
      CONVPRIM_UNROLL
      for (int j = 0; j < kT; ++j) s[j] = from[j];
      Across::output(s, y, places.bank);
      CONVPRIM_UNROLL
      for (int j = 0; j < M; ++j) {
        if (Edge && (i >= a.rows || j >= a.cols)) continue;
        X x = y[j] + add;
        if (Residual) x += L::load(residual + i * a.rh_stride + j * a.rw_stride);
        L::store(kOutputLoops ? to + places.column.at[j] : out + i * a.h_stride + j * a.w_stride,
                 limit(x, lo, hi));
      }
    };
    each<kOutputLoops, kMh>(&rows[0][0], kT, out, a.h_stride, row);
  }

  template <bool Edge, bool Residual>
  CONVPRIM_IN_ORDER static void output_blocks(const WinogradOutput& a) {
    const OutputPlaces places(a);
    for (std::ptrdiff_t b = 0; b < a.blocks; ++b) {
      const std::ptrdiff_t c = b * V;
      const float* in = a.in + c / kWinogradBlock * a.block_stride + c % kWinogradBlock;
      for (int l = 0; l < V; l += kW) {
        output_lanes<Edge, Residual>(a, places, in + l, a.bias + c + l, a.out + b * a.v_stride + l,
                                     Residual ? a.residual + b * a.rv_stride + l : nullptr,
                                     fetches(c + l));
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
        L4::store(out + (c + k) * stride + i, limit(x[k], vlo, vhi));
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
