#include "apps/tensor_io.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <numeric>

#include "apps/output.hpp"
#include "convprim/error.hpp"
#include "convprim/tensor_file.hpp"
#include "selector/report.hpp"

namespace convprim {
namespace {

/// The tensors that the network is fed, in the order of its layers.
std::vector<TensorId> input_tensors(const Network& net) {
  std::vector<TensorId> all;
  for (const Layer& layer : net.layers) {
    if (std::holds_alternative<InputOp>(layer.op))
      all.insert(all.end(), layer.outputs.begin(), layer.outputs.end());
  }
  return all;
}

const Tensor& tensor(const Network& net, TensorId t) {
  return net.tensors[static_cast<std::size_t>(t)];
}

/// The argument of --input as number of the input and name of the file.
std::pair<std::size_t, std::string> parse_input(const std::string& argument,
                                                const std::vector<std::string>& names) {
  const std::size_t equals = argument.find('=');
  const std::string name = argument.substr(0, equals);
  const auto named = std::find(names.begin(), names.end(), name);
  if (equals != std::string::npos && named != names.end())
    return {static_cast<std::size_t>(named - names.begin()), argument.substr(equals + 1)};
  if (names.size() == 1 && (equals == std::string::npos || std::ifstream(argument).good()))
    return {0, argument};
  throw Error(fmt::format("--input {}: {}; the network's inputs are {}", argument,
                          equals == std::string::npos
                              ? "which input is it for? Write NAME=FILE"
                              : fmt::format("no input is named \"{}\"", name),
                          fmt::join(names, ", ")));
}

std::vector<std::vector<float>> read_inputs(const std::vector<std::string>& arguments,
                                            const Network& net) {
  std::vector<std::string> names;
  for (TensorId t : input_tensors(net)) names.push_back(tensor(net, t).name);
  std::vector<std::vector<float>> values(names.size());
  for (const std::string& argument : arguments) {
    const auto [input, file] = parse_input(argument, names);
    if (!values[input].empty())
      throw Error(fmt::format("--input gives \"{}\" twice; give it once", names[input]));
    values[input] = read_tensor(file, tensor(net, input_tensors(net)[input]).shape);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (values[i].empty())
      throw Error(fmt::format("no --input for \"{0}\"; add --input {0}=FILE", names[i]));
  }
  return values;
}

/// One label a line; line ends of any system, empty lines at the end do not count.
std::vector<std::string> read_labels(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(fmt::format("--labels {}: cannot be opened; is the name right?", path));
  std::vector<std::string> labels;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    labels.push_back(line);
  }
  while (!labels.empty() && labels.back().empty()) labels.pop_back();
  return labels;
}

/// Whether a tensor holds one number for each class of each image.
bool is_classes(const Shape& s) { return s.h == 1 && s.w == 1 && s.c > 1; }

/// The indices of the largest values, the largest first; of equal ones the lower index first, and
/// what is no number last.
std::vector<Index> largest(const float* values, Index count, int top) {
  std::vector<Index> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](Index i) {
    return std::isnan(values[i]) ? -std::numeric_limits<float>::infinity() : values[i];
  };
  const auto end = order.begin() + std::min<Index>(top, count);
  std::partial_sort(order.begin(), end, order.end(),
                    [&](Index a, Index b) { return key(a) != key(b) ? key(a) > key(b) : a < b; });
  order.erase(end, order.end());
  return order;
}

}  // namespace

void add_tensor_options(CLI::App& app, TensorSettings& settings) {
  app.add_option("--input", settings.inputs,
                 "values of the input: FILE.npy (float32) or raw FILE.bin; NAME=FILE for networks "
                 "with several; repeatable");
  app.add_option("--output", settings.output, "write each output as an npy file into this folder");
  CLI::Option* top =
      app.add_option("--top", settings.top, "print the likeliest classes, so many of them")
          ->check(CLI::Range(1, 1000000));
  app.add_option("--labels", settings.labels, "with --top: file with the name of a class a line")
      ->needs(top);
}

TensorIo::TensorIo(const TensorSettings& settings, const Network& net,
                   std::vector<std::string> used)
    : settings_(settings) {
  if (!settings.inputs.empty()) inputs_ = read_inputs(settings.inputs, net);
  std::vector<Index> classes;
  if (!settings.labels.empty()) labels_ = read_labels(settings.labels);
  for (TensorId t : net.outputs) {
    const Tensor& out = tensor(net, t);
    names_.push_back(out.name);
    dims_.push_back(file_dims(out.shape, out.rank));
    if (is_classes(out.shape)) classes.push_back(out.shape.c);
  }
  if (settings.top > 0 && classes.empty()) {
    throw Error(
        fmt::format("--top: no output of the network has a number for each class; \"{}\" "
                    "has shape {}",
                    names_.at(0), shape_text(dims_.at(0))));
  }
  const auto labelled = static_cast<Index>(labels_.size());
  if (!settings.labels.empty() &&
      std::find(classes.begin(), classes.end(), labelled) == classes.end()) {
    throw Error(fmt::format("--labels {}: has {} lines, but the network's outputs have {} classes",
                            settings.labels, labelled, fmt::join(classes, " and ")));
  }
  files_ = npy_file_names(names_);
  if (settings.output.empty()) return;
  for (const std::string& argument : settings.inputs) {
    used.push_back(argument);
    used.push_back(argument.substr(argument.find('=') + 1));
  }
  used.push_back(settings.labels);
  check_folder("--output", settings.output, files_, used);
}

std::vector<std::vector<float>> TensorIo::fill(const Executable& executable,
                                               Executable::Context& context,
                                               std::uint64_t seed) const {
  if (inputs_.empty()) return fill_inputs(executable, context, seed);
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    std::copy(inputs_[i].begin(), inputs_[i].end(), context.input(i));
  return inputs_;
}

void TensorIo::write(const Executable& executable, const Executable::Context& context) const {
  if (settings_.output.empty()) return;
  std::vector<OutputFile> files;
  for (std::size_t i = 0; i < executable.output_count(); ++i)
    files.push_back({files_[i], npy_bytes(dims_[i], context.output(i))});
  write_folder(settings_.output, files);
}

std::string TensorIo::classes(const Executable& executable,
                              const Executable::Context& context) const {
  std::string text;
  if (settings_.top == 0) return text;
  for (std::size_t i = 0; i < executable.output_count(); ++i) {
    const Shape shape = executable.output_shape(i);
    if (!is_classes(shape)) continue;
    for (Index n = 0; n < shape.n; ++n) {
      text += fmt::format("{}, image {} of {}\n", names_[i], n + 1, shape.n);
      const float* values = context.output(i) + n * shape.c;
      const bool labelled = static_cast<Index>(labels_.size()) == shape.c;
      for (Index c : largest(values, shape.c, settings_.top)) {
        text += fmt::format("{:>12.6g}  class {}{}\n", values[c], c,
                            labelled ? ": " + labels_[static_cast<std::size_t>(c)] : "");
      }
    }
  }
  return text;
}

}  // namespace convprim
