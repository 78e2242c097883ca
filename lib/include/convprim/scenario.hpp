// A convolution problem.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "convprim/layout.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// One convolution problem: cross-correlation with zero padding, in the notation
///   out[n][k][y][x] = sum over c, i, j of in[n][c][y*sh - pt + i*dh][x*sw - pl + j*dw] *
///   filter[k][c][i][j],
/// with c running over the channels of k's group. Top and left padding and the output size are
/// given, and the bottom and right padding follow from them, so that two equal problems always
/// compare equal and have the same string.
struct Scenario {
  Index n = 1;           ///< batch
  Index g = 1;           ///< groups; c and m are multiples of it
  Index c = 0;           ///< input channels, all groups together
  Index h = 0, w = 0;    ///< input rows and columns
  Index m = 0;           ///< output channels, all groups together
  Index oh = 0, ow = 0;  ///< output rows and columns
  Index kh = 1, kw = 1;  ///< kernel
  Index sh = 1, sw = 1;  ///< stride
  Index pt = 0, pl = 0;  ///< zero padding above and to the left
  Index dh = 1, dw = 1;  ///< dilation; 1 is dense (benchdnn writes that as dh0)

  friend bool operator==(const Scenario&, const Scenario&) = default;

  /// Reads benchdnn's problem string, for example `mb1g2ic96ih27oc256oh27kh5ph2n"conv2"`: an absent
  /// width equals the height (and the other way round), an absent output size follows from the
  /// padding, an absent padding from the output size, absent mb, g and strides are 1, absent
  /// dilation is dh0. The name n"..." is allowed and dropped. Throws Error with the offending
  /// place.
  static Scenario parse(std::string_view text);

  /// Makes a problem from padding on all four sides; the output size rounds down. Throws Error if
  /// nothing is left of the image.
  static Scenario padded(Shape in, Index m, Index kh, Index kw, Index sh, Index sw, Index top,
                         Index left, Index bottom, Index right, Index dh = 1, Index dw = 1,
                         Index g = 1);

  /// The canonical problem string, without a name: what parse() reads back, and the key of a cost
  /// data base.
  std::string str() const;

  /// Throws Error, naming the field, unless all extents are positive, groups divide the channels
  /// and every output position overlaps the padded image.
  void check() const;

  /// Zero padding below: rows past the image that the last output row reads; 0 if it reads none.
  Index pb() const { return std::max<Index>(0, (oh - 1) * sh + span_h() - h - pt); }
  /// Zero padding to the right.
  Index pr() const { return std::max<Index>(0, (ow - 1) * sw + span_w() - w - pl); }
  /// Rows that a dilated kernel spans.
  Index span_h() const { return (kh - 1) * dh + 1; }
  /// Columns that a dilated kernel spans.
  Index span_w() const { return (kw - 1) * dw + 1; }
  /// Shape of the input.
  Shape in() const { return {n, c, h, w}; }
  /// Shape of the output.
  Shape out() const { return {n, m, oh, ow}; }
  /// Input channels of one group.
  Index cg() const { return c / g; }
  /// Output channels of one group.
  Index mg() const { return m / g; }
  /// Floats of the filter, laid out [m][c/g][kh][kw].
  Index filter_count() const { return m * cg() * kh * kw; }
  /// Multiplications of the direct method; a FLOP count is twice this.
  double macs() const {
    return static_cast<double>(n * m * cg() * kh * kw) * static_cast<double>(oh * ow);
  }
  /// True if stride is 1 both ways.
  bool unit_stride() const { return sh == 1 && sw == 1; }
  /// True if the kernel is dense.
  bool undilated() const { return dh == 1 && dw == 1; }
  /// True if each input channel is a group of its own.
  bool depthwise() const { return g == c && g > 1; }
};

}  // namespace convprim
#pragma GCC visibility pop
