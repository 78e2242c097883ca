// From a file to a network: which importer, and its stages.
#include "convprim/import.hpp"

#include <fmt/format.h>

#include <charconv>

#include "convprim/error.hpp"
#include "selector/importers/caffe.hpp"
#include "selector/importers/file.hpp"
#include "selector/importers/onnx.hpp"
#include "selector/printable.hpp"

namespace convprim {
namespace {

constexpr std::size_t kLargestText = std::size_t{64} << 20;
constexpr std::size_t kLargestModel = (std::size_t{1} << 31) - 1;  // protobuf's own limit

Network import_any(std::string_view text, const std::string& name, const ImportOptions& options) {
  switch (content_of(text)) {
    case Content::empty:
      throw Error(fmt::format("{}: the file is empty; give the network's own file.", name));
    case Content::html:
      throw Error(fmt::format(
          "{}: this is a web page or XML, not a network; download the raw file.", name));
    case Content::json:
      throw Error(fmt::format("{}: this is JSON, not a network in Caffe's text format.", name));
    case Content::hdf5:
      throw Error(
          fmt::format("{}: this is an HDF5 file, not a network; give the .prototxt.", name));
    case Content::binary:
      if (auto net = onnx::import_model(text, name, options)) return std::move(*net);
      throw Error(
          fmt::format("{}: this is a binary file, not a network in Caffe's text format; if "
                      "it holds weights, give it with --weights and the .prototxt here.",
                      name));
    case Content::text:
      if (text.size() > kLargestText) {
        throw Error(fmt::format("{}: {} MiB of text is no network; check the name.", name,
                                text.size() >> 20));
      }
      break;
  }
  caffe::Parsed parsed = caffe::parse_text(text, name);
  caffe::filter_phase(parsed, name, options);
  caffe::Built built = caffe::build(parsed, name, options);
  if (!options.weights.empty()) {
    caffe::load_weights(built, read_file(options.weights, kLargestModel), options.weights);
  }
  return std::move(built.net);
}

}  // namespace

Network import_network_text(std::string_view text, const std::string& name,
                            const ImportOptions& options) {
  try {
    return import_any(text, name, options);
  } catch (const Error& e) {
    // Names from the file may hold line breaks: the message stays one line.
    throw Error(printable(e.what()));
  }
}

Network import_network(const std::string& path, const ImportOptions& options) {
  return import_network_text(read_file(path, kLargestModel), path, options);
}

std::pair<std::string, std::vector<Index>> parse_input_shape(std::string_view text) {
  const auto fail = [&] {
    throw Error(fmt::format("the input shape \"{}\" is not of the form name=1,3,224,224.", text));
  };
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) fail();
  std::vector<Index> dims;
  const char* at = text.data() + equals + 1;
  const char* const end = text.data() + text.size();
  while (true) {
    Index d = 0;
    const auto [next, code] = std::from_chars(at, end, d);
    if (code != std::errc() || d < 1 || dims.size() == 4) fail();
    dims.push_back(d);
    if (next == end) break;
    if (*next != ',' && *next != 'x') fail();
    at = next + 1;
  }
  return {std::string(text.substr(0, equals)), dims};
}

}  // namespace convprim
