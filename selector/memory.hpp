// What a plan takes in memory, without preparing it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>

#include "convprim/select.hpp"
#include "selector/program.hpp"

namespace convprim {

/// Bytes that an executable of a plan will take with one context.
struct PlanMemory {
  std::size_t arena = 0;      ///< activations and workspaces
  std::size_t live = 0;       ///< the largest sum of them in use at once
  std::size_t packed = 0;     ///< packed weights
  std::size_t workspace = 0;  ///< of the layer that asks for most,
  LayerId widest = -1;        ///< which is this one; none if no layer asks for any
  std::size_t total() const { return arena + packed; }
};

/// Sizes of a network's implementations: as they were measured, and of those that write into a
/// slice by preparing them once, unless that is not to be (`prepare_slices`).
class SizeTable {
 public:
  SizeTable(const Network& net, const SizeFunction& sizes, bool prepare_slices = true)
      : net_(net), sizes_(sizes), prepare_slices_(prepare_slices) {}
  /// Of a step of a plan that is no conversion. Throws Error where sizes are not known.
  Sizes of(const ProgramStep& step, const PlanLayer& chosen);

 private:
  const Network& net_;
  const SizeFunction& sizes_;
  bool prepare_slices_;
  std::map<std::tuple<LayerId, std::string, Index, Index>, Sizes> known_;
};

/// Lays out the memory of a plan as Executable does.
PlanMemory memory_of(const Network& net, const Plan& plan, SizeTable& sizes);

}  // namespace convprim
