#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "threads.hpp"

namespace convprim {

std::pair<double, double> reference_at(const Scenario& s, const float* in, const Weights& weights,
                                       const Epilogue& epilogue, const float* residual, Index n,
                                       Index k, Index y, Index x) {
  const Index group = k / s.mg();
  double sum = 0, magnitude = 0;
  for (Index c = 0; c < s.cg(); ++c) {
    const float* image = in + (n * s.c + group * s.cg() + c) * s.h * s.w;
    const float* filter = weights.filter + (k * s.cg() + c) * s.kh * s.kw;
    for (Index i = 0; i < s.kh; ++i) {
      const Index row = y * s.sh - s.pt + i * s.dh;
      if (row < 0 || row >= s.h) continue;
      for (Index j = 0; j < s.kw; ++j) {
        const Index col = x * s.sw - s.pl + j * s.dw;
        if (col < 0 || col >= s.w) continue;
        const double product =
            static_cast<double>(image[row * s.w + col]) * static_cast<double>(filter[i * s.kw + j]);
        sum += product;
        magnitude += std::abs(product);
      }
    }
  }
  if (weights.bias != nullptr) {
    sum += static_cast<double>(weights.bias[k]);
    magnitude += std::abs(static_cast<double>(weights.bias[k]));
  }
  if (epilogue.residual) {
    const double r = static_cast<double>(residual[((n * s.m + k) * s.oh + y) * s.ow + x]);
    sum += r;
    magnitude += std::abs(r);
  }
  sum = std::clamp(sum, static_cast<double>(epilogue.lo), static_cast<double>(epilogue.hi));
  return {sum, magnitude};
}

ReferenceOutput reference_convolution(const Scenario& s, const float* in, const Weights& weights,
                                      const Epilogue& epilogue, const float* residual,
                                      int threads) {
  ReferenceOutput out;
  const auto count = static_cast<std::size_t>(s.out().count());
  out.value.resize(count);
  out.magnitude.resize(count);
  parallel_for(threads, s.n * s.m * s.oh, [&](Index row) {
    const Index y = row % s.oh, k = row / s.oh % s.m, n = row / s.oh / s.m;
    for (Index x = 0; x < s.ow; ++x) {
      const auto at = static_cast<std::size_t>(row * s.ow + x);
      std::tie(out.value[at], out.magnitude[at]) =
          reference_at(s, in, weights, epilogue, residual, n, k, y, x);
    }
  });
  return out;
}

void to_layout(Layout layout, const Shape& shape, const float* nchw, float* out) {
  std::fill_n(out, element_count(layout, shape), 0.0F);
  const Strides at = strides(layout, shape);
  for (Index n = 0; n < shape.n; ++n)
    for (Index c = 0; c < shape.c; ++c)
      for (Index h = 0; h < shape.h; ++h)
        for (Index w = 0; w < shape.w; ++w)
          out[at.at(n, c, h, w)] = nchw[((n * shape.c + c) * shape.h + h) * shape.w + w];
}

void from_layout(Layout layout, const Shape& shape, const float* in, float* nchw) {
  const Strides at = strides(layout, shape);
  for (Index n = 0; n < shape.n; ++n)
    for (Index c = 0; c < shape.c; ++c)
      for (Index h = 0; h < shape.h; ++h)
        for (Index w = 0; w < shape.w; ++w)
          nchw[((n * shape.c + c) * shape.h + h) * shape.w + w] = in[at.at(n, c, h, w)];
}

}  // namespace convprim
