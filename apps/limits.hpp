// What the options that restrict a plan say: bytes and forced layers.
#pragma once

#include <cstddef>
#include <string>

#include "convprim/select.hpp"

namespace convprim {

/// Bytes as an option gives them: a number, perhaps followed by K, M or G (powers of 1024). Throws
/// Error naming the option.
std::size_t parse_bytes(const std::string& option, const std::string& text);

/// "LAYER=PRIMITIVE"; a layer's name may hold further '='. Throws Error.
Forced parse_force(const std::string& text);

}  // namespace convprim
