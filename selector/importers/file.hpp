// Files as strings, with messages that say what is wrong.
#pragma once

#include <string>
#include <string_view>

namespace convprim {

/// The whole file. Throws Error if it cannot be read or is larger than `limit` bytes.
std::string read_file(const std::string& path, std::size_t limit);

/// What the bytes of a file look like.
enum class Content { empty, text, html, json, hdf5, binary };
Content content_of(std::string_view bytes);

/// The 1-based line of text.
std::string_view line_of(std::string_view text, int line);

}  // namespace convprim
