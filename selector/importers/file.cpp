// See file.hpp.
#include "selector/importers/file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "convprim/error.hpp"

namespace convprim {

std::string read_file(const std::string& path, std::size_t limit) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    throw Error(fmt::format("{}: this is a folder, not a file; name the file in it.", path));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw Error(fmt::format("{}: cannot be read ({}); check the name and its permissions.", path,
                            std::strerror(errno)));
  }
  std::string bytes;
  // Growing by doubling would touch three times the memory. What is no plain file has no size.
  const std::uintmax_t size = std::filesystem::file_size(path, code);
  if (!code) bytes.reserve(static_cast<std::size_t>(std::min<std::uintmax_t>(size, limit)));
  std::string chunk(std::size_t{1} << 20, '\0');
  while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || in.gcount() > 0) {
    bytes.append(chunk, 0, static_cast<std::size_t>(in.gcount()));
    if (bytes.size() > limit) {
      throw Error(fmt::format("{}: larger than {} MiB, which no such file is; check the name.",
                              path, limit >> 20));
    }
  }
  if (in.bad()) throw Error(fmt::format("{}: reading failed ({}).", path, std::strerror(errno)));
  return bytes;
}

Content content_of(std::string_view bytes) {
  if (bytes.starts_with("\x89HDF\r\n")) return Content::hdf5;
  const std::string_view head = bytes.substr(0, std::size_t{1} << 16);
  // Text has no control characters beside tabs and line ends; bytes from 128 on are UTF-8 or GBK.
  const bool control = std::any_of(head.begin(), head.end(), [](char c) {
    const auto u = static_cast<unsigned char>(c);
    return u < 32 && u != '\t' && u != '\n' && u != '\r' && u != '\f' && u != '\v';
  });
  if (control || bytes.find('\0') != std::string_view::npos) return Content::binary;
  if (bytes.starts_with("\xef\xbb\xbf")) bytes.remove_prefix(3);
  while (true) {
    const std::size_t start = bytes.find_first_not_of(" \t\r\n\f\v");
    if (start == std::string_view::npos) return Content::empty;
    bytes.remove_prefix(start);
    if (bytes[0] != '#') break;
    bytes.remove_prefix(std::min(bytes.size(), bytes.find('\n')));
  }
  if (bytes[0] == '<') return Content::html;
  if (bytes[0] == '{' || bytes[0] == '[') return Content::json;
  return Content::text;
}

std::string_view line_of(std::string_view text, int line) {
  while (--line > 0) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find_first_of("\r\n"));
}

}  // namespace convprim
