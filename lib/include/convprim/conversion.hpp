// Conversions: routines that copy a tensor from one layout to another, as table rows. The table is
// deliberately incomplete: chains of conversions, found by the DT graph, serve the other pairs.
#pragma once

#include <span>
#include <string_view>

#include "convprim/layout.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// One direct conversion routine.
struct Conversion {
  std::string_view name;  ///< unique: "chw-to-hwc"
  Layout from;            ///< layout that run() reads
  Layout to;              ///< layout that run() writes
  /// Copies a tensor of shape s (s.c channels), a whole one in `from`, into a whole one or a
  /// channel slice in `to`; padding lanes become zeros. Both pointers are those of whole tensors,
  /// 64-byte aligned. Allocates nothing.
  void (*run)(const Shape& s, const float* in, float* out, const ChannelSlice& slice,
              int threads) noexcept;
};

/// All conversion routines, in a fixed order.
std::span<const Conversion> conversions();

/// The routine of that name, or nullptr.
const Conversion* find_conversion(std::string_view name);

}  // namespace convprim
#pragma GCC visibility pop
