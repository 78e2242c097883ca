#include "apps/limits.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "convprim/error.hpp"

namespace convprim {

std::size_t parse_bytes(const std::string& option, const std::string& text) {
  std::size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  int shift = stop == end ? 0 : -1;
  if (end - stop == 1) {
    switch (*stop) {
      case 'k':
      case 'K':
        shift = 10;
        break;
      case 'm':
      case 'M':
        shift = 20;
        break;
      case 'g':
      case 'G':
        shift = 30;
        break;
      default:
        break;
    }
  }
  if (error != std::errc() || shift < 0 ||
      value > (std::numeric_limits<std::size_t>::max() >> shift)) {
    throw Error(fmt::format("{} {}: give bytes, such as 1000000, 512K, 64M or 2G", option, text));
  }
  return value << shift;
}

Forced parse_force(const std::string& text) {
  const auto split = text.rfind('=');
  if (split == std::string::npos || split == 0 || split + 1 == text.size()) {
    throw Error(fmt::format("--force {}: give LAYER=PRIMITIVE, such as conv1=direct-sum2d", text));
  }
  return {text.substr(0, split), text.substr(split + 1)};
}

}  // namespace convprim
