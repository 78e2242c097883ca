// The machinery that register-blocked direct convolution and implicit GEMM share: packed weights,
// tiles of output pixels, and a static schedule over threads and caches. See tiled.cpp.
#pragma once

#include <memory>

#include "convprim/primitive.hpp"

namespace convprim {

/// How a primitive cuts its work into register tiles.
struct Tiling {
  /// rows: a tile lies in one output row, and all rows share the offsets of their tiles. flat: the
  /// image's pixels are one list, cut evenly, so that tiles of small images are full; each tile has
  /// its own offsets.
  enum class Tiles : std::uint8_t { rows, flat };
  Tiles tiles = Tiles::rows;
  /// Input channels of the outermost loop of the sum, taps being inside it; 0: all of them, taps
  /// outside. Blocked layouts have their own block whatever this says.
  Index channel_block = 0;
};

/// Input hwc, hcw or blocked; any output layout; any scenario that tiled_reject() lets pass.
std::unique_ptr<Convolution> make_tiled(const Scenario& s, const Weights& weights,
                                        const Options& options, Layout in, Layout out,
                                        const Tiling& tiling);

/// nullptr, or why make_tiled() cannot solve the scenario.
const char* tiled_reject(const Scenario& s, Layout in);

}  // namespace convprim
