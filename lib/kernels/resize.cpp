// Linear interpolation, see resize.hpp.
#include "kernels/resize.hpp"

#include "kernels/simd.hpp"

namespace convprim::kernels::CONVPRIM_KERNELS {
namespace {

void lerp_rows(const float* a, const float* b, float t, float* out, std::ptrdiff_t n) {
  const Vec u = broadcast(1.0F - t), v = broadcast(t);
  std::ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, load(a + i) * u + load(b + i) * v);
  if (i < n) {
    store_part(out + i, load_part(a + i, n - i) * u + load_part(b + i, n - i) * v, n - i);
  }
}

void lerp_columns(const float* line, const std::ptrdiff_t* a, const std::ptrdiff_t* b,
                  const float* t, float* out, std::ptrdiff_t n) {
  for (std::ptrdiff_t x = 0; x < n; ++x) {
    out[x] = (1.0F - t[x]) * line[a[x]] + t[x] * line[b[x]];
  }
}

void lerp_pixels(const float* line, const std::ptrdiff_t* a, const std::ptrdiff_t* b,
                 const float* t, std::ptrdiff_t lanes, float* out, std::ptrdiff_t out_w,
                 std::ptrdiff_t n) {
  for (std::ptrdiff_t x = 0; x < n; ++x) {
    lerp_rows(line + a[x], line + b[x], t[x], out + x * out_w, lanes);
  }
}

}  // namespace

extern const ResizeKernels kResize;
const ResizeKernels kResize = {lerp_rows, lerp_columns, lerp_pixels};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
