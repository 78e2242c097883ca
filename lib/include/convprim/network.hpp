// A network as a value: tensors, and the layers that make them from others.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "convprim/layout.hpp"
#include "convprim/primitive.hpp"

namespace convprim {

/// Parameters of a layer: shape and values. `data` is null where the file gave none: see
/// random_weights().
struct Blob {
  std::vector<Index> dims;
  std::shared_ptr<const std::vector<float>> data;
  /// Product of the dims.
  Index count() const {
    Index product = 1;
    for (Index d : dims) product *= d;
    return product;
  }
};

/// Feeds the network; one output, no input.
struct InputOp {
  Shape shape;
};

/// Convolution. blobs[0] is the filter [m][c/g][kh][kw]; blobs[1], if bias, is [m]. inputs[1], if
/// epilogue.residual, is the tensor added before the clamp. The output rounds down.
struct ConvOp {
  Index m = 0;
  Index kh = 1, kw = 1, sh = 1, sw = 1;
  Index pt = 0, pl = 0, pb = 0, pr = 0;
  Index dh = 1, dw = 1;
  Index g = 1;
  bool bias = true;
  Epilogue epilogue;
};

/// Pooling. Caffe's semantics: the output rounds up unless `ceil` is off; with rounding up and any
/// padding, a last window that starts past the image and its first padding is dropped; max ignores
/// the padding; avg divides by the window clipped to the padded image if count_padding, by its real
/// elements otherwise.
struct PoolOp {
  enum class Method : std::uint8_t { max, avg };
  Method method = Method::max;
  bool global = false;  ///< the window is the image: kernel, stride and padding are ignored
  Index kh = 1, kw = 1, sh = 1, sw = 1;
  Index pt = 0, pl = 0, pb = 0, pr = 0;
  bool ceil = true;
  bool count_padding = true;
};

/// Local response normalisation: out = in / (k + alpha/size^(1 or 2) * sum of in^2 over the
/// window)^beta; the window is `size` channels, or size x size pixels of one channel (divided by
/// size^2) if within_channel.
struct LrnOp {
  Index size = 5;
  float alpha = 1, beta = 0.75F, k = 1;
  bool within_channel = false;
};

/// Fully connected: each image's elements in (c, h, w) order times blobs[0] = [m][c*h*w], plus
/// blobs[1] = [m] if bias, then clamped. The output has shape {n, m, 1, 1}.
struct InnerProductOp {
  Index m = 0;
  bool bias = true;
  float lo = -std::numeric_limits<float>::infinity();
  float hi = std::numeric_limits<float>::infinity();
};

/// Softmax over the channels, for each image and pixel.
struct SoftmaxOp {};

/// Concatenation of the inputs along the channels.
struct ConcatOp {};

/// Element-wise sum (with coefficients, default 1), product or maximum of two or more inputs of
/// equal shape, then clamped.
struct EltwiseOp {
  enum class Kind : std::uint8_t { sum, prod, max };
  Kind kind = Kind::sum;
  std::vector<float> coeff;  ///< empty, or one for each input
  float lo = -std::numeric_limits<float>::infinity();
  float hi = std::numeric_limits<float>::infinity();
};

/// Element-wise function of one input.
struct ActivationOp {
  enum class Kind : std::uint8_t {
    clamp,    ///< min(max(x, lo), hi): ReLU is lo = 0, ReLU6 has hi = 6
    leaky,    ///< x > 0 ? x : slope * x
    sigmoid,  ///< 1 / (1 + exp(-x))
    tanh
  };
  Kind kind = Kind::clamp;
  float lo = 0;
  float hi = std::numeric_limits<float>::infinity();
  float slope = 0;
};

/// out = in * scale + shift for each channel: what BatchNorm, Scale and Bias layers become.
/// blobs[0] is scale [c], blobs[1] shift [c].
struct AffineOp {};

/// Caffe's BatchNorm, as read: blobs mean [c], variance [c], divisor [1]; the passes turn it into
/// an AffineOp.
struct BatchNormOp {
  float eps = 1e-5F;
};

/// Passes its input on as {n, c*h*w, 1, 1}, elements in (c, h, w) order.
struct FlattenOp {};

/// Passes its input on to all its outputs: Dropout at inference, Split. The passes remove it.
struct IdentityOp {};

/// A layer that cannot be run or whose meaning is unknown; its outputs have shapes where those can
/// be known.
struct OpaqueOp {
  std::string why;
};

using Op =
    std::variant<InputOp, ConvOp, PoolOp, LrnOp, InnerProductOp, SoftmaxOp, ConcatOp, EltwiseOp,
                 ActivationOp, AffineOp, BatchNormOp, FlattenOp, IdentityOp, OpaqueOp>;

/// A word for the kind of layer: "conv", "pool", "lrn", "fc", "softmax", "concat", "eltwise",
/// "act", "affine", "batchnorm", "flatten", "identity", "input" or "opaque".
std::string_view kind(const Op& op);

using TensorId = int;
using LayerId = int;

/// A tensor: made by one layer (or fed), read by any number.
struct Tensor {
  std::string name;  ///< the blob's name in the file; not unique there, so only for people
  Shape shape;       ///< valid after infer_shapes()
};

/// One operation, its tensors and parameters.
struct Layer {
  std::string name;
  std::string type;  ///< the type as the file spells it: "Convolution"
  Op op;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  std::vector<Blob> blobs;
  int line = 0;  ///< where the layer starts in its file; 0 if unknown
};

/// A network: layers in an order in which each tensor is made before it is read (see
/// sort_layers()). A plain value; what needs a graph (sorting, fan-out, cycles) views it as a
/// Boost.Graph adjacency list inside the library.
struct Network {
  std::string name;
  std::string file;
  std::vector<Tensor> tensors;
  std::vector<Layer> layers;
  std::vector<TensorId> outputs;     ///< tensors that the network is run for
  std::vector<std::string> remarks;  ///< one sentence for each thing skipped or assumed
};

/// The layer that makes each tensor (-1: none).
std::vector<LayerId> producers(const Network& net);

/// The layers that read each tensor, a layer once for each use.
std::vector<std::vector<LayerId>> consumers(const Network& net);

/// Puts the layers into topological order, keeping the file's order where it is one already. Throws
/// Error on a cycle, a tensor made twice or a tensor that nobody makes, naming the layer.
void sort_layers(Network& net);

/// Computes the shapes of all tensors. Throws Error naming the layer, the file and line, and the
/// shapes that do not fit.
void infer_shapes(Network& net);

/// The convolution problem of layer `id`, which must hold a ConvOp, after infer_shapes().
Scenario scenario_of(const Network& net, LayerId id);

/// Gives every blob without data reproducible random values: scaled by fan-in so that activations
/// keep their size through ReLUs (He et al., arXiv 1502.01852); the values depend on seed, layer
/// name and blob only.
void random_weights(Network& net, std::uint64_t seed = 1);

/// What optimise() did, for the report.
struct PassCounts {
  int identities = 0;   ///< dropouts and splits removed
  int folded = 0;       ///< BatchNorm and Scale folded into a convolution or fully connected layer
  int activations = 0;  ///< activations fused
  int residuals = 0;    ///< residual additions fused
  int dead = 0;         ///< layers that no output needs
};

/// Simplifies a network for inference without changing its outputs: removes identities, turns
/// BatchNorm and Scale into affine layers, folds those into the convolution before, fuses clamps
/// (ReLU) and residual additions into convolutions, fully connected and eltwise layers. Needs
/// shapes and weights (random ones will do).
PassCounts optimise(Network& net);

}  // namespace convprim
