// See lift.hpp. The wire format: each field is a key, field number times 8 plus type, and a value:
// a varint (type 0), 8 bytes (1), a length and so many bytes (2), 4 bytes (5).
#include "selector/importers/lift.hpp"

#include <algorithm>

namespace convprim {
namespace {

/// Takes a varint off the front of the bytes.
std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < std::min<std::size_t>(bytes.size(), 10); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    value |= static_cast<std::uint64_t>(byte & 127) << (7 * i);
    if (byte < 128) {
      bytes.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

void add_varint(std::string& out, std::uint64_t value) {
  for (; value >= 128; value >>= 7) out += static_cast<char>((value & 127) | 128);
  out += static_cast<char>(value);
}

/// One field, taken off the front of a message.
struct Field {
  std::uint32_t number = 0;
  bool delimited = false;
  std::string_view whole;  // with its key
  std::string_view value;  // of a delimited one
};

std::optional<Field> take_field(std::string_view& bytes) {
  const std::string_view start = bytes;
  const auto key = take_varint(bytes);
  if (!key || *key >> 32 != 0) return std::nullopt;
  Field field;
  field.number = static_cast<std::uint32_t>(*key >> 3);
  field.delimited = (*key & 7) == 2;
  std::uint64_t length = 0;
  switch (*key & 7) {
    case 0:
      if (!take_varint(bytes)) return std::nullopt;
      break;
    case 1:
      length = 8;
      break;
    case 2:
      if (const auto l = take_varint(bytes)) {
        length = *l;
        break;
      }
      return std::nullopt;
    case 5:
      length = 4;
      break;
    default:  // groups, which no schema here has
      return std::nullopt;
  }
  if (length > bytes.size()) return std::nullopt;
  field.value = bytes.substr(0, length);
  bytes.remove_prefix(length);
  field.whole = start.substr(0, start.size() - bytes.size());
  return field;
}

/// Appends a message of that kind to `out`, its values to `values`.
bool copy(std::string_view bytes, int message, std::span<const LiftField> table, Lifted& out) {
  const std::string_view all = bytes;
  const std::size_t begin = out.message.size(), first = out.values.size();
  bool taken = false;
  while (!bytes.empty()) {
    const auto field = take_field(bytes);
    if (!field) return false;
    const auto rule = std::find_if(table.begin(), table.end(), [&](const LiftField& f) {
      return f.message == message && f.field == field->number;
    });
    const bool take = rule != table.end() && rule->to == LiftField::kTaken;
    if (field->number == kLiftedField || (take && (taken || !field->delimited))) {
      out.message.resize(begin);
      out.values.resize(first);
      out.message += all;
      return true;
    }
    if (take) {
      taken = true;
      add_varint(out.message, std::uint64_t{kLiftedField} << 3);
      add_varint(out.message, out.values.size());
      out.values.push_back(field->value);
    } else if (rule != table.end() && field->delimited) {
      Lifted inner;
      inner.values = std::move(out.values);
      const bool read = copy(field->value, rule->to, table, inner);
      out.values = std::move(inner.values);
      if (!read) return false;
      add_varint(out.message, std::uint64_t{field->number} << 3 | 2);
      add_varint(out.message, inner.message.size());
      out.message += inner.message;
    } else {
      out.message += field->whole;
    }
  }
  return true;
}

}  // namespace

std::optional<Lifted> lift(std::string_view bytes, std::span<const LiftField> table) {
  Lifted out;
  if (!copy(bytes, 0, table, out)) return std::nullopt;
  return out;
}

}  // namespace convprim
