// See net_builder.hpp.
#include "selector/importers/net_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "convprim/error.hpp"

namespace convprim {

Shape to_shape(const Dims& dims) {
  Shape s;
  Index* const axes[] = {&s.n, &s.c, &s.h, &s.w};
  for (std::size_t i = 0; i < dims.size() && i < 4; ++i) *axes[i] = dims[i];
  return s;
}

NetBuilder::NetBuilder(const std::string& file, const ImportOptions& options) : options_(options) {
  net_.file = file;
  if (options_.batch < 0) {
    throw Error(fmt::format("a batch of {} was asked for; it must be 1 or more.", options_.batch));
  }
}

void NetBuilder::fail(const std::string& clause) const {
  Layer layer;
  layer.name = current_.name;
  layer.type = current_.type;
  layer.line = current_.line;
  throw Error(fmt::format("{}: {}.", place(net_, layer), clause));
}

void NetBuilder::remark(const std::string& clause) {
  Layer layer;
  layer.name = current_.name;
  layer.type = current_.type;
  layer.line = current_.line;
  net_.remarks.push_back(fmt::format("{}: {}.", place(net_, layer), clause));
}

void NetBuilder::remark_list(const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return;
  constexpr std::size_t kShown = 8;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(names.size(), kShown));
  std::string text = fmt::format("{}: {} {}: {}", net_.file, names.size(), what,
                                 fmt::join(names.begin(), names.begin() + shown, ", "));
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  net_.remarks.push_back(text + ".");
}

Dims NetBuilder::dims(TensorId t) const {
  const Shape s = shape(t);
  const Index all[] = {s.n, s.c, s.h, s.w};
  return Dims(all, all + rank(t));
}

int NetBuilder::axis_of(Index axis, int rank, const char* what) const {
  if (axis < -rank || axis >= rank) {
    fail(fmt::format("{} {} does not exist in an input of {} axes", what, axis, rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

TensorId NetBuilder::new_tensor(const std::string& name, const Shape& shape, int rank) {
  net_.tensors.push_back({name, shape, rank});
  const auto id = static_cast<TensorId>(net_.tensors.size()) - 1;
  tensors_[name] = id;
  return id;
}

LayerId NetBuilder::add(Op op, std::vector<TensorId> inputs,
                        const std::vector<std::string>& outputs, int rank,
                        std::vector<Blob> blobs) {
  Layer layer;
  layer.name = current_.name;
  layer.type = current_.type;
  layer.line = current_.line;
  layer.op = std::move(op);
  layer.inputs = std::move(inputs);
  layer.blobs = std::move(blobs);
  std::vector<Shape> shapes;
  for (const TensorId t : layer.inputs) shapes.push_back(shape(t));
  Inferred r;
  try {
    r = infer(layer.op, shapes, outputs.size(), layer.blobs);
  } catch (const Error& e) {
    fail(e.what());
  }
  layer.blobs.resize(r.blobs.size());
  for (std::size_t i = 0; i < r.blobs.size(); ++i) layer.blobs[i].dims = r.blobs[i];
  const int out_rank = rank != 0 ? rank : layer.inputs.empty() ? 4 : this->rank(layer.inputs[0]);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    layer.outputs.push_back(new_tensor(outputs[i], r.outputs[i], out_rank));
  }
  net_.layers.push_back(std::move(layer));
  return static_cast<LayerId>(net_.layers.size()) - 1;
}

void NetBuilder::add_opaque(const std::string& why, std::vector<TensorId> inputs,
                            const std::vector<std::string>& outputs,
                            const std::vector<Dims>& dims) {
  OpaqueOp op;
  op.why = why;
  for (const Dims& d : dims) {
    const bool fits = d.size() <= 4 && checked_count(d) > 0;
    op.shapes.push_back(fits ? to_shape(d) : Shape{0, 0, 0, 0});
  }
  const LayerId id = add(std::move(op), std::move(inputs), outputs, 4);
  for (std::size_t i = 0; i < std::min(dims.size(), outputs.size()); ++i) {
    net_.tensors[at(net_.layers[at(id)].outputs[i])].rank =
        static_cast<int>(std::clamp<std::size_t>(dims[i].size(), 1, 4));
  }
  remark(fmt::format("cannot be run: {}", why));
}

void NetBuilder::feed(const std::string& name, Dims dims, const std::string& type, int line) {
  const auto given = options_.shapes.find(name);
  if (given != options_.shapes.end()) {
    dims = given->second;
    fed_.insert(name);
  } else if (options_.batch > 0 && !dims.empty()) {
    if (first_batch_ == 0) first_batch_ = dims[0];
    if (dims[0] == first_batch_) dims[0] = options_.batch;
  }
  const Current outer = std::exchange(current_, {name, type, line});
  if (dims.empty() || dims.size() > 4) {
    // Rank 5 does not fit a Shape: everything behind is unknown.
    add_opaque(fmt::format("inputs have 1 to 4 axes, not {}", dims.size()), {}, {name});
  } else {
    add(InputOp{to_shape(dims)}, {}, {name}, static_cast<int>(dims.size()));
  }
  current_ = outer;
}

TensorId NetBuilder::reshaped(TensorId from, const Dims& dims, const std::string& name) {
  const Shape s = to_shape(dims);
  const Index n = s.n == shape(from).n ? 0 : s.n;
  add(ReshapeOp{{n, s.c, s.h, s.w}}, {from}, {name}, std::max(1, static_cast<int>(dims.size())));
  return last();
}

Blob NetBuilder::constant(Index count, float value) {
  Blob& blob = constants_[value == 0 ? 0 : 1][count];
  if (blob.data == nullptr) {
    constexpr Index kMost = Index{1} << 25;  // a broken file must not take all memory
    constant_total_ += count;
    if (constant_total_ > kMost) fail(fmt::format("{} channels are too many", count));
    blob.dims = {count};
    blob.data = std::make_shared<const std::vector<float>>(at(count), value);
  }
  return blob;
}

void NetBuilder::finish() {
  for (const auto& [name, dims] : options_.shapes) {
    if (!fed_.contains(name)) {
      throw Error(
          fmt::format("{}: a shape was given for \"{}\", which is no input of the network; "
                      "check the name.",
                      net_.file, name));
    }
  }
  if (net_.outputs.empty()) {
    throw Error(
        fmt::format("{}: nothing is computed from the network's inputs; check the phase, or "
                    "whether the file is the whole network.",
                    net_.file));
  }
  sort_layers(net_);
  infer_shapes(net_);
}

}  // namespace convprim
