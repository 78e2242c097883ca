// Two-dimensional real FFTs of small tiles, see fft.hpp.
//
// Radix-2 decimation in time, unrolled to straight-line code. The rows are transformed as real
// data of T points to T/2 + 1 columns; columns 0 and T/2 hold real numbers and are transformed as
// such again, the others as complex data. Inverses run the same steps backwards.
#include "kernels/fft.hpp"

#include "kernels/simd.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

using std::ptrdiff_t;

/// cos(2 pi k / 32) of the first quadrant.
constexpr double kQuadrant[9] = {1,
                                 0.98078528040323044913,
                                 0.92387953251128675613,
                                 0.83146961230254523708,
                                 0.70710678118654752440,
                                 0.55557023301960222474,
                                 0.38268343236508977173,
                                 0.19509032201612826785,
                                 0};

/// cos(2 pi k / n) for 0 <= k <= n / 2.
constexpr float cosine(int k, int n) {
  const int i = k * 32 / n;
  return static_cast<float>(i <= 8 ? kQuadrant[i] : -kQuadrant[16 - i]);
}

/// sin(2 pi k / n) for 0 <= k <= n / 2.
constexpr float sine(int k, int n) {
  const int i = k * 32 / n;
  return static_cast<float>(kQuadrant[i <= 8 ? 8 - i : i - 8]);
}

/// Complex FFT in place. Exchanging re and im makes it the inverse, times N.
template <int N>
CONVPRIM_INLINE void fft(Vec (&re)[N], Vec (&im)[N]) {
  if constexpr (N > 1) {
    constexpr int H = N / 2;
    Vec er[H], ei[H], dr[H], di[H];
    CONVPRIM_UNROLL
    for (int k = 0; k < H; ++k) {
      er[k] = re[2 * k], ei[k] = im[2 * k];
      dr[k] = re[2 * k + 1], di[k] = im[2 * k + 1];
    }
    fft<H>(er, ei);
    fft<H>(dr, di);
    CONVPRIM_UNROLL
    for (int k = 0; k < H; ++k) {
      const float c = cosine(k, N), s = sine(k, N);
      const Vec tr = k == 0 ? dr[k] : 4 * k == N ? di[k] : dr[k] * c + di[k] * s;
      const Vec ti = k == 0 ? di[k] : 4 * k == N ? -dr[k] : di[k] * c - dr[k] * s;
      re[k] = er[k] + tr, im[k] = ei[k] + ti;
      re[k + H] = er[k] - tr, im[k + H] = ei[k] - ti;
    }
  }
}

/// FFT of real data to frequencies 0 .. N/2; im[0] and im[N/2] become 0.
template <int N>
CONVPRIM_INLINE void real_fft(const Vec (&x)[N], Vec (&re)[N / 2 + 1], Vec (&im)[N / 2 + 1]) {
  constexpr int H = N / 2, Q = N / 4;
  im[0] = im[H] = Vec{};
  if constexpr (N == 2) {
    re[0] = x[0] + x[1], re[1] = x[0] - x[1];
  } else {
    Vec even[H], odd[H], er[Q + 1], ei[Q + 1], dr[Q + 1], di[Q + 1];
    CONVPRIM_UNROLL
    for (int k = 0; k < H; ++k) even[k] = x[2 * k], odd[k] = x[2 * k + 1];
    real_fft<H>(even, er, ei);
    real_fft<H>(odd, dr, di);
    re[0] = er[0] + dr[0], re[H] = er[0] - dr[0];
    re[Q] = er[Q], im[Q] = -dr[Q];
    CONVPRIM_UNROLL
    for (int k = 1; k < Q; ++k) {
      const float c = cosine(k, N), s = sine(k, N);
      const Vec tr = dr[k] * c + di[k] * s, ti = di[k] * c - dr[k] * s;
      re[k] = er[k] + tr, im[k] = ei[k] + ti;
      re[H - k] = er[k] - tr, im[H - k] = ti - ei[k];
    }
  }
}

/// N times the inverse of real_fft().
template <int N>
CONVPRIM_INLINE void inverse_real_fft(const Vec (&re)[N / 2 + 1], const Vec (&im)[N / 2 + 1],
                                      Vec (&x)[N]) {
  constexpr int H = N / 2, Q = N / 4;
  if constexpr (N == 2) {
    x[0] = re[0] + re[1], x[1] = re[0] - re[1];
  } else {
    Vec even[H], odd[H], er[Q + 1], ei[Q + 1], dr[Q + 1], di[Q + 1];
    er[0] = re[0] + re[H], dr[0] = re[0] - re[H];
    er[Q] = re[Q] + re[Q], dr[Q] = -(im[Q] + im[Q]);
    ei[0] = ei[Q] = di[0] = di[Q] = Vec{};
    CONVPRIM_UNROLL
    for (int k = 1; k < Q; ++k) {
      const float c = cosine(k, N), s = sine(k, N);
      const Vec r = re[k] - re[H - k], i = im[k] + im[H - k];
      er[k] = re[k] + re[H - k], ei[k] = im[k] - im[H - k];
      dr[k] = r * c - i * s, di[k] = i * c + r * s;
    }
    inverse_real_fft<H>(er, ei, even);
    inverse_real_fft<H>(dr, di, odd);
    CONVPRIM_UNROLL
    for (int k = 0; k < H; ++k) x[2 * k] = even[k], x[2 * k + 1] = odd[k];
  }
}

/// One frequency of a spectrum.
CONVPRIM_INLINE void put(float* p, SpectrumStrides at, bool sum, Vec re, Vec im) {
  store(p, re);
  store(p + at.plane, im);
  if (sum) store(p + 2 * at.plane, re + im);
}

// Between the passes the data lie column by column: [T/2 + 1][T] for re, then for im.

template <int T>
void forward(const float* tile, float* spectrum, SpectrumStrides at, bool sum, float* scratch) {
  constexpr int H = T / 2;
  constexpr ptrdiff_t kPlane = (H + 1) * T * kLanes;
  for (int y = 0; y < T; ++y) {
    Vec x[T], re[H + 1], im[H + 1];
    CONVPRIM_UNROLL
    for (int k = 0; k < T; ++k) x[k] = load(tile + (y * T + k) * kLanes);
    real_fft<T>(x, re, im);
    float* to = scratch + y * kLanes;
    CONVPRIM_UNROLL
    for (int k = 0; k <= H; ++k) store(to + k * T * kLanes, re[k]);
    CONVPRIM_UNROLL
    for (int k = 1; k < H; ++k) store(to + kPlane + k * T * kLanes, im[k]);
  }
  float* to = spectrum;
  for (int v = 0; v <= H; v += H) {
    Vec x[T], re[H + 1], im[H + 1];
    CONVPRIM_UNROLL
    for (int k = 0; k < T; ++k) x[k] = load(scratch + (v * T + k) * kLanes);
    real_fft<T>(x, re, im);
    CONVPRIM_UNROLL
    for (int k = 0; k <= H; ++k) put(to + k * at.frequency, at, sum, re[k], im[k]);
    to += (H + 1) * at.frequency;
  }
  for (int v = 1; v < H; ++v) {
    const float* from = scratch + v * T * kLanes;
    Vec re[T], im[T];
    CONVPRIM_UNROLL
    for (int k = 0; k < T; ++k) {
      re[k] = load(from + k * kLanes);
      im[k] = load(from + kPlane + k * kLanes);
    }
    fft<T>(re, im);
    CONVPRIM_UNROLL
    for (int k = 0; k < T; ++k) put(to + k * at.frequency, at, sum, re[k], im[k]);
    to += T * at.frequency;
  }
}

template <int T>
void inverse(const float* spectrum, SpectrumStrides at, ptrdiff_t rows, float* tile,
             float* scratch) {
  constexpr int H = T / 2;
  constexpr ptrdiff_t kPlane = (H + 1) * T * kLanes;
  const float* from = spectrum;
  for (int v = 0; v <= H; v += H) {
    Vec x[T], re[H + 1], im[H + 1];
    CONVPRIM_UNROLL
    for (int k = 0; k <= H; ++k) {
      re[k] = load(from + k * at.frequency);
      im[k] = load(from + k * at.frequency + at.plane);
    }
    inverse_real_fft<T>(re, im, x);
    CONVPRIM_UNROLL
    for (int k = 0; k < T; ++k) store(scratch + (v * T + k) * kLanes, x[k]);
    from += (H + 1) * at.frequency;
  }
  for (int v = 1; v < H; ++v) {
    Vec re[T], im[T];
    CONVPRIM_UNROLL
    for (int k = 0; k < T; ++k) {
      re[k] = load(from + k * at.frequency);
      im[k] = load(from + k * at.frequency + at.plane);
    }
    fft<T>(im, re);
    float* to = scratch + v * T * kLanes;
    CONVPRIM_UNROLL
    for (int k = 0; k < T; ++k) {
      store(to + k * kLanes, re[k]);
      store(to + kPlane + k * kLanes, im[k]);
    }
    from += T * at.frequency;
  }
  for (ptrdiff_t y = 0; y < rows; ++y) {
    const float* row = scratch + y * kLanes;
    Vec x[T], re[H + 1], im[H + 1];
    im[0] = im[H] = Vec{};
    CONVPRIM_UNROLL
    for (int k = 0; k <= H; ++k) re[k] = load(row + k * T * kLanes);
    CONVPRIM_UNROLL
    for (int k = 1; k < H; ++k) im[k] = load(row + kPlane + k * T * kLanes);
    inverse_real_fft<T>(re, im, x);
    CONVPRIM_UNROLL
    for (int k = 0; k < T; ++k) store(tile + (y * T + k) * kLanes, x[k]);
  }
}

void finish(float* x, const float* residual, const float* bias, float lo, float hi, int valid,
            ptrdiff_t n) {
  const Vec b = load(bias), vlo = broadcast(lo), vhi = broadcast(hi);
  Vec keep{};
  for (int i = 0; i < kLanes; ++i) keep[i] = i < valid ? 1.0F : 0.0F;
  for (ptrdiff_t i = 0; i < n; ++i) {
    Vec v = load(x + i * kLanes) + b;
    if (residual != nullptr) v += load(residual + i * kLanes);
    v = vmin(vmax(v, vlo), vhi);
    store(x + i * kLanes, keep > 0 ? v : Vec{});
  }
}

template <int T>
constexpr TileFft tile_fft() {
  return {T, T * T / 2 + 2, forward<T>, inverse<T>};
}

constexpr TileFft kTiles[kTileFfts] = {tile_fft<8>(), tile_fft<16>(), tile_fft<32>()};

}  // namespace

extern const FftKernels kFft;
const FftKernels kFft = {kLanes, kTiles, finish};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
