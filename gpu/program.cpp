#include "gpu/program.hpp"

#include <algorithm>
#include <cassert>

#include "gpu/merge.hpp"

namespace convprim::ios {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class Compiler {
 public:
  Compiler(const OperatorGraph& graph, std::span<const StagePlan> stages)
      : graph_(graph), net_(graph.net), stages_(stages) {
    program_.tensors.resize(net_.tensors.size());
  }

  Program build() {
    for (stage_ = 0; stage_ < static_cast<int>(stages_.size()); ++stage_) {
      const StagePlan& plan = stages_[at(stage_)];
      program_.stages.emplace_back();
      if (plan.strategy == Strategy::merge && plan.groups.size() > 1) {
        begin_group();
        add_merge(plan);
        continue;
      }
      for (const auto& group : plan.groups) {
        begin_group();
        for (int i : group) {
          for (LayerId id : graph_.operators[at(i)].layers) add_layer(id);
        }
      }
    }
    const int last = static_cast<int>(stages_.size()) - 1;
    std::vector<bool> read(net_.tensors.size(), false);
    for (const Step& step : program_.steps) {
      for (LayerId id : step.layers) {
        for (TensorId t : net_.layers[at(id)].inputs) read[at(t)] = true;
      }
    }
    for (TensorId t : net_.outputs) read[at(t)] = false;
    for (std::size_t t = 0; t < net_.tensors.size(); ++t) {
      const int buffer = program_.tensors[t].buffer;
      // Memory of outputs stays to the end, that of inputs was filled before the first stage.
      if (buffer >= 0 && !read[t]) program_.buffers[at(buffer)].last = last;
    }
    for (TensorId t : program_.inputs) {
      Lifetime& input = program_.buffers[at(program_.tensors[at(t)].buffer)];
      input.first = 0;
      input.last = last;
    }
    program_.arena = plan_arena(program_.buffers);
    add_commands();
    return std::move(program_);
  }

 private:
  void begin_group() { program_.stages.back().emplace_back(); }

  const Shape& shape(TensorId t) const { return net_.tensors[at(t)].shape; }

  int new_buffer(const Shape& s) {
    program_.buffers.push_back(
        {static_cast<std::size_t>(s.count()) * sizeof(float), stage_, stage_});
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  View make(TensorId t) {
    View& view = program_.tensors[at(t)];
    view = {new_buffer(shape(t)), shape(t).c, 0};
    return view;
  }

  View use(TensorId t) {
    View& view = program_.tensors[at(t)];
    if (view.buffer < 0) {
      program_.inputs.push_back(t);
      make(t);
    }
    program_.buffers[at(view.buffer)].last = stage_;
    return view;
  }

  void add(Step step) {
    auto& groups = program_.stages.back();
    step.stage = stage_;
    step.group = static_cast<int>(groups.size()) - 1;
    groups.back().push_back(static_cast<int>(program_.steps.size()));
    program_.steps.push_back(std::move(step));
  }

  void add_layer(LayerId id) {
    const Layer& layer = net_.layers[at(id)];
    Step step;
    step.layers = {id};
    for (TensorId t : layer.inputs) step.in.push_back(use(t));
    for (TensorId t : layer.outputs) step.out.push_back(make(t));
    step.shape = shape(layer.outputs[0]);
    add(std::move(step));
  }

  void add_merge(const StagePlan& plan) {
    Step step;
    step.kind = Step::Kind::merged;
    for (const auto& group : plan.groups) {
      assert(group.size() == 1);
      step.layers.push_back(graph_.operators[at(group[0])].layers[0]);
    }
    const std::vector<LayerId> layers = step.layers;
    const MergedConv merged = merge(net_, layers);
    step.in = {use(net_.layers[at(layers[0])].inputs[0])};
    step.shape = merged.scenario.out();
    const View whole{new_buffer(step.shape), step.shape.c, 0};
    step.out = {whole};
    add(std::move(step));
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const TensorId t = net_.layers[at(layers[i])].outputs[0];
      const View slice{whole.buffer, whole.channels, merged.begin[i]};
      if (!needs_copy(graph_, t, slice.begin)) {
        program_.tensors[at(t)] = slice;
        continue;
      }
      Step copy;
      copy.kind = Step::Kind::copy;
      copy.layers = {layers[i]};
      copy.in = {slice};
      copy.out = {make(t)};
      copy.shape = shape(t);
      add(std::move(copy));
    }
  }

  void add_commands() {
    using Kind = Command::Kind;
    auto& commands = program_.commands;
    for (const auto& groups : program_.stages) {
      const auto count = static_cast<int>(groups.size());
      program_.streams = std::max(program_.streams, count);
      // Fork: all that ran before is before stream 0's place here.
      const int fork = program_.events;
      if (count > 1) {
        commands.push_back({Kind::record, 0, program_.events++});
        for (int g = 1; g < count; ++g) commands.push_back({Kind::wait, g, fork});
      }
      // Steps by turns, so that no group waits for the launches of another.
      for (std::size_t k = 0, left = 1; left > 0; ++k) {
        left = 0;
        for (int g = 0; g < count; ++g) {
          const auto& steps = groups[at(g)];
          if (k < steps.size()) commands.push_back({Kind::run, g, steps[k]}), ++left;
        }
      }
      for (int g = 1; g < count; ++g) {
        commands.push_back({Kind::record, g, program_.events});
        commands.push_back({Kind::wait, 0, program_.events++});
      }
    }
  }

  const OperatorGraph& graph_;
  const Network& net_;
  std::span<const StagePlan> stages_;
  int stage_ = 0;
  Program program_;
};

}  // namespace

bool needs_copy(const OperatorGraph& graph, TensorId t, Index begin) {
  if (graph.joined[at(t)]) return false;
  const Shape& s = graph.net.tensors[at(t)].shape;
  return s.n > 1 || begin * s.h * s.w % 16 != 0;
}

Program compile(const OperatorGraph& graph, std::span<const StagePlan> stages) {
  return Compiler(graph, stages).build();
}

}  // namespace convprim::ios
