// Element-wise inner loops, see elementwise.hpp.
#include "kernels/elementwise.hpp"

#include "kernels/vmath.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

CONVPRIM_INLINE float clamp1(float x, float lo, float hi) {
  x = x > lo ? x : lo;
  return x < hi ? x : hi;
}

void epilogue_channel(float* x, const float* residual, float bias, float lo, float hi,
                      std::ptrdiff_t n) {
  const Vec vb = broadcast(bias), vlo = broadcast(lo), vhi = broadcast(hi);
  std::ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Vec v = load(x + i) + vb;
    if (residual != nullptr) v += load(residual + i);
    store(x + i, vmin(vmax(v, vlo), vhi));
  }
  for (; i < n; ++i) {
    const float r = residual != nullptr ? residual[i] : 0.0F;
    x[i] = clamp1(x[i] + bias + r, lo, hi);
  }
}

void epilogue_pixel(float* x, const float* residual, const float* bias, float lo, float hi,
                    std::ptrdiff_t n) {
  const Vec vlo = broadcast(lo), vhi = broadcast(hi);
  std::ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Vec v = load(x + i);
    if (bias != nullptr) v += load(bias + i);
    if (residual != nullptr) v += load(residual + i);
    store(x + i, vmin(vmax(v, vlo), vhi));
  }
  for (; i < n; ++i) {
    float v = x[i];
    if (bias != nullptr) v += bias[i];
    if (residual != nullptr) v += residual[i];
    x[i] = clamp1(v, lo, hi);
  }
}

/// combine(j) is the value of the vector at input offset j; part says how many lanes are left.
template <int N, class First, class Next>
CONVPRIM_INLINE void fold(const float* const* in, int count, float* out, std::ptrdiff_t n, float lo,
                          float hi, First first, Next next) {
  const int inputs = N > 0 ? N : count;
  const auto value = [&](auto get) {
    Vec v = first(get(in[0]));
    CONVPRIM_UNROLL
    for (int k = 1; k < inputs; ++k) v = next(v, get(in[k]), k);
    return clamp(v, lo, hi);
  };
  std::ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(out + i, value([i](const float* p) { return load(p + i); }));
  }
  if (i < n) {
    store_part(out + i, value([i, n](const float* p) { return load_part(p + i, n - i); }), n - i);
  }
}

void sum(const float* const* in, const float* coeff, int count, float* out, std::ptrdiff_t n,
         float lo, float hi) {
  const auto keep = [](Vec v) { return v; };
  const auto add = [](Vec v, Vec x, int) { return v + x; };
  if (coeff != nullptr) {
    fold<0>(
        in, count, out, n, lo, hi, [=](Vec v) { return v * coeff[0]; },
        [=](Vec v, Vec x, int k) { return v + x * coeff[k]; });
  } else if (count == 2) {
    fold<2>(in, count, out, n, lo, hi, keep, add);
  } else {
    fold<0>(in, count, out, n, lo, hi, keep, add);
  }
}

void prod(const float* const* in, int count, float* out, std::ptrdiff_t n, float lo, float hi) {
  const auto keep = [](Vec v) { return v; };
  const auto mul = [](Vec v, Vec x, int) { return v * x; };
  if (count == 2) {
    fold<2>(in, count, out, n, lo, hi, keep, mul);
  } else {
    fold<0>(in, count, out, n, lo, hi, keep, mul);
  }
}

void max(const float* const* in, int count, float* out, std::ptrdiff_t n, float lo, float hi) {
  const auto keep = [](Vec v) { return v; };
  const auto larger = [](Vec v, Vec x, int) { return vmax(v, x); };
  if (count == 2) {
    fold<2>(in, count, out, n, lo, hi, keep, larger);
  } else {
    fold<0>(in, count, out, n, lo, hi, keep, larger);
  }
}

void affine_channel(const float* in, float* out, std::ptrdiff_t n, float scale, float shift) {
  std::ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, load(in + i) * scale + shift);
  if (i < n) store_part(out + i, load_part(in + i, n - i) * scale + shift, n - i);
}

/// out[i] = f(in[i], i % period), whole periods of vectors first.
template <class F>
CONVPRIM_INLINE void periodic(const float* in, float* out, std::ptrdiff_t n, std::ptrdiff_t period,
                              F f) {
  if (period == kLanes) {  // the table then stays in registers
    std::ptrdiff_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(out + i, f(load(in + i), 0));
    if (i < n) store_part(out + i, f(load_part(in + i, n - i), 0), n - i);
    return;
  }
  for (std::ptrdiff_t start = 0; start < n; start += period) {
    const std::ptrdiff_t m = n - start < period ? n - start : period;
    const float* x = in + start;
    float* y = out + start;
    std::ptrdiff_t i = 0;
    for (; i + kLanes <= m; i += kLanes) store(y + i, f(load(x + i), i));
    if (i < m) store_part(y + i, f(load_part(x + i, m - i), i), m - i);
  }
}

void affine_periodic(const float* in, float* out, std::ptrdiff_t n, const float* scale,
                     const float* shift, std::ptrdiff_t period) {
  periodic(in, out, n, period,
           [=](Vec x, std::ptrdiff_t i) { return x * load(scale + i) + load(shift + i); });
}

void prelu_periodic(const float* in, float* out, std::ptrdiff_t n, const float* slope,
                    std::ptrdiff_t period) {
  periodic(in, out, n, period,
           [=](Vec x, std::ptrdiff_t i) { return x > 0.0F ? x : x * load(slope + i); });
}

struct Add {
  static Vec of(Vec a, Vec b) { return a + b; }
};
struct Sub {
  static Vec of(Vec a, Vec b) { return a - b; }
};
struct Mul {
  static Vec of(Vec a, Vec b) { return a * b; }
};
struct Div {
  static Vec of(Vec a, Vec b) { return a / b; }
};
struct Max {
  static Vec of(Vec a, Vec b) { return vmax(a, b); }
};
struct Min {
  static Vec of(Vec a, Vec b) { return vmin(a, b); }
};
struct Pow {
  static Vec of(Vec a, Vec b) { return vpow_signed(a, b); }
};

template <class F>
void binary(const float* a, std::ptrdiff_t a_step, const float* b, std::ptrdiff_t b_step,
            float* out, std::ptrdiff_t n) {
  const auto loop = [&](auto left, auto right) {
    std::ptrdiff_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      store(out + i, F::of(left(i, std::ptrdiff_t{kLanes}), right(i, std::ptrdiff_t{kLanes})));
    }
    if (i < n) store_part(out + i, F::of(left(i, n - i), right(i, n - i)), n - i);
  };
  const auto read = [](const float* p) {
    return [p](std::ptrdiff_t i, std::ptrdiff_t m) { return load_part(p + i, m); };
  };
  const auto repeat = [](const float* p) {
    return [v = broadcast(*p)](std::ptrdiff_t, std::ptrdiff_t) { return v; };
  };
  if (a_step != 0 && b_step != 0) {
    loop(read(a), read(b));
  } else if (a_step != 0) {
    loop(read(a), repeat(b));
  } else if (b_step != 0) {
    loop(repeat(a), read(b));
  } else {
    loop(repeat(a), repeat(b));
  }
}

void copy_strided(const float* in, std::ptrdiff_t in_row, std::ptrdiff_t in_step, float* out,
                  std::ptrdiff_t out_row, std::ptrdiff_t out_step, std::ptrdiff_t rows,
                  std::ptrdiff_t n) {
  // Square tiles: of a transposition, both sides' cache lines are used up while they are there.
  constexpr std::ptrdiff_t kTile = 16;
  for (std::ptrdiff_t r0 = 0; r0 < rows; r0 += kTile) {
    const std::ptrdiff_t r1 = r0 + kTile < rows ? r0 + kTile : rows;
    for (std::ptrdiff_t i0 = 0; i0 < n; i0 += kTile) {
      const std::ptrdiff_t i1 = i0 + kTile < n ? i0 + kTile : n;
      for (std::ptrdiff_t r = r0; r < r1; ++r) {
        for (std::ptrdiff_t i = i0; i < i1; ++i) {
          out[r * out_row + i * out_step] = in[r * in_row + i * in_step];
        }
      }
    }
  }
}

void gather_rows(const float* in, std::ptrdiff_t in_row, const std::ptrdiff_t* table, float* out,
                 std::ptrdiff_t out_row, std::ptrdiff_t rows, std::ptrdiff_t n) {
  for (std::ptrdiff_t r = 0; r < rows; ++r, in += in_row, out += out_row) {
    for (std::ptrdiff_t i = 0; i < n; ++i) out[i] = in[table[i]];
  }
}

}  // namespace

extern const ElementwiseKernels kElementwise;
const ElementwiseKernels kElementwise = {
    epilogue_channel,
    epilogue_pixel,
    sum,
    prod,
    max,
    affine_channel,
    affine_periodic,
    prelu_periodic,
    {binary<Add>, binary<Sub>, binary<Mul>, binary<Div>, binary<Max>, binary<Min>, binary<Pow>},
    copy_strided,
    gather_rows};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
