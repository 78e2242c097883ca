// See file.hpp.
#include "selector/importers/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "convprim/error.hpp"

namespace convprim {

namespace {

/// An open file.
class Input {
 public:
  explicit Input(const std::string& path) : path_(path) {
    std::error_code code;
    if (std::filesystem::is_directory(path, code)) {
      throw Error(fmt::format("{}: this is a folder, not a file; name the file in it.", path));
    }
    file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) {
      throw Error(fmt::format("{}: cannot be read ({}); check the name and its permissions.", path,
                              std::strerror(errno)));
    }
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  ~Input() { close(file_); }

  /// Bytes that it holds; 0 if it is no plain file.
  std::uint64_t size() const {
    struct stat status {};
    const bool plain = fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
    return plain ? static_cast<std::uint64_t>(status.st_size) : 0;
  }

  void seek(std::uint64_t offset) {
    if (lseek(file_, static_cast<off_t>(offset), SEEK_SET) < 0) fail();
  }

  /// Reads into memory of `count` bytes until that is full or the file ends; returns how many.
  std::size_t read(char* to, std::size_t count) {
    std::size_t got = 0;
    while (got < count) {
      const ssize_t n = ::read(file_, to + got, count - got);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail();
      if (n == 0) break;
      got += static_cast<std::size_t>(n);
    }
    return got;
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(fmt::format("{}: reading failed ({}).", path_, std::strerror(errno)));
  }
  const std::string& path_;
  int file_ = -1;
};

/// Reads what follows, up to `most` bytes, into memory for `expected` that grows where the file
/// does.
FileBytes read_all(Input& in, std::uint64_t expected, std::uint64_t most) {
  FileBytes bytes;
  std::uint64_t room = std::min(expected + 1, most);  // one more tells that the file has ended
  bytes.memory = std::make_unique_for_overwrite<char[]>(room);
  while (true) {
    bytes.size += in.read(bytes.memory.get() + bytes.size, room - bytes.size);
    if (bytes.size < room || room == most) return bytes;
    room = std::min(most, std::max<std::uint64_t>(2 * room, 1 << 20));
    auto larger = std::make_unique_for_overwrite<char[]>(room);
    std::memcpy(larger.get(), bytes.memory.get(), bytes.size);
    bytes.memory = std::move(larger);
  }
}

}  // namespace

FileBytes read_file(const std::string& path, std::size_t limit) {
  Input in(path);
  FileBytes bytes = read_all(in, in.size(), std::uint64_t{limit} + 1);
  if (bytes.size > limit) {
    throw Error(fmt::format("{}: larger than {} MiB, which no such file is; check the name.", path,
                            limit >> 20));
  }
  return bytes;
}

FileBytes read_part(const std::string& path, std::uint64_t offset, std::uint64_t length) {
  Input in(path);
  const std::uint64_t size = in.size();
  if (offset >= size) return {};
  in.seek(offset);
  return read_all(in, std::min(size - offset, length), length);
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
