// On a real GPU: outputs of every schedule against the double reference. Exits 77, skipped, where
// there is none.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "convprim/import.hpp"
#include "convprim/reference.hpp"
#include "gpu/cuda.hpp"
#include "gpu/nets.hpp"
#include "gpu/report.hpp"

using namespace convprim;
using namespace convprim::ios;

namespace {

int failed = 0, passed = 0;

std::string data(const std::string& path) {
  const char* root = std::getenv("CONVPRIM_DATA");
  return std::string(root != nullptr ? root : "data") + "/" + path;
}

void expect(bool good, const std::string& what) {
  std::printf("%s: %s\n", good ? "ok" : "FAILED", what.c_str());
  ++(good ? passed : failed);
}

/// All schedules of a network in one mode; the sequential one against the double reference.
void check_network(Network net, bool graph_mode) {
  random_weights(net);
  simplify(net);
  const OperatorGraph graph = operator_graph(std::move(net));
  const auto engine = cuda_engine(graph, {graph_mode, false, ""});
  SimulatedCosts costs;  // which schedules are made does not matter here, but quickly
  std::vector<Candidate> all;
  for (Kind kind : kKinds) all.push_back({.schedule = make_schedule(kind, graph, {}, costs)});
  for (Candidate& c : all) c.run = engine->prepare(c.schedule.stages);
  const auto reference = engine->prepare(all[0].schedule.stages);
  measure(graph, *reference, all, 2, 5);
  const std::string mode = graph_mode ? ", graph" : ", eager";
  for (const Candidate& c : all)
    expect(c.outputs->passed, graph.net.name + " " + std::string(name(c.schedule.kind)) + mode);
  std::vector<std::vector<float>> inputs;
  for (TensorId t : reference->program().inputs) {
    const Shape& s = graph.net.tensors[static_cast<std::size_t>(t)].shape;
    auto& values = inputs.emplace_back(static_cast<std::size_t>(s.count()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
    reference->set(t, values);
  }
  reference->run();
  const auto expected = evaluate_reference(graph.net, inputs);
  for (std::size_t o = 0; o < expected.size(); ++o) {
    const auto got = reference->values(graph.net.outputs[o]);
    double largest = 0, error = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(expected[o][i]));
      error = std::max(error, std::abs(static_cast<double>(got[i]) - expected[o][i]));
    }
    expect(error <= 1e-4 * largest, graph.net.name + " against the reference" + mode);
  }
}

}  // namespace

int main() {
  try {
    require_cuda();
  } catch (const NoDevice& e) {
    std::printf("skipped: %s\n0 passed, 0 failed, 1 skipped\n", e.what());
    return 77;
  }
  try {
    for (bool graph_mode : {false, true}) {
      for (const char* file : {"squeezenet_v1.1", "googlenet", "resnet18", "inception_v3",
                               "mobilenet_v1", "alexnet"}) {
        ImportOptions options;
        options.batch = 2;
        check_network(import_network(data(std::string("nets/") + file + ".prototxt"), options),
                      graph_mode);
      }
      check_network(squeezenet_bypass(2), graph_mode);
      check_network(nasnet(1, 1, 44), graph_mode);
      check_network(randwire(1, 1, 32), graph_mode);
    }
  } catch (const std::exception& e) {
    expect(false, e.what());
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed > 0 ? 1 : 0;
}
