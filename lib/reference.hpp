// The reference: convolution by its definition, in double. Written to be read, not to be fast;
// nothing here is shared with a primitive.
#pragma once

#include <vector>

#include "convprim/primitive.hpp"

namespace convprim {

/// A convolution's exact answer and the scale of its rounding errors, both in (n, c, h, w) order.
struct ReferenceOutput {
  std::vector<double> value;
  /// Sum of |x * w| over the products of each output, plus |bias| + |residual|: a float result is
  /// off by a multiple of this.
  std::vector<double> magnitude;
};

/// in: [n][c][h][w], residual: [n][m][oh][ow] or null.
ReferenceOutput reference_convolution(const Scenario& s, const float* in, const Weights& weights,
                                      const Epilogue& epilogue, const float* residual, int threads);

/// The answer at one output position only: value and magnitude.
std::pair<double, double> reference_at(const Scenario& s, const float* in, const Weights& weights,
                                       const Epilogue& epilogue, const float* residual, Index n,
                                       Index k, Index y, Index x);

/// Copies a tensor from (n, c, h, w) order into a layout; padding lanes become zeros.
void to_layout(Layout layout, const Shape& shape, const float* nchw, float* out);

/// Copies a tensor from a layout into (n, c, h, w) order.
void from_layout(Layout layout, const Shape& shape, const float* in, float* nchw);

}  // namespace convprim
