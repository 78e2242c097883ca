// What runs schedules: the CPU back end, and cuDNN where it was built in.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/costs.hpp"
#include "gpu/program.hpp"

namespace convprim::ios {

/// When a step ran, in seconds from the start of its run.
struct StepTime {
  int step = 0;  ///< of the program
  int lane = 0;  ///< the group of threads, or the stream, that ran it
  double begin = 0, end = 0;
};

/// Stages bound to memory, ready to run. One thread at a time may use an object.
class Run {
 public:
  Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  virtual ~Run() = default;
  virtual const Program& program() const = 0;
  /// Sets one of the program's inputs, in (n, c, h, w) order. Inputs of a whole network are kept.
  virtual void set(TensorId t, std::span<const float> values) = 0;
  /// An output after run(), in (n, c, h, w) order.
  virtual std::vector<float> values(TensorId t) const = 0;
  /// One pass; returns its seconds, from the first step's start until all is done.
  virtual double run() = 0;
  /// One pass in which each step is timed, in the order of the steps. May take longer than run().
  virtual std::vector<StepTime> run_timed() = 0;
};

/// Runs stages of one network on one device.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;
  /// Throws Error if the device cannot run a layer.
  virtual std::unique_ptr<Run> prepare(std::span<const StagePlan> stages) = 0;
  /// Costs measured on it, in the mode in which it runs.
  virtual StageCosts& costs() = 0;
  /// What costs depend on beside the stage: keys for CachedCosts.
  virtual std::string device_key() const = 0;
  virtual std::string version() const = 0;
};

/// Stages on the library's own primitives, all tensors in chw. The groups of a stage run beside one
/// another, each on its share of the threads: on two threads a stage of two groups gives one to
/// each. Costs are measured with weights as cold as the rest of the network makes them and inputs
/// freshly written. `graph` must have weights and outlive the engine and its runs.
std::unique_ptr<Engine> cpu_engine(const OperatorGraph& graph, int threads);

}  // namespace convprim::ios
