// Fully connected layers, from every layout to CHW.
//
//   out[n][j] = clamp(bias[j] + sum over k of in[n][k] * w[j][k], lo, hi)
//
// The weights are packed in the order in which the input's layout stores its elements, into panels
// [k][outputs of the panel]: each thread reads one stream from front to back. A few images are
// served by one pass over each panel; more take it in pieces that stay in the second-level cache.
#include <vector>

#include "buffer.hpp"
#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

/// Elements of the sum in a piece of a panel that serves many images.
constexpr Index kPiece = 512;

class FullyConnected final : public PreparedLayer {
 public:
  FullyConnected(const LayerImpl& impl, const LayerProblem& p)
      : op_(op_of<InnerProductOp>(p)),
        images_(p.in[0].n),
        k_(element_count(impl.in, {1, p.in[0].c, p.in[0].h, p.in[0].w})),
        out_(out_strides(impl, p)),
        threads_(p.threads),
        lanes_(kernels::active().lanes) {
    make_panels();
    pack_bias(op_.bias ? p.blobs[1].data->data() : nullptr);
    pack(impl.in, p.in[0], p.blobs[0].data->data());
  }

  std::size_t packed_bytes() const override { return weights_.bytes() + bias_.bytes(); }

  void run(const LayerArgs& args) const noexcept override {
    parallel(threads_, [&](int thread, int team) {
      const Range parts = share(threads_, thread, team);
      for (Index part = parts.begin; part < parts.end; ++part) {
        for (const Panel& panel : panels_[static_cast<std::size_t>(part)]) {
          run_panel(panel, args.in[0], args.out[0] + out_.base);
        }
      }
    });
  }

 private:
  struct Panel {
    Index vec, vecs;  // first vector of outputs, and their number
  };

  /// Each thread's vectors of outputs, in panels as even as can be.
  void make_panels() {
    const Index vecs = (op_.m + lanes_ - 1) / lanes_;
    panels_.resize(static_cast<std::size_t>(threads_));
    for (int t = 0; t < threads_; ++t) {
      const Range r = share(vecs, t, threads_);
      const Index count = (r.end - r.begin + kernels::kFcVecs - 1) / kernels::kFcVecs;
      for (Index i = 0; i < count; ++i) {
        const Range part = share(r.end - r.begin, static_cast<int>(i), static_cast<int>(count));
        panels_[static_cast<std::size_t>(t)].push_back(
            {r.begin + part.begin, part.end - part.begin});
      }
    }
  }

  void pack_bias(const float* bias) {
    bias_ = Buffer::zeros(static_cast<std::size_t>((op_.m + lanes_ - 1) / lanes_ * lanes_));
    if (bias != nullptr) std::copy_n(bias, op_.m, bias_.data());
  }

  void pack(Layout layout, const Shape& s, const float* w) {
    weights_ = Buffer(bias_.size() * static_cast<std::size_t>(k_));
    const Shape image = {1, s.c, s.h, s.w};
    // For each stored element its place in (c, h, w) order; none for padding lanes.
    std::vector<Index> source(static_cast<std::size_t>(k_), -1);
    Index i = 0;
    for (Index c = 0; c < s.c; ++c) {
      for (Index h = 0; h < s.h; ++h) {
        for (Index x = 0; x < s.w; ++x) {
          source[static_cast<std::size_t>(offset(layout, image, 0, c, h, x))] = i++;
        }
      }
    }
    parallel_for(threads_, threads_, [&](Index t) {
      for (const Panel& panel : panels_[static_cast<std::size_t>(t)]) {
        pack_panel(panel, source, i, w);
      }
    });
  }

  void pack_panel(const Panel& panel, const std::vector<Index>& source, Index columns,
                  const float* w) {
    const Index width = panel.vecs * lanes_, first = panel.vec * lanes_;
    const Index valid = std::min(width, op_.m - first);
    float* to = weights_.data() + first * k_;
    // Pieces of a few cache lines: each output's row of weights is a stream of its own.
    constexpr Index kStep = 64;
    for (Index k0 = 0; k0 < k_; k0 += kStep) {
      const Index k1 = std::min(k0 + kStep, k_);
      for (Index j = 0; j < width; ++j) {
        const float* from = w + (first + j) * columns;
        for (Index k = k0; k < k1; ++k) {
          const Index at = source[static_cast<std::size_t>(k)];
          to[k * width + j] = j < valid && at >= 0 ? from[at] : 0.0F;
        }
      }
    }
  }

  void run_panel(const Panel& panel, const float* in, float* out) const {
    const auto& kernel = *kernels::active().fc;
    const Index width = panel.vecs * lanes_, first = panel.vec * lanes_;
    // As few passes as can be, of even height.
    const Index passes = (images_ + kernel.images - 1) / kernel.images;
    const Index tile = (images_ + passes - 1) / passes;
    const Index piece = passes == 1 ? k_ : kPiece;
    for (Index k = 0; k < k_; k += piece) {
      const bool last = k + piece >= k_;
      for (Index n = 0; n < images_; n += tile) {
        const Index count = std::min(tile, images_ - n);
        kernels::FcPass pass = {};
        pass.x = in + n * k_ + k;
        pass.x_step = k_;
        pass.w = weights_.data() + first * k_ + k * width;
        pass.k = std::min(piece, k_ - k);
        pass.bias = k == 0 ? bias_.data() + first : nullptr;
        pass.out = out + n * out_.n_stride + first;
        pass.out_step = out_.n_stride;
        pass.valid = std::min(width, op_.m - first);
        pass.lo = last ? op_.lo : -std::numeric_limits<float>::infinity();
        pass.hi = last ? op_.hi : std::numeric_limits<float>::infinity();
        kernel.pass[panel.vecs - 1][count - 1](pass);
      }
    }
  }

  InnerProductOp op_;
  Index images_, k_;
  Strides out_;
  int threads_;
  Index lanes_;
  std::vector<std::vector<Panel>> panels_;  // for each of the threads
  Buffer weights_, bias_;
};

const char* reject(const LayerImpl& impl, const LayerProblem& p) {
  if (impl.in != Layout::chw && p.in[0].h == 1 && p.in[0].w == 1) {
    return "1x1 images: fc-chw reads the same memory";
  }
  return nullptr;
}

constexpr LayerImpl kRows[] = {
    {"fc-chw", "fc", Layout::chw, Layout::chw, false, reject, make<FullyConnected>},
    {"fc-hcw", "fc", Layout::hcw, Layout::chw, false, reject, make<FullyConnected>},
    {"fc-hwc", "fc", Layout::hwc, Layout::chw, false, reject, make<FullyConnected>},
    {"fc-chw8c", "fc", Layout::chw8c, Layout::chw, false, reject, make<FullyConnected>},
    {"fc-chw16c", "fc", Layout::chw16c, Layout::chw, false, reject, make<FullyConnected>},
};

}  // namespace

std::span<const LayerImpl> fc_rows() { return kRows; }

}  // namespace convprim
