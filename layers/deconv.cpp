// Transposed convolution, CHW: for each output channel k and a band of input rows
//
//   col[tap][pixel] = sum over c of w[c][k][tap] * in[c][pixel]      (one GEMM)
//   out[k][y*sh - pt + i*dh][x*sw - pl + j*dw] += col[(i, j)][(y, x)]
//
// then bias and clamp. Bands keep the products in the second-level cache. Where an output channel
// reads one input channel (bilinear upsampling), a product would be all traffic: there each output
// row is gathered, one phase (column modulo stride) after the other in unit steps, and interleaved.
// Threads share the output channels.
#include <cmath>

#include "blas.hpp"
#include "buffer.hpp"
#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

class Deconv final : public PreparedLayer {
 public:
  Deconv(const LayerImpl& impl, const LayerProblem& p)
      : op_(op_of<DeconvOp>(p)),
        in_shape_(p.in[0]),
        shape_(p.out[0]),
        in_(in_strides(impl, p)),
        out_(out_strides(impl, p)),
        threads_(p.threads),
        filter_(p.blobs[0].data->size()),
        bias_(Buffer::zeros(static_cast<std::size_t>(op_.m))) {
    init_blas();
    std::copy(p.blobs[0].data->begin(), p.blobs[0].data->end(), filter_.data());
    if (op_.bias) std::copy_n(p.blobs[1].data->data(), op_.m, bias_.data());
    constexpr Index kBand = Index{1} << 17;  // floats
    band_ = std::clamp<Index>(kBand / (op_.kh * op_.kw * in_shape_.w), 1, in_shape_.h);
    phase_ = (shape_.w + op_.sw - 1) / op_.sw;
    thread_floats_ =
        padded(channelwise() ? phase_ * op_.sw : op_.kh * op_.kw * band_ * in_shape_.w);
  }

  std::size_t packed_bytes() const override { return filter_.bytes() + bias_.bytes(); }
  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(thread_floats_ * threads_) * sizeof(float);
  }

  void run(const LayerArgs& args) const noexcept override {
    parallel(threads_, [&](int thread, int team) {
      float* own = static_cast<float*>(args.workspace) + thread_floats_ * thread;
      const Range r = share(shape_.n * shape_.c, thread, team);
      for (Index i = r.begin; i < r.end; ++i) {
        const Index n = i / shape_.c, k = i % shape_.c;
        if (channelwise()) {
          gather_plane(args.in[0], args.out[0], own, n, k);
        } else {
          run_plane(args.in[0], args.out[0], own, n, k);
        }
      }
    });
  }

 private:
  bool channelwise() const { return in_shape_.c == op_.g; }

  /// Phase r of an output row holds its columns r, r + sw, ...: a tap adds a stretch of an input
  /// row to one phase.
  void gather_plane(const float* in, float* out, float* phases, Index n, Index k) const {
    const auto& kernels = *kernels::active().elementwise;
    const Index c = k / (op_.m / op_.g), k_in_group = k % (op_.m / op_.g);
    const float* plane = in + in_.at(n, c, 0, 0);
    const float* taps = filter_.data() + (c * (op_.m / op_.g) + k_in_group) * op_.kh * op_.kw;
    for (Index y = 0; y < shape_.h; ++y) {
      float* row = out + out_.at(n, k, y, 0);
      float* sums = op_.sw == 1 ? row : phases;
      std::fill_n(sums, op_.sw == 1 ? shape_.w : phase_ * op_.sw,
                  bias_[static_cast<std::size_t>(k)]);
      for (Index i = 0; i < op_.kh; ++i) {
        const Index down = y + op_.pt - i * op_.dh;
        if (down < 0 || down % op_.sh != 0 || down / op_.sh >= in_shape_.h) continue;
        add_row(plane + down / op_.sh * in_shape_.w, taps + i * op_.kw, sums);
      }
      if (op_.sw > 1) interleave(phases, row);
      kernels.epilogue_channel(row, nullptr, 0, op_.lo, op_.hi, shape_.w);
    }
  }

  void add_row(const float* from, const float* taps, float* phases) const {
    for (Index j = 0; j < op_.kw; ++j) {
      const Index shift = j * op_.dw - op_.pl;
      const Index phase = (shift % op_.sw + op_.sw) % op_.sw, moved = (shift - phase) / op_.sw;
      const Index columns = (shape_.w - phase + op_.sw - 1) / op_.sw;  // of this phase
      const Index begin = std::max<Index>(0, -moved), end = std::min(in_shape_.w, columns - moved);
      float* to = phases + phase * phase_ + moved;
      const float tap = taps[j];
      for (Index x = begin; x < end; ++x) to[x] += tap * from[x];
    }
  }

  void interleave(const float* phases, float* row) const {
    if (op_.sw == 2) {
      for (Index x = 0; x < shape_.w / 2; ++x) {
        row[2 * x] = phases[x];
        row[2 * x + 1] = phases[phase_ + x];
      }
      if (shape_.w % 2 == 1) row[shape_.w - 1] = phases[shape_.w / 2];
      return;
    }
    for (Index r = 0; r < op_.sw; ++r) {
      for (Index x = r, q = 0; x < shape_.w; x += op_.sw, ++q) row[x] = phases[r * phase_ + q];
    }
  }

  void run_plane(const float* in, float* out, float* col, Index n, Index k) const {
    const auto& kernels = *kernels::active().elementwise;
    float* plane = out + out_.at(n, k, 0, 0);
    const Index pixels = shape_.h * shape_.w, taps = op_.kh * op_.kw;
    const Index mg = op_.m / op_.g, cg = in_shape_.c / op_.g, first = k / mg * cg;
    std::fill_n(plane, pixels, bias_[static_cast<std::size_t>(k)]);
    for (Index y = 0; y < in_shape_.h; y += band_) {
      const Index rows = std::min(band_, in_shape_.h - y), columns = rows * in_shape_.w;
      sgemm(true, false, taps, columns, cg, 1, filter_.data() + (first * mg + k % mg) * taps,
            mg * taps, in + in_.at(n, first, y, 0), in_.c_stride, 0, col, columns);
      for (Index tap = 0; tap < taps; ++tap) {
        add_tap(col + tap * columns, plane, y, rows, tap / op_.kw, tap % op_.kw);
      }
    }
    kernels.epilogue_channel(plane, nullptr, 0, op_.lo, op_.hi, pixels);
  }

  void add_tap(const float* col, float* plane, Index first, Index rows, Index i, Index j) const {
    // Input columns whose output column exists.
    const Index shift = j * op_.dw - op_.pl;
    const Index begin = shift < 0 ? (-shift + op_.sw - 1) / op_.sw : 0;
    const Index end =
        shift >= shape_.w ? 0 : std::min(in_shape_.w, (shape_.w - 1 - shift) / op_.sw + 1);
    for (Index y = 0; y < rows; ++y) {
      const Index oy = (first + y) * op_.sh - op_.pt + i * op_.dh;
      if (oy < 0 || oy >= shape_.h) continue;
      const float* from = col + y * in_shape_.w;
      float* to = plane + oy * shape_.w + shift;
      if (op_.sw == 1) {
        for (Index x = begin; x < end; ++x) to[x] += from[x];
      } else {
        for (Index x = begin; x < end; ++x) to[x * op_.sw] += from[x];
      }
    }
  }

  DeconvOp op_;
  Shape in_shape_, shape_;
  Strides in_, out_;
  int threads_;
  Buffer filter_, bias_;
  Index band_ = 1;
  Index phase_ = 0;          // columns of an output row's longest phase
  Index thread_floats_ = 0;  // of the workspace
};

constexpr LayerImpl kRows[] = {
    {"deconv-chw", "deconv", Layout::chw, Layout::chw, false, accept, make<Deconv>},
};

}  // namespace

std::span<const LayerImpl> deconv_rows() { return kRows; }

}  // namespace convprim
