// Weights from a .caffemodel: a binary NetParameter whose layers carry blobs. Layers are matched by
// name; what the network does not have (losses, splits, training data) is ignored.
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "convprim/error.hpp"
#include "selector/importers/caffe.hpp"
#include "selector/importers/file.hpp"
#include "selector/importers/lift.hpp"
#include "selector/importers/net_builder.hpp"

namespace convprim::caffe {
namespace {

/// A parsed file, and the values of its blobs, which lie in the file's bytes still.
struct Model {
  NetParameter net;
  std::vector<std::string_view> values;

  /// The bytes of a blob's floats where they were taken out of the message.
  std::optional<std::string_view> lifted(const BlobProto& blob) const {
    if (!blob.has_lifted() || blob.lifted() >= values.size()) return std::nullopt;
    return values[blob.lifted()];
  }
  /// How many values a blob holds.
  Index count(const BlobProto& blob) const {
    if (const auto bytes = lifted(blob)) return static_cast<Index>(bytes->size() / sizeof(float));
    return blob.data_size() > 0 ? blob.data_size() : blob.double_data_size();
  }
};

Dims dims_of(const Model& model, const BlobProto& blob) {
  if (blob.has_shape()) return {blob.shape().dim().begin(), blob.shape().dim().end()};
  if (blob.has_num() || blob.has_channels() || blob.has_height() || blob.has_width()) {
    return {blob.num(), blob.channels(), blob.height(), blob.width()};
  }
  return {model.count(blob)};
}

Dims without_leading_ones(const Dims& dims) {
  auto first = dims.begin();
  while (first != dims.end() && *first == 1) ++first;
  return {first, dims.end()};
}

/// True if values of shape `from` are those of shape `to` in the same order: equal beside leading
/// ones (legacy blobs have four axes), or a matrix with a row for each output, as when a fully
/// connected layer becomes a convolution.
bool compatible(const Dims& from, const Dims& to) {
  if (checked_count(from) != checked_count(to)) return false;
  const Dims a = without_leading_ones(from);
  const Dims b = without_leading_ones(to);
  if (a == b || a.size() <= 1 || b.size() <= 1) return true;
  return (a.size() == 2 || b.size() == 2) && a[0] == b[0];
}

std::shared_ptr<const std::vector<float>> values_of(const Model& model, const BlobProto& blob,
                                                    const Dims& transpose) {
  std::vector<float> values;
  if (const auto bytes = model.lifted(blob)) {
    values.resize(bytes->size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), bytes->data(), values.size() * sizeof(float));
  } else if (blob.data_size() > 0) {
    values.assign(blob.data().begin(), blob.data().end());
  } else {
    values.reserve(static_cast<std::size_t>(blob.double_data_size()));
    for (const double x : blob.double_data()) values.push_back(static_cast<float>(x));
  }
  if (!transpose.empty()) {  // to [rows][columns] from [columns][rows]
    const auto rows = static_cast<std::size_t>(transpose[0]);
    const auto columns = static_cast<std::size_t>(transpose[1]);
    std::vector<float> turned(values.size());
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) turned[r * columns + c] = values[c * rows + r];
    }
    values = std::move(turned);
  }
  return std::make_shared<const std::vector<float>>(std::move(values));
}

/// Where blobs lie: in layers of the three generations.
constexpr LiftField kBlobData[] = {
    {0, 100, 1},
    {1, 7, 4},  // NetParameter.layer, LayerParameter.blobs
    {0, 2, 2},
    {2, 6, 4},  // NetParameter.layers, V1LayerParameter.blobs
    {2, 1, 3},
    {3, 50, 4},                 // V1LayerParameter.layer, V0LayerParameter.blobs
    {4, 5, LiftField::kTaken},  // BlobProto.data
};

/// A file that holds something else, or is broken, is refused here with the place of the trouble.
NetParameter parse(std::string_view bytes, const std::string& path) {
  NetParameter net;
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  if (!net.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) {
    throw Error(
        fmt::format("{}: this is no .caffemodel, or a broken one: parsing stopped at byte {} "
                    "of {}; download it again.",
                    path, coded.CurrentPosition(), bytes.size()));
  }
  return net;
}

Model read_model(std::string_view bytes, const std::string& path) {
  switch (content_of(bytes)) {
    case Content::empty:
      throw Error(fmt::format("{}: the file is empty; give a .caffemodel.", path));
    case Content::html:
      throw Error(fmt::format("{}: this is a web page, not weights; download the raw file.", path));
    case Content::hdf5:
      throw Error(
          fmt::format("{}: weights in HDF5 are not supported; save them as .caffemodel "
                      "(snapshot_format: BINARYPROTO).",
                      path));
    case Content::json:
    case Content::text:
      throw Error(
          fmt::format("{}: this is text, not weights; were the network and the weights "
                      "swapped?",
                      path));
    case Content::binary:
      break;
  }
  Model model;
  // The protocol's own parser would copy all values once more.
  const auto whole = [](std::string_view v) { return v.size() % sizeof(float) == 0; };
  if (auto lifted = lift(bytes, kBlobData);
      lifted && std::all_of(lifted->values.begin(), lifted->values.end(), whole) &&
      model.net.ParseFromString(lifted->message)) {
    model.values = std::move(lifted->values);
  } else {
    model.net = parse(bytes, path);
  }
  upgrade(model.net, {});
  return model;
}

using ByName = std::map<std::string, std::vector<const LayerParameter*>>;

/// Two dialects of batch normalisation show only in the number of stored blobs: BatchNorm with five
/// (gamma and beta last), and BN with two (statistics folded into slope and bias).
void adapt_dialects(Built& built, const ByName& by_name) {
  std::vector<Slot> slots;
  for (const Slot& s : built.slots) {
    Layer& layer = built.net.layers[static_cast<std::size_t>(s.layer)];
    const auto found = by_name.find(s.source);
    const int count = found == by_name.end() ? 0 : found->second.front()->blobs_size();
    if (layer.type == "BN" && count == 2) {
      if (s.source_blob > 1) continue;
      const Blob channels{.dims = {layer.blobs.back().count()}, .data = nullptr};
      if (!std::holds_alternative<AffineOp>(layer.op)) layer.blobs = {channels, channels};
      layer.op = AffineOp{};
      slots.push_back({s.layer, s.source_blob, s.source, s.source_blob, false});
      continue;
    }
    slots.push_back(s);
    if (layer.type == "BatchNorm" && count == 5 && layer.blobs.size() == 3 && s.blob == 0) {
      const Blob channels{.dims = layer.blobs[0].dims, .data = nullptr};
      layer.blobs.insert(layer.blobs.end(), {channels, channels});
      slots.push_back({s.layer, 3, s.source, 3, false});
      slots.push_back({s.layer, 4, s.source, 4, false});
    }
  }
  built.slots = std::move(slots);
}

}  // namespace

void load_weights(Built& built, std::string_view bytes, const std::string& path) {
  const Model model = read_model(bytes, path);
  // Layers of one name are matched in order: the first of the file with the first of the network.
  std::map<std::string, std::vector<const LayerParameter*>> by_name;
  for (const LayerParameter& layer : model.net.layer()) {
    if (layer.blobs_size() > 0) by_name[layer.name()].push_back(&layer);
  }
  Network& net = built.net;
  std::map<std::string, std::vector<LayerId>> users;  // layers of the network that use a name
  for (const Slot& s : built.slots) {
    auto& ids = users[s.source];
    if (ids.empty() || ids.back() != s.layer) ids.push_back(s.layer);
  }
  adapt_dialects(built, by_name);
  std::map<std::string, std::shared_ptr<const std::vector<float>>> shared;
  std::set<LayerId> missing;
  std::size_t loaded = 0;
  for (const Slot& s : built.slots) {
    Layer& layer = net.layers[static_cast<std::size_t>(s.layer)];
    Blob& blob = layer.blobs[s.blob];
    if (!blob.name.empty() && shared.contains(blob.name)) {
      blob.data = shared[blob.name];
      continue;
    }
    const auto found = by_name.find(s.source);
    if (found == by_name.end()) {
      missing.insert(s.layer);
      continue;
    }
    const auto& ids = users[s.source];
    const auto nth =
        static_cast<std::size_t>(std::find(ids.begin(), ids.end(), s.layer) - ids.begin());
    const LayerParameter& source = *found->second[std::min(nth, found->second.size() - 1)];
    const auto fail = [&](const std::string& clause) {
      throw Error(fmt::format("{}: {}: {}.", path, place(net, layer), clause));
    };
    if (s.source_blob >= static_cast<std::size_t>(source.blobs_size())) {
      fail(
          fmt::format("the weights file has {} blobs for it, the network needs blob {}; do the two "
                      "files belong together",
                      source.blobs_size(), s.source_blob + 1));
    }
    const BlobProto& from = source.blobs(static_cast<int>(s.source_blob));
    const Dims dims = dims_of(model, from);
    Dims want = blob.dims;
    if (s.transpose) std::swap(want[0], want[1]);
    if (!compatible(dims, want)) {
      fail(
          fmt::format("blob {} is {} in the weights file, the network needs {}; do the two files "
                      "belong together",
                      s.source_blob, str(dims), str(want)));
    }
    const Index count = model.count(from);
    if (count != blob.count()) {
      fail(fmt::format("blob {} is said to be {} but holds {} values; the weights file is broken",
                       s.source_blob, str(dims), count));
    }
    blob.data = values_of(model, from, s.transpose ? blob.dims : Dims{});
    if (!blob.name.empty()) shared[blob.name] = blob.data;
    ++loaded;
  }
  if (loaded == 0 && !built.slots.empty()) {
    throw Error(fmt::format(
        "{}: no layer of {} has weights in it; do the two files belong together?", path, net.file));
  }
  for (const LayerId id : missing) {
    net.remarks.push_back(fmt::format("{}: {} has no weights in it.", path,
                                      place(net, net.layers[static_cast<std::size_t>(id)])));
  }
}

}  // namespace convprim::caffe
