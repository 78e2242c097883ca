// What a stage costs: measured on a device, read from a table, simulated, or kept from earlier.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convprim/costs.hpp"
#include "gpu/operators.hpp"
#include "gpu/search.hpp"

namespace convprim::ios {

/// A stage of a whole network.
struct StagePlan {
  Strategy strategy = Strategy::concurrent;
  /// Operators by their number in the graph, each group in the order of its running; of a merge,
  /// one group for each operator.
  std::vector<std::vector<int>> groups;
  double seconds = 0;  ///< its cost
};

/// A source of stage costs.
class StageCosts {
 public:
  StageCosts() = default;
  StageCosts(const StageCosts&) = delete;
  StageCosts& operator=(const StageCosts&) = delete;
  virtual ~StageCosts() = default;
  /// How the costs are got: "simulated", "measured", "table". Printed wherever they are.
  virtual std::string origin() const = 0;
  /// The device that they belong to, in words.
  virtual std::string device() const = 0;
  /// Seconds of a stage, whose `seconds` are ignored. Merged operators can be merged. Throws Error
  /// if the cost cannot be had.
  virtual double seconds(const OperatorGraph& graph, const StagePlan& stage) = 0;
};

/// The text that stands for a stage in tables and data bases: equal texts are equal work.
std::string key(const OperatorGraph& graph, const StagePlan& stage);

/// Costs from a JSON object {"schema": "convprim-ios-costs-1", "device": TEXT, "stages": {KEY:
/// SECONDS}}, as costs_to_json() writes it.
class TableCosts final : public StageCosts {
 public:
  /// Throws Error naming `file`.
  TableCosts(std::string_view json, std::string file);
  std::string origin() const override { return "table"; }
  std::string device() const override { return device_; }
  /// Throws Error if the table has no such stage.
  double seconds(const OperatorGraph& graph, const StagePlan& stage) override;

 private:
  std::string file_, device_;
  std::map<std::string, double> stages_;
};

/// The text of a table.
std::string costs_to_json(const std::string& device, const std::map<std::string, double>& stages);

/// A GPU as the simulation knows it.
struct DeviceModel {
  std::string name = "a GPU of 80 multiprocessors";
  int multiprocessors = 80;
  double flops = 14e12;           ///< of single precision, all multiprocessors together
  double bandwidth = 800e9;       ///< bytes a second from memory
  double launch = 3e-6;           ///< seconds before a kernel starts
  double synchronise = 2e-6;      ///< seconds for each group that a stage forks beyond its first
  double outputs_a_block = 4096;  ///< elements that one thread block computes; a multiprocessor
                                  ///< holds two blocks
};

/// A kernel's demand in the simulation, or when it ran there.
struct SimulatedStep {
  LayerId layer = -1;
  int group = 0;
  double begin = 0, end = 0;  ///< seconds from the stage's start
};

/// Simulated: each kernel takes as long as its arithmetic on the multiprocessors that its blocks
/// fill, or its memory traffic; kernels of different groups share multiprocessors and bandwidth;
/// launches and forks are added. Good for tests and for trying things out, not for statements about
/// speed.
class SimulatedCosts final : public StageCosts {
 public:
  explicit SimulatedCosts(DeviceModel model = {}) : model_(std::move(model)) {}
  std::string origin() const override { return "simulated"; }
  std::string device() const override { return "simulated: " + model_.name; }
  double seconds(const OperatorGraph& graph, const StagePlan& stage) override;
  /// When each kernel of the stage runs; the last end is the stage's seconds.
  std::vector<SimulatedStep> steps(const OperatorGraph& graph, const StagePlan& stage) const;

 private:
  DeviceModel model_;
};

/// Keeps the costs of another source in a cost file, each when it is taken. Costs of other devices,
/// origins and versions lie in the same file but are not seen.
class CachedCosts final : public StageCosts {
 public:
  /// `device` and `version` are part of the key: for a GPU, its UUID and cuDNN's version; for a CPU
  /// its name and this library's. Throws Error if the file cannot be used.
  CachedCosts(StageCosts& inner, const std::string& path, const std::string& device,
              const std::string& version, int threads);
  std::string origin() const override { return inner_.origin(); }
  std::string device() const override { return inner_.device(); }
  double seconds(const OperatorGraph& graph, const StagePlan& stage) override;
  std::size_t reused() const { return reused_; }  ///< costs found
  std::size_t taken() const { return taken_; }    ///< costs asked from the other source

 private:
  StageCosts& inner_;
  CostStore store_;
  std::size_t reused_ = 0, taken_ = 0;
};

}  // namespace convprim::ios
