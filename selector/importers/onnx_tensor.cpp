// ONNX tensors as constants: every element type, inline, raw or in a file beside the model.
#include "selector/importers/onnx_tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "convprim/error.hpp"
#include "selector/importers/file.hpp"
#include "selector/network_infer.hpp"

namespace convprim::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "raw data is little-endian");

/// IEEE half precision to single.
float from_half(std::uint16_t h) {
  const int exponent = h >> 10 & 31;
  const int mantissa = h & 1023;
  float value = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
                : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return (h & 0x8000) != 0 ? -value : value;
}

FileBytes external_bytes(const TensorProto& tensor, const std::string& file) {
  namespace fs = std::filesystem;
  std::string location;
  std::uint64_t offset = 0;
  std::uint64_t length = UINT64_MAX;
  const auto number = [](const std::string& text) {
    std::uint64_t v = 0;
    std::from_chars(text.data(), text.data() + text.size(), v);
    return v;
  };
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = number(entry.value());
    if (entry.key() == "length") length = number(entry.value());
  }
  const fs::path relative(location);
  for (const fs::path& part : relative) {
    if (part == ".." || relative.is_absolute()) {
      throw Error(
          fmt::format("{}: tensor \"{}\" lies in \"{}\", outside the model's folder; move "
                      "the data beside the model.",
                      file, tensor.name(), location));
    }
  }
  constexpr std::uint64_t kLargest = std::uint64_t{4} << 30;
  FileBytes bytes = read_part((fs::path(file).parent_path() / relative).string(), offset,
                              std::min(length, kLargest));
  if (bytes.size == 0 && length > 0) {
    throw Error(
        fmt::format("{}: tensor \"{}\" starts behind the end of \"{}\"; is the data "
                    "complete?",
                    file, tensor.name(), location));
  }
  return bytes;
}

template <class T, class Out, class Convert>
void read_raw(std::string_view bytes, std::vector<Out>& out, Convert convert) {
  out.reserve(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + i, sizeof(T));
    out.push_back(convert(value));
  }
}

}  // namespace

Constant to_constant(const TensorProto& tensor, const std::string& file,
                     std::span<const std::string_view> lifted) {
  Constant c;
  c.dims.assign(tensor.dims().begin(), tensor.dims().end());
  std::vector<float> floats;
  const auto fail = [&](const std::string& what) {
    throw Error(fmt::format("{}: tensor \"{}\" {}.", file, tensor.name(), what));
  };
  FileBytes external;
  std::string_view bytes = tensor.raw_data();
  bool raw = tensor.has_raw_data();
  if (tensor.data_location() == 1) {
    external = external_bytes(tensor, file);
    bytes = external;
    raw = true;
  } else if (tensor.has_lifted() && tensor.lifted() < lifted.size()) {
    bytes = lifted[tensor.lifted()];
    raw = true;
  }
  const auto to_float = [](auto v) { return static_cast<float>(v); };
  const auto to_index = [](auto v) { return static_cast<Index>(v); };
  c.integer = true;
  switch (tensor.data_type()) {
    case TensorProto::FLOAT:
      c.integer = false;
      if (raw) {
        floats.resize(bytes.size() / sizeof(float));
        // No data is no pointer, which memcpy() may not be given.
        if (!floats.empty()) {
          std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
        }
      } else {
        floats.assign(tensor.float_data().begin(), tensor.float_data().end());
      }
      break;
    case TensorProto::DOUBLE:
      c.integer = false;
      if (raw) {
        read_raw<double>(bytes, floats, to_float);
      } else {
        for (const double v : tensor.double_data()) floats.push_back(static_cast<float>(v));
      }
      break;
    case TensorProto::FLOAT16:
      c.integer = false;
      if (raw) {
        read_raw<std::uint16_t>(bytes, floats, from_half);
      } else {
        for (const auto v : tensor.int32_data()) {
          floats.push_back(from_half(static_cast<std::uint16_t>(v)));
        }
      }
      break;
    case TensorProto::INT64:
      if (raw) {
        read_raw<std::int64_t>(bytes, c.ints, to_index);
      } else {
        c.ints.assign(tensor.int64_data().begin(), tensor.int64_data().end());
      }
      break;
    case TensorProto::UINT32:
    case TensorProto::UINT64:
      if (!raw) {
        c.ints.assign(tensor.uint64_data().begin(), tensor.uint64_data().end());
      } else if (tensor.data_type() == TensorProto::UINT32) {
        read_raw<std::uint32_t>(bytes, c.ints, to_index);
      } else {
        read_raw<std::uint64_t>(bytes, c.ints, to_index);
      }
      break;
    case TensorProto::INT32:
    case TensorProto::INT16:
    case TensorProto::UINT16:
    case TensorProto::INT8:
    case TensorProto::UINT8:
    case TensorProto::BOOL:
      if (!raw) {
        c.ints.assign(tensor.int32_data().begin(), tensor.int32_data().end());
      } else if (tensor.data_type() == TensorProto::INT32) {
        read_raw<std::int32_t>(bytes, c.ints, to_index);
      } else if (tensor.data_type() == TensorProto::INT16) {
        read_raw<std::int16_t>(bytes, c.ints, to_index);
      } else if (tensor.data_type() == TensorProto::UINT16) {
        read_raw<std::uint16_t>(bytes, c.ints, to_index);
      } else if (tensor.data_type() == TensorProto::INT8) {
        read_raw<std::int8_t>(bytes, c.ints, to_index);
      } else {
        read_raw<std::uint8_t>(bytes, c.ints, to_index);
      }
      break;
    default:
      fail(fmt::format("has elements of type {}, which are no numbers", tensor.data_type()));
  }
  const auto got = static_cast<Index>(c.integer ? c.ints.size() : floats.size());
  if (checked_count(c.dims) != got) {
    fail(fmt::format("is said to be of shape {} but holds {} values; the file may be incomplete",
                     c.dims.empty() ? "()" : str(std::span<const Index>(c.dims)), got));
  }
  if (!c.integer) c.floats = std::make_shared<const std::vector<float>>(std::move(floats));
  return c;
}

Index Constant::count() const { return checked_count(dims); }

Constant read_tensor(const std::string& path) {
  TensorProto tensor;
  const FileBytes bytes = read_file(path, (std::size_t{1} << 31) - 1);
  if (!tensor.ParseFromArray(bytes.memory.get(), static_cast<int>(bytes.size))) {
    throw Error(fmt::format("{}: this is no ONNX tensor.", path));
  }
  return to_constant(tensor, path);
}

}  // namespace convprim::onnx
