// The reference evaluator: written to be read. Only the convolution, where the time goes, has its
// loops in an order that suits a vectorising compiler: a row of outputs at a time.
#include "convprim/reference.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "convprim/error.hpp"
#include "selector/network_infer.hpp"

namespace convprim {
namespace {

using Values = std::vector<double>;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// A tensor to read: its shape and elements.
struct View {
  Shape s;
  const Values* values;
  double operator()(Index n, Index c, Index h, Index w) const {
    return (*values)[at(((n * s.c + c) * s.h + h) * s.w + w)];
  }
  /// One plane (image n, channel c), rows of s.w elements.
  const double* plane(Index n, Index c) const { return values->data() + (n * s.c + c) * s.h * s.w; }
};

/// A tensor to write.
struct Result {
  Shape s;
  Values values;
  explicit Result(const Shape& shape) : s(shape), values(at(shape.count())) {}
  double& operator()(Index n, Index c, Index h, Index w) {
    return values[at(((n * s.c + c) * s.h + h) * s.w + w)];
  }
  double* plane(Index n, Index c) { return values.data() + (n * s.c + c) * s.h * s.w; }
};

/// A parameter's values in double.
double value(const Blob& blob, Index i) { return static_cast<double>((*blob.data)[at(i)]); }

double clamp(double x, float lo, float hi) {
  return std::min(std::max(x, static_cast<double>(lo)), static_cast<double>(hi));
}

/// What an operation sees of its layer.
struct Context {
  const Layer& layer;
  std::vector<View> in;
  std::vector<Shape> out;
  int threads;
  const Blob& blob(std::size_t i) const { return layer.blobs[i]; }
};

/// The element-wise function f of the first input.
template <class F>
std::vector<Result> map(const Context& x, F f) {
  Result r(x.out[0]);
  std::transform(x.in[0].values->begin(), x.in[0].values->end(), r.values.begin(), f);
  return {std::move(r)};
}

/// Calls f(n, c, h, w) for each element of a shape.
template <class F>
void for_each(const Shape& s, F f) {
  for (Index n = 0; n < s.n; ++n)
    for (Index c = 0; c < s.c; ++c)
      for (Index h = 0; h < s.h; ++h)
        for (Index w = 0; w < s.w; ++w) f(n, c, h, w);
}

/// Calls f(n, c) for each plane, planes shared out among threads.
template <class F>
void for_each_plane(const Context& x, const Shape& s, F f) {
#pragma omp parallel for schedule(dynamic) num_threads(x.threads)
  for (Index i = 0; i < s.n * s.c; ++i) f(i / s.c, i % s.c);
}

/// The outputs x for which 0 <= x*stride + offset < extent: [begin, end), within [0, limit).
struct Span {
  Index begin, end;
};

Span inside(Index offset, Index stride, Index extent, Index limit) {
  const Index begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const Index end = extent <= offset ? 0 : (extent - offset + stride - 1) / stride;
  return {std::min(begin, limit), std::min(end, limit)};
}

std::vector<Result> run(const ConvOp& op, const Context& x) {
  View in = x.in[0];
  Result r(x.out[0]);
  Shape out = r.s;
  const bool pointwise = op.kh == 1 && op.kw == 1 && op.sh == 1 && op.sw == 1 && op.pt == 0 &&
                         op.pl == 0 && op.pb == 0 && op.pr == 0;
  if (pointwise) {  // one long row instead of many short ones
    in.s = {in.s.n, in.s.c, 1, in.s.h * in.s.w};
    out = {out.n, out.c, 1, out.h * out.w};
  }
  const float* const filter = x.blob(0).data->data();
  const Index cg = in.s.c / op.g;
  const Index mg = op.m / op.g;
#pragma omp parallel for schedule(dynamic, 4) num_threads(x.threads)
  for (Index row = 0; row < out.n * out.c * out.h; ++row) {
    const Index n = row / (out.c * out.h);
    const Index k = row / out.h % out.c;
    const Index oy = row % out.h;
    double* const sum = r.values.data() + row * out.w;
    std::fill_n(sum, out.w, op.bias ? value(x.blob(1), k) : 0.0);
    for (Index c = 0; c < cg; ++c) {
      const double* const plane = in.plane(n, k / mg * cg + c);
      for (Index i = 0; i < op.kh; ++i) {
        const Index y = oy * op.sh - op.pt + i * op.dh;
        if (y < 0 || y >= in.s.h) continue;
        for (Index j = 0; j < op.kw; ++j) {
          const auto weight = static_cast<double>(filter[((k * cg + c) * op.kh + i) * op.kw + j]);
          const Index offset = j * op.dw - op.pl;
          const auto [begin, end] = inside(offset, op.sw, in.s.w, out.w);
          const double* const from = plane + y * in.s.w + offset;
          if (op.sw == 1) {
            for (Index ox = begin; ox < end; ++ox) sum[ox] += weight * from[ox];
          } else {
            for (Index ox = begin; ox < end; ++ox) sum[ox] += weight * from[ox * op.sw];
          }
        }
      }
    }
    for (Index ox = 0; ox < out.w; ++ox) {
      if (op.epilogue.residual) sum[ox] += (*x.in[1].values)[at(row * out.w + ox)];
      sum[ox] = clamp(sum[ox], op.epilogue.lo, op.epilogue.hi);
    }
  }
  return {std::move(r)};
}

std::vector<Result> run(const DeconvOp& op, const Context& x) {
  const View& in = x.in[0];
  Result r(x.out[0]);
  const Index cg = in.s.c / op.g;
  const Index mg = op.m / op.g;
  for_each_plane(x, r.s, [&](Index n, Index k) {
    double* const sum = r.plane(n, k);
    std::fill_n(sum, r.s.h * r.s.w, op.bias ? value(x.blob(1), k) : 0.0);
    for (Index c = k / mg * cg; c < (k / mg + 1) * cg; ++c) {
      for (Index y = 0; y < in.s.h; ++y) {
        for (Index i = 0; i < op.kh; ++i) {
          const Index oy = y * op.sh - op.pt + i * op.dh;
          if (oy < 0 || oy >= r.s.h) continue;
          for (Index j = 0; j < op.kw; ++j) {
            const double weight = value(x.blob(0), ((c * mg + k % mg) * op.kh + i) * op.kw + j);
            const Index offset = j * op.dw - op.pl;
            const auto [begin, end] = inside(offset, op.sw, r.s.w, in.s.w);
            for (Index px = begin; px < end; ++px) {
              sum[oy * r.s.w + px * op.sw + offset] += weight * in(n, c, y, px);
            }
          }
        }
      }
    }
    for (Index i = 0; i < r.s.h * r.s.w; ++i) sum[i] = clamp(sum[i], op.lo, op.hi);
  });
  return {std::move(r)};
}

std::vector<Result> run(const PoolOp& given, const Context& x) {
  PoolOp op = given;
  const View& in = x.in[0];
  if (op.global) {
    op = PoolOp{.method = op.method, .kh = in.s.h, .kw = in.s.w};
  }
  std::vector<Result> r(x.out.size(), Result(x.out[0]));
  for_each_plane(x, r[0].s, [&](Index n, Index c) {
    for (Index oy = 0; oy < r[0].s.h; ++oy) {
      for (Index ox = 0; ox < r[0].s.w; ++ox) {
        const Index y0 = oy * op.sh - op.pt;
        const Index x0 = ox * op.sw - op.pl;
        double sum = 0;
        double best = -std::numeric_limits<double>::infinity();
        Index where = -1;
        Index real = 0;
        for (Index i = 0; i < op.kh; ++i) {
          for (Index j = 0; j < op.kw; ++j) {
            const Index y = y0 + i * op.dh;
            const Index px = x0 + j * op.dw;
            if (y < 0 || y >= in.s.h || px < 0 || px >= in.s.w) continue;
            const double v = in(n, c, y, px);
            sum += v;
            ++real;
            if (v > best || where < 0) {
              best = v;
              where = y * in.s.w + px;
            }
          }
        }
        const Index rows = std::min(y0 + op.kh, in.s.h + op.pb) - y0;
        const Index columns = std::min(x0 + op.kw, in.s.w + op.pr) - x0;
        const Index divisor = op.count_padding ? rows * columns : real;
        const double average = real == 0 ? 0 : sum / static_cast<double>(divisor);
        const double maximum = real == 0 ? 0 : best;
        r[0](n, c, oy, ox) = op.method == PoolOp::Method::avg ? average : maximum;
        if (r.size() > 1) r[1](n, c, oy, ox) = static_cast<double>(where);
      }
    }
  });
  return r;
}

std::vector<Result> run(const LrnOp& op, const Context& x) {
  const View& in = x.in[0];
  Result r(x.out[0]);
  const Index before = (op.size - 1) / 2;
  const Index behind = op.size - 1 - before;
  const double size = static_cast<double>(op.within_channel ? op.size * op.size : op.size);
  for_each_plane(x, in.s, [&](Index n, Index c) {
    for (Index y = 0; y < in.s.h; ++y) {
      for (Index px = 0; px < in.s.w; ++px) {
        double sum = 0;
        const auto add = [&](double v) { sum += v * v; };
        if (op.within_channel) {
          for (Index i = std::max<Index>(0, y - before); i <= std::min(y + behind, in.s.h - 1); ++i)
            for (Index j = std::max<Index>(0, px - before); j <= std::min(px + behind, in.s.w - 1);
                 ++j)
              add(in(n, c, i, j));
        } else {
          for (Index k = std::max<Index>(0, c - before); k <= std::min(c + behind, in.s.c - 1); ++k)
            add(in(n, k, y, px));
        }
        const double base = static_cast<double>(op.k) + static_cast<double>(op.alpha) / size * sum;
        r(n, c, y, px) = in(n, c, y, px) / std::pow(base, static_cast<double>(op.beta));
      }
    }
  });
  return {std::move(r)};
}

std::vector<Result> run(const InnerProductOp& op, const Context& x) {
  Result r(x.out[0]);
  const View& in = x.in[0];
  const Index row = in.s.c * in.s.h * in.s.w;
#pragma omp parallel for num_threads(x.threads)
  for (Index m = 0; m < op.m; ++m) {
    const float* const weights = x.blob(0).data->data() + m * row;
    for (Index n = 0; n < in.s.n; ++n) {
      double sum = op.bias ? value(x.blob(1), m) : 0;
      const double* const image = in.values->data() + n * row;
      for (Index i = 0; i < row; ++i) sum += static_cast<double>(weights[i]) * image[i];
      r(n, m, 0, 0) = clamp(sum, op.lo, op.hi);
    }
  }
  return {std::move(r)};
}

/// A shape cut at an axis: elements are [outer][extent][inner].
struct Cut {
  Index outer, extent, inner;
};

Cut cut(const Shape& s, int axis) {
  const Index dims[] = {s.n, s.c, s.h, s.w};
  Cut c{1, dims[axis], 1};
  for (int i = 0; i < axis; ++i) c.outer *= dims[i];
  for (int i = axis + 1; i < 4; ++i) c.inner *= dims[i];
  return c;
}

std::vector<Result> run(const SoftmaxOp& op, const Context& x) {
  Result r(x.out[0]);
  const auto [outer, extent, inner] = cut(r.s, op.axis);
  for (Index o = 0; o < outer; ++o) {
    for (Index i = 0; i < inner; ++i) {
      const double* const in = x.in[0].values->data() + o * extent * inner + i;
      double* const out = r.values.data() + o * extent * inner + i;
      double largest = in[0];
      for (Index k = 1; k < extent; ++k) largest = std::max(largest, in[k * inner]);
      double sum = 0;
      for (Index k = 0; k < extent; ++k) sum += std::exp(in[k * inner] - largest);
      for (Index k = 0; k < extent; ++k) {
        const double shifted = in[k * inner] - largest;
        out[k * inner] = op.log ? shifted - std::log(sum) : std::exp(shifted) / sum;
      }
    }
  }
  return {std::move(r)};
}

std::vector<Result> run(const ConcatOp& op, const Context& x) {
  Result r(x.out[0]);
  const auto [outer, total, inner] = cut(r.s, op.axis);
  Index begin = 0;
  for (const View& in : x.in) {
    const Index extent = cut(in.s, op.axis).extent;
    for (Index o = 0; o < outer; ++o) {
      std::copy_n(in.values->data() + o * extent * inner, extent * inner,
                  r.values.data() + (o * total + begin) * inner);
    }
    begin += extent;
  }
  return {std::move(r)};
}

std::vector<Result> run(const EltwiseOp& op, const Context& x) {
  Result r(x.out[0]);
  for (std::size_t i = 0; i < r.values.size(); ++i) {
    double v = 0;
    for (std::size_t k = 0; k < x.in.size(); ++k) {
      const double coeff = op.coeff.empty() ? 1 : static_cast<double>(op.coeff[k]);
      const double a = (*x.in[k].values)[i];
      switch (op.kind) {
        case EltwiseOp::Kind::sum:
          v += coeff * a;
          break;
        case EltwiseOp::Kind::prod:
          v = k == 0 ? a : v * a;
          break;
        case EltwiseOp::Kind::max:
          v = k == 0 ? a : std::max(v, a);
          break;
      }
    }
    r.values[i] = clamp(v, op.lo, op.hi);
  }
  return {std::move(r)};
}

double apply(BroadcastOp::Kind kind, double a, double b) {
  switch (kind) {
    case BroadcastOp::Kind::add:
      return a + b;
    case BroadcastOp::Kind::sub:
      return a - b;
    case BroadcastOp::Kind::mul:
      return a * b;
    case BroadcastOp::Kind::div:
      return a / b;
    case BroadcastOp::Kind::max:
      return std::max(a, b);
    case BroadcastOp::Kind::min:
      return std::min(a, b);
    case BroadcastOp::Kind::pow:
      return std::pow(a, b);
  }
  return 0;
}

std::vector<Result> run(const BroadcastOp& op, const Context& x) {
  Result r(x.out[0]);
  const auto pick = [](const View& v, Index n, Index c, Index h, Index w) {
    return v(v.s.n == 1 ? 0 : n, v.s.c == 1 ? 0 : c, v.s.h == 1 ? 0 : h, v.s.w == 1 ? 0 : w);
  };
  for_each(r.s, [&](Index n, Index c, Index h, Index w) {
    r(n, c, h, w) = apply(op.kind, pick(x.in[0], n, c, h, w), pick(x.in[1], n, c, h, w));
  });
  return {std::move(r)};
}

std::vector<Result> run(const ActivationOp& op, const Context& x) {
  const auto slope = static_cast<double>(op.slope);
  const auto scale = static_cast<double>(op.scale);
  const auto shift = static_cast<double>(op.shift);
  const auto exponent = static_cast<double>(op.exponent);
  switch (op.kind) {
    case ActivationOp::Kind::clamp:
      return map(x, [&](double v) { return clamp(v, op.lo, op.hi); });
    case ActivationOp::Kind::leaky:
      return map(x, [&](double v) { return v > 0 ? v : slope * v; });
    case ActivationOp::Kind::sigmoid:
      return map(x, [](double v) { return 1 / (1 + std::exp(-v)); });
    case ActivationOp::Kind::tanh:
      return map(x, [](double v) { return std::tanh(v); });
    case ActivationOp::Kind::elu:
      return map(x, [&](double v) { return v > 0 ? scale * v : scale * slope * std::expm1(v); });
    case ActivationOp::Kind::swish:
      return map(x, [&](double v) { return v / (1 + std::exp(-slope * v)); });
    case ActivationOp::Kind::hard_sigmoid:
      return map(x, [&](double v) { return clamp(slope * v + shift, 0, 1); });
    case ActivationOp::Kind::hard_swish:
      return map(x, [&](double v) { return v * clamp(slope * v + shift, 0, 1); });
    case ActivationOp::Kind::power:
      return map(x, [&](double v) { return std::pow(shift + scale * v, exponent); });
    case ActivationOp::Kind::exp:
      return map(x, [&](double v) { return std::exp(shift + scale * v); });
    case ActivationOp::Kind::log:
      return map(x, [&](double v) { return std::log(shift + scale * v); });
    case ActivationOp::Kind::abs:
      return map(x, [](double v) { return std::abs(v); });
    case ActivationOp::Kind::softplus:
      return map(x, [](double v) { return std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v))); });
  }
  return {};
}

/// f(element, its channel).
template <class F>
std::vector<Result> map_channels(const Context& x, F f) {
  Result r(x.out[0]);
  for_each(r.s,
           [&](Index n, Index c, Index h, Index w) { r(n, c, h, w) = f(x.in[0](n, c, h, w), c); });
  return {std::move(r)};
}

/// A factor for each channel, or one for all.
double channel_value(const Blob& blob, Index c) { return value(blob, blob.count() == 1 ? 0 : c); }

std::vector<Result> run(const PReluOp&, const Context& x) {
  return map_channels(
      x, [&](double v, Index c) { return v > 0 ? v : channel_value(x.blob(0), c) * v; });
}

std::vector<Result> run(const AffineOp&, const Context& x) {
  return map_channels(
      x, [&](double v, Index c) { return v * value(x.blob(0), c) + value(x.blob(1), c); });
}

std::vector<Result> run(const BatchNormOp& op, const Context& x) {
  const double divisor = value(x.blob(2), 0);
  const double factor = divisor == 0 ? 0 : 1 / divisor;
  const bool dialect = x.layer.blobs.size() == 5;
  return map_channels(x, [&](double v, Index c) {
    const double mean = value(x.blob(0), c) * factor;
    const double variance = value(x.blob(1), c) * factor;
    const double normal = (v - mean) / std::sqrt(variance + static_cast<double>(op.eps));
    return dialect ? value(x.blob(3), c) * normal + value(x.blob(4), c) : normal;
  });
}

/// The same elements under another shape.
std::vector<Result> copy(const Context& x) {
  std::vector<Result> r;
  for (const Shape& s : x.out) {
    r.emplace_back(s);
    r.back().values = *x.in[0].values;
  }
  return r;
}

std::vector<Result> run(const FlattenOp&, const Context& x) { return copy(x); }
std::vector<Result> run(const ReshapeOp&, const Context& x) { return copy(x); }
std::vector<Result> run(const IdentityOp&, const Context& x) { return copy(x); }

std::vector<Result> run(const PermuteOp& op, const Context& x) {
  Result r(x.out[0]);
  for_each(r.s, [&](Index n, Index c, Index h, Index w) {
    const Index to[] = {n, c, h, w};
    Index from[4] = {};
    for (std::size_t i = 0; i < 4; ++i) from[op.order[i]] = to[i];
    r(n, c, h, w) = x.in[0](from[0], from[1], from[2], from[3]);
  });
  return {std::move(r)};
}

std::vector<Result> run(const SliceOp& op, const Context& x) {
  std::vector<Result> r;
  const auto [outer, total, inner] = cut(x.in[0].s, op.axis);
  Index begin = 0;
  for (const Shape& s : x.out) {
    r.emplace_back(s);
    const Index extent = cut(s, op.axis).extent;
    for (Index o = 0; o < outer; ++o) {
      std::copy_n(x.in[0].values->data() + (o * total + begin) * inner, extent * inner,
                  r.back().values.data() + o * extent * inner);
    }
    begin += extent;
  }
  return r;
}

std::vector<Result> run(const CropOp& op, const Context& x) {
  Result r(x.out[0]);
  for_each(r.s, [&](Index n, Index c, Index h, Index w) {
    r(n, c, h, w) = x.in[0](op.begin[0] + n * op.step[0], op.begin[1] + c * op.step[1],
                            op.begin[2] + h * op.step[2], op.begin[3] + w * op.step[3]);
  });
  return {std::move(r)};
}

std::vector<Result> run(const PadOp& op, const Context& x) {
  Result r(x.out[0]);
  const Shape& s = x.in[0].s;
  const Index extents[] = {s.n, s.c, s.h, s.w};
  for_each(r.s, [&](Index n, Index c, Index h, Index w) {
    Index from[] = {n, c, h, w};
    bool outside = false;
    for (std::size_t i = 0; i < 4; ++i) {
      from[i] -= op.before[i];
      if (from[i] >= 0 && from[i] < extents[i]) continue;
      outside = true;
      if (op.mode == PadOp::Mode::reflect) {
        from[i] = from[i] < 0 ? -from[i] : 2 * (extents[i] - 1) - from[i];
      } else {
        from[i] = std::clamp<Index>(from[i], 0, extents[i] - 1);
      }
    }
    r(n, c, h, w) = outside && op.mode == PadOp::Mode::constant
                        ? static_cast<double>(op.value)
                        : x.in[0](from[0], from[1], from[2], from[3]);
  });
  return {std::move(r)};
}

std::vector<Result> run(const NormalizeOp& op, const Context& x) {
  const View& in = x.in[0];
  Result r(x.out[0]);
  const auto eps = static_cast<double>(op.eps);
  for (Index n = 0; n < in.s.n; ++n) {
    double image = eps;
    for (Index i = 0; i < in.s.c * in.s.h * in.s.w; ++i)
      image += in.plane(n, 0)[i] * in.plane(n, 0)[i];
    for (Index y = 0; y < in.s.h; ++y) {
      for (Index px = 0; px < in.s.w; ++px) {
        double pixel = eps;
        for (Index c = 0; c < in.s.c; ++c) pixel += in(n, c, y, px) * in(n, c, y, px);
        const double norm = std::sqrt(op.across_spatial ? image : pixel);
        for (Index c = 0; c < in.s.c; ++c) {
          r(n, c, y, px) = in(n, c, y, px) / norm * channel_value(x.blob(0), c);
        }
      }
    }
  }
  return {std::move(r)};
}

/// Where on an axis of the input the output pixel o lies.
double coordinate(const ResizeOp& op, Index o, Index in, Index out) {
  const auto i = static_cast<double>(in);
  const auto n = static_cast<double>(out);
  const auto p = static_cast<double>(o);
  switch (op.coordinate) {
    case ResizeOp::Coordinate::asymmetric:
      return p * i / n;
    case ResizeOp::Coordinate::half_pixel:
      return (p + 0.5) * i / n - 0.5;
    case ResizeOp::Coordinate::align_corners:
      return out == 1 ? 0 : p * (i - 1) / (n - 1);
  }
  return 0;
}

Index nearest(const ResizeOp& op, double p) {
  const double down = std::floor(p);
  switch (op.round) {
    case ResizeOp::Round::floor:
      return static_cast<Index>(down);
    case ResizeOp::Round::ceil:
      return static_cast<Index>(std::ceil(p));
    case ResizeOp::Round::prefer_floor:
      return static_cast<Index>(p - down <= 0.5 ? down : down + 1);
    case ResizeOp::Round::prefer_ceil:
      return static_cast<Index>(p - down < 0.5 ? down : down + 1);
  }
  return 0;
}

std::vector<Result> run(const ResizeOp& op, const Context& x) {
  const View& in = x.in[0];
  Result r(x.out[0]);
  for_each_plane(x, r.s, [&](Index n, Index c) {
    for (Index oy = 0; oy < r.s.h; ++oy) {
      for (Index ox = 0; ox < r.s.w; ++ox) {
        const double y = coordinate(op, oy, in.s.h, r.s.h);
        const double px = coordinate(op, ox, in.s.w, r.s.w);
        const auto pixel = [&](Index i, Index j) {
          return in(n, c, std::clamp<Index>(i, 0, in.s.h - 1), std::clamp<Index>(j, 0, in.s.w - 1));
        };
        if (op.method == ResizeOp::Method::nearest) {
          r(n, c, oy, ox) = pixel(nearest(op, y), nearest(op, px));
          continue;
        }
        const auto i = static_cast<Index>(std::floor(y));
        const auto j = static_cast<Index>(std::floor(px));
        const double v = y - std::floor(y);
        const double u = px - std::floor(px);
        r(n, c, oy, ox) = (1 - v) * ((1 - u) * pixel(i, j) + u * pixel(i, j + 1)) +
                          v * ((1 - u) * pixel(i + 1, j) + u * pixel(i + 1, j + 1));
      }
    }
  });
  return {std::move(r)};
}

std::vector<Result> run(const ShuffleOp& op, const Context& x) {
  Result r(x.out[0]);
  const Index per_group = r.s.c / op.g;
  for_each(r.s, [&](Index n, Index c, Index h, Index w) {
    r(n, c, h, w) = x.in[0](n, c % op.g * per_group + c / op.g, h, w);
  });
  return {std::move(r)};
}

std::vector<Result> run(const ReduceOp& op, const Context& x) {
  Result r(x.out[0]);
  const View& in = x.in[0];
  const bool extreme = op.kind == ReduceOp::Kind::max || op.kind == ReduceOp::Kind::min;
  const double start = !extreme                         ? 0
                       : op.kind == ReduceOp::Kind::max ? -std::numeric_limits<double>::infinity()
                                                        : std::numeric_limits<double>::infinity();
  std::fill(r.values.begin(), r.values.end(), start);
  for_each(in.s, [&](Index n, Index c, Index h, Index w) {
    const double v = in(n, c, h, w);
    double& sum = r(op.axes[0] ? 0 : n, op.axes[1] ? 0 : c, op.axes[2] ? 0 : h, op.axes[3] ? 0 : w);
    switch (op.kind) {
      case ReduceOp::Kind::sum:
      case ReduceOp::Kind::mean:
        sum += v;
        break;
      case ReduceOp::Kind::max:
        sum = std::max(sum, v);
        break;
      case ReduceOp::Kind::min:
        sum = std::min(sum, v);
        break;
      case ReduceOp::Kind::l1:
        sum += std::abs(v);
        break;
      case ReduceOp::Kind::l2:
      case ReduceOp::Kind::sum_square:
        sum += v * v;
        break;
    }
  });
  const double count = static_cast<double>(in.s.count() / r.s.count());
  for (double& v : r.values) {
    if (op.kind == ReduceOp::Kind::mean) v /= count;
    if (op.kind == ReduceOp::Kind::l2) v = std::sqrt(v);
    v *= static_cast<double>(op.coeff);
  }
  return {std::move(r)};
}

std::vector<Result> run(const ConstantOp& op, const Context& x) {
  Result r(op.shape);
  std::copy(x.blob(0).data->begin(), x.blob(0).data->end(), r.values.begin());
  return {std::move(r)};
}

// Fed from outside, and refused before.
std::vector<Result> run(const InputOp&, const Context&) { return {}; }
std::vector<Result> run(const OpaqueOp&, const Context&) { return {}; }

Values feed(const Network& net, const Layer& layer, const std::vector<std::vector<float>>& inputs,
            std::size_t i) {
  const Shape& s = net.tensors[at(layer.outputs[0])].shape;
  if (i >= inputs.size() || inputs[i].size() != at(s.count())) {
    throw Error(fmt::format("{}: input {} needs {} elements (shape {}), {} were given.",
                            place(net, layer), i, s.count(), str(s),
                            i < inputs.size() ? inputs[i].size() : 0));
  }
  return {inputs[i].begin(), inputs[i].end()};
}

std::vector<Values> evaluate(const Network& net, const std::vector<std::vector<float>>& inputs,
                             int threads, bool keep_all) {
  std::vector<Values> values(net.tensors.size());
  std::vector<int> uses(net.tensors.size(), 0);
  for (const Layer& layer : net.layers) {
    for (const TensorId t : layer.inputs) ++uses[at(t)];
  }
  for (const TensorId t : net.outputs) ++uses[at(t)];
  std::size_t fed = 0;
  for (const Layer& layer : net.layers) {
    if (std::holds_alternative<InputOp>(layer.op)) {
      values[at(layer.outputs[0])] = feed(net, layer, inputs, fed++);
      continue;
    }
    Context x{layer, {}, {}, threads > 0 ? threads : omp_get_max_threads()};
    bool ready = !std::holds_alternative<OpaqueOp>(layer.op);
    for (const TensorId t : layer.inputs) {
      x.in.push_back({net.tensors[at(t)].shape, &values[at(t)]});
      ready = ready && !values[at(t)].empty();
    }
    if (!ready) continue;
    for (const Blob& blob : layer.blobs) {
      if (blob.data != nullptr) continue;
      throw Error(
          fmt::format("{} has no weights; load them, or make random ones.", place(net, layer)));
    }
    for (const TensorId t : layer.outputs) x.out.push_back(net.tensors[at(t)].shape);
    std::vector<Result> results = std::visit([&](const auto& op) { return run(op, x); }, layer.op);
    for (std::size_t i = 0; i < results.size(); ++i) {
      values[at(layer.outputs[i])] = std::move(results[i].values);
    }
    if (keep_all) continue;
    for (const TensorId t : layer.inputs) {
      if (--uses[at(t)] == 0) Values().swap(values[at(t)]);
    }
  }
  return values;
}

}  // namespace

std::vector<std::vector<double>> evaluate_reference(const Network& net,
                                                    const std::vector<std::vector<float>>& inputs,
                                                    int threads) {
  std::vector<Values> values = evaluate(net, inputs, threads, false);
  std::vector<Values> outputs;
  for (const TensorId t : net.outputs) {
    if (values[at(t)].empty()) {
      throw Error(
          fmt::format("{}: the output \"{}\" cannot be computed, as it needs a layer that "
                      "cannot be run.",
                      net.file.empty() ? net.name : net.file, net.tensors[at(t)].name));
    }
    outputs.push_back(values[at(t)]);
  }
  return outputs;
}

std::vector<std::vector<double>> evaluate_reference_tensors(
    const Network& net, const std::vector<std::vector<float>>& inputs, int threads) {
  return evaluate(net, inputs, threads, true);
}

}  // namespace convprim
