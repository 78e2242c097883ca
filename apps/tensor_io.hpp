// Tensors that a command reads and writes: --input, --output, --top and --labels.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "convprim/executable.hpp"
#include "convprim/network.hpp"

namespace convprim {

/// The options' arguments.
struct TensorSettings {
  std::vector<std::string> inputs;  ///< FILE or NAME=FILE
  std::string output;               ///< folder for the outputs; empty: none
  int top = 0;                      ///< classes to print; 0: none
  std::string labels;               ///< file with a label on each line
  /// True if a run is asked for.
  bool any() const { return !inputs.empty() || !output.empty() || top > 0; }
};

/// Adds the options to a command.
void add_tensor_options(CLI::App& app, TensorSettings& settings);

/// What the options ask for, read and checked before any long work.
class TensorIo {
 public:
  /// Reads inputs and labels, and checks that the outputs can be written without replacing one of
  /// the files `used`. Throws Error.
  TensorIo(const TensorSettings& settings, const Network& net, std::vector<std::string> used);

  /// Fills a context's inputs: from the files, or at random where there are none. Returns them.
  std::vector<std::vector<float>> fill(const Executable& executable, Executable::Context& context,
                                       std::uint64_t seed) const;

  /// Writes the outputs of a run as npy files, all or none. Throws Error.
  void write(const Executable& executable, const Executable::Context& context) const;

  /// The likeliest classes of each image, a line each; empty if not asked for.
  std::string classes(const Executable& executable, const Executable::Context& context) const;

 private:
  TensorSettings settings_;
  std::vector<std::vector<float>> inputs_;  // empty: none given
  std::vector<std::string> names_;          // of the outputs' tensors
  std::vector<std::string> files_;          // of the outputs
  std::vector<std::vector<Index>> dims_;    // of the outputs
  std::vector<std::string> labels_;
};

}  // namespace convprim
