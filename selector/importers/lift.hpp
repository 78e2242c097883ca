// Large values taken out of a protobuf message before it is parsed: parsing would copy them, and
// weights are all of a file but some kilobytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace convprim {

/// A field to descend into, from one kind of message to another; or to take, if `to` is kTaken.
struct LiftField {
  static constexpr int kTaken = -1;
  int message = 0;  ///< 0: the outermost
  std::uint32_t field = 0;
  int to = kTaken;
};

/// The field of a message whose value was taken: its index in Lifted::values. In both schemas.
inline constexpr std::uint32_t kLiftedField = 1000;

/// A message without its large values.
struct Lifted {
  std::string message;                   ///< to be parsed
  std::vector<std::string_view> values;  ///< in the original bytes
};

/// Takes out the values of the fields that the table names. Nothing if the bytes are no message;
/// a message that has such a field twice, or kLiftedField already, is left as it is.
std::optional<Lifted> lift(std::string_view bytes, std::span<const LiftField> table);

}  // namespace convprim
