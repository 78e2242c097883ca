// Networks from files.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convprim/network.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// What the caller knows better than the file.
struct ImportOptions {
  /// Images in a batch: replaces the first extent of the first input, and of every input that has
  /// the same one. 0: as the file says.
  Index batch = 0;
  /// Shapes of inputs by name, of any rank: they replace the file's, and stand in for those that
  /// only a data base would tell.
  std::map<std::string, std::vector<Index>> shapes = {};
  /// Keep the layers of the training phase instead of those of the test phase (Caffe).
  bool train = false;
  /// Level and stages that include and exclude rules are compared with (Caffe).
  Index level = 0;
  std::vector<std::string> stages = {};
  /// A .caffemodel with the weights of a Caffe network; empty: the network has no weights.
  std::string weights = {};
};

/// Reads a network: Caffe text of any generation or ONNX, told by content and not by the file's
/// ending. An ONNX model brings its weights; data beside it are looked for in its folder.
/// The result is sorted and has all shapes. Layers that cannot be run are opaque; what was skipped
/// or assumed is in `remarks`. Throws Error with one sentence: file, line or layer, and the way
/// out.
Network import_network(const std::string& path, const ImportOptions& options = {});

/// The same for the content of a file that is in memory already; `name` stands for it in messages.
Network import_network_text(std::string_view text, const std::string& name,
                            const ImportOptions& options = {});

/// Reads "data=1,3,224,224", the argument of --input-shape. Throws Error.
std::pair<std::string, std::vector<Index>> parse_input_shape(std::string_view text);

}  // namespace convprim
#pragma GCC visibility pop
