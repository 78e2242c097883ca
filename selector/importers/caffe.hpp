// The stages of the Caffe importer: text to message, generations made one, phases chosen, layers
// built, weights loaded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convprim/import.hpp"
#include "selector/convprim_caffe.pb.h"

namespace convprim::caffe {

/// A network file as a message of the newest generation, and what the message does not hold.
struct Parsed {
  NetParameter net;                  ///< all layers in `layer`
  std::vector<int> lines;            ///< where each layer starts; 0 if unknown
  std::vector<std::string> remarks;  ///< unknown fields and values that were skipped
};

/// Parses text of any of the three generations. Throws Error with the line.
Parsed parse_text(std::string_view text, const std::string& file);

/// Turns the layers of the older generations into those of the newest: fills `layer` from `layers`,
/// and the types of layers[i] that the schema does not know from unknown_types[i]. The shapes and
/// numbers of blobs are not looked at.
void upgrade(NetParameter& net, const std::vector<std::string>& unknown_types);

/// Drops the layers that their include and exclude rules keep out of the phase.
void filter_phase(Parsed& parsed, const std::string& file, const ImportOptions& options);

/// A blob of a layer of the network and where its values are in a weights file.
struct Slot {
  LayerId layer = -1;
  std::size_t blob = 0;
  std::string source;           ///< the name of the layer in the file
  std::size_t source_blob = 0;  ///< its blob
  bool transpose = false;       ///< the file has a matrix the other way round
};

struct Built {
  Network net;
  std::vector<Slot> slots;
};

/// Builds the network, with shapes.
Built build(const Parsed& parsed, const std::string& file, const ImportOptions& options);

/// Fills the slots from the bytes of a .caffemodel; `file` is its name, for messages.
void load_weights(Built& built, std::string_view bytes, const std::string& file);

}  // namespace convprim::caffe
