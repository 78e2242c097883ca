// A network as a value: tensors, and the layers that make them from others.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "convprim/layout.hpp"
#include "convprim/primitive.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// Parameters of a layer: shape and values. `data` is null where the file gave none: see
/// random_weights().
struct Blob {
  std::vector<Index> dims;
  std::shared_ptr<const std::vector<float>> data;
  std::string name = {};  ///< blobs of one name are one parameter, shared by layers; usually empty
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
  Epilogue epilogue = {};
};

/// Transposed convolution: each input pixel adds itself times the filter to the output window at
/// (y*sh - pt, x*sw - pl). blobs[0] is the filter [c][m/g][kh][kw] (Caffe's and ONNX's order);
/// blobs[1], if bias, is [m]. Output rows: (h-1)*sh - pt - pb + (kh-1)*dh + 1 + extra_h. Then
/// clamped.
struct DeconvOp {
  Index m = 0;
  Index kh = 1, kw = 1, sh = 1, sw = 1;
  Index pt = 0, pl = 0, pb = 0, pr = 0;
  Index dh = 1, dw = 1;
  Index g = 1;
  Index extra_h = 0, extra_w = 0;  ///< rows and columns added below and to the right
  bool bias = true;
  float lo = -std::numeric_limits<float>::infinity();
  float hi = std::numeric_limits<float>::infinity();
};

/// Pooling. Caffe's semantics: the output rounds up unless `ceil` is off; with rounding up and any
/// padding, a last window that starts past the image and its first padding is dropped; max ignores
/// the padding; avg divides by the window clipped to the padded image if count_padding, by its real
/// elements otherwise. Where nothing of a window is left, max and avg are 0. outputs[1], if there
/// is one, is the mask of max: the position h*W + w of each maximum in its channel (the first, if
/// several).
struct PoolOp {
  enum class Method : std::uint8_t { max, avg };
  Method method = Method::max;
  bool global = false;  ///< the window is the image: kernel, stride and padding are ignored
  Index kh = 1, kw = 1, sh = 1, sw = 1;
  Index pt = 0, pl = 0, pb = 0, pr = 0;
  Index dh = 1, dw = 1;  ///< dilation of the window; only max has one
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

/// Softmax over the channels, for each image and pixel; or over another axis of (n, c, h, w).
struct SoftmaxOp {
  int axis = 1;
  bool log = false;  ///< the logarithm of it
};

/// Concatenation of the inputs along the channels; or along another axis of (n, c, h, w).
struct ConcatOp {
  int axis = 1;
};

/// Element-wise sum (with coefficients, default 1), product or maximum of two or more inputs of
/// equal shape, then clamped.
struct EltwiseOp {
  enum class Kind : std::uint8_t { sum, prod, max };
  Kind kind = Kind::sum;
  std::vector<float> coeff = {};  ///< empty, or one for each input
  float lo = -std::numeric_limits<float>::infinity();
  float hi = std::numeric_limits<float>::infinity();
};

/// Element-wise function of two inputs with broadcasting: along each of the four axes the extents
/// are equal, or one of them is 1 and is repeated. Squeeze-and-excitation scales this way.
struct BroadcastOp {
  enum class Kind : std::uint8_t { add, sub, mul, div, max, min, pow };
  Kind kind = Kind::mul;
};

/// Element-wise function of one input.
struct ActivationOp {
  enum class Kind : std::uint8_t {
    clamp,         ///< min(max(x, lo), hi): ReLU is lo = 0, ReLU6 has hi = 6
    leaky,         ///< x > 0 ? x : slope * x
    sigmoid,       ///< 1 / (1 + exp(-x))
    tanh,          ///< tanh(x)
    elu,           ///< x > 0 ? scale * x : scale * slope * (exp(x) - 1); SELU has both constants
    swish,         ///< x / (1 + exp(-slope * x))
    hard_sigmoid,  ///< min(max(slope * x + shift, 0), 1)
    hard_swish,    ///< x * min(max(slope * x + shift, 0), 1)
    power,         ///< (shift + scale * x)^exponent
    exp,           ///< exp(shift + scale * x)
    log,           ///< log(shift + scale * x)
    abs,           ///< |x|
    softplus       ///< log(1 + exp(x)): Caffe's BNLL
  };
  Kind kind = Kind::clamp;
  float lo = 0;
  float hi = std::numeric_limits<float>::infinity();
  float slope = 0;
  float scale = 1, shift = 0, exponent = 1;
};

/// out = x > 0 ? x : slope * x with a slope for each channel: blobs[0] is [c], or [1] for one
/// shared slope.
struct PReluOp {};

/// out = in * scale + shift for each channel: what BatchNorm, Scale and Bias layers become.
/// blobs[0] is scale [c], blobs[1] shift [c].
struct AffineOp {};

/// Caffe's BatchNorm, as read: blobs mean [c], variance [c], divisor [1], and in some dialects
/// gamma [c], beta [c]; out = gamma * (in - mean/divisor) / sqrt(variance/divisor + eps) + beta. A
/// divisor of 0 means mean and variance 0. The passes turn it into an AffineOp.
struct BatchNormOp {
  float eps = 1e-5F;
};

/// Passes its input on as {n, c*h*w, 1, 1}, elements in (c, h, w) order.
struct FlattenOp {};

/// The same elements in (n, c, h, w) order under another shape: for each axis an extent, 0 for the
/// input's extent on that axis, or -1 (once) for what is left.
struct ReshapeOp {
  std::array<Index, 4> dims = {0, -1, 1, 1};
};

/// Axis i of the output is axis order[i] of the input, axes in (n, c, h, w).
struct PermuteOp {
  std::array<int, 4> order = {0, 1, 2, 3};
};

/// Cuts the input along an axis of (n, c, h, w) into outputs.size() parts: part i ends before
/// points[i], the last at the end. Equal parts if there are no points.
struct SliceOp {
  int axis = 1;
  std::vector<Index> points = {};
};

/// A box of the input: out[i] = in[begin + step*i] on each axis of (n, c, h, w); an extent of 0
/// stands for all that follows begin.
struct CropOp {
  std::array<Index, 4> begin = {0, 0, 0, 0};
  std::array<Index, 4> extent = {0, 0, 0, 0};
  std::array<Index, 4> step = {1, 1, 1, 1};
};

/// Adds elements before and behind on each axis of (n, c, h, w).
struct PadOp {
  enum class Mode : std::uint8_t {
    constant,  ///< elements of that value
    edge,      ///< the nearest element
    reflect    ///< mirrored, without repeating the edge
  };
  std::array<Index, 4> before = {0, 0, 0, 0};
  std::array<Index, 4> after = {0, 0, 0, 0};
  Mode mode = Mode::constant;
  float value = 0;
};

/// L2 normalisation over the channels of each pixel (or over the whole image, if across_spatial):
/// out = in / sqrt(sum of in^2 + eps) * blobs[0], which is [c], or [1] for one shared factor (SSD's
/// Normalize).
struct NormalizeOp {
  bool across_spatial = false;
  float eps = 1e-10F;
};

/// Changes height and width. Output pixel y reads the input at the coordinate
///   asymmetric: y*h/oh;  half_pixel: (y+0.5)*h/oh - 0.5;  align_corners: y*(h-1)/(oh-1)
/// (0 where oh is 1), clipped to the image; nearest takes its floor (ceil, or the nearest integer,
/// as `round` says), bilinear the two pixels around on each axis.
struct ResizeOp {
  enum class Method : std::uint8_t { nearest, bilinear };
  enum class Coordinate : std::uint8_t { asymmetric, half_pixel, align_corners };
  enum class Round : std::uint8_t { floor, ceil, prefer_floor, prefer_ceil };
  Method method = Method::nearest;
  Coordinate coordinate = Coordinate::asymmetric;
  Round round = Round::floor;
  Index oh = 0, ow = 0;            ///< output extents; 0: from the scales
  float scale_h = 1, scale_w = 1;  ///< output extent = floor(input extent * scale)
};

/// Channels as a [g][c/g] matrix, transposed: output channel i*g + j is input channel j*c/g + i.
struct ShuffleOp {
  Index g = 1;
};

/// Reduces each axis of (n, c, h, w) that is marked to extent 1.
struct ReduceOp {
  enum class Kind : std::uint8_t { sum, mean, max, min, sum_square, l1, l2 };
  Kind kind = Kind::mean;
  std::array<bool, 4> axes = {false, false, true, true};
  float coeff = 1;  ///< multiplies the result
};

/// A constant: one output of this shape, no input; blobs[0] holds it in (n, c, h, w) order.
struct ConstantOp {
  Shape shape;
};

/// Passes its input on to all its outputs: Dropout at inference, Split. The passes remove it.
struct IdentityOp {};

/// A layer that cannot be run, or whose meaning is unknown.
struct OpaqueOp {
  std::string why;                 ///< one clause, for the report
  std::vector<Shape> shapes = {};  ///< of the outputs where they can be known, unknown ones being
                                   ///< all 0; may be shorter than the outputs
};

using Op =
    std::variant<InputOp, ConvOp, DeconvOp, PoolOp, LrnOp, InnerProductOp, SoftmaxOp, ConcatOp,
                 EltwiseOp, BroadcastOp, ActivationOp, PReluOp, AffineOp, BatchNormOp, FlattenOp,
                 ReshapeOp, PermuteOp, SliceOp, CropOp, PadOp, NormalizeOp, ResizeOp, ShuffleOp,
                 ReduceOp, ConstantOp, IdentityOp, OpaqueOp>;

/// A word for the kind of layer: "conv", "deconv", "pool", "lrn", "fc", "softmax", "concat",
/// "eltwise", "broadcast", "act", "prelu", "affine", "batchnorm", "flatten", "reshape", "permute",
/// "slice", "crop", "pad", "normalize", "resize", "shuffle", "reduce", "constant", "identity",
/// "input" or "opaque".
std::string_view kind(const Op& op);

using TensorId = int;
using LayerId = int;

/// A tensor: made by one layer (or fed), read by any number. Ranks below 4 have their axes in
/// front, the rest being 1: {1, 4420, 2} is n = 1, c = 4420, h = 2, w = 1.
struct Tensor {
  std::string name;  ///< the blob's name in the file; not unique there, so only for people
  Shape shape;       ///< valid after infer_shapes(); all 0 where an opaque layer leaves it unknown
  int rank = 4;      ///< axes that the file counts; for people and importers, no operation reads it
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

/// True if the shape is known: only outputs of opaque layers, and what follows them, are not.
inline bool known(const Shape& s) { return s.n > 0; }

/// Computes the shapes of all tensors, and the dims of blobs that have none yet; checks the blobs
/// that have. The outputs of a layer with an unknown input are unknown. Throws Error naming the
/// layer, the file and line, and the shapes that do not fit; a tensor or blob of 2^40 elements or
/// more does not fit.
void infer_shapes(Network& net);

/// The convolution problem of layer `id`, which must hold a ConvOp, after infer_shapes().
Scenario scenario_of(const Network& net, LayerId id);

/// Gives every blob without data reproducible random values: scaled by fan-in so that activations
/// keep their size through ReLUs (He et al., arXiv 1502.01852), convolutions that feed a sum by
/// half of that; the values depend on seed, layer name (or the blob's, if it has one) and blob
/// only.
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
#pragma GCC visibility pop
