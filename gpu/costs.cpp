#include "gpu/costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "convprim/error.hpp"
#include "gpu/merge.hpp"
#include "gpu/program.hpp"

namespace convprim::ios {
namespace {

constexpr const char* kTableSchema = "convprim-ios-costs-1";

std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace

std::string key(const OperatorGraph& graph, const StagePlan& stage) {
  return (stage.strategy == Strategy::merge && stage.groups.size() > 1 ? "merge " : "") +
         text(graph, stage.groups);
}

TableCosts::TableCosts(std::string_view json, std::string file) : file_(std::move(file)) {
  try {
    const auto table = nlohmann::json::parse(json);
    if (table.at("schema") != kTableSchema) {
      throw Error(fmt::format("{}: is no table of stage costs of format {}", file_, kTableSchema));
    }
    device_ = table.at("device");
    stages_ = table.at("stages");
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("{}: is no table of stage costs ({})", file_, e.what()));
  }
  for (const auto& [stage, seconds] : stages_) {
    if (!(seconds >= 0)) {
      throw Error(
          fmt::format("{}: stage \"{}\" costs {}; give seconds, 0 or more", file_, stage, seconds));
    }
  }
}

double TableCosts::seconds(const OperatorGraph& graph, const StagePlan& stage) {
  const auto it = stages_.find(key(graph, stage));
  if (it != stages_.end()) return it->second;
  throw Error(fmt::format("{}: has no cost for stage \"{}\"", file_, key(graph, stage)));
}

std::string costs_to_json(const std::string& device, const std::map<std::string, double>& stages) {
  return nlohmann::json{{"schema", kTableSchema}, {"device", device}, {"stages", stages}}.dump(1) +
         "\n";
}

namespace {

/// One kernel's work.
struct Kernel {
  LayerId layer = -1;
  double flops = 0, bytes = 0;
  double outputs = 0;  // elements
};

double count(const Network& net, const std::vector<TensorId>& tensors) {
  double sum = 0;
  for (TensorId t : tensors) sum += static_cast<double>(net.tensors[at(t)].shape.count());
  return sum;
}

Kernel kernel(const Network& net, LayerId id) {
  const Layer& layer = net.layers[at(id)];
  Kernel k;
  k.layer = id;
  k.outputs = count(net, layer.outputs);
  k.bytes = sizeof(float) * (count(net, layer.inputs) + k.outputs);
  for (const Blob& b : layer.blobs) k.bytes += sizeof(float) * static_cast<double>(b.count());
  k.flops = k.outputs;
  if (std::holds_alternative<ConvOp>(layer.op)) {
    k.flops = 2 * scenario_of(net, id).macs();
  } else if (const auto* pool = std::get_if<PoolOp>(&layer.op)) {
    k.flops = pool->global ? count(net, layer.inputs)
                           : k.outputs * static_cast<double>(pool->kh * pool->kw);
  } else if (std::holds_alternative<InnerProductOp>(layer.op)) {
    k.flops =
        2 * static_cast<double>(layer.blobs[0].count() * net.tensors[at(layer.inputs[0])].shape.n);
  }
  return k;
}

std::vector<std::vector<Kernel>> kernels(const OperatorGraph& graph, const StagePlan& stage) {
  const Network& net = graph.net;
  std::vector<std::vector<Kernel>> groups;
  if (stage.strategy == Strategy::merge && stage.groups.size() > 1) {
    std::vector<LayerId> layers;
    for (const auto& group : stage.groups)
      layers.push_back(graph.operators[at(group[0])].layers[0]);
    const MergedConv merged = merge(net, layers);
    const Scenario& s = merged.scenario;
    const auto in = static_cast<double>(s.in().count()), out = static_cast<double>(s.out().count());
    groups.push_back({{layers[0], 2 * s.macs(),
                       sizeof(float) * (in + out + static_cast<double>(s.filter_count())), out}});
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const TensorId t = net.layers[at(layers[i])].outputs[0];
      const double elements = count(net, {t});
      if (needs_copy(graph, t, merged.begin[i]))
        groups[0].push_back({layers[i], 0, 2 * sizeof(float) * elements, elements});
    }
    return groups;
  }
  for (const auto& group : stage.groups) {
    auto& list = groups.emplace_back();
    for (int i : group) {
      for (LayerId id : graph.operators[at(i)].layers) list.push_back(kernel(net, id));
    }
  }
  return groups;
}

}  // namespace

// Kernels are fluids: each takes the share of the device that its blocks fill, and all are slowed
// alike where the shares add up to more than the whole.
std::vector<SimulatedStep> SimulatedCosts::steps(const OperatorGraph& graph,
                                                 const StagePlan& stage) const {
  struct Running {
    const std::vector<Kernel>* list;
    std::size_t next = 0;
    double share = 0;   // of the device
    double launch = 0;  // seconds until it starts
    double left = 0;    // seconds of work when undisturbed
    double begin = 0;
  };
  const auto groups = kernels(graph, stage);
  std::vector<Running> running;
  const auto start = [&](Running& r, double now) {
    const Kernel& k = (*r.list)[r.next];
    const double slots = 2.0 * model_.multiprocessors;
    const double blocks = std::max(1.0, k.outputs / model_.outputs_a_block);
    r.share = std::min(1.0, blocks / slots);
    // Memory saturates with a fourth of the multiprocessors at work.
    const double reach = std::min(1.0, 4 * r.share);
    r.left = std::max(k.flops / (model_.flops * r.share), k.bytes / (model_.bandwidth * reach));
    r.launch = model_.launch;
    r.begin = now;
  };
  double now = model_.synchronise * static_cast<double>(groups.size() - 1);
  for (const auto& list : groups) {
    running.push_back({&list});
    start(running.back(), now);
  }
  std::vector<SimulatedStep> steps;
  for (;;) {
    double shares = 0, step = std::numeric_limits<double>::infinity();
    for (const Running& r : running) {
      if (r.next < r.list->size() && r.launch <= 0) shares += r.share;
    }
    const double speed = shares > 1 ? 1 / shares : 1;
    for (const Running& r : running) {
      if (r.next < r.list->size()) step = std::min(step, r.launch > 0 ? r.launch : r.left / speed);
    }
    if (step == std::numeric_limits<double>::infinity()) return steps;
    now += step;
    for (std::size_t g = 0; g < running.size(); ++g) {
      Running& r = running[g];
      if (r.next == r.list->size()) continue;
      if (r.launch > 0) {
        r.launch = r.launch > step ? r.launch - step : 0;
      } else if (r.left > step * speed * (1 + 1e-12)) {
        r.left -= step * speed;
      } else {
        steps.push_back({(*r.list)[r.next].layer, static_cast<int>(g), r.begin, now});
        if (++r.next < r.list->size()) start(r, now);
      }
    }
  }
}

double SimulatedCosts::seconds(const OperatorGraph& graph, const StagePlan& stage) {
  return steps(graph, stage).back().end;
}

CachedCosts::CachedCosts(StageCosts& inner, const std::string& path, const std::string& device,
                         const std::string& version, int threads)
    : inner_(inner), store_(path, {device, "ios " + inner.origin(), version, threads}) {}

double CachedCosts::seconds(const OperatorGraph& graph, const StagePlan& stage) {
  const CostKey stage_key{CostKind::stage, key(graph, stage), inner_.origin(), 0};
  if (const auto known = store_.find(stage_key)) {
    ++reused_;
    return known->seconds;
  }
  ++taken_;
  const double seconds = inner_.seconds(graph, stage);
  store_.put(stage_key, {seconds, 1, Cost::Stage::quick});
  return seconds;
}

}  // namespace convprim::ios
