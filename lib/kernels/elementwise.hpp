// Element-wise inner loops: the epilogues of primitives that do not fuse them in registers, sums,
// products and maxima of several tensors, and factors for each channel. Outputs may be the same
// memory as an input.
#pragma once

#include <cstddef>

namespace convprim::kernels {

/// Functions of two operands, in the order of BroadcastOp::Kind.
inline constexpr int kBinaryKinds = 7;

struct ElementwiseKernels {
  /// x[i] = clamp(x[i] + bias + residual[i], lo, hi) for i < n: a run of one channel (CHW, HCW).
  /// residual may be null.
  void (*epilogue_channel)(float* x, const float* residual, float bias, float lo, float hi,
                           std::ptrdiff_t n);
  /// x[i] = clamp(x[i] + bias[i] + residual[i], lo, hi) for i < n: one pixel's channels (HWC). bias
  /// and residual may be null.
  void (*epilogue_pixel)(float* x, const float* residual, const float* bias, float lo, float hi,
                         std::ptrdiff_t n);
  /// out[i] = clamp(coeff[0] * in[0][i] + ..., lo, hi) over `count` inputs; coeff may be null
  /// (ones).
  void (*sum)(const float* const* in, const float* coeff, int count, float* out, std::ptrdiff_t n,
              float lo, float hi);
  /// The same with the product of the inputs.
  void (*prod)(const float* const* in, int count, float* out, std::ptrdiff_t n, float lo, float hi);
  /// The same with the maximum of the inputs.
  void (*max)(const float* const* in, int count, float* out, std::ptrdiff_t n, float lo, float hi);
  /// out[i] = in[i] * scale + shift.
  void (*affine_channel)(const float* in, float* out, std::ptrdiff_t n, float scale, float shift);
  /// out[i] = in[i] * scale[i % period] + shift[i % period]. The period is a multiple of the lanes,
  /// or not less than n.
  void (*affine_periodic)(const float* in, float* out, std::ptrdiff_t n, const float* scale,
                          const float* shift, std::ptrdiff_t period);
  /// out[i] = in[i] > 0 ? in[i] : slope[i % period] * in[i]; the period as above.
  void (*prelu_periodic)(const float* in, float* out, std::ptrdiff_t n, const float* slope,
                         std::ptrdiff_t period);
  /// out[i] = f(a[i], b[i]); a step of 0 repeats the operand's first element.
  void (*binary[kBinaryKinds])(const float* a, std::ptrdiff_t a_step, const float* b,
                               std::ptrdiff_t b_step, float* out, std::ptrdiff_t n);
  /// out[r * out_row + i * out_step] = in[r * in_row + i * in_step].
  void (*copy_strided)(const float* in, std::ptrdiff_t in_row, std::ptrdiff_t in_step, float* out,
                       std::ptrdiff_t out_row, std::ptrdiff_t out_step, std::ptrdiff_t rows,
                       std::ptrdiff_t n);
  /// out[r * out_row + i] = in[r * in_row + table[i]].
  void (*gather_rows)(const float* in, std::ptrdiff_t in_row, const std::ptrdiff_t* table,
                      float* out, std::ptrdiff_t out_row, std::ptrdiff_t rows, std::ptrdiff_t n);
};

}  // namespace convprim::kernels
