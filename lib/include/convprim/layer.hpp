// Layers other than convolutions: implementations as immutable table rows, one or more for each
// kind of Op and layout.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convprim/network.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// What an implementation is made ready for: an operation, its parameters and the shapes around it.
struct LayerProblem {
  const Op* op = nullptr;            ///< read by reject() and prepare() only: not kept
  std::span<const Blob> blobs = {};  ///< with data; needed by prepare() only, not kept
  std::vector<Shape> in = {};        ///< of each input
  std::vector<Shape> out = {};       ///< of each output
  int threads = 1;                   ///< threads that run() uses, 1 or more
  /// Where output 0 lies if not in a tensor of its own; rows reject what they cannot write.
  ChannelSlice slice = {};
};

/// The memory of one run: whole tensors, 64-byte aligned, in the row's layouts.
struct LayerArgs {
  const float* const* in = nullptr;  ///< each input
  float* const* out = nullptr;       ///< each output; the whole tensor where the problem is sliced
  void* workspace = nullptr;         ///< workspace_bytes() bytes, contents undefined
};

/// A layer made ready for one problem. Immutable, like Convolution.
class PreparedLayer {
 public:
  PreparedLayer() = default;
  PreparedLayer(const PreparedLayer&) = delete;
  PreparedLayer& operator=(const PreparedLayer&) = delete;
  virtual ~PreparedLayer() = default;
  /// Bytes of scratch memory that run() needs.
  virtual std::size_t workspace_bytes() const { return 0; }
  /// Bytes of packed weights and tables held.
  virtual std::size_t packed_bytes() const { return 0; }
  /// Computes all outputs, padding lanes of blocked layouts (zeros) included. Allocates nothing,
  /// throws nothing.
  virtual void run(const LayerArgs& args) const noexcept = 0;
};

/// One implementation of one kind of operation: all inputs in one layout, all outputs in one.
struct LayerImpl {
  std::string_view name;  ///< unique: "pool-hwc"
  std::string_view kind;  ///< kind(op) that it implements: "pool"
  Layout in;              ///< layout of all inputs
  Layout out;             ///< layout of all outputs
  bool in_place;          ///< output 0 may be the same memory as input 0, if it is not sliced
  /// nullptr if supported, else why not.
  const char* (*reject_fn)(const LayerImpl&, const LayerProblem&);
  /// Packs the weights of a problem that is not rejected.
  std::unique_ptr<PreparedLayer> (*prepare_fn)(const LayerImpl&, const LayerProblem&);
  const void* params = nullptr;  ///< the implementation's own columns of the row
  /// Largest error, in kErrorUnit (primitive.hpp), relative to each output's sum of |x*w|; of
  /// implementations that sum products, whose weights they may keep in fewer bits.
  float error_scale = 1;

  /// nullptr if this row computes the problem, which must be of its kind, else one clause that says
  /// why not.
  const char* reject(const LayerProblem& p) const { return reject_fn(*this, p); }
  /// The layer made ready. The shapes must be those that the operation makes, the blobs those that
  /// it takes (see network.hpp). Throws Error if the problem is of another kind or rejected, or if
  /// a blob has no data.
  std::unique_ptr<PreparedLayer> prepare(const LayerProblem& p) const;
};

/// All implementations of this build, in a fixed order.
std::span<const LayerImpl* const> layer_impls();

/// The implementation of that name, or nullptr.
const LayerImpl* find_layer_impl(std::string_view name);

/// A canonical text of a problem without its weights, such as "pool max k3s2p0 mb1c64h112w112": the
/// key in a cost data base.
std::string str(const LayerProblem& problem);

}  // namespace convprim
#pragma GCC visibility pop
