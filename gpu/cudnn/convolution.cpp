// Convolutions through cuDNN's legacy calls.
//
// Bias, residual and ReLU go into the convolution where cuDNN takes them
// (ConvolutionBiasActivation); whether it does is tried out once. Else they are calls of their own.
// cuDNN knows one padding for both sides of an axis: where that gives another output size, the
// input is copied into a larger tensor with a border of zeros first.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpu/cudnn/kernels.hpp"

namespace convprim::ios {
namespace {

constexpr float kOne = 1, kZero = 0;

int narrow(Index i) { return static_cast<int>(i); }

/// Whether padding by (pt, pl) on all sides gives the output that the scenario has.
bool symmetric(const Scenario& s) {
  return (s.h + 2 * s.pt - s.span_h()) / s.sh + 1 == s.oh &&
         (s.w + 2 * s.pl - s.span_w()) / s.sw + 1 == s.ow;
}

/// The same problem on an input with its border written out.
Scenario bordered(const Scenario& s) {
  Scenario b = s;
  // As many rows as the windows read, and no less than there are.
  b.h = std::max((s.oh - 1) * s.sh + s.span_h(), s.h + s.pt);
  b.w = std::max((s.ow - 1) * s.sw + s.span_w(), s.w + s.pl);
  b.pt = b.pl = 0;
  // Rows that no window reads must not make another output.
  b.h = std::min(b.h, s.oh * s.sh + s.span_h() - 1);
  b.w = std::min(b.w, s.ow * s.sw + s.span_w() - 1);
  return b;
}

class LegacyConv final : public Kernel {
 public:
  explicit LegacyConv(ConvProblem problem)
      : p_(std::move(problem)),
        padded_(!symmetric(p_.scenario)),
        s_(padded_ ? bordered(p_.scenario) : p_.scenario),
        x_(describe(s_.in())),
        y_(describe(s_.out())),
        bias_(describe({1, s_.m, 1, 1})),
        clamp_(clamp_of(p_.epilogue.lo, p_.epilogue.hi, p_.name)) {
    must(cudnnSetFilter4dDescriptor(w_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, narrow(s_.m),
                                    narrow(s_.cg()), narrow(s_.kh), narrow(s_.kw)),
         "describing a filter");
    must(cudnnSetConvolution2dDescriptor(conv_, narrow(s_.pt), narrow(s_.pl), narrow(s_.sh),
                                         narrow(s_.sw), narrow(s_.dh), narrow(s_.dw),
                                         CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
         "describing a convolution");
    must(cudnnSetConvolutionGroupCount(conv_, narrow(s_.g)), "describing a convolution's groups");
    must(cudnnSetConvolutionMathType(conv_, p_.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH),
         "choosing a convolution's arithmetic");
    Shape out;
    int n = 0, c = 0, h = 0, w = 0;
    must(cudnnGetConvolution2dForwardOutputDim(conv_, x_, w_, &n, &c, &h, &w),
         fmt::format("finding the output size of layer \"{}\"", p_.name));
    out = {n, c, h, w};
    if (!(out == s_.out())) {
      throw Error(fmt::format("layer \"{}\": cuDNN gives an output of {}x{} where {}x{} is meant",
                              p_.name, h, w, s_.oh, s_.ow));
    }
  }

  void load(const Loader& loader) override {
    filter_ = DeviceMemory(std::span<const float>(p_.filter));
    if (p_.bias.empty() && fusable()) p_.bias.assign(static_cast<std::size_t>(s_.m), 0.0F);
    bias_values_ = DeviceMemory(std::span<const float>(p_.bias));
    if (padded_) {
      border_ = DeviceMemory(bytes(s_.in()));
      must(cudaMemset(border_.data(), 0, border_.bytes()), "clearing a border");
    }
    choose(loader);
    if (fusable()) try_fused(loader);
  }

  std::size_t workspace_bytes() const override { return workspace_; }

  void launch(const Launch& where, const float* const* in, float* const* out) const override {
    const float* x = in[0];
    if (padded_) {
      copy_inside(where.stream, x);
      x = border_.data();
    }
    const float* residual = p_.epilogue.residual ? in[1] : nullptr;
    if (fused_) {
      must(call_fused(where, x, residual, out[0]), "a convolution");
      return;
    }
    must(cudnnConvolutionForward(where.handle, &kOne, x_, x, w_, filter_.data(), conv_, algorithm_,
                                 where.workspace, where.workspace_bytes, &kZero, y_, out[0]),
         "a convolution");
    if (!p_.bias.empty()) {
      must(cudnnAddTensor(where.handle, &kOne, bias_, bias_values_.data(), &kOne, y_, out[0]),
           "adding a bias");
    }
    if (residual != nullptr) {
      must(cudnnAddTensor(where.handle, &kOne, y_, residual, &kOne, y_, out[0]),
           "adding a residual");
    }
    if (clamp_.any) {
      must(cudnnActivationForward(where.handle, clamp_.descriptor, &kOne, y_, out[0], &kZero, y_,
                                  out[0]),
           "an activation");
    }
  }

 private:
  static std::size_t bytes(const Shape& s) {
    return static_cast<std::size_t>(s.count()) * sizeof(float);
  }

  /// cuDNN fuses ReLU with any algorithm; without an activation only one of them.
  bool fusable() const { return clamp_.any && std::isinf(p_.epilogue.hi); }

  cudnnStatus_t call_fused(const Launch& where, const float* x, const float* residual,
                           float* y) const {
    const float* weight = residual != nullptr ? &kOne : &kZero;
    return cudnnConvolutionBiasActivationForward(
        where.handle, &kOne, x_, x, w_, filter_.data(), conv_, algorithm_, where.workspace,
        where.workspace_bytes, weight, y_, residual != nullptr ? residual : y, bias_,
        bias_values_.data(), clamp_.descriptor, y_, y);
  }

  void copy_inside(cudaStream_t stream, const float* x) const {
    const Scenario& from = p_.scenario;
    const auto row = [](Index floats) { return static_cast<std::size_t>(floats) * sizeof(float); };
    const auto rows = static_cast<std::size_t>(std::min(from.h, s_.h - from.pt));
    const auto pointer = [&](const float* data, Index h, Index w) {
      return cudaPitchedPtr{const_cast<float*>(data), row(w), static_cast<std::size_t>(w),
                            static_cast<std::size_t>(h)};
    };
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = pointer(x, from.h, from.w);
    copy.dstPtr = pointer(border_.data(), s_.h, s_.w);
    copy.dstPos = {row(from.pl), static_cast<std::size_t>(from.pt), 0};
    copy.extent = {row(std::min(from.w, s_.w - from.pl)), rows,
                   static_cast<std::size_t>(from.n * from.c)};
    copy.kind = cudaMemcpyDeviceToDevice;
    must(cudaMemcpy3DAsync(&copy, stream), "copying into a border");
  }

  void choose(const Loader& loader) {
    const std::string problem = p_.text();
    int algorithm = loader.find_algorithm(problem);
    if (algorithm < 0) {
      DeviceMemory x(bytes(s_.in())), y(bytes(s_.out())), workspace(loader.workspace_limit);
      cudnnConvolutionFwdAlgoPerf_t found[CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
      int count = 0;
      must(cudnnFindConvolutionForwardAlgorithmEx(loader.handle, x_, x.data(), w_, filter_.data(),
                                                  conv_, y_, y.data(),
                                                  CUDNN_CONVOLUTION_FWD_ALGO_COUNT, &count, found,
                                                  workspace.data(), workspace.bytes()),
           fmt::format("looking for an algorithm for layer \"{}\"", p_.name));
      // The fastest first; without TF32 only those that keep to single precision.
      for (int i = 0; i < count && algorithm < 0; ++i) {
        const bool exact = p_.tf32 || found[i].mathType == CUDNN_FMA_MATH;
        if (found[i].status != CUDNN_STATUS_SUCCESS || !exact) continue;
        algorithm = found[i].algo;
        loader.keep_algorithm(problem, algorithm, 1e-3 * static_cast<double>(found[i].time));
      }
      if (algorithm < 0) {
        throw Error(fmt::format("layer \"{}\": cuDNN has no algorithm for {}", p_.name, s_.str()));
      }
    }
    algorithm_ = static_cast<cudnnConvolutionFwdAlgo_t>(algorithm);
    must(cudnnGetConvolutionForwardWorkspaceSize(loader.handle, x_, w_, conv_, y_, algorithm_,
                                                 &workspace_),
         "asking for a convolution's workspace");
  }

  void try_fused(const Loader& loader) {
    DeviceMemory x(bytes(s_.in())), y(bytes(s_.out())), workspace(workspace_);
    const Launch where{loader.handle, nullptr, workspace.data(), workspace.bytes()};
    fused_ = call_fused(where, x.data(), p_.epilogue.residual ? y.data() : nullptr, y.data()) ==
             CUDNN_STATUS_SUCCESS;
    must(cudaDeviceSynchronize(), "trying a fused convolution");
  }

  ConvProblem p_;
  bool padded_;
  Scenario s_;
  TensorDescriptor x_, y_, bias_;
  FilterDescriptor w_;
  ConvDescriptor conv_;
  Clamp clamp_;
  DeviceMemory filter_, bias_values_, border_;
  cudnnConvolutionFwdAlgo_t algorithm_ = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  std::size_t workspace_ = 0;
  bool fused_ = false;
};

class LegacyConvolutions final : public ConvBackend {
 public:
  std::unique_ptr<Kernel> make(ConvProblem problem) const override {
    return std::make_unique<LegacyConv>(std::move(problem));
  }
};

}  // namespace

std::string ConvProblem::text() const {
  return fmt::format("{} fp32 {}", scenario.str(), tf32 ? "tf32" : "fma");
}

const ConvBackend& legacy_convolutions() {
  static const LegacyConvolutions backend;
  return backend;
}

std::optional<Shape> cudnn_shape(const Network& net, LayerId id) {
  const Layer& layer = net.layers[static_cast<std::size_t>(id)];
  const TensorDescriptor x = describe(net.tensors[static_cast<std::size_t>(layer.inputs[0])].shape);
  int n = 0, c = 0, h = 0, w = 0;
  if (std::holds_alternative<ConvOp>(layer.op)) {
    const Scenario s = scenario_of(net, id);
    if (!symmetric(s)) return std::nullopt;
    FilterDescriptor filter;
    ConvDescriptor conv;
    must(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, narrow(s.m),
                                    narrow(s.cg()), narrow(s.kh), narrow(s.kw)),
         "describing a filter");
    must(cudnnSetConvolution2dDescriptor(conv, narrow(s.pt), narrow(s.pl), narrow(s.sh),
                                         narrow(s.sw), narrow(s.dh), narrow(s.dw),
                                         CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
         "describing a convolution");
    must(cudnnSetConvolutionGroupCount(conv, narrow(s.g)), "describing a convolution's groups");
    must(cudnnGetConvolution2dForwardOutputDim(conv, x, filter, &n, &c, &h, &w),
         "finding an output size");
    return Shape{n, c, h, w};
  }
  const auto* pool = std::get_if<PoolOp>(&layer.op);
  if (pool == nullptr || pool->ceil || pool->global || pool->pt != pool->pb || pool->pl != pool->pr)
    return std::nullopt;
  PoolDescriptor descriptor;
  must(cudnnSetPooling2dDescriptor(descriptor, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN,
                                   narrow(pool->kh), narrow(pool->kw), narrow(pool->pt),
                                   narrow(pool->pl), narrow(pool->sh), narrow(pool->sw)),
       "describing a pooling");
  must(cudnnGetPooling2dForwardOutputDim(descriptor, x, &n, &c, &h, &w), "finding an output size");
  return Shape{n, c, h, w};
}

}  // namespace convprim::ios
