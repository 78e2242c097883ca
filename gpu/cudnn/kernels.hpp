// Steps as calls of cuDNN. A kernel is made in two parts: its descriptors, which need no device,
// and its weights and algorithm, which do.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gpu/cudnn/handles.hpp"
#include "gpu/program.hpp"

namespace convprim::ios {

/// Where a kernel is launched.
struct Launch {
  cudnnHandle_t handle = nullptr;  ///< bound to `stream`
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

/// What a kernel needs to know when it is loaded.
struct Loader {
  cudnnHandle_t handle = nullptr;
  std::size_t workspace_limit = 0;  ///< bytes
  /// The algorithm kept for a problem, or a negative number.
  std::function<int(const std::string& problem)> find_algorithm;
  std::function<void(const std::string& problem, int algorithm, double seconds)> keep_algorithm;
};

class Kernel {
 public:
  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;
  /// Uploads weights and chooses an algorithm: once, before the first launch.
  virtual void load(const Loader&) {}
  virtual std::size_t workspace_bytes() const { return 0; }
  /// Puts the work on the stream; returns at once. Throws Error.
  virtual void launch(const Launch& where, const float* const* in, float* const* out) const = 0;
};

/// A convolution, or several merged, as the back ends of cuDNN get it. A fully connected layer is
/// one whose kernel is the image.
struct ConvProblem {
  Scenario scenario;
  Epilogue epilogue;
  std::vector<float> filter, bias;  ///< bias empty: none
  bool tf32 = false;
  std::string name;  ///< of the layer, for messages
  /// What the choice of an algorithm depends on.
  std::string text() const;
};

/// One of cuDNN's two interfaces for convolutions.
class ConvBackend {
 public:
  virtual ~ConvBackend() = default;
  virtual std::unique_ptr<Kernel> make(ConvProblem problem) const = 0;
};

/// cuDNN's calls by descriptor: all there in 9.x, to be replaced by the graph interface some day.
const ConvBackend& legacy_convolutions();

/// The kernel of a step. Throws Error naming the layer if this back end cannot compute it.
std::unique_ptr<Kernel> make_kernel(const OperatorGraph& graph, const Step& step, bool tf32);

/// The output shape that cuDNN's own descriptors give a convolution or a pooling that rounds down;
/// nothing for other layers, and for padding that cuDNN cannot express. Needs no GPU.
std::optional<Shape> cudnn_shape(const Network& net, LayerId id);

/// How a clamp is written as an activation. Throws Error naming the layer if it cannot be.
struct Clamp {
  bool any = false;
  ActivationDescriptor descriptor;
};
Clamp clamp_of(float lo, float hi, const std::string& layer);

/// Describes a packed tensor.
TensorDescriptor describe(const Shape& s);

}  // namespace convprim::ios
