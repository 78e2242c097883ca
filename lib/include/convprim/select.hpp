// From a network to a plan: candidates, profiling, and the PBQP query.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "convprim/costs.hpp"
#include "convprim/network.hpp"
#include "convprim/plan.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// One layer's implementation, given by the user.
struct Forced {
  std::string layer;           ///< name in the optimised network
  std::string implementation;  ///< primitive, layer implementation, or "slices" for a concat
};

inline constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

/// The largest error that is allowed without being asked for, see Filter::max_error: just above
/// that of Winograd's largest tiles, and so of all primitives.
inline constexpr double kDefaultMaxError = 2e-5;

/// What may be chosen. The families are those of convolutions.
struct Filter {
  std::vector<Family> families = {};          ///< only these; empty: all
  std::vector<Family> exclude_families = {};  ///< not these
  std::vector<std::string> exclude = {};      ///< not primitives or layer implementations so named
  /// Largest error allowed, relative to each output's sum of |x*w|: leaves out primitives whose
  /// error_scale * kErrorUnit is larger, and other layers' implementations for which it is larger
  /// and that are less exact than a float sum.
  double max_error = kDefaultMaxError;
  std::vector<Forced> force = {};        ///< these layers by these implementations
  std::size_t max_workspace = kNoLimit;  ///< bytes of scratch memory that one layer may ask for
  /// Bytes that the executable may take with one context: packed weights and the arena of
  /// activations and workspaces. The network's own weights, which need not be kept, and what BLAS,
  /// oneDNN and FFTW allocate for themselves do not count.
  std::size_t max_memory = kNoLimit;
  /// Whether all rules on primitives admit this one.
  bool allows(const Primitive& primitive) const;
};

/// Throws Error, naming layer and rule, if the filter forces a layer that is not there or leaves a
/// layer without implementations, as far as can be told before profiling.
void check(const Network& net, const Filter& filter);

/// Layers of a network that nothing in this build can compute, as "name (type)". A network that has
/// any is selected for without them, but not run.
std::vector<std::string> uncomputable(const Network& net);

/// How far profiling is.
struct Progress {
  std::size_t done = 0;      ///< measurements taken or found
  std::size_t total = 0;     ///< measurements that the network asks for
  std::size_t measured = 0;  ///< of those done, how many were taken now
  double seconds_left = -1;  ///< estimate; negative while unknown
  std::string now;           ///< what is being measured
};

/// What profile() did.
struct ProfileReport {
  std::size_t measured = 0;  ///< measurements taken
  std::size_t reused = 0;    ///< found in the store
  double seconds = 0;
  int disturbed = 0;  ///< runs taken again because other programs took part of their time
  int moves = 0;      ///< how often the threads moved nearer or farther apart meanwhile
};

/// Measures what the store lacks to select for an optimised network: each convolution under each
/// primitive that the filter allows (whatever it forces), each other layer under each
/// implementation, each conversion for each tensor shape; by warm-up and median, with the input
/// freshly written and all else out of the core's own caches, as a run finds them. Each cost is in
/// the store when it is taken, so that a run that was killed goes on where it stopped. The store is
/// placed where the threads lie (CostStore::place); should they move meanwhile, so is it, and what
/// is lacking there is measured: select for store.machine() afterwards. `progress` may be empty; it
/// is called before each measurement. Throws Error if the store cannot be written.
ProfileReport profile(const Network& net, const Filter& filter, CostStore& store,
                      const std::function<void(const Progress&)>& progress);

/// The cost of a key in seconds; infinity where it is not known, which leaves that choice out.
using CostFunction = std::function<double(const CostKey&)>;

/// Costs from a store, which must outlive the function.
CostFunction costs_of(const CostStore& store);

/// The memory that a key's implementation takes; nothing where it is not known.
using SizeFunction = std::function<std::optional<Sizes>(const CostKey&)>;

/// Sizes from a store, which must outlive the function.
SizeFunction sizes_of(const CostStore& store);

/// Selects one implementation for each layer so that the whole network, conversions included, costs
/// least: builds the PBQP query and solves it. With `compare`, also computes the strategies of
/// Anderson and Gregg's figures on the same costs. The network must be sorted, with shapes. `sizes`
/// is needed where the filter limits memory. Throws Error naming a layer for which nothing is left
/// to choose, and the rules that left nothing.
Plan select(const Network& net, const Filter& filter, const CostFunction& costs,
            const Machine& machine, bool compare = true, const SizeFunction& sizes = {});

}  // namespace convprim
#pragma GCC visibility pop
