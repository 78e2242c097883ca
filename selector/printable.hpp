// Text from files, made fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace convprim {

/// The text with control characters, line breaks among them, and bytes that are no UTF-8 as \\xNN:
/// names in network files may hold anything, and a terminal obeys some of it.
std::string printable(std::string_view text);

}  // namespace convprim
