// A network and a plan, bound to weights and ready to run.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "convprim/network.hpp"
#include "convprim/plan.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// What one step of a run does, for profiles of whole runs.
struct StepInfo {
  std::string name;            ///< layer, or "tensor: chw to hwc"
  std::string kind;            ///< kind of layer, or "conversion"
  std::string implementation;  ///< primitive, layer implementation or conversion routine
  double predicted_seconds = 0;
};

/// Immutable once built; any number of contexts may run at the same time.
class Executable {
 public:
  /// The memory of one run at a time: an arena for activations and workspaces. Belongs to the
  /// executable that made it, and must not outlive it.
  class Context {
   public:
    Context(Context&&) noexcept;
    Context& operator=(Context&&) noexcept;
    ~Context();
    /// Memory of network input i, to be filled before the first run(): (n, c, h, w) order. A run
    /// leaves it as it is, so that only what changes need be written again.
    float* input(std::size_t i = 0);
    /// Output i after run(), in (n, c, h, w) order; valid until the next run() with this context.
    const float* output(std::size_t i = 0) const;

   private:
    friend class Executable;
    struct Impl;
    explicit Context(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
  };

  /// Packs the weights and lays out the memory. `net` must be the optimised network that the plan
  /// was made for, with weights; it is not kept. Throws Error if the plan does not fit the network
  /// or has cut layers.
  Executable(const Network& net, const Plan& plan);
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;
  ~Executable();

  /// Memory for one run at a time. Throws std::bad_alloc.
  Context make_context() const;

  /// One forward pass, from context.input() to context.output(), on the plan's number of threads.
  /// May be called from several threads at once, each with a context of its own, made by this
  /// object. Throws nothing, and allocates nothing but what Convolution::run() may.
  void run(Context& context) const noexcept;

  /// The same, and the seconds that each step took, in the order of steps(); `seconds` has
  /// steps().size() entries.
  void run_timed(Context& context, double* seconds) const noexcept;

  const std::vector<StepInfo>& steps() const;
  /// The network's inputs, in the order of its layers, and its outputs, in the order of
  /// Network::outputs.
  std::size_t input_count() const;
  std::size_t output_count() const;
  /// Throw std::out_of_range if there is no such input or output.
  const Shape& input_shape(std::size_t i) const;
  const Shape& output_shape(std::size_t i) const;
  /// The tensors' names in the network's file, which need not be different.
  const std::string& input_name(std::size_t i) const;
  const std::string& output_name(std::size_t i) const;
  /// Bytes of activations and workspaces in each context, and of packed weights in the executable.
  std::size_t arena_bytes() const;
  std::size_t packed_bytes() const;
  /// The largest sum of live tensors and workspace at any step: what an ideal arena would take.
  std::size_t live_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convprim
#pragma GCC visibility pop
