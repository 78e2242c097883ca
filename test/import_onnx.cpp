// The ONNX importer: the standard's own backend tests, real models, and what it refuses.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "convprim/error.hpp"
#include "convprim/import.hpp"
#include "convprim/reference.hpp"
#include "import_test.hpp"
#include "selector/importers/onnx.hpp"
#include "test.hpp"

using namespace convprim;
using namespace convprim::test;
using namespace convprim::test::wire;
namespace fs = std::filesystem;

namespace {

std::string read_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Where Debian's libonnx-testdata lies; empty if it is not installed.
fs::path backend_tests() {
  const char* const dir = std::getenv("CONVPRIM_ONNX_TESTDATA");
  const fs::path path = dir != nullptr ? dir : "/usr/share/libonnx-testdata/data";
  return fs::exists(path / "node") ? path : fs::path();
}

struct Verdict {
  enum class Kind { passed, wrong, unsupported } kind;
  std::string why;
};

std::vector<onnx::Constant> read_tensors(const fs::path& folder, const std::string& prefix) {
  std::vector<onnx::Constant> tensors;
  for (int i = 0;; ++i) {
    const fs::path path = folder / fmt::format("{}_{}.pb", prefix, i);
    if (!fs::exists(path)) return tensors;
    tensors.push_back(onnx::read_tensor(path.string()));
  }
}

std::vector<float> floats_of(const onnx::Constant& c) {
  if (!c.integer) return *c.floats;
  return {c.ints.begin(), c.ints.end()};
}

/// Runs one backend test through the importer and the reference evaluator.
Verdict judge(const fs::path& folder) {
  std::vector<onnx::Constant> inputs, outputs;
  Network net;
  std::map<std::string, onnx::Constant> by_name;
  try {
    const std::string bytes = read_bytes(folder / "model.onnx");
    inputs = read_tensors(folder / "test_data_set_0", "input");
    outputs = read_tensors(folder / "test_data_set_0", "output");
    const std::vector<std::string> names = onnx::input_names(bytes);
    for (std::size_t i = 0; i < std::min(names.size(), inputs.size()); ++i)
      by_name[names[i]] = inputs[i];
    auto imported = onnx::import_model(bytes, (folder / "model.onnx").string(), {}, by_name);
    if (!imported) throw Error("no model");
    net = std::move(*imported);
  } catch (const Error& e) {
    return {Verdict::Kind::unsupported, e.what()};
  }
  for (const Layer& layer : net.layers) {
    if (const auto* op = std::get_if<OpaqueOp>(&layer.op))
      return {Verdict::Kind::unsupported, op->why};
  }
  std::vector<std::vector<float>> feeds;
  for (const Layer& layer : net.layers) {
    if (std::holds_alternative<InputOp>(layer.op))
      feeds.push_back(floats_of(by_name.at(layer.name)));
  }
  std::vector<std::vector<double>> got;
  try {
    got = evaluate_reference(net, feeds, 1);
    Network optimised = net;
    optimise(optimised);
    const auto again = evaluate_reference(optimised, feeds, 1);
    for (std::size_t o = 0; o < got.size(); ++o) {
      for (std::size_t i = 0; i < got[o].size(); ++i) {
        const double error = std::abs(again[o][i] - got[o][i]);
        if (error > 1e-5 + 1e-5 * std::abs(got[o][i]))
          return {Verdict::Kind::wrong, "the passes change it"};
      }
    }
  } catch (const Error& e) {
    return {Verdict::Kind::wrong, e.what()};
  }
  for (std::size_t o = 0; o < std::min(got.size(), outputs.size()); ++o) {
    const std::vector<float> want = floats_of(outputs[o]);
    if (got[o].size() != want.size()) {
      return {Verdict::Kind::wrong,
              fmt::format("output {} has {} elements, not {}", o, got[o].size(), want.size())};
    }
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double w = static_cast<double>(want[i]);
      if (!(std::abs(got[o][i] - w) <= 1e-5 + 1e-4 * std::abs(w)) &&
          !(std::isnan(w) && std::isnan(got[o][i]))) {
        return {Verdict::Kind::wrong,
                fmt::format("output {} element {} is {}, not {}", o, i, got[o][i], w)};
      }
    }
  }
  return {Verdict::Kind::passed, ""};
}

/// Tests of convolutions, pooling and normalisation over images: none of them may be unsupported.
bool must_pass(const std::string& name) {
  for (const char* part :
       {"1d", "3d", "_cpu", "with_argmax", "training", "maxunpool", "convinteger", "uint8"}) {
    if (name.find(part) != std::string::npos) return false;
  }
  for (const char* start :
       {"test_basic_conv", "test_conv_", "test_convtranspose", "test_averagepool_2d",
        "test_maxpool_2d", "test_batchnorm", "test_globalaveragepool", "test_globalmaxpool",
        "test_Conv2d", "test_ConvTranspose2d", "test_AvgPool2d", "test_MaxPool2d",
        "test_BatchNorm2d", "test_operator_conv", "test_operator_maxpool"}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the standard's backend tests: what is imported computes the right outputs") {
  const fs::path root = backend_tests();
  if (root.empty()) return test::skip("libonnx-testdata is not installed");
  std::vector<fs::path> folders;
  for (const char* suite : {"node", "pytorch-converted", "pytorch-operator", "simple"}) {
    for (const auto& entry : fs::directory_iterator(root / suite)) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  const bool verbose = std::getenv("CONVPRIM_VERBOSE") != nullptr;
  int passed = 0;
  int unsupported = 0;
  for (const fs::path& folder : folders) {
    const std::string name = folder.filename().string();
    CAPTURE(name);
    const Verdict verdict = judge(folder);
    CHECK_MESSAGE(verdict.kind != Verdict::Kind::wrong, verdict.why);
    if (must_pass(name)) CHECK_MESSAGE(verdict.kind == Verdict::Kind::passed, verdict.why);
    passed += verdict.kind == Verdict::Kind::passed ? 1 : 0;
    unsupported += verdict.kind == Verdict::Kind::unsupported ? 1 : 0;
    if (verbose && verdict.kind != Verdict::Kind::passed) fmt::print("{}: {}\n", name, verdict.why);
  }
  fmt::print("{} backend tests: {} passed, {} not claimed\n", folders.size(), passed, unsupported);
  CHECK(passed >= 230);
}

namespace {

std::vector<std::string> problems(const Network& net) {
  std::vector<std::string> list;
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    if (!std::holds_alternative<ConvOp>(net.layers[i].op)) continue;
    list.push_back(scenario_of(net, static_cast<LayerId>(i)).str());
  }
  std::sort(list.begin(), list.end());
  return list;
}

/// A graph input or output; an extent of 0 is symbolic.
std::string value(const std::string& name, const std::vector<Index>& dims) {
  std::string shape;
  for (const Index d : dims) {
    shape += field(1, d > 0 ? number(1, static_cast<std::uint64_t>(d)) : field(2, "N"));
  }
  return field(1, name) + field(2, field(1, number(1, 1) + field(2, shape)));
}
std::string node(const std::string& type, const std::vector<std::string>& in,
                 const std::vector<std::string>& out, const std::string& attributes = "") {
  std::string bytes;
  for (const std::string& i : in) bytes += field(1, i);
  for (const std::string& o : out) bytes += field(2, o);
  return field(1, bytes + field(3, "the_" + type) + field(4, type) + attributes);
}
std::string ints(const std::string& name, const std::vector<Index>& values) {
  std::string bytes = field(1, name);
  for (const Index v : values) bytes += number(8, static_cast<std::uint64_t>(v));
  return field(5, bytes);
}
std::string tensor(const std::string& name, const std::vector<Index>& dims,
                   const std::vector<Index>& values) {
  std::string bytes;
  for (const Index d : dims) bytes += number(1, static_cast<std::uint64_t>(d));
  bytes += number(2, 7) + field(8, name);
  for (const Index v : values) bytes += number(7, static_cast<std::uint64_t>(v));
  return bytes;
}
std::string model(const std::string& nodes, const std::string& inputs, const std::string& outputs,
                  const std::string& initialisers = "", int opset = 13) {
  return number(1, 8) + field(8, number(2, static_cast<std::uint64_t>(opset))) +
         field(7, nodes + field(2, "g") + initialisers + inputs + outputs);
}

Network read(const std::string& bytes, const ImportOptions& options = {}) {
  return import_network_text(bytes, "n.onnx", options);
}

std::string refusal(const std::string& bytes, const ImportOptions& options = {}) {
  try {
    read(bytes, options);
  } catch (const Error& e) {
    const std::string message = e.what();
    CAPTURE(message);
    CHECK(message.starts_with("n.onnx"));
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.ends_with("."));
    return message;
  }
  return "";
}

}  // namespace

TEST_CASE("real models and light networks give their expected outputs") {
  const std::string mnist = test::shared("onnx/models/onnx2c_mnist_model.onnx");
  if (mnist.empty()) return test::skip("no ONNX models");
  const fs::path root = fs::path(mnist).parent_path().parent_path();
  const Network digits = import_network(mnist);
  const fs::path data = root / "models" / "onnx2c_mnist_test_data_set_0";
  const auto in = floats_of(onnx::read_tensor((data / "input_0.pb").string()));
  const auto want = floats_of(onnx::read_tensor((data / "output_0.pb").string()));
  CHECK(relative_error(evaluate_reference(digits, {in}).at(0), want) < 1e-5);
  for (const char* light : {"bvlc_alexnet", "resnet50", "squeezenet", "vgg19"}) {
    CAPTURE(light);
    // All weights of a light network are equal, so that its output does not depend on the input.
    const Network net =
        import_network((root / "light" / fmt::format("light_{}.onnx", light)).string());
    CHECK(net.remarks.empty());
    const auto expected = floats_of(
        onnx::read_tensor((root / "light" / fmt::format("light_{}_output_0.pb", light)).string()));
    const auto got = evaluate_reference(
        net, {formula_input(shape_of(net, net.layers.at(0).outputs.at(0)).count())});
    CHECK(relative_error(got.at(0), expected) < 1e-4);
  }
}

TEST_CASE("the same network through Caffe and ONNX") {
  const std::string slim = test::shared("onnx/models/version-slim-320_simplified.onnx");
  if (slim.empty()) return test::skip("no ONNX models");
  const Network through_onnx = import_network(slim);
  ImportOptions options;
  options.weights = test::shared("weights/ultraface/slim-320.caffemodel");
  const Network through_caffe =
      import_network(test::shared("weights/ultraface/slim-320.prototxt"), options);
  CHECK(problems(through_onnx) == problems(through_caffe));
  const auto input = formula_input(3 * 240 * 320);
  const auto a = evaluate_reference(through_onnx, {input});
  const auto b = evaluate_reference(through_caffe, {input});
  REQUIRE(a.size() == 2);
  REQUIRE(b.size() == 2);
  const auto other = [&](const std::vector<double>& x) {
    return b[0].size() == x.size() ? b[0] : b[1];
  };
  for (const auto& x : a) CHECK(relative_error(x, other(x)) < 1e-3);
  const ImportOptions one{
      .batch = 1, .shapes = {}, .train = false, .level = 0, .stages = {}, .weights = ""};
  for (const auto& [light, ours] :
       std::map<std::string, std::string>{{"vgg19", "vgg_e"}, {"bvlc_alexnet", "alexnet"}}) {
    const std::string file = test::shared("onnx/light/light_" + light + ".onnx");
    const auto theirs = problems(import_network(file, one));
    const auto mine = problems(import_network(test::data("nets/" + ours + ".prototxt")));
    CAPTURE(light);
    CHECK(theirs.size() == mine.size());
    if (light == "vgg19") CHECK(theirs == mine);
  }
}

TEST_CASE("open extents: the batch is chosen, the others are asked for") {
  const std::string relu = node("Relu", {"x"}, {"y"});
  const std::string batch =
      model(relu, field(11, value("x", {0, 3, 8, 8})), field(12, value("y", {})));
  CHECK(shape_of(read(batch), 0) == Shape{1, 3, 8, 8});
  ImportOptions four;
  four.batch = 4;
  CHECK(shape_of(read(batch, four), 0) == Shape{4, 3, 8, 8});
  const std::string open =
      model(relu, field(11, value("x", {1, 3, 0, 0})), field(12, value("y", {})));
  const std::string message = refusal(open);
  CHECK(has(message, "axis 2 (N)"));
  CHECK(has(message, "--input-shape x=N,C,H,W"));
  ImportOptions given;
  given.shapes["x"] = {2, 3, 5, 6};
  CHECK(shape_of(read(open, given), 0) == Shape{2, 3, 5, 6});
  given.shapes["q"] = {1};
  CHECK(has(refusal(open, given), "\"q\""));
}

TEST_CASE("shapes that the graph computes are folded") {
  // Reshape(x, Concat(Gather(Shape(x), 0), [-1])) as exporters write a flatten
  const std::string nodes = node("Shape", {"x"}, {"s"}) + node("Gather", {"s", "zero"}, {"n"}) +
                            node("Unsqueeze", {"n", "axes"}, {"n1"}) +
                            node("Concat", {"n1", "rest"}, {"to"}, ints("axis", {})) +
                            node("Reshape", {"x", "to"}, {"y"});
  const std::string constants = field(5, tensor("zero", {}, {0})) +
                                field(5, tensor("axes", {1}, {0})) +
                                field(5, tensor("rest", {1}, {static_cast<Index>(-1)}));
  const Network net =
      read(model(nodes, field(11, value("x", {2, 3, 4, 5})), field(12, value("y", {})), constants));
  CHECK(net.layers.size() == 2);
  CHECK(shape_of(net, net.outputs.at(0)) == Shape{2, 60, 1, 1});
}

TEST_CASE("what cannot be run is opaque, what is broken is refused") {
  const auto with = [](const std::string& nodes, const std::string& constants = "") {
    return model(nodes, field(11, value("x", {1, 3, 8, 8})), field(12, value("y", {1, 3, 8, 8})),
                 constants);
  };
  const Network odd = read(with(node("Mystery", {"x"}, {"y"})));
  CHECK(std::holds_alternative<OpaqueOp>(odd.layers.back().op));
  CHECK(shape_of(odd, odd.outputs.at(0)) == Shape{1, 3, 8, 8});  // declared by the model
  CHECK(has(odd.remarks.at(0), "layer \"the_Mystery\" (Mystery)"));
  const Network behind = read(with(node("Mystery", {"x"}, {"z"}) + node("Relu", {"z"}, {"y"})));
  CHECK(has(behind.remarks.back(), "the_Relu"));
  CHECK(has(refusal(with(node("Relu", {"ghost"}, {"y"}))), "\"ghost\""));
  CHECK(has(refusal(with(node("Relu", {"x"}, {"z"}))), "\"y\""));
  // Names may hold line breaks and bytes that are no UTF-8; a refusal stays one sentence.
  CHECK(has(refusal(with(node("Relu", {"gh\no\xffst"}, {"y"}))), "\"gh\\x0ao\\xffst\""));
  CHECK(has(refusal(with(node("Reshape", {"x", "s"}, {"y"}), field(5, tensor("s", {2}, {5, 5})))),
            "do not fit"));
  CHECK(has(refusal(with(node("Relu", {"x"}, {"y"}), field(5, tensor("s", {3}, {5, 5})))),
            "holds 2 values"));
  CHECK(has(refusal(with(node("Transpose", {"x"}, {"y"}, ints("perm", {0, 1, 2, 9})))), "axis 9"));
  CHECK(has(refusal(with(node("Relu", {"x"}, {"z"}), field(5, tensor("y", {1, 1, 1, 1, 1}, {5})))),
            "more than four axes"));
  CHECK(has(refusal(with(node("MaxPool", {"x"}, {"y"}))), "kernel_shape"));
  CHECK(has(refusal(with(node("MaxPool", {"x"}, {"y"}, ints("kernel_shape", {99, 99})))),
            "the window spans 99"));
  CHECK(has(refusal(with(node("ConstantOfShape", {"s"}, {"y"}),
                         field(5, tensor("s", {2}, {1 << 20, 1 << 20})))),
            "too much"));
  std::string truncated = with(node("Relu", {"x"}, {"y"}));
  truncated.resize(truncated.size() / 2);
  CHECK(has(refusal(truncated), "binary"));
  ImportOptions weights;
  weights.weights = "some.caffemodel";
  CHECK(has(refusal(with(node("Relu", {"x"}, {"y"})), weights), "--weights"));
}

TEST_CASE("data in files beside the model") {
  const fs::path folder = fs::temp_directory_path() / "convprim_onnx_external";
  fs::create_directories(folder);
  const std::vector<float> values = {9, 9, 2, 3, 4};
  std::ofstream(folder / "w.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  const auto write = [&](const std::string& location) {
    const auto entry = [](const std::string& key, const std::string& v) {
      return field(13, field(1, key) + field(2, v));
    };
    const std::string weights = number(1, 3) + number(2, 1) + field(8, "w") +
                                entry("location", location) + entry("offset", "8") +
                                entry("length", "12") + number(14, 1);
    std::ofstream(folder / "m.onnx", std::ios::binary)
        << model(node("Mul", {"x", "w"}, {"y"}), field(11, value("x", {1, 3})),
                 field(12, value("y", {1, 3})), field(5, weights));
    return (folder / "m.onnx").string();
  };
  CHECK(evaluate_reference(import_network(write("w.bin")), {{1, 10, 100}}).at(0) ==
        std::vector<double>{2, 30, 400});
  CHECK_THROWS_WITH_AS(import_network(write("../w.bin")),
                       doctest::Contains("outside the model's folder"), Error);
  CHECK_THROWS_WITH_AS(import_network(write("/etc/passwd")),
                       doctest::Contains("outside the model's folder"), Error);
  CHECK_THROWS_WITH_AS(import_network(write("none.bin")), doctest::Contains("cannot be read"),
                       Error);
  fs::remove_all(folder);
}
