#include "selector/memory.hpp"

#include <fmt/format.h>

#include <optional>

#include "convprim/error.hpp"
#include "selector/candidates.hpp"

namespace convprim {

Sizes SizeTable::of(const ProgramStep& step, const PlanLayer& chosen) {
  const bool convolution = step.primitive != nullptr;
  const ChannelSlice& slice = convolution ? step.options.slice : step.problem.slice;
  const std::tuple key(step.layer, step.info.implementation, slice.channels, slice.begin);
  if (const auto it = known_.find(key); it != known_.end()) return it->second;
  const Layer& layer = net_.layers[static_cast<std::size_t>(step.layer)];
  std::optional<Sizes> sizes;
  if ((slice.sliced() && prepare_slices_) || chosen.implementation == "slices") {
    sizes = prepare(net_, step).sizes();
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
  Program program = lay_out(net, plan);
  PlanMemory memory;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    if (step.conversion != nullptr) continue;
    const Sizes own = sizes.of(step, plan.layers[static_cast<std::size_t>(step.layer)]);
    memory.packed += own.packed;
    if (own.workspace > memory.workspace)
      memory.workspace = own.workspace, memory.widest = step.layer;
    add_workspace(program, i, own.workspace);
  }
  memory.arena = plan_arena(program.buffers).bytes;
  memory.live = peak_bytes(program.buffers);
  return memory;
}

}  // namespace convprim
