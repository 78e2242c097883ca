// Tensors in files: NumPy's npy format (float32, C order) and raw values.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convprim/layout.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// A tensor as an npy file holds it.
struct FileTensor {
  std::vector<Index> dims;    ///< extents, outermost first; empty: a single number
  std::vector<float> values;  ///< the innermost extent runs fastest (C order)
};

/// Reads an npy file of format 1, 2 or 3 that holds little-endian float32 in C order. Memory grows
/// with what the file really holds, whatever its header says. Throws Error with one sentence if the
/// file cannot be read, is no npy file, holds another type or order, or more or fewer values than
/// its shape asks for.
FileTensor read_npy(const std::string& path);

/// The values of a tensor of that shape, in (n, c, h, w) order: from an npy file if the name ends
/// in .npy, else from a file of exactly so many raw little-endian float32 values. An npy file may
/// leave out or add extents of 1: (3, 224, 224) fits a batch of one image. Throws Error with both
/// shapes if they do not fit, and as read_npy().
std::vector<float> read_tensor(const std::string& path, const Shape& shape);

/// The bytes of an npy file: format 1.0, float32, C order. `values` holds the product of the
/// extents.
std::string npy_bytes(std::span<const Index> dims, const float* values);

/// The same, written to a file: whole or not at all. Throws Error if it cannot be written.
void write_npy(const std::string& path, std::span<const Index> dims, const float* values);

/// The extents of a tensor with `rank` axes, 1 to 4, or more where further ones are not 1.
std::vector<Index> file_dims(const Shape& shape, int rank);

/// A shape as NumPy writes it: "(1, 3, 224, 224)".
std::string shape_text(std::span<const Index> dims);

/// A file name made of letters, digits, '.', '_', '-' and, instead of all others, '_'; never empty,
/// hidden or longer than 100 characters. Different names may become the same.
std::string safe_file_name(std::string_view name);

/// Names of npy files for tensors of those names, all different: "prob.npy", "prob_2.npy".
std::vector<std::string> npy_file_names(const std::vector<std::string>& names);

}  // namespace convprim
#pragma GCC visibility pop
