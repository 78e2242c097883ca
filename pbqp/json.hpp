// A small strict JSON reader (RFC 8259) and what is needed to write JSON.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pbqp::detail {

struct JsonError : std::runtime_error {
  JsonError(std::size_t at, const std::string& message) : std::runtime_error(message), line(at) {}
  std::size_t line;
};

struct Json {
  struct Member;
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  std::size_t line = 0;
  bool boolean = false;
  double number = 0;
  std::string string;
  std::vector<Json> items;      // array
  std::vector<Member> members;  // object

  /// The member of that name, or null.
  const Json* find(std::string_view name) const;
};

struct Json::Member {
  std::string name;
  Json value;
};

/// Parses a whole text. Throws JsonError; nesting beyond 32 is an error, so are duplicate names.
Json parse_json(std::string_view text);

/// A quoted JSON string.
std::string quote(std::string_view s);

/// The shortest text that reads back as the same double.
std::string shortest(double x);

}  // namespace pbqp::detail
