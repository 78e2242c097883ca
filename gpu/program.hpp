// What an engine executes: the stages of a schedule as steps on buffers of one arena, and the order
// in which streams run and wait for one another.
#pragma once

#include <span>
#include <vector>

#include "gpu/costs.hpp"
#include "gpu/operators.hpp"
#include "selector/arena.hpp"

namespace convprim::ios {

/// Where a tensor lies: a range of channels of a buffer, which holds {n, channels, h, w} in (n, c,
/// h, w) order.
struct View {
  int buffer = -1;
  Index channels = 0;  ///< of the buffer
  Index begin = 0;     ///< the tensor's first
};

/// One thing to run.
struct Step {
  enum class Kind : std::uint8_t {
    layer,   ///< one layer
    merged,  ///< several convolutions as one; out[0] is the whole output
    copy     ///< a slice of a merged output into a tensor of its own
  };
  Kind kind = Kind::layer;
  std::vector<LayerId> layers;  ///< one, or those merged; of a copy: the one that makes the slice
  std::vector<View> in, out;    ///< in the layer's order
  Shape shape;                  ///< of the first output, a slice's own
  int stage = 0, group = 0;
};

/// What a stream is given, in this order.
struct Command {
  enum class Kind : std::uint8_t {
    run,     ///< step `index`
    record,  ///< event `index`: reached when all before it on the stream is done
    wait     ///< for event `index`, recorded before in this list
  };
  Kind kind = Kind::run;
  int stream = 0;
  int index = 0;
};

/// A schedule made ready for engines.
struct Program {
  std::vector<Step> steps;
  /// stages[i][g]: the steps of group g of stage i, in their order.
  std::vector<std::vector<std::vector<int>>> stages;
  std::vector<Lifetime> buffers;  ///< from the stage that writes to the last that reads
  ArenaPlan arena;
  std::vector<View> tensors;      ///< of each tensor; no buffer where the stages do not touch it
  std::vector<TensorId> inputs;   ///< tensors that the stages read and do not make
  std::vector<Command> commands;  ///< group g on stream g; stages follow one another on stream 0
  int streams = 1, events = 0;
};

/// Makes a program of stages: all of a network's, or some, in which case the tensors that no stage
/// makes are inputs, and those that no stage reads outputs. Buffers of one stage never share
/// memory: its groups may run in any order. A slice of a merged convolution's output is read where
/// it lies if it is contiguous and starts at 64 bytes, or if only concatenations read it; else the
/// stage of the merge copies it.
Program compile(const OperatorGraph& graph, std::span<const StagePlan> stages);

/// Whether a slice of a merged output needs that copy. `begin` is its first channel.
bool needs_copy(const OperatorGraph& graph, TensorId t, Index begin);

}  // namespace convprim::ios
