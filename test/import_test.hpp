// What the tests of the importers share: inputs by formula, errors, files, and the protobuf wire
// format written by hand, so that tests share no code with the importers.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "convprim/network.hpp"

namespace convprim::test {

/// The input that the README of the shared expected outputs defines.
inline std::vector<float> formula_input(Index count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i * 7919 % 1009) / 1009.0F - 0.5F;
  }
  return x;
}

/// The largest difference over the largest value that was wanted; infinite if the sizes differ.
template <class A, class B>
double relative_error(const std::vector<A>& got, const std::vector<B>& want) {
  double largest = 1e-30;
  double error = got.size() == want.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(want[i])));
    error = std::max(error, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  }
  return error / largest;
}

inline const Shape& shape_of(const Network& net, TensorId t) {
  return net.tensors[static_cast<std::size_t>(t)].shape;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A file in the temporary folder that is removed at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes)
      : path(std::filesystem::temp_directory_path() /
             ("convprim_" + std::to_string(getpid()) + "_" + std::to_string(count_++))) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path); }
  const std::filesystem::path path;

 private:
  static inline int count_ = 0;
};

namespace wire {

inline std::string varint(std::uint64_t v) {
  std::string bytes;
  while (v >= 128) {
    bytes += static_cast<char>(v % 128 + 128);
    v /= 128;
  }
  return bytes + static_cast<char>(v);
}

/// A field of bytes, text or a message.
inline std::string field(int number, const std::string& payload) {
  return varint(static_cast<std::uint64_t>(number) * 8 + 2) + varint(payload.size()) + payload;
}

/// A field with an integer.
inline std::string number(int number, std::uint64_t v) {
  return varint(static_cast<std::uint64_t>(number) * 8) + varint(v);
}

/// Floats as their bytes: the payload of a packed field.
inline std::string packed(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace wire
}  // namespace convprim::test
