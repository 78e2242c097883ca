// ONNX tensors as constants.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "selector/convprim_onnx.pb.h"
#include "selector/importers/onnx.hpp"

namespace convprim::onnx {

/// The values of a tensor; `file` is the model's, for messages and for data that lies beside it.
/// `lifted` are the raw data that were taken out of the model, see lift.hpp. Throws Error.
Constant to_constant(const TensorProto& tensor, const std::string& file,
                     std::span<const std::string_view> lifted = {});

}  // namespace convprim::onnx
