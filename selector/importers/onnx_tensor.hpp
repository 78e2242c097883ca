// ONNX tensors as constants.
#pragma once

#include <string>

#include "selector/convprim_onnx.pb.h"
#include "selector/importers/onnx.hpp"

namespace convprim::onnx {

/// The values of a tensor; `file` is the model's, for messages and for data that lies beside it.
/// Throws Error.
Constant to_constant(const TensorProto& tensor, const std::string& file);

}  // namespace convprim::onnx
