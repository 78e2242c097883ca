// Softmax and normalisation over channels, see softmax.hpp:
//
//   softmax: exp(x - max) / sum of exp(x - max);   its logarithm: x - max - log(sum)
#include "kernels/softmax.hpp"

#include "kernels/vmath.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

CONVPRIM_INLINE float reduce_max(Vec v) {
  float r = v[0];
  CONVPRIM_UNROLL
  for (int l = 1; l < kLanes; ++l) r = r > v[l] ? r : v[l];
  return r;
}

CONVPRIM_INLINE float reduce_sum(Vec v) {
  float r = v[0];
  CONVPRIM_UNROLL
  for (int l = 1; l < kLanes; ++l) r += v[l];
  return r;
}

/// The first n lanes of v, `other` in those behind.
CONVPRIM_INLINE Vec first(Vec v, std::ptrdiff_t n, float other) {
  if (n >= kLanes) return v;
  VecI lane{};
  CONVPRIM_UNROLL
  for (int l = 0; l < kLanes; ++l) lane[l] = l;
  return lane < static_cast<int>(n) ? v : broadcast(other);
}

/// body(c, i, valid, stored): vector i of the run that starts at channel c.
template <class Body>
CONVPRIM_INLINE void for_vectors(const ChannelRuns& r, Body body) {
  std::ptrdiff_t number = 0;
  for (std::ptrdiff_t c = 0; c < r.channels; c += r.run, ++number) {
    const std::ptrdiff_t valid = r.channels - c < r.run ? r.channels - c : r.run;
    for (std::ptrdiff_t i = 0; i < r.run; i += kLanes) {
      body(number, i, valid - i > 0 ? valid - i : 0, r.run - i);
    }
  }
}

void pixel(const ChannelRuns& r, const float* in, float* out, bool log) {
  Vec top = broadcast(-kInfinity);
  for_vectors(r, [&](std::ptrdiff_t b, std::ptrdiff_t i, std::ptrdiff_t valid, std::ptrdiff_t) {
    top = vmax(top, first(load_part(in + b * r.in_step + i, valid), valid, -kInfinity));
  });
  const Vec largest = broadcast(reduce_max(top));
  Vec total{};
  for_vectors(r,
              [&](std::ptrdiff_t b, std::ptrdiff_t i, std::ptrdiff_t valid, std::ptrdiff_t stored) {
                const Vec x = load_part(in + b * r.in_step + i, valid) - largest;
                const Vec e = first(vexp(x), valid, 0.0F);
                total += e;
                store_part(out + b * r.out_step + i, log ? first(x, valid, 0.0F) : e, stored);
              });
  const float sum = reduce_sum(total);
  const float factor = log ? vlog(broadcast(sum))[0] : 1.0F / sum;
  for_vectors(r, [&](std::ptrdiff_t b, std::ptrdiff_t i, std::ptrdiff_t valid, std::ptrdiff_t) {
    float* to = out + b * r.out_step + i;
    const Vec v = load_part(to, valid);
    store_part(to, log ? v - factor : v * factor, valid);
  });
}

/// U vectors of pixels, the last with n - (U - 1) * kLanes of them.
template <int U>
CONVPRIM_INLINE void softmax_block(const float* in, std::ptrdiff_t in_c, float* out,
                                   std::ptrdiff_t out_c, std::ptrdiff_t channels, std::ptrdiff_t n,
                                   bool log) {
  const std::ptrdiff_t last = n - (U - 1) * kLanes;
  const auto get = [last](const float* p, int u) {
    return u == U - 1 ? load_part(p + u * kLanes, last) : load(p + u * kLanes);
  };
  const auto put = [last](float* p, int u, Vec v) {
    if (u == U - 1) {
      store_part(p + u * kLanes, v, last);
    } else {
      store(p + u * kLanes, v);
    }
  };
  Vec top[U], sum[U] = {};
  CONVPRIM_UNROLL
  for (int u = 0; u < U; ++u) top[u] = get(in, u);
  for (std::ptrdiff_t c = 1; c < channels; ++c) {
    CONVPRIM_UNROLL
    for (int u = 0; u < U; ++u) top[u] = vmax(top[u], get(in + c * in_c, u));
  }
  for (std::ptrdiff_t c = 0; c < channels; ++c) {
    CONVPRIM_UNROLL
    for (int u = 0; u < U; ++u) {
      const Vec x = get(in + c * in_c, u) - top[u];
      const Vec e = vexp(x);
      sum[u] += e;
      put(out + c * out_c, u, log ? x : e);
    }
  }
  CONVPRIM_UNROLL
  for (int u = 0; u < U; ++u) sum[u] = log ? vlog(sum[u]) : 1.0F / sum[u];
  for (std::ptrdiff_t c = 0; c < channels; ++c) {
    CONVPRIM_UNROLL
    for (int u = 0; u < U; ++u) {
      const Vec v = get(out + c * out_c, u);
      put(out + c * out_c, u, log ? v - sum[u] : v * sum[u]);
    }
  }
}

void columns(const float* in, std::ptrdiff_t in_c, float* out, std::ptrdiff_t out_c,
             std::ptrdiff_t channels, std::ptrdiff_t n, bool log) {
  constexpr int kWide = 4;
  std::ptrdiff_t i = 0;
  for (; i + kWide * kLanes <= n; i += kWide * kLanes) {
    softmax_block<kWide>(in + i, in_c, out + i, out_c, channels, kWide * kLanes, log);
  }
  for (; i < n; i += kLanes) {
    const std::ptrdiff_t left = n - i < kLanes ? n - i : kLanes;
    softmax_block<1>(in + i, in_c, out + i, out_c, channels, left, log);
  }
}

void normalize_pixel(const ChannelRuns& r, const float* in, float* out, const float* scale,
                     float eps) {
  Vec total{};
  for_vectors(r, [&](std::ptrdiff_t b, std::ptrdiff_t i, std::ptrdiff_t valid, std::ptrdiff_t) {
    const Vec x = load_part(in + b * r.in_step + i, valid);
    total += x * x;
  });
  const float factor = 1.0F / __builtin_sqrtf(reduce_sum(total) + eps);
  for_vectors(
      r, [&](std::ptrdiff_t b, std::ptrdiff_t i, std::ptrdiff_t valid, std::ptrdiff_t stored) {
        const Vec x = load_part(in + b * r.in_step + i, valid);
        store_part(out + b * r.out_step + i, x * (load(scale + b * r.run + i) * factor), stored);
      });
}

void normalize_columns(const float* in, std::ptrdiff_t in_c, float* out, std::ptrdiff_t out_c,
                       std::ptrdiff_t channels, std::ptrdiff_t n, const float* scale, float eps) {
  for (std::ptrdiff_t i = 0; i < n; i += kLanes) {
    const std::ptrdiff_t left = n - i;
    Vec sum{};
    for (std::ptrdiff_t c = 0; c < channels; ++c) {
      const Vec x = load_part(in + c * in_c + i, left);
      sum += x * x;
    }
    const Vec factor = 1.0F / vsqrt(sum + eps);
    for (std::ptrdiff_t c = 0; c < channels; ++c) {
      const Vec x = load_part(in + c * in_c + i, left);
      store_part(out + c * out_c + i, x * (factor * scale[c]), left);
    }
  }
}

float square_run(const float* in, std::ptrdiff_t n) {
  Vec sum{};
  for (std::ptrdiff_t i = 0; i < n; i += kLanes) {
    const Vec x = load_part(in + i, n - i);
    sum += x * x;
  }
  return reduce_sum(sum);
}

}  // namespace

extern const SoftmaxKernels kSoftmax;
const SoftmaxKernels kSoftmax = {pixel, columns, normalize_pixel, normalize_columns, square_run};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
