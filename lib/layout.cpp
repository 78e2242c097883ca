#include "convprim/layout.hpp"

namespace convprim {

std::string_view name(Layout layout) {
  switch (layout) {
    case Layout::chw:
      return "chw";
    case Layout::hcw:
      return "hcw";
    case Layout::hwc:
      return "hwc";
    case Layout::chw8c:
      return "chw8c";
    case Layout::chw16c:
      return "chw16c";
  }
  return "?";
}

std::optional<Layout> layout_of(std::string_view text) {
  for (Layout layout : kLayouts) {
    if (name(layout) == text) return layout;
  }
  return std::nullopt;
}

bool same_memory(Layout a, Layout b, const Shape& s) {
  if (a == b) return true;
  if (stored_channels(a, s.c) != stored_channels(b, s.c)) return false;
  // A dimension of extent 1 may stand anywhere in the order.
  const bool one_pixel = s.h == 1 && s.w == 1;
  if (block(a) > 1 && block(b) > 1) return one_pixel;
  if (block(a) > 1 || block(b) > 1) {
    const Layout plain = block(a) > 1 ? b : a;
    const Index blocked = block(a) > 1 ? block(a) : block(b);
    if (one_pixel) return true;
    return s.c == blocked && (plain == Layout::hwc || (plain == Layout::hcw && s.w == 1));
  }
  if (s.c == 1 || one_pixel) return true;
  const bool chw_hcw =
      (a == Layout::chw || a == Layout::hcw) && (b == Layout::chw || b == Layout::hcw);
  if (chw_hcw) return s.h == 1;
  const bool hcw_hwc = a != Layout::chw && b != Layout::chw;
  if (hcw_hwc) return s.w == 1;
  return false;  // chw and hwc: the whole image moves
}

Strides strides(Layout layout, const Shape& s, const ChannelSlice& slice) {
  Shape whole = s;
  if (slice.sliced()) whole.c = slice.channels;
  const Index stored = stored_channels(layout, whole.c);
  Strides st;
  st.n_stride = stored * s.h * s.w;
  st.block = block(layout);
  switch (layout) {
    case Layout::chw:
      st.c_stride = s.h * s.w;
      st.h_stride = s.w;
      st.w_stride = 1;
      break;
    case Layout::hcw:
      st.c_stride = s.w;
      st.h_stride = whole.c * s.w;
      st.w_stride = 1;
      break;
    case Layout::hwc:
      st.c_stride = 1;
      st.h_stride = s.w * whole.c;
      st.w_stride = whole.c;
      break;
    case Layout::chw8c:
    case Layout::chw16c:
      st.c_stride = s.h * s.w * st.block;
      st.h_stride = s.w * st.block;
      st.w_stride = st.block;
      break;
  }
  st.base = slice.begin / st.block * st.c_stride;
  return st;
}

}  // namespace convprim
