// Files as bytes, with messages that say what is wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace convprim {

/// What was read from a file.
struct FileBytes {
  std::unique_ptr<char[]> memory;
  std::size_t size = 0;
  operator std::string_view() const { return {memory.get(), size}; }
};

/// The whole file. Throws Error if it cannot be read or is larger than `limit` bytes.
FileBytes read_file(const std::string& path, std::size_t limit);

/// No more than `length` bytes of a file, from `offset` on; none if it ends before. Throws Error if
/// it cannot be read.
FileBytes read_part(const std::string& path, std::uint64_t offset, std::uint64_t length);

/// What the bytes of a file look like.
enum class Content { empty, text, html, json, hdf5, binary };
Content content_of(std::string_view bytes);

/// The 1-based line of text.
std::string_view line_of(std::string_view text, int line);

}  // namespace convprim
