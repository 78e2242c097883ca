// Transposed convolution, CHW: for each output channel k and a band of input rows
//
//   col[tap][pixel] = sum over c of w[c][k][tap] * in[c][pixel]      (one GEMM)
//   out[k][y*sh - pt + i*dh][x*sw - pl + j*dw] += col[(i, j)][(y, x)]
//
// then bias and clamp. Bands keep the products in the second-level cache; threads share the output
// channels.
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
  }

  std::size_t packed_bytes() const override { return filter_.bytes() + bias_.bytes(); }
  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(band_floats() * threads_) * sizeof(float);
  }

  void run(const LayerArgs& args) const noexcept override {
    parallel(threads_, [&](int thread, int team) {
      float* col = static_cast<float*>(args.workspace) + band_floats() * thread;
      const Range r = share(shape_.n * shape_.c, thread, team);
      for (Index i = r.begin; i < r.end; ++i) {
        run_plane(args.in[0], args.out[0], col, i / shape_.c, i % shape_.c);
      }
    });
  }

 private:
  Index band_floats() const { return padded(op_.kh * op_.kw * band_ * in_shape_.w); }

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
};

constexpr LayerImpl kRows[] = {
    {"deconv-chw", "deconv", Layout::chw, Layout::chw, false, accept, make<Deconv>},
};

}  // namespace

std::span<const LayerImpl> deconv_rows() { return kRows; }

}  // namespace convprim
