// Writers of patch matrices, see patches.hpp.
#include "primitives/im2/patches.hpp"

#include <cstring>
#include <numeric>

namespace convprim::gemm {
namespace {

void copy(float* to, const float* from, Index count) {
  if (count < 8) {  // a call would take longer
    for (Index i = 0; i < count; ++i) to[i] = from[i];
    return;
  }
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}
void zero(float* to, Index count) {
  std::memset(to, 0, static_cast<std::size_t>(count) * sizeof(float));
}

/// The image row that kernel row i sees at output row y, null in the padding.
const float* input_row(const PatchPart& part, const float* channel, Index y, Index i) {
  const Index row = y * part.s.sh - part.s.pt + i * part.s.dh;
  return row >= 0 && row < part.s.h ? channel + row * part.at.h_stride : nullptr;
}

/// What tap (c, i, j) sees at the given pixels.
void gather_tap(const PatchPart& part, Index c, Index i, Index j, Range pixels, bool run,
                float* to) {
  const Scenario& s = part.s;
  const float* channel = part.in + c * part.at.c_stride;
  for_runs(pixels, s.ow, [&](Index y, Index x, Index length, Index at) {
    gather_row(s, part.at.w_stride, input_row(part, channel, y, i), j, {x, x + length}, run,
               to + at);
  });
}

/// Calls body(c, i, j, row) for each row of a part of the patch matrix in order cij.
template <class Body>
void for_taps(const PatchPart& part, Body&& body) {
  const Scenario& s = part.s;
  float* row = part.patch;
  for (Index r = part.depth.begin; r < part.depth.end; ++r, row += part.ld) {
    body(r / (s.kh * s.kw), r / s.kw % s.kh, r % s.kw, row);
  }
}

/// Output rows that `pixels` consecutive ones can touch.
Index touched_rows(const Scenario& s, Index pixels) {
  return std::min(s.oh, (pixels + s.ow - 2) / s.ow + 1);
}

}  // namespace

RowSlots::RowSlots(const Scenario& s, Index output_rows)
    : period(s.sh / std::gcd(s.sh, s.dh)),
      shift(s.dh / std::gcd(s.sh, s.dh)),
      seen(output_rows),
      slots(std::min(period, s.kh)),
      rows(output_rows + (s.kh - 1) / period * shift) {}

void gather_row(const Scenario& s, Index w_stride, const float* row, Index j, Range columns,
                bool run, float* to) {
  const Index length = columns.end - columns.begin;
  if (row == nullptr) {
    zero(to, length);
    return;
  }
  const Range inside = valid_outputs(s.ow, s.w, s.sw, s.pl, j * s.dw);
  const Index first = std::clamp<Index>(inside.begin - columns.begin, 0, length);
  const Index last = std::clamp<Index>(inside.end - columns.begin, first, length);
  zero(to, first);
  const float* from = row + ((columns.begin + first) * s.sw - s.pl + j * s.dw) * w_stride;
  if (run) {
    copy(to + first, from, last - first);
  } else {
    const Index step = s.sw * w_stride;
    for (Index i = first; i < last; ++i, from += step) to[i] = *from;
  }
  zero(to + last, length - last);
}

void copy_columns(const Scenario& s, Index w_stride, const float* row, Index x, Index j, Range part,
                  float* to) {
  const Index length = part.end - part.begin;
  if (row == nullptr) {
    zero(to, length);
    return;
  }
  const Index column = x * s.sw - s.pl + j * s.dw;
  const Index first = std::clamp(-column * s.cg(), part.begin, part.end);
  const Index last = std::clamp((s.w - column) * s.cg(), first, part.end);
  zero(to, first - part.begin);
  copy(to + first - part.begin, row + column * w_stride + first, last - first);
  zero(to + last - part.begin, part.end - last);
}

Index copy_long_scratch(const Scenario& s, Index pixels) {
  return RowSlots(s, touched_rows(s, pixels)).count() * s.ow;
}

void col_scan(const PatchPart& part) {
  for_taps(part, [&](Index c, Index i, Index j, float* row) {
    gather_tap(part, c, i, j, part.pixels, false, row);
  });
}

void col_copy_short(const PatchPart& part) {
  for_taps(part, [&](Index c, Index i, Index j, float* row) {
    gather_tap(part, c, i, j, part.pixels, true, row);
  });
}

void col_copy_self(const PatchPart& part) {
  const Scenario& s = part.s;
  const RowSlots again(s, 0);
  const Index count = part.pixels.end - part.pixels.begin;
  for_taps(part, [&](Index c, Index i, Index j, float* row) {
    // What the earlier kernel row has already gathered, less what it saw above this tile.
    const Index skipped = again.shift * s.ow;
    const Index known = i >= again.period ? std::max<Index>(0, count - skipped) : 0;
    if (known > 0) copy(row, row - again.period * s.kw * part.ld + skipped, known);
    gather_tap(part, c, i, j, {part.pixels.begin + known, part.pixels.end}, false, row + known);
  });
}

void col_copy_long(const PatchPart& part) {
  const Scenario& s = part.s;
  const Index count = part.pixels.end - part.pixels.begin;
  const Index first = part.pixels.begin / s.ow, last = (part.pixels.end - 1) / s.ow + 1;
  const RowSlots staged(s, last - first);
  const bool run = s.sw == 1 && part.at.w_stride == 1;
  const Index taps = s.kh * s.kw;
  for (Index c = part.depth.begin / taps; c < part.depth.end / taps; ++c) {
    for (Index j = 0; j < s.kw; ++j) {
      for (Index i = 0; i < s.kh; ++i) {
        float* seen = part.scratch + staged.first(i) * s.ow;
        for (Index y = staged.fresh(i); y < last - first; ++y) {
          const float* row = input_row(part, part.in + c * part.at.c_stride, first + y, i);
          gather_row(s, part.at.w_stride, row, j, {0, s.ow}, run, seen + y * s.ow);
        }
        float* to = part.patch + (c * taps + i * s.kw + j - part.depth.begin) * part.ld;
        copy(to, seen + part.pixels.begin % s.ow, count);
      }
    }
  }
}

void row_scan(const PatchPart& part) {
  const Scenario& s = part.s;
  const Index taps = s.kh * s.kw;
  for_runs(part.pixels, s.ow, [&](Index y, Index x0, Index length, Index at) {
    for (Index x = x0; x < x0 + length; ++x) {
      float* to = part.patch + (at + x - x0) * part.ld;
      const Index top = y * s.sh - s.pt, left = x * s.sw - s.pl;
      const bool whole =
          top >= 0 && top + s.span_h() <= s.h && left >= 0 && left + s.span_w() <= s.w;
      for (Index c = part.depth.begin / taps; c < part.depth.end / taps; ++c) {
        const float* from =
            part.in + c * part.at.c_stride + top * part.at.h_stride + left * part.at.w_stride;
        for (Index i = 0; i < s.kh; ++i) {
          const Index row = top + i * s.dh;
          for (Index j = 0; j < s.kw; ++j) {
            const Index column = left + j * s.dw;
            const bool in = whole || (row >= 0 && row < s.h && column >= 0 && column < s.w);
            *to++ = in ? from[i * s.dh * part.at.h_stride + j * s.dw * part.at.w_stride] : 0.0F;
          }
        }
      }
    }
  });
}

void row_copy_short(const PatchPart& part) {
  const Scenario& s = part.s;
  const Index first = part.depth.begin / s.cg();  // the tap that the part starts in
  for_runs(part.pixels, s.ow, [&](Index y, Index x0, Index length, Index at) {
    for (Index x = x0; x < x0 + length; ++x) {
      float* to = part.patch + (at + x - x0) * part.ld;
      Index i = first / s.kw, j = first % s.kw, c = part.depth.begin % s.cg();
      const float* row = input_row(part, part.in, y, i);
      for (Index left = part.depth.end - part.depth.begin; left > 0;) {
        const Index run = std::min(s.cg() - c, left), column = x * s.sw - s.pl + j * s.dw;
        if (row != nullptr && column >= 0 && column < s.w) {
          copy(to, row + column * part.at.w_stride + c, run);
        } else {
          zero(to, run);
        }
        to += run, left -= run, c = 0;
        if (++j == s.kw) j = 0, row = input_row(part, part.in, y, ++i);
      }
    }
  });
}

void row_copy_long(const PatchPart& part) {
  const Scenario& s = part.s;
  const Index run = s.kw * s.cg();
  for_runs(part.pixels, s.ow, [&](Index y, Index x0, Index length, Index at) {
    for (Index x = x0; x < x0 + length; ++x) {
      float* to = part.patch + (at + x - x0) * part.ld;
      for (Index r = part.depth.begin; r < part.depth.end;) {
        const Index begin = r % run, end = std::min(run, begin + part.depth.end - r);
        copy_columns(s, part.at.w_stride, input_row(part, part.in, y, r / run), x, 0, {begin, end},
                     to);
        to += end - begin;
        r += end - begin;
      }
    }
  });
}

}  // namespace convprim::gemm
