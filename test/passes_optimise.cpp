// The passes: what they may fuse and what not, and that outputs stay equal, on patterns and on
// random networks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "convprim/import.hpp"
#include "convprim/reference.hpp"
#include "selector/passes.hpp"
#include "test.hpp"

using namespace convprim;

namespace {

std::vector<std::vector<float>> random_inputs(const Network& net, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> u(-1, 1);
  std::vector<std::vector<float>> inputs;
  for (const Layer& layer : net.layers) {
    if (!std::holds_alternative<InputOp>(layer.op)) continue;
    const Shape& s = net.tensors[static_cast<std::size_t>(layer.outputs[0])].shape;
    inputs.emplace_back(static_cast<std::size_t>(s.count()));
    for (float& v : inputs.back()) v = u(engine);
  }
  return inputs;
}

/// Optimises and checks that every output keeps its values, shape and name.
PassCounts optimise_checked(Network& net, double tolerance = 2e-5) {
  random_weights(net, 7);
  const auto inputs = random_inputs(net, 3);
  const auto before = evaluate_reference(net, inputs, 1);
  std::vector<std::string> names;
  std::vector<Shape> shapes;
  for (const TensorId t : net.outputs) {
    names.push_back(net.tensors[static_cast<std::size_t>(t)].name);
    shapes.push_back(net.tensors[static_cast<std::size_t>(t)].shape);
  }
  const PassCounts counts = optimise(net);
  const auto after = evaluate_reference(net, inputs, 1);
  REQUIRE(after.size() == before.size());
  for (std::size_t o = 0; o < before.size(); ++o) {
    const Tensor& tensor = net.tensors[static_cast<std::size_t>(net.outputs[o])];
    CHECK(tensor.name == names[o]);
    CHECK(tensor.shape == shapes[o]);
    REQUIRE(after[o].size() == before[o].size());
    double scale = 1e-3;
    double error = 0;
    for (std::size_t i = 0; i < before[o].size(); ++i) {
      scale = std::max(scale, std::abs(before[o][i]));
      error = std::max(error, std::abs(after[o][i] - before[o][i]));
    }
    CHECK(error / scale < tolerance);
  }
  return counts;
}

std::vector<std::string> kinds(const Network& net) {
  std::vector<std::string> k;
  for (const Layer& layer : net.layers) k.emplace_back(kind(layer.op));
  return k;
}

using Kinds = std::vector<std::string>;

constexpr char kInput[] = "input: \"x\" input_shape { dim: 2 dim: 4 dim: 6 dim: 5 }\n";
constexpr char kConv[] =
    "layer { name: \"c\" type: \"Convolution\" bottom: \"x\" top: \"c\" convolution_param { "
    "num_output: 4 kernel_size: 3 pad: 1 bias_term: false } }\n";

Network make(const std::string& text) { return import_network_text(text, "test.prototxt"); }

std::string one(const std::string& name, const std::string& type, const std::string& bottom,
                const std::string& top, const std::string& param = "") {
  return "layer { name: \"" + name + "\" type: \"" + type + "\" bottom: \"" + bottom +
         "\" top: \"" + top + "\" " + param + " }\n";
}

const ConvOp& first_conv(const Network& net) {
  for (const Layer& layer : net.layers) {
    if (const auto* op = std::get_if<ConvOp>(&layer.op)) return *op;
  }
  throw std::runtime_error("no convolution");
}

}  // namespace

TEST_CASE("BatchNorm, Scale and ReLU end up in the convolution") {
  Network net = make(std::string(kInput) + kConv + one("b", "BatchNorm", "c", "c") +
                     one("s", "Scale", "c", "c", "scale_param { bias_term: true }") +
                     one("r", "ReLU", "c", "c"));
  const PassCounts counts = optimise_checked(net);
  CHECK(kinds(net) == Kinds{"input", "conv"});
  CHECK(counts.folded == 2);
  CHECK(counts.activations == 1);
  CHECK(first_conv(net).bias);
  CHECK(first_conv(net).epilogue.lo == 0);
}

TEST_CASE("affine functions fold into grouped, transposed and fully connected layers") {
  for (const char* layer :
       {"type: \"Convolution\" convolution_param { num_output: 6 kernel_size: 3 group: 2 }",
        "type: \"Deconvolution\" convolution_param { num_output: 6 kernel_size: 4 stride: 2 group: "
        "2 }",
        "type: \"InnerProduct\" inner_product_param { num_output: 6 }"}) {
    CAPTURE(layer);
    Network net =
        make(std::string(kInput) + "layer { name: \"c\" bottom: \"x\" top: \"c\" " + layer +
             " }\n" + one("s", "Scale", "c", "s", "scale_param { bias_term: true }") +
             one("r", "ReLU6", "s", "r"));
    optimise_checked(net);
    CHECK(net.layers.size() == 2);
  }
}

TEST_CASE("an affine function folds into the layer behind only where no padding reads zeros") {
  const std::string scale = one("s", "Scale", "x", "s", "scale_param { bias_term: true }");
  const std::string plain = one("s", "Scale", "x", "s");
  const auto conv = [](const std::string& param) {
    return one("c", "Convolution", "s", "c",
               "convolution_param { num_output: 6 kernel_size: 3 group: 2 " + param + " }");
  };
  Network open = make(kInput + scale + conv(""));
  optimise_checked(open);
  CHECK(kinds(open) == Kinds{"input", "conv"});
  Network padded = make(kInput + scale + conv("pad: 1"));
  optimise_checked(padded);
  CHECK(kinds(padded) == Kinds{"input", "affine", "conv"});
  Network unshifted = make(kInput + plain + conv("pad: 1"));
  optimise_checked(unshifted);
  CHECK(kinds(unshifted) == Kinds{"input", "conv"});
  Network fc = make(kInput + scale +
                    one("f", "InnerProduct", "s", "f", "inner_product_param { num_output: 3 }"));
  optimise_checked(fc);
  CHECK(kinds(fc) == Kinds{"input", "fc"});
}

TEST_CASE("what others read, or what is an output, is not fused") {
  // The convolution's own output is read twice: neither ReLU may change it.
  Network twice =
      make(std::string(kInput) + kConv + one("r", "ReLU", "c", "r") + one("t", "TanH", "c", "t"));
  const PassCounts counts = optimise_checked(twice);
  CHECK(counts.activations == 0);
  // An affine function behind a ReLU stays: max(x, 0) * s is not max(x * s, 0) for s < 0.
  Network behind = make(std::string(kInput) + kConv + one("r", "ReLU", "c", "c") +
                        one("s", "Scale", "c", "s", "scale_param { bias_term: true }"));
  optimise_checked(behind);
  CHECK(kinds(behind) == Kinds{"input", "conv", "affine"});
  // A tensor that is an output and is read.
  Network both = make(std::string(kInput) + kConv + one("r", "ReLU", "c", "r"));
  both.outputs.insert(both.outputs.begin(), both.layers[1].outputs[0]);
  optimise_checked(both);
  CHECK(kinds(both) == Kinds{"input", "conv", "act"});
}

TEST_CASE("clamps behind one another are one clamp") {
  Network net = make(std::string(kInput) + kConv +
                     one("a", "Clip", "c", "c", "clip_param { min: -0.2 max: 0.3 }") +
                     one("b", "ReLU6", "c", "c") +
                     one("d", "Clip", "c", "c", "clip_param { min: 0.1 max: 9 }"));
  optimise_checked(net);
  CHECK(kinds(net) == Kinds{"input", "conv"});
  CHECK(first_conv(net).epilogue.lo == 0.1F);
  CHECK(first_conv(net).epilogue.hi == 0.3F);
  Network apart = make(std::string(kInput) + kConv +
                       one("a", "Clip", "c", "c", "clip_param { min: 1 max: 2 }") +
                       one("b", "Clip", "c", "c", "clip_param { min: 3 max: 4 }"));
  optimise_checked(apart);
  CHECK(first_conv(apart).epilogue.lo == 3);
  CHECK(first_conv(apart).epilogue.hi == 3);
}

TEST_CASE("residual sums go into a convolution whose output nobody else reads") {
  const std::string sum =
      "layer { name: \"e\" type: \"Eltwise\" bottom: \"x\" bottom: \"c\" top: \"e\" %s }\n" +
      one("r", "ReLU", "e", "e");
  const auto with = [&](const std::string& param) {
    std::string text = sum;
    return std::string(kInput) + kConv + text.replace(text.find("%s"), 2, param);
  };
  Network net = make(with(""));
  PassCounts counts = optimise_checked(net);
  CHECK(counts.residuals == 1);
  CHECK(counts.activations == 1);
  CHECK(kinds(net) == Kinds{"input", "conv"});
  CHECK(net.layers[1].inputs.size() == 2);
  CHECK(first_conv(net).epilogue.lo == 0);

  Network scaled = make(with("eltwise_param { coeff: 1 coeff: 0.25 }"));
  counts = optimise_checked(scaled);
  CHECK(counts.residuals == 1);
  Network other = make(with("eltwise_param { coeff: 0.25 coeff: 1 }"));
  counts = optimise_checked(other);
  CHECK(counts.residuals == 0);
  Network product = make(with("eltwise_param { operation: PROD }"));
  counts = optimise_checked(product);
  CHECK(counts.residuals == 0);
  Network clamped =
      make(std::string(kInput) + kConv + one("k", "ReLU", "c", "c") +
           "layer { name: \"e\" type: \"Eltwise\" bottom: \"x\" bottom: \"c\" top: \"e\" }");
  counts = optimise_checked(clamped);
  CHECK(counts.residuals == 0);
  Network doubled =
      make(std::string(kInput) + kConv +
           "layer { name: \"e\" type: \"Eltwise\" bottom: \"c\" bottom: \"c\" top: \"e\" }");
  counts = optimise_checked(doubled);
  CHECK(counts.residuals == 0);
}

TEST_CASE("of two convolutions the later one adds, whatever the order of the operands") {
  for (const char* order : {"bottom: \"c\" bottom: \"d\"", "bottom: \"d\" bottom: \"c\""}) {
    Network net = make(
        std::string(kInput) + kConv +
        one("d", "Convolution", "x", "d", "convolution_param { num_output: 4 kernel_size: 1 }") +
        "layer { name: \"e\" type: \"Eltwise\" " + order + " top: \"e\" }");
    const PassCounts counts = optimise_checked(net);
    CHECK(counts.residuals == 1);
    CHECK(net.layers.back().name == "d");
    CHECK(std::get<ConvOp>(net.layers.back().op).epilogue.residual);
  }
}

TEST_CASE("a residual operand that is made later moves the convolution behind it") {
  Network net =
      make(std::string(kInput) + kConv +
           one("p", "Pooling", "x", "p", "pooling_param { kernel_size: 3 stride: 1 pad: 1 }") +
           one("t", "TanH", "p", "t") +
           "layer { name: \"e\" type: \"Eltwise\" bottom: \"c\" bottom: \"t\" top: \"e\" }");
  const PassCounts counts = optimise_checked(net);
  CHECK(counts.residuals == 1);
  CHECK(kinds(net) == Kinds{"input", "pool", "act", "conv"});
}

TEST_CASE("layers that only pass tensors on are removed, except between an input and an output") {
  Network net =
      make(std::string(kInput) + one("d", "Dropout", "x", "d") +
           "layer { name: \"s\" type: \"Split\" bottom: \"d\" top: \"s1\" top: \"s2\" }\n" +
           one("k", "Concat", "s1", "k") + one("p", "Power", "k", "p") +
           one("t", "TanH", "p", "t") + one("e", "Eltwise", "s2", "e") +
           one("g", "Pooling", "e", "g", "pooling_param { pool: AVE global_pooling: true }") +
           one("f", "Flatten", "g", "f"));
  const PassCounts counts = optimise_checked(net);
  CHECK(kinds(net) == Kinds{"input", "act", "pool"});
  CHECK(counts.identities == 6);
  Network through =
      make(std::string(kInput) + one("d", "Dropout", "x", "d") + one("t", "TanH", "x", "t"));
  optimise_checked(through);
  CHECK(kinds(through) == Kinds{"input", "identity", "act"});
}

TEST_CASE("layers that no output needs go away, inputs stay") {
  Network net = make(std::string(kInput) + kConv + one("t", "TanH", "x", "t") +
                     "layer { name: \"q\" type: \"Silence\" bottom: \"c\" }");
  const PassCounts counts = optimise_checked(net);
  CHECK(counts.dead == 1);
  CHECK(kinds(net) == Kinds{"input", "act"});
}

TEST_CASE("shared weights are not folded twice") {
  const std::string shared =
      "convolution_param { num_output: 4 kernel_size: 1 bias_term: false } param { name: \"w\" }";
  Network net = make(std::string(kInput) + one("a", "Convolution", "x", "a", shared) +
                     one("s", "Scale", "a", "a", "scale_param { bias_term: true }") +
                     one("b", "Convolution", "a", "b", shared));
  optimise_checked(net);
  CHECK(kinds(net) == Kinds{"input", "conv", "conv"});
}

TEST_CASE("random networks keep their outputs") {
  constexpr int kNetworks = 400;
  int folded = 0;
  int activations = 0;
  int residuals = 0;
  for (unsigned seed = 0; seed < kNetworks; ++seed) {
    CAPTURE(seed);
    std::mt19937 engine(seed);
    const auto pick = [&](int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); };
    // All tensors have the same shape, so that any two can be added.
    std::string text = kInput;
    std::vector<std::string> tensors = {"x"};
    const int layers = 3 + pick(14);
    for (int i = 0; i < layers; ++i) {
      const int back = pick(3) == 0 ? pick(std::min<int>(3, static_cast<int>(tensors.size()))) : 0;
      const std::string from = tensors[tensors.size() - 1 - static_cast<std::size_t>(back)];
      const bool in_place = pick(3) == 0 && from == tensors.back() && from != "x";
      const std::string name = fmt::format("t{}", i);
      const std::string top = in_place ? from : name;
      switch (pick(13)) {
        case 0:
        case 1:
        case 2: {
          const bool grouped = pick(2) == 0;
          const bool pointwise = pick(2) == 0;
          text +=
              one(name, "Convolution", from, top,
                  std::string("convolution_param { num_output: 4 ") + (grouped ? "group: 2 " : "") +
                      (pointwise ? "kernel_size: 1" : "kernel_size: 3 pad: 1") +
                      (pick(2) == 0 ? " bias_term: false" : "") + " }");
          break;
        }
        case 3:
          text += one(name, "BatchNorm", from, top);
          break;
        case 4:
          text +=
              one(name, "Scale", from, top, pick(2) == 0 ? "scale_param { bias_term: true }" : "");
          break;
        case 5:
        case 6:
          text += one(name, pick(2) == 0 ? "ReLU" : "ReLU6", from, top);
          break;
        case 7:
        case 11:
        case 12: {
          const std::string other =
              tensors[static_cast<std::size_t>(pick(static_cast<int>(tensors.size())))];
          const char* const params[] = {"", "eltwise_param { coeff: 1 coeff: -0.5 }",
                                        "eltwise_param { operation: MAX }"};
          text += "layer { name: \"" + name + "\" type: \"Eltwise\" bottom: \"" + from +
                  "\" bottom: \"" + other + "\" top: \"" + name + "\" " + params[pick(5) % 3] +
                  " }\n";
          tensors.push_back(name);
          continue;
        }
        case 8:
          text += one(name, "Dropout", from, top);
          break;
        case 9:
          text += one(name, "Power", from, top,
                      pick(2) == 0 ? "power_param { scale: 0.5 shift: 0.1 }" : "");
          break;
        default:
          text +=
              one(name, "Pooling", from, name, "pooling_param { kernel_size: 3 stride: 1 pad: 1 }");
          tensors.push_back(name);
          continue;
      }
      if (!in_place) tensors.push_back(name);
    }
    CAPTURE(text);
    Network net = make(text);
    const PassCounts counts = optimise_checked(net, 1e-4);
    folded += counts.folded;
    activations += counts.activations;
    residuals += counts.residuals;
  }
  // The networks did exercise the passes.
  CHECK(folded > kNetworks / 2);
  CHECK(activations > kNetworks / 4);
  CHECK(residuals > kNetworks / 10);
}

TEST_CASE("our networks shrink to convolutions with everything fused") {
  struct Row {
    const char* file;
    std::size_t convs, acts, affines, eltwise;
  };
  constexpr Row kRows[] = {{"alexnet", 5, 0, 0, 0},       {"googlenet", 57, 0, 0, 0},
                           {"resnet18", 20, 0, 0, 0},     {"resnet50", 53, 0, 0, 0},
                           {"mobilenet_v1", 28, 0, 0, 0}, {"squeezenet_v1.1", 26, 0, 0, 0}};
  for (const Row& row : kRows) {
    CAPTURE(row.file);
    Network net = import_network(test::data(std::string("nets/") + row.file + ".prototxt"));
    random_weights(net);
    optimise(net);
    const Kinds k = kinds(net);
    const auto count = [&](const char* what) {
      return static_cast<std::size_t>(std::count(k.begin(), k.end(), what));
    };
    CHECK(count("conv") == row.convs);
    CHECK(count("act") == row.acts);
    CHECK(count("affine") == row.affines);
    CHECK(count("eltwise") == row.eltwise);
    CHECK(count("identity") == 0);
  }
}
