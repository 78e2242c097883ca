// From a plan to steps and buffers.
//
// A tensor may exist in several layouts at once: each is an instance, which lies in a buffer of its
// own, inside the buffer of a concatenation that it is a slice of, or where another instance of the
// same tensor already lies in the same order. Buffers live from the step that first writes them to
// the last that reads them. Inputs and outputs of the network stay for the whole run.
//
// Plans come from files too. So nothing is taken for granted: every implementation must be one that
// may be chosen for its layer, every tensor must exist in the layout in which it is read, and a
// part of a concatenation is read by that concatenation only.
#include "selector/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "convprim/error.hpp"
#include "convprim/select.hpp"
#include "selector/candidates.hpp"
#include "selector/shared_parts.hpp"

namespace convprim {
namespace {

/// One tensor in one layout.
struct Place {
  Layout layout{};
  int buffer = kNoBuffer;
  ChannelSlice slice;    // in the buffer's whole tensor
  int part = kNoBuffer;  // that slice as a buffer, if it can be read there
};

/// Why the plan cannot have that implementation for that layer; empty if it can. Says the same as
/// candidates(), but looks at one implementation only.
std::string objection(const Network& net, LayerId id, const PlanLayer& chosen) {
  const Layer& layer = net.layers[static_cast<std::size_t>(id)];
  const std::string& name = chosen.implementation;
  const auto layouts = [&](Layout in, Layout out) {
    return fmt::format("\"{}\" goes from {} to {}, not from {} to {}", name, convprim::name(in),
                       convprim::name(out), convprim::name(chosen.in), convprim::name(chosen.out));
  };
  if (name == "cut") return "the plan leaves it out, so the network cannot be run whole";
  if (std::holds_alternative<InputOp>(layer.op)) {
    const bool right = name == "input" && chosen.in == Layout::chw && chosen.out == Layout::chw;
    return right ? "" : fmt::format("an input is \"input\" from chw to chw, not \"{}\"", name);
  }
  const auto unknown = [&](TensorId t) {
    return !known(net.tensors[static_cast<std::size_t>(t)].shape);
  };
  if (std::holds_alternative<OpaqueOp>(layer.op) ||
      std::any_of(layer.inputs.begin(), layer.inputs.end(), unknown) ||
      std::any_of(layer.outputs.begin(), layer.outputs.end(), unknown))
    return "nothing here computes it";
  const Primitive* primitive = find_primitive(name);
  const LayerImpl* impl = find_layer_impl(name);
  if (name == "slices") {
    const auto all = choices(net, id, {});
    if (std::any_of(all.begin(), all.end(), [&](const Choice& c) {
          return c.slices && c.in == chosen.in && c.out == chosen.out;
        }))
      return "";
    return std::holds_alternative<ConcatOp>(layer.op)
               ? fmt::format("its parts cannot be written in place in {}",
                             convprim::name(chosen.out))
               : "only a concatenation can be \"slices\"";
  }
  if (primitive == nullptr && impl == nullptr)
    return fmt::format("the plan chose \"{}\", which this build lacks", name);
  const std::string_view computes = primitive != nullptr ? "conv" : impl->kind;
  if (computes != kind(layer.op))
    return fmt::format("\"{}\" computes {}, not {}", name, computes, kind(layer.op));
  const char* why = primitive != nullptr ? primitive->reject(scenario_of(net, id))
                                         : impl->reject(layer_problem(net, id, 1));
  if (why != nullptr) return fmt::format("\"{}\" cannot compute it: {}", name, why);
  const Layout in = primitive != nullptr ? primitive->in : impl->in;
  const Layout out = primitive != nullptr ? primitive->out : impl->out;
  return in == chosen.in && out == chosen.out ? "" : layouts(in, out);
}

/// The last layer that reads each tensor; -1 where there is none, or the outside reads it later.
std::vector<LayerId> last_readers(const Network& net) {
  std::vector<LayerId> last(net.tensors.size(), -1);
  for (std::size_t id = 0; id < net.layers.size(); ++id) {
    for (TensorId t : net.layers[id].inputs)
      last[static_cast<std::size_t>(t)] = static_cast<LayerId>(id);
  }
  for (TensorId t : net.outputs) last[static_cast<std::size_t>(t)] = -1;
  return last;
}

/// Builds a program from a network and a plan that passed check_plan().
class Builder {
 public:
  Builder(const Network& net, const Plan& plan, Program& program)
      : net_(net),
        plan_(plan),
        steps_(program.steps),
        buffers_(program.buffers),
        names_(program.names),
        parts_(program.parts),
        shared_parts_(net),
        places_(net.tensors.size()),
        conversions_(net.tensors.size()),
        uses_(use_counts(net)),
        last_reader_(last_readers(net)) {}

  void build() {
    sort_conversions();
    place_slices();
    for (LayerId id = 0; id < static_cast<LayerId>(net_.layers.size()); ++id) {
      add_layer(id);
      for (TensorId t : net_.layers[static_cast<std::size_t>(id)].outputs) add_conversions(t);
    }
  }

  /// The buffer of an input or output of the network, which the outside fills or reads.
  int port(TensorId t) const { return source(t, Layout::chw); }

  /// Marks a buffer as read (or written) at a step.
  void touch(int buffer, int step) {
    for (const BufferPart& part : parts_) {
      if (part.buffer == buffer) touch(part.whole, step);
    }
    Lifetime& b = buffers_[static_cast<std::size_t>(buffer)];
    b.first = std::min(b.first, step);
    b.last = std::max(b.last, step);
  }

 private:
  const Tensor& tensor(TensorId t) const { return net_.tensors[static_cast<std::size_t>(t)]; }
  const Shape& shape(TensorId t) const { return tensor(t).shape; }
  int uses(TensorId t) const { return uses_[static_cast<std::size_t>(t)]; }
  std::vector<Place>& places(TensorId t) { return places_[static_cast<std::size_t>(t)]; }
  const std::vector<Place>& places(TensorId t) const {
    return places_[static_cast<std::size_t>(t)];
  }

  /// The conversions of each tensor, checked against the table of routines.
  void sort_conversions() {
    for (const PlanConversion& c : plan_.conversions) {
      if (c.tensor < 0 || static_cast<std::size_t>(c.tensor) >= net_.tensors.size())
        throw Error(fmt::format("the plan converts tensor {}, which the network lacks", c.tensor));
      const Conversion* routine = find_conversion(c.routine);
      if (routine == nullptr)
        throw Error(
            fmt::format("the plan needs conversion \"{}\", which this build lacks", c.routine));
      if (routine->from != c.from || routine->to != c.to) {
        throw Error(fmt::format("tensor \"{}\": conversion \"{}\" does not go from {} to {}",
                                tensor(c.tensor).name, c.routine, name(c.from), name(c.to)));
      }
      conversions_[static_cast<std::size_t>(c.tensor)].push_back(&c);
    }
  }

  /// The buffer in which a tensor is read in a layout.
  int source(TensorId t, Layout layout) const {
    const Place& place = find(t, layout);
    return place.part != kNoBuffer ? place.part : place.buffer;
  }

  /// The place where a tensor can be read in a layout, or in one that lies the same.
  const Place& find(TensorId t, Layout layout) const {
    const Place* found = nullptr;
    bool part = false;
    for (const Place& p : places(t)) {
      if (p.layout == layout) {
        part = p.slice.sliced() && p.part == kNoBuffer;
        if (!part) return p;
      }
      if (found == nullptr && !p.slice.sliced() && same_memory(p.layout, layout, shape(t)))
        found = &p;
    }
    if (found != nullptr) return *found;
    throw Error(fmt::format(
        "the plan reads tensor \"{}\" in layout {}, {}", tensor(t).name, name(layout),
        part ? "while it is a part of a concatenation" : "but never makes it in that layout"));
  }

  int new_buffer(TensorId t, Layout layout) {
    const auto floats = static_cast<std::size_t>(element_count(layout, shape(t)));
    buffers_.push_back({floats * sizeof(float), std::numeric_limits<int>::max(), -1});
    names_.push_back(fmt::format("{} {}", tensor(t).name, name(layout)));
    return static_cast<int>(buffers_.size()) - 1;
  }

  /// The place of input k of concat `id`, whose output lies at `root`.
  ChannelSlice part_slice(LayerId id, std::size_t k, const Place& root) const {
    ChannelSlice slice = concat_slice(net_, id, k);
    if (root.slice.sliced()) slice = {root.slice.channels, root.slice.begin + slice.begin};
    return slice;
  }

  /// Gives the inputs of concatenations that are written in place their places beforehand: outer
  /// concatenations first, so that nested ones end up in the outermost buffer.
  void place_slices() {
    const auto makers = producers(net_);
    for (std::size_t i = net_.layers.size(); i-- > 0;) {
      const Layer& layer = net_.layers[i];
      if (plan_.layers[i].implementation != "slices") continue;
      const TensorId whole = layer.outputs[0];
      const Layout layout = plan_.layers[i].out;
      Place root{layout, kNoBuffer, {}};
      if (const auto it = reserved_.find({whole, layout}); it != reserved_.end()) {
        root = it->second;
      } else {
        root.buffer = new_buffer(whole, layout);
        reserved_[{whole, layout}] = root;
      }
      for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
        const TensorId t = layer.inputs[k];
        const ChannelSlice slice = part_slice(static_cast<LayerId>(i), k, root);
        const auto maker = static_cast<std::size_t>(makers[static_cast<std::size_t>(t)]);
        const Layout made = plan_.layers[maker].out;
        if (uses(t) > 1) {  // copied when the concat's turn comes, or there for all its readers
          if (lies_inside(static_cast<LayerId>(i), k, made, layout))
            reserved_[{t, layout}] = {layout, root.buffer, slice, new_part(t, root.buffer, slice)};
          continue;
        }
        // The producer may write another layout that lies the same.
        const bool converted = !conversions_[static_cast<std::size_t>(t)].empty();
        const Layout own = !converted && joined(made, layout, shape(t), slice) ? made : layout;
        reserved_[{t, own}] = {own, root.buffer, slice};
      }
    }
  }

  /// Whether input k of a concat, which others read too, lies inside the whole in this layout.
  bool lies_inside(LayerId id, std::size_t k, Layout made, Layout layout) const {
    const TensorId t = net_.layers[static_cast<std::size_t>(id)].inputs[k];
    const auto& all = conversions_[static_cast<std::size_t>(t)];
    return shared_parts_.inside(id, k, layout) &&
           (made == layout ||
            std::any_of(all.begin(), all.end(), [&](const auto* c) { return c->to == layout; }));
  }

  /// A buffer for a slice of a whole of one image, in a layout in which its elements are
  /// neighbours.
  int new_part(TensorId t, int whole, const ChannelSlice& slice) {
    const auto pixels = static_cast<std::size_t>(shape(t).h * shape(t).w);
    buffers_.push_back({0, std::numeric_limits<int>::max(), -1});
    names_.push_back(tensor(t).name + " part");
    const int buffer = static_cast<int>(buffers_.size()) - 1;
    parts_.push_back(
        {buffer, whole, static_cast<std::size_t>(slice.begin) * pixels * sizeof(float)});
    return buffer;
  }

  /// The place where a tensor will be written in a layout: a reserved one, one that another tensor
  /// leaves (`old` tells), or a new buffer.
  template <class Old>
  Place make_place(TensorId t, Layout layout, Old old) {
    if (const auto it = reserved_.find({t, layout}); it != reserved_.end()) return it->second;
    if (const std::optional<Place> place = old()) return *place;
    return {layout, new_buffer(t, layout), {}};
  }
  Place make_place(TensorId t, Layout layout) {
    return make_place(t, layout, [] { return std::optional<Place>(); });
  }

  void add_step(ProgramStep step) {
    const int number = static_cast<int>(steps_.size());
    for (int b : step.in) touch(b, number);
    for (int b : step.out) touch(b, number);
    if (step.residual != kNoBuffer) touch(step.residual, number);
    steps_.push_back(std::move(step));
  }

  void add_layer(LayerId id) {
    const auto i = static_cast<std::size_t>(id);
    const Layer& layer = net_.layers[i];
    const PlanLayer& chosen = plan_.layers[i];
    ProgramStep step;
    step.info = {layer.name, std::string(kind(layer.op)), chosen.implementation, chosen.seconds};
    step.layer = id;
    if (std::holds_alternative<InputOp>(layer.op)) {
      add_input(layer);
    } else if (chosen.implementation == "slices") {
      finish_slices(id);
    } else if (const auto* conv = std::get_if<ConvOp>(&layer.op)) {
      add_convolution(layer, *conv, std::move(step));
    } else {
      add_other(layer, std::move(step));
    }
  }

  void add_input(const Layer& layer) {
    for (TensorId t : layer.outputs) {
      if (reserved_.contains({t, Layout::chw}))
        throw Error(
            fmt::format("layer \"{}\": an input cannot be written in place as a part of a "
                        "concatenation",
                        layer.name));
      const Place place = make_place(t, Layout::chw);
      places(t).push_back(place);
      pinned_.insert(place.buffer);
    }
  }

  void add_convolution(const Layer& layer, const ConvOp& op, ProgramStep step) {
    const Primitive& primitive = *find_primitive(step.info.implementation);
    const Place out = make_place(layer.outputs[0], primitive.out, [&] {
      return op.epilogue.residual ? over_input(step.layer, 1, primitive.out, primitive.out)
                                  : std::nullopt;
    });
    step.primitive = &primitive;
    step.scenario = scenario_of(net_, step.layer);
    step.options = {plan_.machine.threads, op.epilogue, out.slice};
    step.in.push_back(source(layer.inputs[0], primitive.in));
    if (op.epilogue.residual) step.residual = source(layer.inputs[1], primitive.out);
    step.out.push_back(out.buffer);
    places(layer.outputs[0]).push_back(out);
    add_step(std::move(step));
  }

  void add_other(const Layer& layer, ProgramStep step) {
    const LayerImpl& impl = *find_layer_impl(step.info.implementation);
    step.impl = &impl;
    step.problem = layer_problem(net_, step.layer, plan_.machine.threads);
    for (TensorId t : layer.inputs) step.in.push_back(source(t, impl.in));
    for (std::size_t k = 0; k < layer.outputs.size(); ++k) {
      const TensorId t = layer.outputs[k];
      const Place out = make_place(t, impl.out, [&] {
        return k == 0 && impl.in_place ? over_input(step.layer, 0, impl.in, impl.out)
                                       : std::nullopt;
      });
      if (k == 0) {
        step.problem.slice = out.slice;
      } else if (out.slice.sliced()) {
        throw Error(fmt::format(
            "layer \"{}\": only a first output can be written in place into a concatenation",
            layer.name));
      }
      step.out.push_back(out.buffer);
      places(t).push_back(out);
    }
    if (const char* why = impl.reject(step.problem))
      throw Error(
          fmt::format("layer \"{}\": \"{}\" cannot compute it: {}", layer.name, impl.name, why));
    add_step(std::move(step));
  }

  /// The place of input i of a layer for its output 0 to be written over, if lifetimes allow: the
  /// layer is the tensor's last reader, and reads it once.
  std::optional<Place> over_input(LayerId id, std::size_t i, Layout in, Layout out) const {
    const Layer& layer = net_.layers[static_cast<std::size_t>(id)];
    if (layer.inputs.empty()) return std::nullopt;
    const TensorId t = layer.inputs[i];
    const Place& source = find(t, in);
    const bool shared = source.part != kNoBuffer ||
                        std::any_of(parts_.begin(), parts_.end(),
                                    [&](const BufferPart& p) { return p.whole == source.buffer; });
    if (last_reader_[static_cast<std::size_t>(t)] != id || shared ||
        pinned_.contains(source.buffer) ||
        element_count(in, shape(t)) != element_count(out, shape(layer.outputs[0]))) {
      return std::nullopt;
    }
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
      // A convolution's input lies in another layout than its residual may: compare tensors.
      if (k != i && layer.inputs[k] == t) return std::nullopt;
    }
    return Place{out, source.buffer, {}};
  }

  void add_conversions(TensorId t) {
    for (const PlanConversion* c : conversions_[static_cast<std::size_t>(t)]) {
      if (std::any_of(places(t).begin(), places(t).end(),
                      [&](const Place& p) { return p.layout == c->to; })) {
        throw Error(fmt::format("the plan converts tensor \"{}\" to {}, in which it is already",
                                tensor(t).name, name(c->to)));
      }
      ProgramStep step;
      step.info = {fmt::format("{}: {} to {}", tensor(t).name, name(c->from), name(c->to)),
                   "conversion", c->routine, c->seconds};
      const Place to = make_place(t, c->to);
      step.conversion = find_conversion(c->routine);
      step.shape = shape(t);
      step.slice = to.slice;
      step.in.push_back(source(t, c->from));
      step.out.push_back(to.buffer);
      places(t).push_back(to);
      add_step(std::move(step));
    }
  }

  /// A concat whose inputs lie in place already, except some that others read too.
  void finish_slices(LayerId id) {
    const auto i = static_cast<std::size_t>(id);
    const Layer& layer = net_.layers[i];
    const Layout layout = plan_.layers[i].out;
    const Place root = reserved_.at({layer.outputs[0], layout});
    const auto copied = [&](std::size_t k) {
      const TensorId t = layer.inputs[k];
      const ChannelSlice slice = part_slice(id, k, root);
      return uses(t) > 1 && !std::any_of(places(t).begin(), places(t).end(), [&](const Place& p) {
               return p.part != kNoBuffer && p.buffer == root.buffer && p.slice == slice &&
                      p.layout == layout;
             });
    };
    std::size_t copies = 0;
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) copies += copied(k) ? 1 : 0;
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
      const TensorId t = layer.inputs[k];
      const ChannelSlice slice = part_slice(id, k, root);
      if (!copied(k)) {
        const bool there = std::any_of(places(t).begin(), places(t).end(), [&](const Place& p) {
          return p.buffer == root.buffer && p.slice == slice &&
                 joined(p.layout, layout, shape(t), slice);
        });
        if (!there)
          throw Error(fmt::format(
              "layer \"{}\": the plan never writes its part \"{}\" in place in layout {}",
              layer.name, tensor(t).name, name(layout)));
        continue;
      }
      const LayerImpl* impl = copy_impl(layout);
      if (impl == nullptr)
        throw Error(fmt::format("this build cannot copy tensors in layout {}", name(layout)));
      ProgramStep step;
      step.info = {layer.name, "concat", std::string(impl->name),
                   plan_.layers[i].seconds / static_cast<double>(copies)};
      step.layer = id;
      step.impl = impl;
      step.problem = copy_problem(shape(t), plan_.machine.threads);
      step.problem.slice = slice;
      step.in.push_back(source(t, layout));
      step.out.push_back(root.buffer);
      add_step(std::move(step));
    }
    places(layer.outputs[0]).push_back(root);
  }

  const Network& net_;
  const Plan& plan_;
  std::vector<ProgramStep>& steps_;
  std::vector<Lifetime>& buffers_;
  std::vector<std::string>& names_;
  std::vector<BufferPart>& parts_;
  SharedParts shared_parts_;
  std::vector<std::vector<Place>> places_;  // of each tensor, in the order of their making
  std::vector<std::vector<const PlanConversion*>> conversions_;  // of each tensor
  std::vector<int> uses_;
  std::vector<LayerId> last_reader_;  // of each tensor; none for what is read from outside
  std::map<std::pair<TensorId, Layout>, Place> reserved_;
  std::set<int> pinned_;  // buffers that no layer may overwrite: the network's inputs
};

}  // namespace

void check_plan(const Network& net, const Plan& plan) {
  if (plan.layers.size() != net.layers.size()) {
    throw Error(fmt::format(
        "the plan has {} layers and the network {}: the plan was made for another network",
        plan.layers.size(), net.layers.size()));
  }
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    if (plan.layers[i].layer != net.layers[i].name) {
      throw Error(
          fmt::format("layer {} is \"{}\" in the plan and \"{}\" in the network: the plan was made "
                      "for another network",
                      i + 1, plan.layers[i].layer, net.layers[i].name));
    }
  }
  if (!plan.cut.empty()) {
    throw Error(
        fmt::format("the network cannot be run whole: nothing computes layer \"{}\"{}", plan.cut[0],
                    plan.cut.size() > 1 ? fmt::format(" and {} more", plan.cut.size() - 1) : ""));
  }
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    const PlanLayer& chosen = plan.layers[static_cast<std::size_t>(id)];
    if (const std::string why = objection(net, id, chosen); !why.empty())
      throw Error(fmt::format("layer \"{}\": {}", chosen.layer, why));
  }
}

Program lay_out(const Network& net, const Plan& plan) {
  Program program;
  program.threads = plan.machine.threads;
  Builder builder(net, plan, program);
  builder.build();
  const int last = std::max(0, static_cast<int>(program.steps.size()) - 1);
  for (const Layer& layer : net.layers) {
    if (!std::holds_alternative<InputOp>(layer.op)) continue;
    for (TensorId t : layer.outputs) {
      program.inputs.push_back({t, builder.port(t)});
      builder.touch(program.inputs.back().buffer, 0);
      builder.touch(program.inputs.back().buffer, last);
    }
  }
  for (TensorId t : net.outputs) {
    program.outputs.push_back({t, builder.port(t)});
    builder.touch(program.outputs.back().buffer, last);
  }
  for (Lifetime& b : program.buffers) {
    if (b.last < 0) b.first = b.last = 0;  // never used
  }
  return program;
}

Sizes PreparedStep::sizes() const {
  if (convolution) return {convolution->workspace_bytes(), convolution->packed_bytes()};
  if (layer) return {layer->workspace_bytes(), layer->packed_bytes()};
  return {};
}

PreparedStep prepare(const Network& net, const ProgramStep& step) {
  PreparedStep ready;
  if (step.conversion != nullptr) return ready;
  const Layer& layer = net.layers[static_cast<std::size_t>(step.layer)];
  for (const Blob& blob : layer.blobs) {
    if (!blob.data)
      throw Error(
          fmt::format("layer \"{}\": has no weights; load them or make random ones", layer.name));
  }
  if (step.primitive != nullptr) {
    const bool bias = std::get<ConvOp>(layer.op).bias;
    const Weights weights{layer.blobs.at(0).data->data(),
                          bias ? layer.blobs.at(1).data->data() : nullptr};
    ready.convolution = step.primitive->prepare(step.scenario, weights, step.options);
  } else {
    ready.layer = step.impl->prepare(step.problem);
  }
  return ready;
}

ArenaPlan place_buffers(const Program& program) {
  ArenaPlan arena = plan_arena(program.buffers);
  const auto offset = [&](int buffer) -> std::size_t& {
    return arena.offsets[static_cast<std::size_t>(buffer)];
  };
  for (const BufferPart& part : program.parts)
    offset(part.buffer) = offset(part.whole) + part.offset;
  return arena;
}

void add_workspace(Program& program, std::size_t i, std::size_t bytes) {
  if (bytes == 0) return;
  program.steps[i].workspace = static_cast<int>(program.buffers.size());
  program.buffers.push_back({bytes, static_cast<int>(i), static_cast<int>(i)});
  program.names.push_back(program.steps[i].info.name + " workspace");
}

std::vector<PreparedStep> prepare_all(const Network& net, Program& program) {
  std::vector<PreparedStep> ready;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    ready.push_back(prepare(net, program.steps[i]));
    add_workspace(program, i, ready.back().sizes().workspace);
  }
  return ready;
}

}  // namespace convprim
