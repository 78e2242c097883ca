// cuDNN's descriptors against our shapes: they work without a GPU.
#include <string>

#include "convprim/import.hpp"
#include "gpu/cudnn/kernels.hpp"
#include "gpu/nets.hpp"
#include "gpu/operators.hpp"
#include "gpu/schedule.hpp"
#include "test.hpp"

using namespace convprim;
using namespace convprim::ios;

namespace {

std::vector<Network> networks() {
  std::vector<Network> nets;
  ImportOptions options;
  options.batch = 2;
  for (const char* file : {"inception_v3", "googlenet", "resnet50", "resnet18", "squeezenet_v1.1",
                           "mobilenet_v1", "alexnet", "vgg_a"})
    nets.push_back(import_network(test::data(std::string("nets/") + file + ".prototxt"), options));
  nets.push_back(squeezenet_bypass(2));
  nets.push_back(nasnet(1, 1, 44));
  nets.push_back(randwire(1, 1, 32));
  for (Network& net : nets) {
    random_weights(net);
    simplify(net);
  }
  return nets;
}

}  // namespace

TEST_CASE("cuDNN gives convolutions and poolings the shapes that we infer") {
  int checked = 0;
  for (const Network& net : networks()) {
    for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
      const Layer& layer = net.layers[static_cast<std::size_t>(id)];
      if (layer.inputs.empty()) continue;
      const auto shape = cudnn_shape(net, id);
      if (!shape) continue;
      CAPTURE(net.name);
      CAPTURE(layer.name);
      CHECK(*shape == net.tensors[static_cast<std::size_t>(layer.outputs[0])].shape);
      ++checked;
    }
  }
  CHECK(checked > 300);
}

TEST_CASE("every step of every schedule has a kernel whose descriptors cuDNN takes") {
  for (Network& net : networks()) {
    CAPTURE(net.name);
    const OperatorGraph graph = operator_graph(std::move(net));
    SimulatedCosts costs;
    std::size_t kernels = 0, steps = 0;
    for (Kind kind : {Kind::greedy, Kind::merge}) {
      const Schedule schedule = make_schedule(kind, graph, {2, 4, false}, costs);
      const Program program = compile(graph, schedule.stages);
      for (const Step& step : program.steps) kernels += make_kernel(graph, step, false) ? 1 : 0;
      steps += program.steps.size();
    }
    CHECK(kernels == steps);
  }
}

TEST_CASE("a convolution that pads unequally is described on a bordered input") {
  // 9 rows, padding 0 above and 2 below: cuDNN's single padding cannot say that.
  Network net;
  net.tensors = {{"data", {}}, {"out", {}}};
  net.layers.push_back({"data", "Input", InputOp{{1, 3, 9, 9}}, {}, {0}, {}});
  ConvOp op;
  op.m = 4, op.kh = op.kw = 3, op.sh = op.sw = 2, op.pb = op.pr = 2;
  net.layers.push_back({"conv", "Convolution", op, {0}, {1}, {}});
  net.outputs = {1};
  infer_shapes(net);
  random_weights(net);
  CHECK(!cudnn_shape(net, 1));
  const OperatorGraph graph = operator_graph(std::move(net));
  const StagePlan stage{Strategy::concurrent, {{0}}};
  const Program program = compile(graph, std::span(&stage, 1));
  CHECK(make_kernel(graph, program.steps[0], false) != nullptr);
}

TEST_CASE("what cuDNN cannot compute is refused by the layer's name") {
  const Network net = import_network_text(R"(
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 4 dim: 6 dim: 6 } } }
layer { name: "norm" type: "LRN" bottom: "data" top: "norm" lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 } }
)",
                                          "norm");
  const OperatorGraph graph = operator_graph(net);
  const StagePlan stage{Strategy::concurrent, {{0}}};
  const Program program = compile(graph, std::span(&stage, 1));
  CHECK_THROWS_WITH_AS(make_kernel(graph, program.steps[0], false), doctest::Contains("\"norm\""),
                       Error);
}
