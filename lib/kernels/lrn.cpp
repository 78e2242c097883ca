// Local response normalisation, see lrn.hpp. Each window is summed afresh: a sum that slides by
// adding and subtracting would keep the rounding errors of large elements that have left it.
#include "kernels/lrn.hpp"

#include "kernels/vmath.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

// The power of the sum: AlexNet's and GoogLeNet's beta is 0.75.
enum class Beta { three_quarters, half, one, any };

template <Beta B>
CONVPRIM_INLINE Vec normalise(const LrnParams& p, Vec x, Vec sum) {
  const Vec s = sum * p.alpha + p.k;
  if constexpr (B == Beta::three_quarters) {
    // s^-3/4 = r * sqrt(r) with r = s^-1/2.
    const Vec r = vrsqrt(s);
    return x * (r * (r * vrsqrt(r)));
  } else if constexpr (B == Beta::half) {
    return x * vrsqrt(s);
  } else if constexpr (B == Beta::one) {
    return x / s;
  } else {
    return x * vpow(s, broadcast(-p.beta));
  }
}

template <Beta B, int Before, int After>
CONVPRIM_INLINE void plane_row(const LrnParams& p, const float* in, std::ptrdiff_t in_c, float* out,
                               std::ptrdiff_t before, std::ptrdiff_t after, std::ptrdiff_t n) {
  const std::ptrdiff_t first = Before >= 0 ? -Before : -before;
  const std::ptrdiff_t last = After >= 0 ? After : after;
  const auto value = [&](std::ptrdiff_t i, auto get) {
    Vec sum{};
    CONVPRIM_UNROLL
    for (std::ptrdiff_t c = first; c <= last; ++c) {
      const Vec v = get(in + c * in_c + i);
      sum += v * v;
    }
    return normalise<B>(p, get(in + i), sum);
  };
  std::ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    // The next channel's run starts in another page, which no hardware prefetch foresees.
    __builtin_prefetch(in + (last + 1) * in_c + i);
    store(out + i, value(i, [](const float* from) { return load(from); }));
  }
  if (i < n) {
    store_part(out + i, value(i, [=](const float* from) { return load_part(from, n - i); }), n - i);
  }
}

template <Beta B>
void planes(const LrnParams& p, const float* in, std::ptrdiff_t in_c, float* out,
            std::ptrdiff_t out_c, std::ptrdiff_t channels, std::ptrdiff_t n) {
  for (std::ptrdiff_t c = 0; c < channels; ++c) {
    const std::ptrdiff_t before = c < p.before ? c : p.before;
    const std::ptrdiff_t after = channels - 1 - c < p.after ? channels - 1 - c : p.after;
    const float* from = in + c * in_c;
    float* to = out + c * out_c;
    if (before == 2 && after == 2) {
      plane_row<B, 2, 2>(p, from, in_c, to, 2, 2, n);
    } else {
      plane_row<B, -1, -1>(p, from, in_c, to, before, after, n);
    }
  }
}

/// Lane l of the result is the square J channels after that of lane l, in groups of S lanes that
/// follow each other as previous, current, next.
template <int S, int J>
CONVPRIM_INLINE Vec shifted(Vec previous, Vec current, Vec next) {
  VecI index{};
  CONVPRIM_UNROLL
  for (int l = 0; l < kLanes; ++l) {
    const int group = l / S * S, at = l % S + J;
    // Below kLanes: the current vector; else the neighbour's.
    index[l] = at < 0 ? kLanes + group + at + S : at >= S ? kLanes + group + at - S : l + J;
  }
  return __builtin_shuffle(current, J < 0 ? previous : next, index);
}

/// A window of two channels to both sides, by shuffles of three neighbouring vectors. A vector
/// holds S channels of kLanes / S pixels; blocks of 8 or 16 channels, or all of them (0). Whole:
/// all vectors are full.
template <Beta B, int S, int Block, bool Whole>
void pixel_vectors(const LrnParams& p, const float* in, std::ptrdiff_t in_c, float* out,
                   std::ptrdiff_t out_c, std::ptrdiff_t channels, std::ptrdiff_t lanes) {
  const auto at = [](std::ptrdiff_t c, std::ptrdiff_t stride) {
    if constexpr (Block == 0) return c;
    return c / Block * stride + c % Block;
  };
  const auto left = [&](std::ptrdiff_t c) {
    if constexpr (S < kLanes) return lanes;
    return channels - c;
  };
  const auto get = [&](std::ptrdiff_t c) {
    if (c >= channels) return Vec{};
    return Whole ? load(in + at(c, in_c)) : load_part(in + at(c, in_c), left(c));
  };
  Vec x = get(0), previous{}, current = x * x;
  for (std::ptrdiff_t c = 0; c < channels; c += S) {
    const Vec following = get(c + S), next = following * following;
    const Vec sum =
        ((shifted<S, -2>(previous, current, next) + shifted<S, -1>(previous, current, next)) +
         (shifted<S, 1>(previous, current, next) + shifted<S, 2>(previous, current, next))) +
        current;
    const Vec y = normalise<B>(p, x, sum);
    Whole ? store(out + at(c, out_c), y) : store_part(out + at(c, out_c), y, left(c));
    previous = current;
    current = next;
    x = following;
  }
}

/// Any window: a pixel's squares in a padded line.
template <Beta B>
void pixel_line(const LrnParams& p, const float* in, std::ptrdiff_t in_c, float* out,
                std::ptrdiff_t out_c, std::ptrdiff_t block, std::ptrdiff_t channels, float* line) {
  const std::ptrdiff_t run = block == 0 ? channels : block;
  for (std::ptrdiff_t i = 0; i < p.before; ++i) line[i] = 0;
  float* squares = line + p.before;
  for (std::ptrdiff_t c = 0; c < channels; c += run) {
    const float* from = in + c / run * in_c;
    for (std::ptrdiff_t i = 0; i < run; i += kLanes) {
      const Vec v = load_part(from + i, run - i);
      store_part(squares + c + i, v * v, run - i);
    }
  }
  for (std::ptrdiff_t i = 0; i < p.after + kLanes; ++i) squares[channels + i] = 0;
  for (std::ptrdiff_t c = 0; c < channels; c += run) {
    const float* from = in + c / run * in_c;
    float* to = out + c / run * out_c;
    for (std::ptrdiff_t i = 0; i < run; i += kLanes) {
      Vec sum{};
      for (std::ptrdiff_t j = 0; j <= p.before + p.after; ++j) sum += load(line + c + i + j);
      store_part(to + i, normalise<B>(p, load_part(from + i, run - i), sum), run - i);
    }
  }
}

template <Beta B>
void pixels(const LrnParams& p, const float* in, std::ptrdiff_t in_w, std::ptrdiff_t in_c,
            float* out, std::ptrdiff_t out_w, std::ptrdiff_t out_c, std::ptrdiff_t block,
            std::ptrdiff_t channels, std::ptrdiff_t n, float* scratch) {
  if (p.before == 2 && p.after == 2) {
    const auto all = [&](auto kernel, std::ptrdiff_t i, std::ptrdiff_t step, std::ptrdiff_t lanes) {
      for (; i + step <= n; i += step) {
        kernel(p, in + i * in_w, in_c, out + i * out_w, out_c, channels, lanes);
      }
      return i;
    };
    if (block == 8) {
      // Two pixels to a vector where that has 16 lanes.
      constexpr int kPixels = kLanes > 8 ? kLanes / 8 : 1, kS = kLanes / kPixels;
      const std::ptrdiff_t i = all(pixel_vectors<B, kS, 8, true>, 0, kPixels, kLanes);
      all(pixel_vectors<B, kS, 8, false>, i, 1, 8);
    } else if (block == 16) {
      all(pixel_vectors<B, kLanes, 16, true>, 0, 1, kLanes);
    } else if (channels % kLanes == 0) {
      all(pixel_vectors<B, kLanes, 0, true>, 0, 1, kLanes);
    } else {
      all(pixel_vectors<B, kLanes, 0, false>, 0, 1, kLanes);
    }
    return;
  }
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    pixel_line<B>(p, in + i * in_w, in_c, out + i * out_w, out_c, block, channels, scratch);
  }
}

/// The rows' squares are summed into a padded line, then the columns of that.
template <Beta B>
void within(const LrnParams& p, const float* window, std::ptrdiff_t in_h, std::ptrdiff_t rows,
            const float* in, float* out, std::ptrdiff_t step, std::ptrdiff_t n, float* scratch) {
  const std::ptrdiff_t before = p.before * step, after = p.after * step;
  for (std::ptrdiff_t i = 0; i < before; ++i) scratch[i] = 0;
  float* sums = scratch + before;
  for (std::ptrdiff_t i = 0; i < n; i += kLanes) {
    Vec sum{};
    for (std::ptrdiff_t r = 0; r < rows; ++r) {
      const Vec v = load_part(window + r * in_h + i, n - i);
      sum += v * v;
    }
    store(sums + i, sum);
  }
  for (std::ptrdiff_t i = 0; i < after + kLanes; ++i) sums[n + i] = 0;
  for (std::ptrdiff_t i = 0; i < n; i += kLanes) {
    Vec sum{};
    for (std::ptrdiff_t j = 0; j <= p.before + p.after; ++j) sum += load(scratch + i + j * step);
    store_part(out + i, normalise<B>(p, load_part(in + i, n - i), sum), n - i);
  }
}

#define CONVPRIM_LRN_CASE(name, ...)                                   \
  if (p.beta == 0.75F) return name<Beta::three_quarters>(__VA_ARGS__); \
  if (p.beta == 0.5F) return name<Beta::half>(__VA_ARGS__);            \
  if (p.beta == 1.0F) return name<Beta::one>(__VA_ARGS__);             \
  return name<Beta::any>(__VA_ARGS__)

void planes_any(const LrnParams& p, const float* in, std::ptrdiff_t in_c, float* out,
                std::ptrdiff_t out_c, std::ptrdiff_t channels, std::ptrdiff_t n) {
  CONVPRIM_LRN_CASE(planes, p, in, in_c, out, out_c, channels, n);
}

void pixels_any(const LrnParams& p, const float* in, std::ptrdiff_t in_w, std::ptrdiff_t in_c,
                float* out, std::ptrdiff_t out_w, std::ptrdiff_t out_c, std::ptrdiff_t block,
                std::ptrdiff_t channels, std::ptrdiff_t n, float* scratch) {
  CONVPRIM_LRN_CASE(pixels, p, in, in_w, in_c, out, out_w, out_c, block, channels, n, scratch);
}

void within_any(const LrnParams& p, const float* window, std::ptrdiff_t in_h, std::ptrdiff_t rows,
                const float* in, float* out, std::ptrdiff_t step, std::ptrdiff_t n,
                float* scratch) {
  CONVPRIM_LRN_CASE(within, p, window, in_h, rows, in, out, step, n, scratch);
}

}  // namespace

extern const LrnKernels kLrn;
const LrnKernels kLrn = {planes_any, pixels_any, within_any};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
