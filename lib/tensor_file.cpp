// The npy format: the bytes 93 "NUMPY", a version (major, minor), the length of the header (2 bytes
// in version 1, 4 after), and the header: a Python dictionary such as
//   {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 224, 224), }
// padded with spaces so that the values behind it are aligned to 64 bytes.
// numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include "convprim/tensor_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "convprim/error.hpp"

namespace convprim {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kLongestHeader = 1 << 16;
constexpr Index kMostValues = Index{1} << 40;

/// What a header says.
struct Header {
  std::string type;
  bool fortran = false;
  std::vector<Index> dims;
};

/// Reads a header's dictionary; nothing if it is not one of NumPy's.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : rest_(text) {}

  std::optional<Header> parse() {
    Header header;
    int seen = 0;  // a bit for each key
    if (!eat('{')) return {};
    while (!eat('}')) {
      const auto key = quoted();
      if (!key || !eat(':')) return {};
      int bit = 0;
      if (*key == "descr") {
        const auto type = quoted();
        if (!type) return {};
        header.type = *type;
        bit = 1;
      } else if (*key == "fortran_order") {
        header.fortran = word("True");
        if (!header.fortran && !word("False")) return {};
        bit = 2;
      } else if (*key == "shape") {
        if (!tuple(header.dims)) return {};
        bit = 4;
      }
      if (bit == 0 || (seen & bit) != 0) return {};
      seen |= bit;
      if (!eat(',') && !rest_.starts_with('}')) return {};
    }
    skip();
    return seen == 7 && rest_.empty() ? std::optional(header) : std::nullopt;
  }

 private:
  void skip() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool eat(char c) {
    skip();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    skip();
    return true;
  }
  bool word(std::string_view w) {
    if (!rest_.starts_with(w)) return false;
    rest_.remove_prefix(w.size());
    skip();
    return true;
  }
  std::optional<std::string> quoted() {
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return {};
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return {};
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    skip();
    return text;
  }
  bool tuple(std::vector<Index>& dims) {
    if (!eat('(')) return false;
    while (!eat(')')) {
      Index value = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (error != std::errc() || value < 0) return false;
      dims.push_back(value);
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      word("L");  // Python 2 wrote long integers so
      skip();
      if (!eat(',') && !rest_.starts_with(')')) return false;
    }
    return true;
  }

  std::string_view rest_;
};

std::ifstream open(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw Error(fmt::format("{}: is a folder; name a file", path));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(fmt::format("{}: cannot be opened; is the name right?", path));
  return file;
}

/// Up to so many bytes; fewer at the file's end. Nothing is allocated before it is there.
std::string read_bytes(std::istream& file, std::size_t count) {
  constexpr std::size_t kChunk = 1 << 20;
  std::string bytes;
  while (bytes.size() < count && file) {
    const std::size_t begin = bytes.size(), want = std::min(kChunk, count - begin);
    bytes.resize(begin + want);
    file.read(bytes.data() + begin, static_cast<std::streamsize>(want));
    bytes.resize(begin + static_cast<std::size_t>(file.gcount()));
  }
  return bytes;
}

/// The rest of a file, which must be `count` values.
std::vector<float> read_values(std::istream& file, const std::string& path, Index count,
                               const std::string& shape) {
  constexpr Index kChunk = 1 << 20;
  std::vector<float> values;
  for (Index done = 0; done < count;) {
    const Index want = std::min(kChunk, count - done);
    values.resize(static_cast<std::size_t>(done + want));
    file.read(reinterpret_cast<char*>(values.data() + done), want * Index{sizeof(float)});
    const Index got = file.gcount();
    if (got < want * Index{sizeof(float)}) {
      throw Error(fmt::format("{}: ends after {} bytes of values, but shape {} takes {}", path,
                              done * Index{sizeof(float)} + got, shape,
                              count * Index{sizeof(float)}));
    }
    done += want;
  }
  if (file.peek() != std::char_traits<char>::eof()) {
    throw Error(fmt::format("{}: holds more than the {} values of shape {}", path, count, shape));
  }
  return values;
}

Header read_header(std::istream& file, const std::string& path) {
  const auto fail = [&](std::string_view why) {
    throw Error(fmt::format("{}: is no npy file: {}", path, why));
  };
  const std::string start = read_bytes(file, kMagic.size() + 2);
  if (!start.starts_with(kMagic)) fail("it does not start with the npy format's mark");
  if (start.size() < kMagic.size() + 2) fail("it ends within its header");
  const int version = start[kMagic.size()];
  if (version < 1 || version > 3) fail(fmt::format("format version {} is unknown", version));
  const std::string bytes = read_bytes(file, version == 1 ? 2 : 4);
  std::size_t length = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(bytes[i]);
  if (length > kLongestHeader) fail(fmt::format("its header of {} bytes is too long", length));
  const std::string text = read_bytes(file, length);
  if (bytes.size() != (version == 1 ? 2 : 4) || text.size() != length)
    fail("it ends within its header");
  auto header = HeaderParser(text).parse();
  if (!header) fail("its header is not a dictionary of descr, fortran_order and shape");
  return *header;
}

/// Extents without those of 1: what an npy file must share with a shape.
std::vector<Index> squeezed(std::span<const Index> dims) {
  std::vector<Index> all(dims.begin(), dims.end());
  std::erase(all, 1);
  return all;
}

/// Reads header and values of an npy file; with `wanted`, only if the shape fits it.
FileTensor read(const std::string& path, const Shape* wanted) {
  std::ifstream file = open(path);
  const Header header = read_header(file, path);
  if (header.type != "<f4") {
    throw Error(
        fmt::format("{}: holds values of type '{}'; save float32, '<f4': array.astype(\"<f4\")",
                    path, header.type));
  }
  const std::string shape = shape_text(header.dims);
  if (header.fortran) {
    throw Error(fmt::format(
        "{}: holds its values in Fortran order; save numpy.ascontiguousarray(array)", path));
  }
  if (wanted != nullptr) {
    const std::array dims = {wanted->n, wanted->c, wanted->h, wanted->w};
    if (squeezed(dims) != squeezed(header.dims)) {
      throw Error(
          fmt::format("{}: has shape {}, but the network takes {}", path, shape, shape_text(dims)));
    }
  }
  Index count = 1;
  for (Index d : header.dims) {
    if (d > 0 && count > kMostValues / d)
      throw Error(fmt::format("{}: shape {} is too large", path, shape));
    count *= d;
  }
  return {header.dims, read_values(file, path, count, shape)};
}

}  // namespace

std::vector<Index> file_dims(const Shape& shape, int rank) {
  std::vector<Index> dims = {shape.n, shape.c, shape.h, shape.w};
  while (static_cast<int>(dims.size()) > std::max(rank, 1) && dims.back() == 1) dims.pop_back();
  return dims;
}

std::string shape_text(std::span<const Index> dims) {
  return fmt::format("({}{})", fmt::join(dims, ", "), dims.size() == 1 ? "," : "");
}

FileTensor read_npy(const std::string& path) { return read(path, nullptr); }

std::vector<float> read_tensor(const std::string& path, const Shape& shape) {
  if (path.ends_with(".npy")) return read(path, &shape).values;
  std::ifstream file = open(path);
  return read_values(file, path, shape.count(),
                     shape_text(std::array{shape.n, shape.c, shape.h, shape.w}));
}

std::string npy_bytes(std::span<const Index> dims, const float* values) {
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", shape_text(dims));
  const std::size_t before = kMagic.size() + 4;
  header.resize((before + header.size() + 1 + 63) / 64 * 64 - before - 1, ' ');
  header += '\n';
  std::string bytes(kMagic);
  bytes +=
      {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  bytes += header;
  Index count = 1;
  for (Index d : dims) count *= d;
  bytes.append(reinterpret_cast<const char*>(values),
               static_cast<std::size_t>(count) * sizeof(float));
  return bytes;
}

void write_npy(const std::string& path, std::span<const Index> dims, const float* values) {
  const std::string partial = path + ".part";
  std::ofstream file(partial, std::ios::binary);
  file << npy_bytes(dims, values);
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(partial, path, error);
  if (!file || error) {
    std::filesystem::remove(partial, error);
    throw Error(fmt::format("{}: cannot be written; choose another file", path));
  }
}

std::string safe_file_name(std::string_view name) {
  constexpr std::size_t kLongest = 100;
  std::string safe(name.substr(0, kLongest));
  for (char& c : safe) {
    const auto u = static_cast<unsigned char>(c);
    if (u >= 128 || (std::isalnum(u) == 0 && c != '.' && c != '_' && c != '-')) c = '_';
  }
  if (safe.empty() || safe[0] == '.' || safe[0] == '-') safe.insert(0, "_");
  return safe;
}

std::vector<std::string> npy_file_names(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  std::set<std::string> taken;
  for (const std::string& name : names) {
    const std::string safe = safe_file_name(name);
    std::string file = safe;
    for (int i = 2; !taken.insert(file).second; ++i) file = fmt::format("{}_{}", safe, i);
    files.push_back(file + ".npy");
  }
  return files;
}

}  // namespace convprim
