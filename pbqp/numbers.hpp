// Exact sums of doubles.
//
// Every finite double is an integer times a power of two. The solver finds the largest power of two
// that divides all costs of a problem (the quantum) and a bound on any sum it can form, picks the
// narrowest integer type that holds them, and works in that: sums, comparisons and so the optimum
// are exact for all doubles, 1e-12 beside 1e12 included. Infinity is a sentinel value far above
// every sum; it is clamped after each addition that may involve it and never subtracted.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace pbqp::detail {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;

// A two's complement integer of N 64-bit words, least significant first. It is there for costs that
// nothing narrower holds: its operations are kept out of line, where they cost little code.
template <int N>
struct Wide {
  std::array<std::uint64_t, N> w{};

  Wide() = default;
  [[gnu::noinline]] Wide(
      std::int64_t x) {  // NOLINT(google-explicit-constructor): it is to read like an integer
    w.fill(x < 0 ? ~std::uint64_t{0} : 0);
    w[0] = static_cast<std::uint64_t>(x);
  }
  bool negative() const { return (w[N - 1] >> 63) != 0; }
  [[gnu::noinline]] Wide operator-() const {
    Wide r;
    std::uint64_t carry = 1;
    for (int i = 0; i < N; ++i) {
      r.w[i] = ~w[i] + carry;
      carry = (carry != 0 && r.w[i] == 0) ? 1 : 0;
    }
    return r;
  }
  [[gnu::noinline]] Wide& operator+=(const Wide& o) {
    UInt128 carry = 0;
    for (int i = 0; i < N; ++i) {
      carry += UInt128{w[i]} + o.w[i];
      w[i] = static_cast<std::uint64_t>(carry);
      carry >>= 64;
    }
    return *this;
  }
  Wide& operator-=(const Wide& o) { return *this += -o; }
  friend Wide operator+(Wide a, const Wide& b) { return a += b; }
  friend Wide operator-(Wide a, const Wide& b) { return a -= b; }
  [[gnu::noinline]] friend bool operator==(const Wide& a, const Wide& b) { return a.w == b.w; }
  [[gnu::noinline]] friend bool operator<(const Wide& a, const Wide& b) {
    if (a.negative() != b.negative()) return a.negative();
    for (int i = N - 1; i >= 0; --i) {
      if (a.w[i] != b.w[i]) return a.w[i] < b.w[i];
    }
    return false;
  }
  friend bool operator>(const Wide& a, const Wide& b) { return b < a; }
  friend bool operator<=(const Wide& a, const Wide& b) { return !(b < a); }
  friend bool operator>=(const Wide& a, const Wide& b) { return !(a < b); }
  // For a value that is not negative and a small divisor.
  [[gnu::noinline]] friend Wide operator/(Wide a, std::int64_t d) {
    UInt128 rest = 0;
    for (int i = N - 1; i >= 0; --i) {
      rest = (rest << 64) | a.w[i];
      a.w[i] = static_cast<std::uint64_t>(rest / static_cast<std::uint64_t>(d));
      rest %= static_cast<std::uint64_t>(d);
    }
    return a;
  }
  // The value times 2^shift, for shift >= 0.
  [[gnu::noinline]] Wide shifted(int shift) const {
    Wide r;
    const int words = shift / 64;
    const int bits = shift % 64;
    for (int i = N - 1; i >= words; --i) {
      r.w[i] = w[i - words] << bits;
      if (bits != 0 && i > words) r.w[i] |= w[i - words - 1] >> (64 - bits);
    }
    return r;
  }
};

template <class V>
struct Num;

template <>
struct Num<std::int64_t> {
  static constexpr int kBits = 64;
  static std::int64_t shifted(std::int64_t x, int s) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(x) << s);
  }
  static double to_double(std::int64_t x) { return static_cast<double>(x); }
  static std::int64_t low_word(std::int64_t x) { return x; }
  static double approximate(std::int64_t x) { return static_cast<double>(x); }
};

template <>
struct Num<Int128> {
  static constexpr int kBits = 128;
  static Int128 shifted(Int128 x, int s) {
    return static_cast<Int128>(static_cast<UInt128>(x) << s);
  }
  static double to_double(Int128 x) { return static_cast<double>(x); }
  static std::int64_t low_word(Int128 x) { return static_cast<std::int64_t>(x); }
  static double approximate(Int128 x) { return static_cast<double>(x); }
};

template <int N>
struct Num<Wide<N>> {
  static constexpr int kBits = 64 * N;
  static Wide<N> shifted(const Wide<N>& x, int s) { return x.shifted(s); }
  // Correctly rounded: the leading 64 bits with a sticky last bit, rounded once by the conversion.
  // The result is scaled by 2^-scale, so that a value above the largest double can be returned.
  static double to_double(const Wide<N>& x, int exponent) {
    const bool neg = x.negative();
    const Wide<N> m = neg ? -x : x;
    int top = N - 1;
    while (top > 0 && m.w[top] == 0) --top;
    const int lead = m.w[top] == 0 ? 0 : 64 * top + 63 - std::countl_zero(m.w[top]);
    std::uint64_t head;
    int scale = 0;
    if (lead < 64) {
      head = m.w[0];
    } else {
      scale = lead - 63;
      const int words = scale / 64;
      const int bits = scale % 64;
      head = m.w[words] >> bits;
      if (bits != 0 && words + 1 < N) head |= m.w[words + 1] << (64 - bits);
      bool sticky = bits != 0 && (m.w[words] << (64 - bits)) != 0;
      for (int i = 0; i < words; ++i) sticky = sticky || m.w[i] != 0;
      if (sticky) head |= 1;
    }
    const double d = std::ldexp(static_cast<double>(head), scale + exponent);
    return neg ? -d : d;
  }
  static std::int64_t low_word(const Wide<N>& x) { return static_cast<std::int64_t>(x.w[0]); }
  // For ratios: scaled so that the largest value is a double.
  static double approximate(const Wide<N>& x) { return to_double(x, N > 15 ? -64 * (N - 15) : 0); }
};

template <class V>
V infinity() {
  return Num<V>::shifted(V(1), Num<V>::kBits - 3);
}
// Finite values stay below 2^(bits - 4) in absolute value, so that the sum of two values, infinite
// or not, can neither overflow nor be taken for the other kind.
template <class V>
V infinity_threshold() {
  return Num<V>::shifted(V(1), Num<V>::kBits - 4);
}
// Tables of doubles, for bounds that need not be exact, use the same code.
template <>
inline double infinity<double>() {
  return std::numeric_limits<double>::infinity();
}
template <>
inline double infinity_threshold<double>() {
  return std::numeric_limits<double>::infinity();
}
template <class V>
bool is_inf(const V& x) {
  return x >= infinity_threshold<V>();
}
template <class V>
V clamp(const V& x) {
  return is_inf(x) ? infinity<V>() : x;
}
template <class V>
V sat_add(const V& a, const V& b) {
  return clamp(V(a + b));
}

// A finite double as m * 2^e with m odd, or m == 0.
struct Dyadic {
  std::int64_t m;
  int e;
};
inline Dyadic decompose(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const int field = static_cast<int>((bits >> 52) & 0x7ff);
  std::uint64_t frac = bits & ((std::uint64_t{1} << 52) - 1);
  int e = -1074;
  if (field != 0) {
    frac |= std::uint64_t{1} << 52;
    e += field - 1;
  }
  if (frac == 0) return {0, 0};
  const int zeros = std::countr_zero(frac);
  frac >>= zeros;
  const auto m = static_cast<std::int64_t>(frac);
  return {(bits >> 63) != 0 ? -m : m, e + zeros};
}

// Integer <-> double at a common exponent: value = integer * 2^exponent.
template <class V>
V from_double(double x, int exponent) {
  if (x == std::numeric_limits<double>::infinity()) return infinity<V>();
  const Dyadic d = decompose(x);
  if (d.m == 0) return V(0);
  return Num<V>::shifted(V(d.m), d.e - exponent);
}

template <class V>
double to_double(const V& x, int exponent) {
  if (is_inf(x)) return std::numeric_limits<double>::infinity();
  double r;
  if constexpr (requires { Num<V>::to_double(x); }) {
    r = std::ldexp(Num<V>::to_double(x), exponent);
  } else {
    r = Num<V>::to_double(x, exponent);
  }
  // A finite sum beyond the doubles stays finite.
  constexpr double kMax = std::numeric_limits<double>::max();
  return std::clamp(r, -kMax, kMax);
}

template <class V>
std::string decimal(V x) {
  if (x == V(0)) return "0";
  const bool negative = x < V(0);
  if (negative) x = -x;
  std::string digits;
  constexpr std::int64_t kBase = 1000000000;
  while (!(x == V(0))) {
    const V q = x / kBase;
    V r = x;
    for (int bit = 0; bit < 30; ++bit) {  // r = x - q * base
      if ((kBase >> bit & 1) != 0) r = r - Num<V>::shifted(q, bit);
    }
    auto chunk = static_cast<std::int64_t>(Num<V>::low_word(r));
    x = q;
    for (int i = 0; i < 9 && (chunk != 0 || !(x == V(0))); ++i) {
      digits += static_cast<char>('0' + chunk % 10);
      chunk /= 10;
    }
  }
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

// Wide enough for the sum of 2^60 arbitrary finite doubles.
using Widest = Wide<35>;
inline constexpr int kLeastExponent = -1074;

// The exact sum of doubles; infinite once an infinite one is added.
class ExactSum {
 public:
  void add(double x) {
    if (x == std::numeric_limits<double>::infinity()) {
      infinite_ = true;
    } else if (!infinite_) {
      sum_ += from_double<Widest>(x, kLeastExponent);
    }
  }
  double value() const {
    if (infinite_) return std::numeric_limits<double>::infinity();
    return to_double(sum_, kLeastExponent);
  }

 private:
  Widest sum_;
  bool infinite_ = false;
};

}  // namespace pbqp::detail
