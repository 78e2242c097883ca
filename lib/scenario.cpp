// Problem strings in benchdnn's grammar: https://github.com/oneapi-src/oneDNN (tests/benchdnn/doc),
// "Convolution problem descriptor".
#include "convprim/scenario.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <map>

#include "convprim/error.hpp"

namespace convprim {
namespace {

constexpr Index kMaxExtent = Index{1} << 31;

/// The tokens of a problem string by key; a name n"..." is skipped.
std::map<std::string, Index, std::less<>> tokens(std::string_view text) {
  static constexpr std::string_view kKeys[] = {"mb", "g",  "ic", "id", "ih", "iw", "oc", "od",
                                               "oh", "ow", "kd", "kh", "kw", "sd", "sh", "sw",
                                               "pd", "ph", "pw", "dd", "dh", "dw"};
  std::map<std::string, Index, std::less<>> found;
  std::size_t at = 0;
  const auto fail = [&](std::string_view what) {
    throw Error(fmt::format("problem string '{}': {} at position {}", text, what, at + 1));
  };
  while (at < text.size()) {
    if (text[at] == '_') {
      ++at;
      continue;
    }
    if (text[at] == 'n') {  // the name runs to the end
      if (at + 1 >= text.size() || text[at + 1] != '"') fail("expected n\"name\"");
      if (text.back() != '"' || at + 2 >= text.size()) fail("the name's closing quote is missing");
      break;
    }
    std::string_view key;
    for (std::string_view candidate : kKeys) {
      if (text.substr(at).starts_with(candidate) && candidate.size() > key.size()) key = candidate;
    }
    if (key.empty())
      fail("expected mb, g, ic, ih, iw, oc, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw or n");
    Index value = 0;
    const char* first = text.data() + at + key.size();
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(first, last, value);
    if (error != std::errc() || value < 0 || value > kMaxExtent) {
      fail(fmt::format("'{}' needs a number from 0 to {}", key, kMaxExtent));
    }
    if (!found.emplace(key, value).second) fail(fmt::format("'{}' is given twice", key));
    at = static_cast<std::size_t>(end - text.data());
  }
  for (std::string_view depth : {"id", "od", "kd", "sd", "pd", "dd"}) {
    if (found.contains(depth)) {
      throw Error(
          fmt::format("problem string '{}': '{}' makes it three-dimensional, only 2-D convolutions "
                      "are supported",
                      text, depth));
    }
  }
  return found;
}

/// Extents along one dimension, as given and then completed.
struct Axis {
  Index in = 0, out = 0, kernel = 0, stride = 1, pad = 0, dilation = 1;
};

Axis complete(const std::map<std::string, Index, std::less<>>& found, char own, char other,
              std::string_view text) {
  const auto get = [&](char prefix) -> const Index* {
    for (char axis : {own, other}) {
      const auto it = found.find(std::string{prefix, axis});
      if (it != found.end()) return &it->second;
    }
    return nullptr;
  };
  Axis a;
  const Index *in = get('i'), *out = get('o'), *kernel = get('k'), *stride = get('s'),
              *pad = get('p'), *dilation = get('d');
  if (in == nullptr || kernel == nullptr) {
    throw Error(
        fmt::format("problem string '{}': {} is missing", text, in == nullptr ? "ih" : "kh"));
  }
  a.in = *in;
  a.kernel = *kernel;
  if (stride != nullptr) a.stride = *stride;
  if (dilation != nullptr) a.dilation = *dilation + 1;
  if (a.in < 1 || a.kernel < 1 || a.stride < 1) {
    throw Error(
        fmt::format("problem string '{}': input, kernel and stride must be 1 or more", text));
  }
  const Index span = (a.kernel - 1) * a.dilation + 1;
  if (out == nullptr) {
    a.pad = pad != nullptr ? *pad : 0;
    a.out = a.in + 2 * a.pad >= span ? (a.in + 2 * a.pad - span) / a.stride + 1 : 0;
  } else {
    a.out = *out;
    a.pad = pad != nullptr ? *pad : std::max<Index>(0, (a.out - 1) * a.stride - a.in + span) / 2;
  }
  return a;
}

}  // namespace

Scenario Scenario::parse(std::string_view text) {
  auto found = tokens(text);
  // One-dimensional problems give only widths; their height is 1.
  bool heights = false, widths = false;
  for (const auto& [key, value] : found) {
    heights = heights || (key.size() == 2 && key[1] == 'h');
    widths = widths || (key.size() == 2 && key[1] == 'w');
  }
  if (widths && !heights) {
    for (const char* key : {"ih", "oh", "kh", "sh"}) found.emplace(key, 1);
    for (const char* key : {"ph", "dh"}) found.emplace(key, 0);
    if (!found.contains("ow")) found.erase("oh");
  }
  Scenario s;
  const auto set = [&](const char* key, Index& field) {
    if (const auto it = found.find(key); it != found.end()) field = it->second;
  };
  set("mb", s.n);
  set("g", s.g);
  set("ic", s.c);
  set("oc", s.m);
  const Axis rows = complete(found, 'h', 'w', text), cols = complete(found, 'w', 'h', text);
  s.h = rows.in, s.oh = rows.out, s.kh = rows.kernel, s.sh = rows.stride, s.pt = rows.pad;
  s.w = cols.in, s.ow = cols.out, s.kw = cols.kernel, s.sw = cols.stride, s.pl = cols.pad;
  s.dh = rows.dilation, s.dw = cols.dilation;
  try {
    s.check();
  } catch (const Error& e) {
    throw Error(fmt::format("problem string '{}': {}", text, e.what()));
  }
  return s;
}

Scenario Scenario::padded(Shape in, Index m, Index kh, Index kw, Index sh, Index sw, Index top,
                          Index left, Index bottom, Index right, Index dh, Index dw, Index g) {
  Scenario s;
  s.n = in.n, s.g = g, s.c = in.c, s.h = in.h, s.w = in.w, s.m = m;
  s.kh = kh, s.kw = kw, s.sh = sh, s.sw = sw, s.pt = top, s.pl = left, s.dh = dh, s.dw = dw;
  const auto extent = [](Index image, Index before, Index after, Index span, Index stride) {
    const Index room = image + before + after - span;
    return room < 0 || stride < 1 ? 0 : room / stride + 1;
  };
  s.oh = extent(s.h, top, bottom, s.span_h(), sh);
  s.ow = extent(s.w, left, right, s.span_w(), sw);
  s.check();
  return s;
}

std::string Scenario::str() const {
  std::string text = fmt::format("mb{}", n);
  if (g != 1) text += fmt::format("g{}", g);
  // benchdnn takes the missing one of a pair (ih and iw) from the other.
  const auto pair = [&](char prefix, Index rows, Index cols, Index usual) {
    if (rows == cols && rows == usual) return;
    text += fmt::format("{}h{}", prefix, rows);
    if (rows != cols) text += fmt::format("{}w{}", prefix, cols);
  };
  text += fmt::format("ic{}", c);
  pair('i', h, w, 0);
  text += fmt::format("oc{}", m);
  pair('o', oh, ow, 0);
  pair('k', kh, kw, 0);
  pair('s', sh, sw, 1);
  // The padding is always written: absent, it would be half of what the output size asks for.
  pair('p', pt, pl, -1);
  pair('d', dh - 1, dw - 1, 0);
  return text;
}

void Scenario::check() const {
  const auto fail = [](std::string_view what) { throw Error(std::string(what)); };
  if (n < 1) fail("the batch (mb) must be 1 or more");
  if (c < 1) fail("the input channels (ic) must be 1 or more");
  if (m < 1) fail("the output channels (oc) must be 1 or more");
  if (h < 1 || w < 1) fail("the input (ih, iw) must be 1 or more");
  if (kh < 1 || kw < 1) fail("the kernel (kh, kw) must be 1 or more");
  if (sh < 1 || sw < 1) fail("the stride (sh, sw) must be 1 or more");
  if (dh < 1 || dw < 1) fail("the dilation (dh, dw) must be 1 or more");
  if (pt < 0 || pl < 0) fail("the padding (ph, pw) must be 0 or more");
  if (g < 1 || c % g != 0 || m % g != 0) {
    fail(fmt::format("{} groups do not divide {} input and {} output channels", g, c, m));
  }
  if (oh < 1 || ow < 1) {
    fail(fmt::format("nothing is left of a {}x{} image under a kernel that spans {}x{}", h, w,
                     span_h(), span_w()));
  }
  for (Index extent : {n, c, h, w, m, oh, ow, kh, kw, sh, sw, pt, pl, dh, dw}) {
    if (extent > kMaxExtent) fail(fmt::format("the extent {} is beyond 2^31", extent));
  }
  const double limit = 9e15;
  const auto too_big = [&](double a, double b) { return a * b > limit; };
  if (too_big(static_cast<double>(n * c), static_cast<double>(h) * static_cast<double>(w)) ||
      too_big(static_cast<double>(n * m), static_cast<double>(oh) * static_cast<double>(ow)) ||
      too_big(static_cast<double>(m * cg()), static_cast<double>(kh) * static_cast<double>(kw))) {
    fail("the tensors have more elements than a 64-bit address can reach");
  }
}

}  // namespace convprim
