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

void shift_add(const Scenario& s, const Tap& tap, const Tile& product, const Tile& sums) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto add = [&](float* sum, const float* term, Index count) {
    kernels::active().elementwise->epilogue_channel(sum, term, 0, -kInfinity, kInfinity, count);
  };
  const float* from =
      product.at(product.k.begin, (tap.y.begin + tap.down) * s.w + tap.x.begin + tap.right);
  float* to = sums.at(sums.k.begin, tap.y.begin * s.ow + tap.x.begin);
  const Index rows = tap.y.end - tap.y.begin, width = tap.x.end - tap.x.begin;
  const Index channels = sums.channels();
  if (sums.ki) {
    for (Index k = 0; k < channels; ++k) {
      for (Index y = 0; y < rows; ++y) {
        add(to + k * sums.ld + y * s.ow, from + k * product.ld + y * s.w, width);
      }
    }
    return;
  }
  // Pixels without a gap between them are one run.
  const bool dense = product.ld == channels && sums.ld == channels;
  const Index runs = dense ? 1 : width, run = dense ? width * channels : channels;
  for (Index y = 0; y < rows; ++y) {
    for (Index x = 0; x < runs; ++x) {
      add(to + (y * s.ow + x) * sums.ld, from + (y * s.w + x) * product.ld, run);
    }
  }
}

const char* reject_kn2(const Scenario& s) {
  return s.unit_stride() ? nullptr : "needs stride 1: its products cover the whole image";
}

}  // namespace convprim::gemm
