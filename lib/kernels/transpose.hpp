// Transposes and strided copies: what conversions between layouts are made of.
#pragma once

#include <cstddef>

namespace convprim::kernels {

/// Offsets and leading dimensions count floats. Nothing outside the named elements is written;
/// nothing beyond the last named element is read.
struct TransposeKernels {
  /// dst[j*dst_ld + i] = src[i*src_ld + j] for i < rows, j < cols.
  void (*transpose)(std::ptrdiff_t rows, std::ptrdiff_t cols, const float* src,
                    std::ptrdiff_t src_ld, float* dst, std::ptrdiff_t dst_ld);
  /// The same for long destination rows whose lines share few sets of a cache. The next `rows` of
  /// the source are fetched, for the next call.
  void (*to_planes)(std::ptrdiff_t rows, std::ptrdiff_t cols, const float* src,
                    std::ptrdiff_t src_ld, float* dst, std::ptrdiff_t dst_ld);
  /// Planes to a channel block: dst[j*block + i] = src[i*src_ld + j] for i < valid and 0 for
  /// valid <= i < block, j < cols. block is 8 or 16.
  void (*to_block)(std::ptrdiff_t block, std::ptrdiff_t valid, std::ptrdiff_t cols,
                   const float* src, std::ptrdiff_t src_ld, float* dst);
  /// A channel block to planes: dst[i*dst_ld + j] = src[j*block + i] for i < valid, j < cols.
  void (*from_block)(std::ptrdiff_t block, std::ptrdiff_t valid, std::ptrdiff_t cols,
                     const float* src, float* dst, std::ptrdiff_t dst_ld);
  /// Rows of n floats from one stride to another: dst[i*dst_ld + j] = src[i*src_ld + j].
  void (*copy_rows)(std::ptrdiff_t rows, std::ptrdiff_t n, const float* src, std::ptrdiff_t src_ld,
                    float* dst, std::ptrdiff_t dst_ld);
  /// The same for the rows of several planes.
  void (*copy_planes)(std::ptrdiff_t planes, std::ptrdiff_t rows, std::ptrdiff_t n,
                      const float* src, std::ptrdiff_t src_plane, std::ptrdiff_t src_ld, float* dst,
                      std::ptrdiff_t dst_plane, std::ptrdiff_t dst_ld);
  /// Rows of up to 16 floats, `valid` from the source and zeros up to `lanes`; valid is 0 to lanes,
  /// lanes is 8 or 16.
  void (*copy_lanes)(std::ptrdiff_t rows, std::ptrdiff_t valid, std::ptrdiff_t lanes,
                     const float* src, std::ptrdiff_t src_ld, float* dst, std::ptrdiff_t dst_ld);
  /// Two blocks of 8 side by side: dst[i*dst_ld + j] = first[i*8 + j], dst[i*dst_ld + 8 + j] =
  /// second[i*8 + j] for i < rows, j < 8.
  void (*join_halves)(std::ptrdiff_t rows, const float* first, const float* second, float* dst,
                      std::ptrdiff_t dst_ld);
  /// And back.
  void (*split_halves)(std::ptrdiff_t rows, const float* src, std::ptrdiff_t src_ld, float* first,
                       float* second);
};

}  // namespace convprim::kernels
