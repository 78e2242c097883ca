// A plan laid out for one network: the steps of a run and the buffers that they work on. The
// executor runs it, emitted programs spell it out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convprim/conversion.hpp"
#include "convprim/executable.hpp"
#include "convprim/layer.hpp"
#include "convprim/select.hpp"
#include "selector/arena.hpp"

namespace convprim {

inline constexpr int kNoBuffer = -1;

/// One thing to do: exactly one of primitive, impl and conversion is set.
struct ProgramStep {
  StepInfo info;
  LayerId layer = -1;  ///< whose step it is, or -1 for a conversion
  const Primitive* primitive = nullptr;
  Scenario scenario;  ///< of a primitive
  Options options;    ///< of a primitive
  const LayerImpl* impl = nullptr;
  LayerProblem problem;  ///< of an impl; its pointers are those of the network
  const Conversion* conversion = nullptr;
  Shape shape;             ///< of a conversion
  ChannelSlice slice;      ///< of a conversion's output
  std::vector<int> in{};   ///< buffers read
  std::vector<int> out{};  ///< buffers written, in whole or a slice
  int residual = kNoBuffer;
  int workspace = kNoBuffer;
};

/// A step made ready to run: one of both is set, or none for a conversion.
struct PreparedStep {
  std::unique_ptr<Convolution> convolution;
  std::unique_ptr<PreparedLayer> layer;
  /// Memory that it takes.
  Sizes sizes() const;
};

/// A tensor that the network is fed or run for, in chw.
struct ProgramPort {
  TensorId tensor = -1;
  int buffer = kNoBuffer;
};

/// A buffer that lies inside another: a part of a concatenation that is read where it is. Takes no
/// memory of its own.
struct BufferPart {
  int buffer = kNoBuffer;
  int whole = kNoBuffer;
  std::size_t offset = 0;  ///< bytes
};

/// Steps in the order in which they run, and their buffers.
struct Program {
  std::vector<ProgramStep> steps;
  std::vector<Lifetime> buffers;
  std::vector<BufferPart> parts;
  std::vector<std::string> names;  ///< of the buffers, for people: "conv1 chw"
  std::vector<ProgramPort> inputs, outputs;
  int threads = 1;
};

/// Checks that each layer of a plan, wherever it comes from, is the network's, done as it may be
/// done. Reads shapes and operations, no weights. Throws Error with one sentence that names the
/// layer.
void check_plan(const Network& net, const Plan& plan);

/// Lays out a plan that passed check_plan(), as select()'s do. The program keeps pointers into the
/// network; its steps have no workspaces yet. Throws Error naming the layer if a tensor is not
/// there in the layout in which it is read.
Program lay_out(const Network& net, const Plan& plan);

/// Packs the weights of a step. Throws Error if weights are missing.
PreparedStep prepare(const Network& net, const ProgramStep& step);

/// Gives step i a buffer of so many bytes as its workspace; none for 0.
void add_workspace(Program& program, std::size_t i, std::size_t bytes);

/// Places all buffers, parts included.
ArenaPlan place_buffers(const Program& program);

/// Packs the weights of all steps, and gives them their workspaces.
std::vector<PreparedStep> prepare_all(const Network& net, Program& program);

}  // namespace convprim
