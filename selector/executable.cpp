// The executor: a plan becomes a list of steps over an arena.
//
// A tensor may exist in several layouts at once: each is an instance, which lies in a buffer of its
// own, inside the buffer of a concatenation that it is a slice of, or where another instance of the
// same tensor already lies in the same order. Buffers live from the step that first writes them to
// the last that reads them, and are placed in one arena. Inputs and outputs of the network stay for
// the whole run.
#include "convprim/executable.hpp"

#include <fmt/format.h>

#include <cassert>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "buffer.hpp"
#include "convprim/error.hpp"
#include "convprim/select.hpp"
#include "selector/arena.hpp"
#include "selector/candidates.hpp"
#include "selector/memory.hpp"

namespace convprim {
namespace {

constexpr int kNoBuffer = -1;

/// One tensor in one layout.
struct Place {
  Layout layout{};
  int buffer = kNoBuffer;
  ChannelSlice slice;  // in the buffer's whole tensor
};

/// One thing to do: exactly one of convolution, layer and conversion is set.
struct Step {
  std::unique_ptr<Convolution> convolution;
  std::unique_ptr<PreparedLayer> layer;
  const Conversion* conversion = nullptr;
  Shape shape;         // of a conversion
  ChannelSlice slice;  // of a conversion
  std::vector<int> in, out;
  int residual = kNoBuffer;
  int workspace = kNoBuffer;
};

const LayerImpl* find_impl(std::string_view name) {
  for (const LayerImpl* impl : layer_impls()) {
    if (impl->name == name) return impl;
  }
  return nullptr;
}

const Conversion* find_conversion(std::string_view name) {
  for (const Conversion& c : conversions()) {
    if (c.name == name) return &c;
  }
  return nullptr;
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

}  // namespace

struct Executable::Impl {
  std::vector<Step> steps;
  std::vector<StepInfo> infos;
  std::vector<Lifetime> buffers;
  ArenaPlan arena;
  std::vector<int> inputs, outputs;  // buffers
  std::vector<Shape> input_shapes, output_shapes;
  std::size_t packed = 0;
  int threads = 1;
};

struct Executable::Context::Impl {
  Buffer arena;
  std::vector<float*> buffers;                // address of each
  std::vector<std::vector<const float*>> in;  // for each step
  std::vector<std::vector<float*>> out;
  const Executable::Impl* executable = nullptr;
};

namespace {

const float* data_of(const Layer& layer, std::size_t blob) {
  if (blob >= layer.blobs.size() || !layer.blobs[blob].data) {
    throw Error(
        fmt::format("layer \"{}\": has no weights; load them or make random ones", layer.name));
  }
  return layer.blobs[blob].data->data();
}

[[noreturn]] void missing(const PlanLayer& chosen) {
  throw Error(fmt::format("layer \"{}\": the plan chose '{}', which this build lacks", chosen.layer,
                          chosen.implementation));
}

const Primitive& primitive_of(const PlanLayer& chosen) {
  const Primitive* primitive = find_primitive(chosen.implementation);
  if (primitive == nullptr) missing(chosen);
  return *primitive;
}

const LayerImpl& impl_of(const PlanLayer& chosen) {
  const LayerImpl* impl = find_impl(chosen.implementation);
  if (impl == nullptr) missing(chosen);
  return *impl;
}

std::unique_ptr<Convolution> prepare_convolution(const Network& net, LayerId id,
                                                 const PlanLayer& chosen, const ChannelSlice& slice,
                                                 int threads) {
  const Layer& layer = net.layers[static_cast<std::size_t>(id)];
  const auto& conv = std::get<ConvOp>(layer.op);
  Options options;
  options.threads = threads;
  options.epilogue = conv.epilogue;
  options.slice = slice;
  const Weights weights{data_of(layer, 0), conv.bias ? data_of(layer, 1) : nullptr};
  return primitive_of(chosen).prepare(scenario_of(net, id), weights, options);
}

std::unique_ptr<PreparedLayer> prepare_layer(const Network& net, LayerId id,
                                             const PlanLayer& chosen, const ChannelSlice& slice,
                                             int threads) {
  const LayerImpl& impl = impl_of(chosen);
  LayerProblem problem = layer_problem(net, id, threads);
  problem.slice = slice;
  if (const char* why = impl.reject(problem)) {
    throw Error(
        fmt::format("layer \"{}\": {} cannot compute it: {}", chosen.layer, impl.name, why));
  }
  return impl.prepare(problem);
}

template <class Prepared>
Sizes sizes_of(const Prepared& prepared) {
  return {prepared.workspace_bytes(), prepared.packed_bytes()};
}

/// Builds the steps of an executable from a network and a plan. With a table of sizes, it lays out
/// the memory only: the steps have nothing to run.
class Builder {
 public:
  Builder(const Network& net, const Plan& plan, std::vector<Step>& steps,
          std::vector<StepInfo>& infos, std::vector<Lifetime>& buffers, SizeTable* sizes = nullptr)
      : net_(net),
        plan_(plan),
        steps_(steps),
        infos_(infos),
        buffers_(buffers),
        sizes_(sizes),
        places_(net.tensors.size()),
        uses_(use_counts(net)),
        last_reader_(last_readers(net)) {}

  void build() {
    check();
    place_slices();
    for (LayerId id = 0; id < static_cast<LayerId>(net_.layers.size()); ++id) {
      add_layer(id);
      for (TensorId t : net_.layers[static_cast<std::size_t>(id)].outputs) add_conversions(t);
    }
    keep_ends();
  }

  /// The network's inputs.
  std::vector<TensorId> inputs() const {
    std::vector<TensorId> all;
    for (const Layer& layer : net_.layers) {
      if (std::holds_alternative<InputOp>(layer.op))
        all.insert(all.end(), layer.outputs.begin(), layer.outputs.end());
    }
    return all;
  }

  /// What the executable takes; after build().
  PlanMemory memory() const {
    return {plan_arena(buffers_).bytes, peak_bytes(buffers_), packed_, workspace_, widest_};
  }
  std::size_t packed_bytes() const { return packed_; }

  /// The place of a tensor in a layout, or in one that lies the same. Throws Error if the plan does
  /// not provide it.
  const Place& find(TensorId t, Layout layout) const {
    const auto& all = places_[static_cast<std::size_t>(t)];
    for (const Place& p : all) {
      if (p.layout == layout) return p;
    }
    for (const Place& p : all) {
      if (!p.slice.sliced() && same_memory(p.layout, layout, shape(t))) return p;
    }
    throw Error(fmt::format("the plan never makes tensor \"{}\" in layout {}",
                            net_.tensors[static_cast<std::size_t>(t)].name, name(layout)));
  }

  const Shape& shape(TensorId t) const { return net_.tensors[static_cast<std::size_t>(t)].shape; }

 private:
  void check() const {
    if (plan_.layers.size() != net_.layers.size()) {
      throw Error(fmt::format(
          "the plan has {} layers and the network {}: the plan was made for another network",
          plan_.layers.size(), net_.layers.size()));
    }
    for (std::size_t i = 0; i < net_.layers.size(); ++i) {
      if (plan_.layers[i].layer != net_.layers[i].name) {
        throw Error(
            fmt::format("layer {} is '{}' in the plan and '{}' in the network: the plan was made "
                        "for another network",
                        i + 1, plan_.layers[i].layer, net_.layers[i].name));
      }
    }
    if (!plan_.cut.empty()) {
      throw Error(fmt::format(
          "the network cannot be run whole: nothing computes layer \"{}\"{}", plan_.cut[0],
          plan_.cut.size() > 1 ? fmt::format(" and {} more", plan_.cut.size() - 1) : ""));
    }
  }

  /// Marks a buffer as read (or written) at a step.
  void touch(int buffer, int step) {
    Lifetime& b = buffers_[static_cast<std::size_t>(buffer)];
    b.first = std::min(b.first, step);
    b.last = std::max(b.last, step);
  }

  /// Inputs stay for the whole run, outputs to its end.
  void keep_ends() {
    const int last = std::max(0, step_number() - 1);
    for (TensorId t : inputs()) {
      touch(find(t, Layout::chw).buffer, 0);
      touch(find(t, Layout::chw).buffer, last);
    }
    for (TensorId t : net_.outputs) {
      const Place& place = find(t, Layout::chw);
      if (place.slice.sliced()) throw Error("a network output lies inside another tensor");
      touch(place.buffer, last);
    }
    for (Lifetime& b : buffers_) {
      if (b.last < 0) b.first = b.last = 0;  // never used
    }
  }

  int new_buffer(std::size_t bytes) {
    buffers_.push_back({bytes, std::numeric_limits<int>::max(), -1});
    return static_cast<int>(buffers_.size()) - 1;
  }

  int tensor_buffer(Layout layout, const Shape& s) {
    return new_buffer(static_cast<std::size_t>(element_count(layout, s)) * sizeof(float));
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
        root.buffer = tensor_buffer(layout, shape(whole));
        reserved_[{whole, layout}] = root;
      }
      for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
        const TensorId t = layer.inputs[k];
        if (uses_[static_cast<std::size_t>(t)] > 1)
          continue;  // copied when the concat's turn comes
        ChannelSlice slice = concat_slice(net_, static_cast<LayerId>(i), k);
        if (root.slice.sliced()) slice = {root.slice.channels, root.slice.begin + slice.begin};
        // The producer may write another layout that lies the same.
        Layout own = layout;
        const auto maker = static_cast<std::size_t>(makers[static_cast<std::size_t>(t)]);
        const Layout made = plan_.layers[maker].out;
        Shape outer = shape(t);
        outer.c = slice.channels;
        const bool converted = std::any_of(plan_.conversions.begin(), plan_.conversions.end(),
                                           [&](const PlanConversion& c) { return c.tensor == t; });
        if (!converted && same_memory(made, layout, shape(t)) && same_memory(made, layout, outer))
          own = made;
        reserved_[{t, own}] = {own, root.buffer, slice};
      }
    }
  }

  /// The place where a tensor will be written in a layout: a reserved one, one that another tensor
  /// leaves (`old` tells), or a new buffer.
  template <class Old>
  Place make_place(TensorId t, Layout layout, Old old) {
    if (const auto it = reserved_.find({t, layout}); it != reserved_.end()) return it->second;
    if (const std::optional<Place> place = old()) return *place;
    return {layout, tensor_buffer(layout, shape(t)), {}};
  }
  Place make_place(TensorId t, Layout layout) {
    return make_place(t, layout, [] { return std::optional<Place>(); });
  }

  int step_number() const { return static_cast<int>(steps_.size()); }

  void add_step(Step step, StepInfo info, std::size_t workspace_bytes) {
    if (workspace_bytes > 0) step.workspace = new_buffer(workspace_bytes);
    const int number = step_number();
    for (int b : step.in) touch(b, number);
    for (int b : step.out) touch(b, number);
    if (step.residual != kNoBuffer) touch(step.residual, number);
    if (step.workspace != kNoBuffer) touch(step.workspace, number);
    steps_.push_back(std::move(step));
    infos_.push_back(std::move(info));
  }

  void add_layer(LayerId id) {
    const auto i = static_cast<std::size_t>(id);
    const Layer& layer = net_.layers[i];
    const PlanLayer& chosen = plan_.layers[i];
    if (chosen.implementation == "slices") {
      finish_slices(id);
      return;
    }
    if (std::holds_alternative<InputOp>(layer.op)) {
      for (TensorId t : layer.outputs) {
        const Place place = make_place(t, Layout::chw);
        places_[static_cast<std::size_t>(t)].push_back(place);
        pinned_.insert(place.buffer);
      }
      return;
    }
    StepInfo info{layer.name, chosen.kind, chosen.implementation, chosen.seconds};
    Step step;
    Sizes sizes;
    if (const auto* conv = std::get_if<ConvOp>(&layer.op)) {
      const Primitive& primitive = primitive_of(chosen);
      const Place out = make_place(layer.outputs[0], primitive.out, [&] {
        return conv->epilogue.residual ? over_input(id, 1, primitive.out, primitive.out)
                                       : std::nullopt;
      });
      if (sizes_ == nullptr) {
        step.convolution = prepare_convolution(net_, id, chosen, out.slice, plan_.machine.threads);
        sizes = sizes_of(*step.convolution);
      } else {
        sizes = sizes_->of(id, chosen, out.slice, plan_.machine.threads);
      }
      step.in.push_back(find(layer.inputs[0], primitive.in).buffer);
      if (conv->epilogue.residual) step.residual = find(layer.inputs[1], primitive.out).buffer;
      step.out.push_back(out.buffer);
      places_[static_cast<std::size_t>(layer.outputs[0])].push_back(out);
    } else {
      const LayerImpl& impl = impl_of(chosen);
      ChannelSlice slice;
      for (TensorId t : layer.inputs) step.in.push_back(find(t, impl.in).buffer);
      for (std::size_t k = 0; k < layer.outputs.size(); ++k) {
        const TensorId t = layer.outputs[k];
        const Place out = make_place(t, impl.out, [&] {
          return k == 0 && impl.in_place ? over_input(id, 0, impl.in, impl.out) : std::nullopt;
        });
        if (k == 0) slice = out.slice;
        step.out.push_back(out.buffer);
        places_[static_cast<std::size_t>(t)].push_back(out);
      }
      if (sizes_ == nullptr) {
        step.layer = prepare_layer(net_, id, chosen, slice, plan_.machine.threads);
        sizes = sizes_of(*step.layer);
      } else {
        sizes = sizes_->of(id, chosen, slice, plan_.machine.threads);
      }
    }
    packed_ += sizes.packed;
    if (sizes.workspace > workspace_) workspace_ = sizes.workspace, widest_ = id;
    add_step(std::move(step), std::move(info), sizes.workspace);
  }

  /// The place of input i of a layer for its output 0 to be written over, if lifetimes allow: the
  /// layer is the tensor's last reader, and reads it once.
  std::optional<Place> over_input(LayerId id, std::size_t i, Layout in, Layout out) const {
    const Layer& layer = net_.layers[static_cast<std::size_t>(id)];
    if (layer.inputs.empty()) return std::nullopt;
    const TensorId t = layer.inputs[i];
    const Place& source = find(t, in);
    if (last_reader_[static_cast<std::size_t>(t)] != id || source.slice.sliced() ||
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
    for (const PlanConversion& c : plan_.conversions) {
      if (c.tensor != t) continue;
      const Conversion* routine = find_conversion(c.routine);
      if (routine == nullptr)
        throw Error(
            fmt::format("the plan needs conversion '{}', which this build lacks", c.routine));
      Step step;
      const Place to = make_place(t, routine->to);
      step.conversion = routine;
      step.shape = shape(t);
      step.slice = to.slice;
      step.in.push_back(find(t, routine->from).buffer);
      step.out.push_back(to.buffer);
      places_[static_cast<std::size_t>(t)].push_back(to);
      add_step(std::move(step),
               {fmt::format("{}: {} to {}", net_.tensors[static_cast<std::size_t>(t)].name,
                            name(routine->from), name(routine->to)),
                "conversion", c.routine, c.seconds},
               0);
    }
  }

  /// A concat whose inputs lie in place already, except those that others read too.
  void finish_slices(LayerId id) {
    const auto i = static_cast<std::size_t>(id);
    const Layer& layer = net_.layers[i];
    const Layout layout = plan_.layers[i].out;
    const Place root = reserved_.at({layer.outputs[0], layout});
    int copies = 0;
    for (TensorId t : layer.inputs) copies += uses_[static_cast<std::size_t>(t)] > 1 ? 1 : 0;
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
      const TensorId t = layer.inputs[k];
      if (uses_[static_cast<std::size_t>(t)] <= 1) continue;
      const LayerImpl* impl = copy_impl(layout);
      if (impl == nullptr)
        throw Error(fmt::format("this build cannot copy tensors in layout {}", name(layout)));
      LayerProblem problem = copy_problem(shape(t), plan_.machine.threads);
      problem.slice = concat_slice(net_, id, k);
      if (root.slice.sliced())
        problem.slice = {root.slice.channels, root.slice.begin + problem.slice.begin};
      Step step;
      step.layer = impl->prepare(problem);
      step.in.push_back(find(t, layout).buffer);
      step.out.push_back(root.buffer);
      const std::size_t workspace = step.layer->workspace_bytes();
      add_step(std::move(step),
               {layer.name, "concat", std::string(impl->name), plan_.layers[i].seconds / copies},
               workspace);
    }
    places_[static_cast<std::size_t>(layer.outputs[0])].push_back(root);
  }

  const Network& net_;
  const Plan& plan_;
  std::vector<Step>& steps_;
  std::vector<StepInfo>& infos_;
  std::vector<Lifetime>& buffers_;
  SizeTable* sizes_;
  std::size_t packed_ = 0, workspace_ = 0;
  LayerId widest_ = -1;
  std::vector<std::vector<Place>> places_;  // of each tensor, in the order of their making
  std::vector<int> uses_;
  std::vector<LayerId> last_reader_;  // of each tensor; none for what is read from outside
  std::map<std::pair<TensorId, Layout>, Place> reserved_;
  std::set<int> pinned_;  // buffers that no layer may overwrite: the network's inputs
};

}  // namespace

Sizes SizeTable::of(LayerId id, const PlanLayer& chosen, const ChannelSlice& slice, int threads) {
  const std::tuple key(id, chosen.implementation, slice.channels, slice.begin);
  if (const auto it = known_.find(key); it != known_.end()) return it->second;
  const Layer& layer = net_.layers[static_cast<std::size_t>(id)];
  const bool convolution = std::holds_alternative<ConvOp>(layer.op);
  std::optional<Sizes> sizes;
  if (slice.sliced()) {
    sizes = convolution ? sizes_of(*prepare_convolution(net_, id, chosen, slice, threads))
                        : sizes_of(*prepare_layer(net_, id, chosen, slice, threads));
  } else if (sizes_) {
    sizes = sizes_({convolution ? CostKind::convolution : CostKind::layer, chosen.problem,
                    chosen.implementation, layer.blobs.empty() ? 0 : sweep_megabytes(net_)});
  }
  if (!sizes) {
    throw Error(fmt::format("layer \"{}\": the memory that {} takes is not known; profile it",
                            chosen.layer, chosen.implementation));
  }
  return known_.emplace(key, *sizes).first->second;
}

PlanMemory memory_of(const Network& net, const Plan& plan, SizeTable& sizes) {
  std::vector<Step> steps;
  std::vector<StepInfo> infos;
  std::vector<Lifetime> buffers;
  Builder builder(net, plan, steps, infos, buffers, &sizes);
  builder.build();
  return builder.memory();
}

Executable::Executable(const Network& net, const Plan& plan) : impl_(std::make_unique<Impl>()) {
  Impl& e = *impl_;
  e.threads = plan.machine.threads;
  Builder builder(net, plan, e.steps, e.infos, e.buffers);
  builder.build();
  for (TensorId t : builder.inputs()) {
    e.inputs.push_back(builder.find(t, Layout::chw).buffer);
    e.input_shapes.push_back(builder.shape(t));
  }
  for (TensorId t : net.outputs) {
    e.outputs.push_back(builder.find(t, Layout::chw).buffer);
    e.output_shapes.push_back(builder.shape(t));
  }
  e.arena = plan_arena(e.buffers);
  e.packed = builder.packed_bytes();
}

Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;
Executable::~Executable() = default;

Executable::Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executable::Context::Context(Context&&) noexcept = default;
Executable::Context& Executable::Context::operator=(Context&&) noexcept = default;
Executable::Context::~Context() = default;

float* Executable::Context::input(std::size_t i) {
  return impl_->buffers[static_cast<std::size_t>(impl_->executable->inputs[i])];
}

const float* Executable::Context::output(std::size_t i) const {
  return impl_->buffers[static_cast<std::size_t>(impl_->executable->outputs[i])];
}

Executable::Context Executable::make_context() const {
  const Impl& e = *impl_;
  auto context = std::make_unique<Context::Impl>();
  context->arena = Buffer::zeros(e.arena.bytes / sizeof(float));
  context->executable = &e;
  for (std::size_t offset : e.arena.offsets)
    context->buffers.push_back(context->arena.data() + offset / sizeof(float));
  const auto address = [&](int buffer) {
    return context->buffers[static_cast<std::size_t>(buffer)];
  };
  for (const Step& step : e.steps) {
    auto& in = context->in.emplace_back();
    auto& out = context->out.emplace_back();
    for (int b : step.in) in.push_back(address(b));
    for (int b : step.out) out.push_back(address(b));
  }
  return Context(std::move(context));
}

namespace {

void run_step(const Step& step, const std::vector<const float*>& in, const std::vector<float*>& out,
              const std::vector<float*>& buffers, int threads) {
  const auto address = [&](int buffer) {
    return buffer == kNoBuffer ? nullptr : buffers[static_cast<std::size_t>(buffer)];
  };
  if (step.convolution) {
    step.convolution->run({in[0], out[0], address(step.residual), address(step.workspace)});
  } else if (step.layer) {
    step.layer->run({in.data(), out.data(), address(step.workspace)});
  } else {
    step.conversion->run(step.shape, in[0], out[0], step.slice, threads);
  }
}

}  // namespace

void Executable::run(Context& context) const noexcept {
  Context::Impl& c = *context.impl_;
  assert(c.executable == impl_.get());
  for (std::size_t i = 0; i < impl_->steps.size(); ++i)
    run_step(impl_->steps[i], c.in[i], c.out[i], c.buffers, impl_->threads);
}

void Executable::run_timed(Context& context, double* seconds) const noexcept {
  Context::Impl& c = *context.impl_;
  for (std::size_t i = 0; i < impl_->steps.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    run_step(impl_->steps[i], c.in[i], c.out[i], c.buffers, impl_->threads);
    seconds[i] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
}

const std::vector<StepInfo>& Executable::steps() const { return impl_->infos; }
std::size_t Executable::input_count() const { return impl_->inputs.size(); }
std::size_t Executable::output_count() const { return impl_->outputs.size(); }
Shape Executable::input_shape(std::size_t i) const { return impl_->input_shapes.at(i); }
Shape Executable::output_shape(std::size_t i) const { return impl_->output_shapes.at(i); }
std::size_t Executable::arena_bytes() const { return impl_->arena.bytes; }
std::size_t Executable::packed_bytes() const { return impl_->packed; }
std::size_t Executable::live_bytes() const { return peak_bytes(impl_->buffers); }

}  // namespace convprim
