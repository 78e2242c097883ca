// Primitives (rows of an immutable table) and convolutions (a primitive made ready for one
// scenario).
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

#include "convprim/layout.hpp"
#include "convprim/scenario.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// Algorithm families: the bars of Anderson and Gregg's figures, and ours.
enum class Family : std::uint8_t {
  direct,     ///< loop nests over the convolution itself, register-blocked ones included
  im2,        ///< patch matrix (im2col, im2row), then one GEMM
  kn2,        ///< a GEMM for each kernel tap, then shifted adds
  mec,        ///< memory-efficient convolution: rows lowered in one dimension only
  conv_1x1,   ///< one GEMM straight on the image, for 1x1 kernels
  implicit,   ///< GEMM over packed weights that reads patches where they lie: no patch matrix
  winograd,   ///< minimal filtering F(m, k)
  fft,        ///< products in the frequency domain
  depthwise,  ///< one input channel to each group
  onednn      ///< oneDNN's own implementations
};

inline constexpr int kFamilyCount = 10;

/// "direct", "im2", "kn2", "mec", "conv-1x1", "implicit", "winograd", "fft", "depthwise" or
/// "onednn".
std::string_view name(Family family);

/// What happens to a sum before it is stored: out = clamp(sum + bias + residual, lo, hi).
/// The bias is that of Weights, the residual that of RunArgs.
struct Epilogue {
  bool residual = false;  ///< add a tensor of the output's shape and layout
  float lo = -std::numeric_limits<float>::infinity();  ///< lower clamp; 0 makes a ReLU
  float hi = std::numeric_limits<float>::infinity();   ///< upper clamp; 6 makes a ReLU6
  /// True if the sum is clamped at all.
  bool clamps() const {
    return lo != -std::numeric_limits<float>::infinity() ||
           hi != std::numeric_limits<float>::infinity();
  }
  friend bool operator==(const Epilogue&, const Epilogue&) = default;
};

/// A convolution's parameters as networks store them. Read by prepare() only: not kept.
struct Weights {
  const float* filter = nullptr;  ///< [m][c/g][kh][kw]
  const float* bias = nullptr;    ///< [m], or null for none
};

/// What prepare() needs to know beside the scenario.
struct Options {
  int threads = 1;          ///< threads that run() uses, 1 or more
  Epilogue epilogue = {};   ///< fused into the convolution
  ChannelSlice slice = {};  ///< where the output lies if not in a tensor of its own
};

/// The memory of one run.
struct RunArgs {
  const float* in =
      nullptr;           ///< whole input tensor, in the primitive's `in` layout, 64-byte aligned
  float* out = nullptr;  ///< whole output tensor (the sliced one, if Options::slice says so), `out`
                         ///< layout, 64-byte aligned
  const float* residual =
      nullptr;  ///< tensor of the scenario's output shape in `out` layout, if the epilogue adds
                ///< one; may be `out` itself when the output is not sliced
  void* workspace = nullptr;  ///< workspace_bytes() bytes, 64-byte aligned, contents undefined
};

/// A primitive made ready for one scenario: weights packed or transformed, plans made. Immutable:
/// run() may be called from several threads at once, each with memory of its own.
class Convolution {
 public:
  Convolution() = default;
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;
  virtual ~Convolution() = default;

  /// Bytes of scratch memory that run() needs.
  virtual std::size_t workspace_bytes() const = 0;

  /// Bytes of packed weights and tables that this object holds.
  virtual std::size_t packed_bytes() const = 0;

  /// Computes the whole output, padding lanes of blocked layouts included. Throws nothing.
  /// Allocates nothing, except for what OpenBLAS (small products) and oneDNN take and give back
  /// inside their own calls; an output for which oneDNN got no memory is all NaN.
  virtual void run(const RunArgs& args) const noexcept = 0;
};

/// A plain float sum of products is taken to be right if it is off by no more than this times its
/// sum of |x*w|: 16 units of rounding.
inline constexpr double kErrorUnit = 16 * 0x1p-24;

/// One primitive: an immutable table row that lives for ever.
struct Primitive {
  std::string_view name;  ///< unique, as published where it is: "im2row-scan-abt-ik"
  Family family;
  Layout in;   ///< layout that run() reads
  Layout out;  ///< layout that run() writes
  /// nullptr if the scenario is supported, else why not: "needs stride 1".
  const char* (*reject_fn)(const Primitive&, const Scenario&);
  /// Packs the weights. The scenario must be valid and not rejected, else the behaviour is
  /// undefined. Throws std::bad_alloc.
  std::unique_ptr<Convolution> (*prepare_fn)(const Primitive&, const Scenario&, const Weights&,
                                             const Options&);
  const void* params = nullptr;  ///< the algorithm's own columns of the row
  /// Rounding error to expect, relative to that of a plain sum of products in float (1). Tests
  /// allow kErrorUnit times this.
  float error_scale = 1;
  /// True if the products are taken in a transformed domain (Winograd, FFT): an output's error then
  /// depends on the largest outputs near it, not on its own sum of |x*w|.
  bool transforms = false;

  /// nullptr if this primitive solves the scenario, else one clause that says why not.
  const char* reject(const Scenario& s) const { return reject_fn(*this, s); }
  /// A convolution for a scenario that is not rejected. Throws Error if it is.
  std::unique_ptr<Convolution> prepare(const Scenario& s, const Weights& weights,
                                       const Options& options) const;
};

/// All primitives of this build, in a fixed order.
std::span<const Primitive* const> primitives();

/// The primitive of that name, or nullptr.
const Primitive* find_primitive(std::string_view name);

}  // namespace convprim
#pragma GCC visibility pop
