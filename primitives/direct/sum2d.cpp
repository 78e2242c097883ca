// direct-sum2d: the textbook sum of single-channel convolutions, chw -> chw.
//
//   for each image, output channel k: plane k = bias; for each input channel c of k's group: plane
//   k += conv2d(channel c, filter k c)
//
// One thread whatever is asked for, and loops as they stand in the textbook: this is the baseline
// that all speed-ups are relative to (Anderson and Gregg, section 5). It takes any scenario.
#include <algorithm>

#include "buffer.hpp"
#include "primitives/registry.hpp"

namespace convprim {
namespace {

class Sum2d final : public Convolution {
 public:
  Sum2d(const Scenario& s, const Weights& weights, const Options& options)
      : s_(s),
        epilogue_(options.epilogue),
        out_(strides(Layout::chw, s.out(), options.slice)),
        filter_(static_cast<std::size_t>(s.filter_count())),
        bias_(Buffer::zeros(static_cast<std::size_t>(s.m))) {
    std::copy_n(weights.filter, s.filter_count(), filter_.data());
    if (weights.bias != nullptr) std::copy_n(weights.bias, s.m, bias_.data());
  }

  std::size_t workspace_bytes() const override { return 0; }
  std::size_t packed_bytes() const override { return filter_.bytes() + bias_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    for (Index n = 0; n < s_.n; ++n) {
      for (Index k = 0; k < s_.m; ++k) {
        // The sum starts from bias and residual, so that the plane is written once and updated in
        // place.
        float* plane = args.out + out_.at(n, k, 0, 0);
        const Index pixels = s_.oh * s_.ow;
        const float bias = bias_[static_cast<std::size_t>(k)];
        const float* residual =
            epilogue_.residual ? args.residual + (n * s_.m + k) * pixels : nullptr;
        for (Index i = 0; i < pixels; ++i) {
          plane[i] = bias + (residual != nullptr ? residual[i] : 0.0F);
        }
        const Index first = k / s_.mg() * s_.cg();
        for (Index c = 0; c < s_.cg(); ++c) {
          add_conv2d(args.in + (n * s_.c + first + c) * s_.h * s_.w,
                     filter_.data() + (k * s_.cg() + c) * s_.kh * s_.kw, plane);
        }
        for (Index i = 0; i < pixels; ++i)
          plane[i] = std::clamp(plane[i], epilogue_.lo, epilogue_.hi);
      }
    }
  }

 private:
  /// plane += the single-channel convolution of image with filter.
  void add_conv2d(const float* image, const float* filter, float* plane) const {
    for (Index y = 0; y < s_.oh; ++y) {
      for (Index x = 0; x < s_.ow; ++x) {
        float sum = 0;
        for (Index i = 0; i < s_.kh; ++i) {
          const Index row = y * s_.sh - s_.pt + i * s_.dh;
          if (row < 0 || row >= s_.h) continue;
          for (Index j = 0; j < s_.kw; ++j) {
            const Index col = x * s_.sw - s_.pl + j * s_.dw;
            if (col < 0 || col >= s_.w) continue;
            sum += image[row * s_.w + col] * filter[i * s_.kw + j];
          }
        }
        plane[y * s_.ow + x] += sum;
      }
    }
  }

  Scenario s_;
  Epilogue epilogue_;
  Strides out_;
  Buffer filter_;
  Buffer bias_;
};

const char* reject(const Primitive&, const Scenario&) { return nullptr; }

std::unique_ptr<Convolution> prepare(const Primitive&, const Scenario& s, const Weights& weights,
                                     const Options& options) {
  return std::make_unique<Sum2d>(s, weights, options);
}

constexpr Primitive kRows[] = {
    {"direct-sum2d", Family::direct, Layout::chw, Layout::chw, reject, prepare},
};

}  // namespace

std::span<const Primitive> sum2d_rows() { return kRows; }

}  // namespace convprim
