#include "json.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <utility>

namespace pbqp::detail {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json document() {
    Json j = value(0);
    space();
    if (at_ != text_.size()) fail("something follows the end of the JSON text");
    return j;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw JsonError(line_, message); }
  bool done() const { return at_ == text_.size(); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void space() {
    while (!done() && (peek() == ' ' || peek() == '\t' || peek() == '\r' || peek() == '\n')) {
      if (peek() == '\n') ++line_;
      ++at_;
    }
  }
  void expect(char c) {
    if (done() || peek() != c) {
      std::string message = "expected '";
      message += c;
      message += done() ? "' but the text ends" : "'";
      fail(message);
    }
    ++at_;
  }
  bool word(std::string_view w) {
    if (text_.substr(at_, w.size()) != w) return false;
    at_ += w.size();
    return true;
  }

  Json value(int depth) {
    if (depth > 32) fail("nested too deeply");
    space();
    Json j;
    j.line = line_;
    switch (peek()) {
      case '{':
        j.kind = Json::Kind::kObject;
        object(j, depth);
        break;
      case '[':
        j.kind = Json::Kind::kArray;
        array(j, depth);
        break;
      case '"':
        j.kind = Json::Kind::kString;
        j.string = string();
        break;
      default:
        if (word("true")) {
          j.kind = Json::Kind::kBool;
          j.boolean = true;
        } else if (word("false")) {
          j.kind = Json::Kind::kBool;
        } else if (!word("null")) {
          j.kind = Json::Kind::kNumber;
          j.number = number();
        }
    }
    return j;
  }

  void object(Json& j, int depth) {
    expect('{');
    space();
    if (peek() == '}') {
      ++at_;
      return;
    }
    while (true) {
      space();
      if (peek() != '"') fail("expected a member name in double quotes");
      std::string name = string();
      if (j.find(name) != nullptr) fail("the member \"" + name + "\" stands there twice");
      space();
      expect(':');
      Json member = value(depth + 1);
      j.members.push_back({std::move(name), std::move(member)});
      space();
      if (peek() == ',') {
        ++at_;
        continue;
      }
      expect('}');
      return;
    }
  }

  void array(Json& j, int depth) {
    expect('[');
    space();
    if (peek() == ']') {
      ++at_;
      return;
    }
    while (true) {
      j.items.push_back(value(depth + 1));
      space();
      if (peek() == ',') {
        ++at_;
        continue;
      }
      expect(']');
      return;
    }
  }

  unsigned hex4() {
    unsigned x = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      x <<= 4;
      if (c >= '0' && c <= '9') {
        x |= static_cast<unsigned>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        x |= static_cast<unsigned>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        x |= static_cast<unsigned>(c - 'A' + 10);
      } else {
        fail("\\u needs four hexadecimal digits");
      }
    }
    return x;
  }

  static void utf8(std::string& s, unsigned x) {
    if (x < 0x80) {
      s += static_cast<char>(x);
    } else if (x < 0x800) {
      s += static_cast<char>(0xc0 | x >> 6);
      s += static_cast<char>(0x80 | (x & 63));
    } else if (x < 0x10000) {
      s += static_cast<char>(0xe0 | x >> 12);
      s += static_cast<char>(0x80 | (x >> 6 & 63));
      s += static_cast<char>(0x80 | (x & 63));
    } else {
      s += static_cast<char>(0xf0 | x >> 18);
      s += static_cast<char>(0x80 | (x >> 12 & 63));
      s += static_cast<char>(0x80 | (x >> 6 & 63));
      s += static_cast<char>(0x80 | (x & 63));
    }
  }

  std::string string() {
    expect('"');
    std::string s;
    while (true) {
      if (done()) fail("a string does not end");
      const char c = text_[at_++];
      if (c == '"') return s;
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character stands in a string");
      if (c != '\\') {
        s += c;
        continue;
      }
      if (done()) fail("a string does not end");
      const char e = text_[at_++];
      constexpr std::string_view kNames = "\"\\/bfnrt";
      constexpr std::string_view kChars = "\"\\/\b\f\n\r\t";
      if (const auto i = kNames.find(e); i != std::string_view::npos) {
        s += kChars[i];
      } else if (e == 'u') {
        unsigned x = hex4();
        if (x >= 0xd800 && x < 0xdc00) {
          if (!word("\\u")) fail("half of a surrogate pair");
          const unsigned low = hex4();
          if (low < 0xdc00 || low > 0xdfff) fail("half of a surrogate pair");
          x = 0x10000 + ((x - 0xd800) << 10) + (low - 0xdc00);
        } else if (x >= 0xdc00 && x < 0xe000) {
          fail("half of a surrogate pair");
        }
        utf8(s, x);
      } else {
        fail("an unknown escape in a string");
      }
    }
  }

  double number() {
    const std::size_t start = at_;
    const auto digit = [&] { return peek() >= '0' && peek() <= '9'; };
    if (peek() == '-') ++at_;
    if (!digit()) fail(done() ? "the text ends where a value should be" : "expected a value");
    if (peek() == '0') {
      ++at_;
      if (digit()) fail("a number must not start with 0");
    }
    while (digit()) ++at_;
    if (peek() == '.') {
      ++at_;
      if (!digit()) fail("a digit must follow the decimal point");
      while (digit()) ++at_;
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!digit()) fail("a digit must follow the exponent sign");
      while (digit()) ++at_;
    }
    double x = 0;
    const auto r = std::from_chars(text_.data() + start, text_.data() + at_, x);
    if (r.ec == std::errc::result_out_of_range) fail("a number is out of the range of a double");
    return x;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
};

}  // namespace

const Json* Json::find(std::string_view name) const {
  for (const Member& m : members) {
    if (m.name == name) return &m.value;
  }
  return nullptr;
}

Json parse_json(std::string_view text) { return Parser(text).document(); }

std::string quote(std::string_view s) {
  std::string r = "\"";
  for (const char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      r += '\\';
      r += c;
    } else if (u < 0x20) {
      r += "\\u00";
      r += "0123456789abcdef"[u >> 4];
      r += "0123456789abcdef"[u & 15];
    } else {
      r += c;
    }
  }
  r += '"';
  return r;
}

std::string shortest(double x) {
  char buffer[32];
  const auto r = std::to_chars(buffer, buffer + sizeof buffer, x);
  return std::string(buffer, r.ptr);
}

}  // namespace pbqp::detail
