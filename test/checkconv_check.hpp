// One check: a row on a problem, against the double-precision reference.
//
// It runs with NaN in the workspace, a poisoned output between canaries, and options (threads,
// bias, clamp, residual, channel slice) that follow from the pair, so that a row meets all of them
// over its scenarios.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "buffer.hpp"
#include "convprim/primitive.hpp"

namespace convprim {

/// Random bits that follow from both.
std::uint64_t mix(std::uint64_t a, std::uint64_t b);
std::uint64_t hash_text(std::string_view text);

/// Floats with a fence of poison on either side.
class Fenced {
 public:
  static constexpr float kPoison = -7.25e33F;

  Fenced(Index count, float value);
  float* data() { return all_.data() + kFence; }
  Index size() const { return static_cast<Index>(all_.size()) - 2 * kFence; }
  bool intact() const;

 private:
  static constexpr Index kFence = 64;  // keeps the 64-byte alignment
  Buffer all_;
};

/// A scenario's data in (n, c, h, w) order and its answers before bias, residual and clamp.
struct Problem {
  Problem(const Scenario& scenario, std::uint64_t seed, int threads);

  /// The input, or the residual, in a layout; made when first asked for.
  Fenced& input(Layout layout) const;
  Fenced& added(Layout layout) const;
  /// (n, m, y, x) of a position.
  std::array<Index, 4> split(Index flat) const {
    return {flat / (s.ow * s.oh * s.m), flat / (s.ow * s.oh) % s.m, flat / s.ow % s.oh,
            flat % s.ow};
  }

  Scenario s;
  Buffer in, filter, bias, residual;
  std::vector<Index> positions;  // the outputs that are compared, as flat (n, k, y, x) indices
  std::vector<double> value, magnitude;
  double largest = 0;  // of the magnitudes

 private:
  using Layouts = std::array<std::unique_ptr<Fenced>, kLayoutCount>;
  mutable Layouts inputs_, added_;
};

/// The options of one check.
struct Variant {
  int threads = 1;
  bool bias = false, sliced = false, in_place = false;
  Epilogue epilogue;
  std::string str() const;
};

/// The options that a pair's random bits choose; threads of 0 are chosen, too.
Variant variant(std::uint64_t pick, int threads);

struct Outcome {
  std::string failure;  // empty: passed
  double worst = 0;     // largest error in units of the tolerance
  double relative = 0;  // largest error over the sum of |x*w|
};

/// Prepares and runs a row that takes the problem.
Outcome check(const Primitive& row, const Problem& problem, const Variant& v);

}  // namespace convprim
