// The ONNX importer.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convprim/import.hpp"

namespace convprim::onnx {

/// A tensor whose values the importer knows: floats, or integers (shapes, axes, indices).
struct Constant {
  std::vector<Index> dims;
  bool integer = false;
  std::vector<Index> ints;                           ///< the values, if integer
  std::shared_ptr<const std::vector<float>> floats;  ///< the values, if not
  Index count() const;
};

/// Builds the network of a model, with shapes and weights; nothing if the bytes are no model with
/// nodes. Graph inputs that a node needs at import, as weights or as a shape, are taken from
/// `parameters`; files of real networks hold them as initialisers, the standard's own tests do not.
std::optional<Network> import_model(std::string_view bytes, const std::string& file,
                                    const ImportOptions& options,
                                    const std::map<std::string, Constant>& parameters = {});

/// The graph inputs that are no initialisers, in the model's order.
std::vector<std::string> input_names(std::string_view bytes);

/// Reads one tensor in a file of its own, as the standard's tests have them. Throws Error, also for
/// element types other than numbers.
Constant read_tensor(const std::string& path);

}  // namespace convprim::onnx
