// The parts of an emitted program that no network changes.
#pragma once

namespace convprim::emitted {

/// net.cpp: how steps are prepared and run.
inline constexpr const char* kHelpers = R"text(
using Parameters = std::vector<std::shared_ptr<const std::vector<float>>>;

/// The parameters in weights.bin, each of kCounts[i] numbers.
Parameters read_parameters(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(path + ": cannot be opened; name the weights with --weights FILE");
  Parameters all;
  for (std::size_t count : kCounts) {
    if (count == 0) continue;  // a network without parameters
    std::vector<float> values(count);
    file.read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(count * sizeof(float)));
    if (!file) throw Error(path + ": is too short for this network");
    all.push_back(std::make_shared<const std::vector<float>>(std::move(values)));
  }
  if (file.peek() != std::ifstream::traits_type::eof())
    throw Error(path + ": is too long for this network");
  return all;
}

/// The arena's workspaces are those of the CPU that the program was made for.
void check_workspace(std::string_view name, std::size_t needed, std::size_t planned) {
  if (needed > planned)
    throw Error(std::string(name) + ": needs a larger workspace on this CPU; emit the program here");
}

[[maybe_unused]] std::unique_ptr<Convolution> convolution(
    std::string_view name, std::string_view scenario, const Weights& weights,
    const Options& options, std::size_t workspace) {
  const Primitive* primitive = find_primitive(name);
  if (primitive == nullptr) throw Error("convprim here lacks the primitive " + std::string(name));
  auto ready = primitive->prepare(Scenario::parse(scenario), weights, options);
  check_workspace(name, ready->workspace_bytes(), workspace);
  return ready;
}

[[maybe_unused]] std::unique_ptr<PreparedLayer> layer(
    std::string_view name, const Op& op, const std::vector<Shape>& in,
    const std::vector<Shape>& out, const std::vector<Blob>& blobs, const ChannelSlice& slice,
    std::size_t workspace) {
  const LayerImpl* impl = find_layer_impl(name);
  if (impl == nullptr) throw Error("convprim here lacks the layer " + std::string(name));
  auto ready = impl->prepare({&op, blobs, in, out, kThreads, slice});
  check_workspace(name, ready->workspace_bytes(), workspace);
  return ready;
}

[[maybe_unused]] const Conversion* conversion(std::string_view name) {
  const Conversion* found = find_conversion(name);
  if (found == nullptr) throw Error("convprim here lacks the conversion " + std::string(name));
  return found;
}

[[maybe_unused]] void run_layer(const PreparedLayer& layer, std::initializer_list<const float*> in,
                                std::initializer_list<float*> out, float* workspace) noexcept {
  layer.run({in.begin(), out.begin(), workspace});
}
)text";

inline constexpr const char* kMain =
    R"text(// Reads a tensor for each input, runs the network once, prints the likeliest classes.
#include <convprim/error.hpp>
#include <convprim/tensor_file.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "net.hpp"

#ifndef WEIGHTS
#define WEIGHTS "weights.bin"
#endif

namespace {

using convprim::Error;

constexpr const char* kUsage =
    "usage: net [--weights FILE] [--output FOLDER] [--top N] [INPUT=]FILE...\n"
    "FILE is an npy file (.npy) or raw float32, one for each input; outputs are npy files.\n";

struct Arguments {
  std::string weights = WEIGHTS, output;
  int top = 5;
  std::vector<std::string> inputs;
};

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) throw Error(word + " needs a value");
      return argv[++i];
    };
    if (word == "--help") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    } else if (word == "--weights") {
      a.weights = value();
    } else if (word == "--output") {
      a.output = value();
    } else if (word == "--top") {
      const std::string number = value();
      const auto end = number.data() + number.size();
      if (std::from_chars(number.data(), end, a.top).ptr != end || a.top < 0)
        throw Error("--top takes a number, not " + number);
    } else if (word.starts_with("--")) {
      throw Error("unknown option " + word + "; see --help");
    } else {
      a.inputs.push_back(word);
    }
  }
  if (a.inputs.size() != std::size(emitted::kInputs))
    throw Error("give one file for each of the network's inputs; see --help");
  return a;
}

/// Fills the inputs: in order, or by name.
void read_inputs(const Arguments& a, float* arena) {
  std::vector<bool> filled(std::size(emitted::kInputs));
  for (std::size_t i = 0; i < a.inputs.size(); ++i) {
    std::size_t input = i;
    std::string file = a.inputs[i];
    for (std::size_t k = 0; k < std::size(emitted::kInputs); ++k) {
      const std::string prefix = std::string(emitted::kInputs[k].name) + "=";
      if (!a.inputs[i].starts_with(prefix)) continue;
      input = k;
      file = a.inputs[i].substr(prefix.size());
    }
    const emitted::Port& port = emitted::kInputs[input];
    if (filled[input]) throw Error(std::string("two files for input ") + port.name);
    filled[input] = true;
    const std::vector<float> values = convprim::read_tensor(file, port.shape);
    std::copy(values.begin(), values.end(), arena + port.offset);
  }
}

void write_outputs(const std::string& folder, const float* arena) {
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  for (const emitted::Port& port : emitted::kOutputs) {
    const convprim::Index dims[] = {port.shape.n, port.shape.c, port.shape.h, port.shape.w};
    convprim::write_npy((std::filesystem::path(folder) / port.file).string(),
                        {dims, static_cast<std::size_t>(port.rank)}, arena + port.offset);
  }
}

void print_top(const emitted::Port& port, const float* values, int top) {
  std::vector<convprim::Index> order(static_cast<std::size_t>(port.shape.c));
  for (convprim::Index n = 0; n < port.shape.n; ++n, values += port.shape.c) {
    std::printf("%s, image %d of %d\n", port.name, static_cast<int>(n + 1),
                static_cast<int>(port.shape.n));
    std::iota(order.begin(), order.end(), 0);
    const auto key = [&](auto i) { return std::isnan(values[i]) ? -INFINITY : values[i]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return key(a) > key(b); });
    for (int i = 0; i < top && i < port.shape.c; ++i) {
      const auto c = order[static_cast<std::size_t>(i)];
      std::printf("%12.6g  class %d\n", static_cast<double>(values[c]), static_cast<int>(c));
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const Arguments a = parse(argc, argv);
  const emitted::Net net(a.weights);
  const emitted::Arena arena = emitted::make_arena();
  read_inputs(a, arena.get());
  net.run(arena.get());
  for (const emitted::Port& port : emitted::kOutputs) {
    if (port.shape.h == 1 && port.shape.w == 1)
      print_top(port, arena.get() + port.offset, a.top);
  }
  if (!a.output.empty()) write_outputs(a.output, arena.get());
} catch (const std::exception& e) {
  std::fprintf(stderr, "net: %s\n", e.what());
  return 2;
}
)text";

}  // namespace convprim::emitted
