// Shape inference for one operation, and words for messages: shared by infer_shapes(), the
// importers and the passes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "convprim/network.hpp"

namespace convprim {

/// What follows from an operation and the shapes of its inputs.
struct Inferred {
  std::vector<Shape> outputs;
  std::vector<std::vector<Index>> blobs;  ///< dims of each blob, as the operation reads it
};

/// Shapes of the outputs and blobs of an operation whose inputs are all known. `blobs` are those it
/// has: they choose between forms (a slope for all or for each channel). Throws Error with one
/// clause that names the extents that do not fit, without layer or file.
Inferred infer(const Op& op, std::span<const Shape> inputs, std::size_t outputs,
               std::span<const Blob> blobs);

/// `file:line: layer "name" (Type)`, the beginning of a message; parts that are not known are left
/// out.
std::string place(const Network& net, const Layer& layer);

/// "1x3x224x224".
std::string str(const Shape& s);

/// "32x3x3x3".
std::string str(std::span<const Index> dims);

/// Elements that a tensor or blob may have at most: what is larger comes from a broken file.
inline constexpr Index kMaxElements = Index{1} << 40;

/// The product of the dims, or -1 if one is negative or the product is kMaxElements or more.
Index checked_count(std::span<const Index> dims);

}  // namespace convprim
