// Seeded problems shaped like the selection of convolution primitives for well-known networks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pbqp/pbqp.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace pbqp {

struct GenerateOptions {
  /// chain, resnet, googlenet, densenet, nasnet, randwire (Watts-Strogatz stages of 32 nodes) or
  /// dense (every pair joined).
  std::string kind = "resnet";
  std::size_t nodes = 100;   ///< exact; the last module is cut short if need be
  std::size_t options = 80;  ///< per node, spread over pairs of input and output layouts
  std::size_t layouts = 10;
  double infinite = 0.0;  ///< share of options and of direct conversions that do not exist
  std::uint64_t seed = 1;
  /// Full matrices instead of class edges: the same problem, larger.
  bool expanded = false;
  /// Also gives every option a weight in bytes: cheap options tend to be heavy.
  bool weights = false;
};

/// The kinds that `generate` knows.
std::vector<std::string> generator_kinds();

/// The same options give the same problem on every machine. Costs are times in milliseconds at a
/// resolution of 2^-20 ms, about a nanosecond. Throws std::invalid_argument for an unknown kind or
/// for numbers out of range.
Problem generate(const GenerateOptions& options);

/// The same problem with full matrices for all edges and no classes.
Problem expand(const Problem& problem);

}  // namespace pbqp
#pragma GCC visibility pop
