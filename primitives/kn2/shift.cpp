// What the kn2 algorithms share, see kn2.hpp.
#include <limits>

#include "kernels/kernels.hpp"
#include "primitives/kn2/kn2.hpp"

namespace convprim::gemm {

Tap make_tap(const Scenario& s, Index i, Index j, Range rows) {
  Tap t{};
  t.down = i * s.dh - s.pt;
  t.right = j * s.dw - s.pl;
  t.x = valid_outputs(s.ow, s.w, 1, s.pl, j * s.dw);
  t.y = valid_outputs(s.oh, s.h, 1, s.pt, i * s.dh);
  t.y.begin = std::clamp(t.y.begin, rows.begin, rows.end);
  t.y.end = std::clamp(t.y.end, t.y.begin, rows.end);
  return t;
}

void shift_add(const Scenario& s, bool ki, Index channels, const Tap& tap, const float* from,
               Index from_ld, Index from_row, float* to, Index to_ld, Index to_row) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto add = [&](float* sum, const float* term, Index count) {
    kernels::active().elementwise->epilogue_channel(sum, term, 0, -kInfinity, kInfinity, count);
  };
  const Index width = tap.x.end - tap.x.begin;
  const auto input_pixel = [&](Index y) {
    return (y + tap.down - from_row) * s.w + tap.x.begin + tap.right;
  };
  const auto output_pixel = [&](Index y) { return (y - to_row) * s.ow + tap.x.begin; };
  if (ki) {
    for (Index k = 0; k < channels; ++k) {
      for (Index y = tap.y.begin; y < tap.y.end; ++y) {
        add(to + k * to_ld + output_pixel(y), from + k * from_ld + input_pixel(y), width);
      }
    }
    return;
  }
  // Pixels without a gap between them are one run.
  const bool dense = from_ld == channels && to_ld == channels;
  const Index runs = dense ? 1 : width, run = dense ? width * channels : channels;
  for (Index y = tap.y.begin; y < tap.y.end; ++y) {
    for (Index x = 0; x < runs; ++x) {
      add(to + (output_pixel(y) + x) * to_ld, from + (input_pixel(y) + x) * from_ld, run);
    }
  }
}

const char* reject_kn2(const Scenario& s) {
  return s.unit_stride() ? nullptr : "needs stride 1: its products cover the whole image";
}

}  // namespace convprim::gemm
