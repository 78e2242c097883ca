// Weights from .caffemodel files: trained networks give the outputs that another program computed;
// encodings agree; broken files are refused.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "convprim/error.hpp"
#include "convprim/import.hpp"
#include "convprim/reference.hpp"
#include "trained.hpp"

using namespace convprim;
using namespace convprim::test;
using namespace convprim::test::wire;
namespace fs = std::filesystem;

namespace {

std::string message_of(const std::string& net, const std::string& weights) {
  ImportOptions options;
  options.weights = weights;
  try {
    import_network(net, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::string blob(const std::vector<Index>& dims, const std::vector<float>& values) {
  std::string shape;
  for (const Index d : dims) shape += varint(static_cast<std::uint64_t>(d));
  return field(7, field(7, field(1, shape)) + field(5, packed(values)));
}
std::string layer(const std::string& name, const std::string& blobs) {
  return field(100, field(1, name) + blobs);
}

constexpr char kBatchNorm[] = R"(
  input: "x" input_shape { dim: 1 dim: 2 dim: 1 dim: 2 }
  layer { name: "bn" type: "BatchNorm" bottom: "x" top: "x" batch_norm_param { %s } })";

std::string batch_norm_text(const std::string& extra) {
  std::string text = kBatchNorm;
  return text.replace(text.find("%s"), 2, extra);
}

std::vector<double> run_batch_norm(const std::string& extra, const std::string& blobs, bool fold) {
  const TemporaryFile model(layer("bn", blobs));
  ImportOptions options;
  options.weights = model.path.string();
  Network net = import_network_text(batch_norm_text(extra), "bn.prototxt", options);
  if (fold) optimise(net);
  return evaluate_reference(net, {{2, 4, -6, 10}}).at(0);
}

}  // namespace

TEST_CASE("trained networks give the outputs that were computed elsewhere, folded or not") {
  const auto all = trained_networks();
  if (all.empty()) return test::skip("no trained networks");
  for (const Trained& trained : all) {
    CAPTURE(trained.name);
    Network net = trained.net;
    const std::vector<std::vector<float>> input = {formula_input(input_shape(net).count())};
    const auto tensors = evaluate_reference_tensors(net, input);
    for (const auto& [layer, want] : trained.outputs) {
      const TensorId t = made_by(net, layer);
      REQUIRE(t >= 0);
      CHECK(relative_error(tensors.at(static_cast<std::size_t>(t)), want) < 1e-4);
    }
    const auto plain = evaluate_reference(net, input);
    optimise(net);
    const auto folded = evaluate_reference(net, input);
    REQUIRE(folded.size() == plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i)
      CHECK(relative_error(folded[i], plain[i]) < 1e-5);
  }
}

TEST_CASE("four encodings of one model give one answer") {
  const std::string folder = test::shared("weights/synthetic_legacy_encodings");
  if (folder.empty()) return test::skip("no encodings");
  const fs::path hyperlpr = fs::path(folder).parent_path() / "hyperlpr";
  const std::string v2 = (hyperlpr / "HorizonalFinemapping.prototxt").string();
  const std::string v1 = folder + "/finemapping_v1layers.prototxt";
  std::vector<std::vector<double>> answers;
  for (const auto& [net_file, weights] : std::vector<std::pair<std::string, std::string>>{
           {v2, (hyperlpr / "HorizonalFinemapping.caffemodel").string()},
           {v2, folder + "/finemapping_double_data.caffemodel"},
           {v2, folder + "/finemapping_unpacked.caffemodel"},
           {v1, folder + "/finemapping_v1layers_legacy4d.caffemodel"},
           {v2, folder + "/finemapping_v1layers_legacy4d.caffemodel"}}) {
    ImportOptions options;
    options.weights = weights;
    const Network net = import_network(net_file, options);
    answers.push_back(evaluate_reference(net, {formula_input(input_shape(net).count())}).at(0));
  }
  for (const auto& answer : answers) CHECK(relative_error(answer, answers[0]) < 1e-6);
}

TEST_CASE("BatchNorm divides by its third blob, and by nothing if that is zero") {
  const std::string mean_var = blob({2}, {2, 4}) + blob({2}, {8, 32});
  for (const bool fold : {false, true}) {
    CAPTURE(fold);
    // factor 2: mean (1, 2), variance (4, 16)
    const auto scaled = run_batch_norm("eps: 0", mean_var + blob({1}, {2}), fold);
    CHECK(relative_error(scaled, std::vector<double>{0.5, 1.5, -2, 2}) < 1e-6);
    // factor 0: mean 0, variance 0, so that eps alone divides
    const auto zero = run_batch_norm("eps: 0.25", mean_var + blob({1}, {0}), fold);
    CHECK(relative_error(zero, std::vector<double>{4, 8, -12, 20}) < 1e-6);
    // NVIDIA's five blobs: mean, variance, factor, gamma, beta
    const auto five = run_batch_norm(
        "eps: 0 scale_bias: true scale_filler { type: \"constant\" value: 1 } bias_filler { value: "
        "0 }",
        mean_var + blob({1}, {2}) + blob({2}, {10, -1}) + blob({2}, {1, 0.5F}), fold);
    CHECK(relative_error(five, std::vector<double>{6, 16, 2.5, -1.5}) < 1e-6);
  }
}

TEST_CASE("dialects of batch normalisation that only the number of blobs tells apart") {
  // BatchNorm with five blobs though the network does not say so
  const auto five = run_batch_norm("eps: 0",
                                   blob({2}, {2, 4}) + blob({2}, {8, 32}) + blob({1}, {2}) +
                                       blob({2}, {10, -1}) + blob({2}, {1, 0.5F}),
                                   false);
  CHECK(relative_error(five, std::vector<double>{6, 16, 2.5, -1.5}) < 1e-6);
  const std::string text = R"(
    input: "x" input_shape { dim: 1 dim: 2 dim: 1 dim: 2 }
    layer { name: "bn" type: "BN" bottom: "x" top: "x" bn_param { eps: 0 } })";
  const auto run = [&](const std::string& blobs) {
    const TemporaryFile model(layer("bn", blobs));
    ImportOptions options;
    options.weights = model.path.string();
    return evaluate_reference(import_network_text(text, "bn.prototxt", options), {{2, 4, -6, 10}})
        .at(0);
  };
  // BN: slope, bias, mean, variance
  const auto four = run(blob({1, 2, 1, 1}, {10, -1}) + blob({1, 2, 1, 1}, {1, 0.5F}) +
                        blob({1, 2, 1, 1}, {1, 2}) + blob({1, 2, 1, 1}, {4, 16}));
  CHECK(relative_error(four, std::vector<double>{6, 16, 2.5, -1.5}) < 1e-6);
  // BN: slope and bias only
  const auto two = run(blob({1, 2, 1, 1}, {10, -1}) + blob({1, 2, 1, 1}, {1, 0.5F}));
  CHECK(relative_error(two, std::vector<double>{21, 41, 6.5, -9.5}) < 1e-6);
}

TEST_CASE("values in several pieces, and a field that only the importer may make") {
  const std::string shape = field(7, field(1, varint(4)));
  const std::string text = R"(
    input: "x" input_shape { dim: 1 dim: 4 dim: 1 dim: 1 }
    layer { name: "s" type: "Scale" bottom: "x" top: "y" }
    layer { name: "t" type: "Scale" bottom: "y" top: "z" })";
  const std::string plain = layer("s", field(7, shape + field(5, packed({2, 3, 4, 5}))));
  const auto run = [&](const std::string& blob) {
    const TemporaryFile model(plain + layer("t", field(7, blob)));
    ImportOptions options;
    options.weights = model.path.string();
    return evaluate_reference(import_network_text(text, "s.prototxt", options), {{1, 1, 1, 1}})
        .at(0);
  };
  const std::vector<double> want = {2, 6, 12, 20};
  CHECK(run(shape + field(5, packed({1, 2, 3, 4}))) == want);
  CHECK(run(shape + field(5, packed({1, 2})) + field(5, packed({3, 4}))) == want);
  const std::string last = varint(5 * 8 + 5) + packed({4});  // a single number, not packed
  CHECK(run(shape + field(5, packed({1, 2, 3})) + last) == want);
  for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    CAPTURE(index);
    // The first names values that are there: whatever it means, memory is safe.
    try {
      CHECK(run(shape + number(1000, index) + field(5, packed({1, 2, 3, 4}))).size() == 4);
    } catch (const Error& e) {
      CHECK(has(e.what(), "\"t\""));
    }
  }
  CHECK_THROWS_AS(run(shape + field(5, packed({1, 2, 3, 4}) + "x")), Error);
}

TEST_CASE("weights that do not fit are refused with the layer and both shapes") {
  const std::string text =
      "input: \"x\" input_shape { dim: 1 dim: 3 dim: 9 dim: 9 }\n"
      "layer { name: \"c\" type: \"Convolution\" bottom: \"x\" top: \"y\"\n"
      "  convolution_param { num_output: 2 kernel_size: 5 bias_term: false } }\n";
  const TemporaryFile net(text);
  const auto message = [&](const std::string& bytes) {
    const TemporaryFile model(bytes);
    return message_of(net.path.string(), model.path.string());
  };
  const std::vector<float> small(54), right(150);
  CHECK(message(layer("c", blob({2, 3, 5, 5}, right))).empty());
  CHECK(message(layer("c", blob({2, 75}, right))).empty());  // once fully connected
  const std::string shapes = message(layer("c", blob({2, 3, 3, 3}, small)));
  CHECK(shapes.find("layer \"c\"") != std::string::npos);
  CHECK(shapes.find("2x3x3x3") != std::string::npos);
  CHECK(shapes.find("2x3x5x5") != std::string::npos);
  CHECK(message(layer("c", blob({2, 5, 5, 3}, right))).find("2x5x5x3") != std::string::npos);
  CHECK(message(layer("c", blob({2, 3, 5, 5}, small))).find("holds 54 values") !=
        std::string::npos);
  CHECK(message(layer("d", blob({2, 3, 5, 5}, right))).find("belong together") !=
        std::string::npos);
  CHECK(message(layer("c", "")).find("belong together") != std::string::npos);
  CHECK(message(layer("c", blob({2, 3, 5, 5}, right)).substr(0, 200)).find("broken") !=
        std::string::npos);
  CHECK(message("").find("empty") != std::string::npos);
  CHECK(message("<!DOCTYPE html>").find("web page") != std::string::npos);
  CHECK(message("\x89HDF\r\n\x1a\n").find("HDF5") != std::string::npos);
  CHECK(message(text).find("swapped") != std::string::npos);
  CHECK(message_of(net.path.string(), "/no/such/file").find("cannot be read") != std::string::npos);
  const TemporaryFile model(layer("c", blob({2, 3, 5, 5}, right)));
  CHECK(message_of(model.path.string(), net.path.string()).find("binary") != std::string::npos);
}

TEST_CASE("a parameter shared by name is loaded once and is the same in all its layers") {
  const std::string text = R"(
    input: "x" input_shape { dim: 1 dim: 1 dim: 1 dim: 1 }
    layer { name: "a" type: "Convolution" bottom: "x" top: "a" param { name: "w" }
      convolution_param { num_output: 1 kernel_size: 1 bias_term: false } }
    layer { name: "b" type: "Convolution" bottom: "a" top: "b" param { name: "w" }
      convolution_param { num_output: 1 kernel_size: 1 bias_term: false } })";
  const TemporaryFile model(layer("a", blob({1, 1, 1, 1}, {3})));
  ImportOptions options;
  options.weights = model.path.string();
  const Network net = import_network_text(text, "shared.prototxt", options);
  CHECK(evaluate_reference(net, {{2}}).at(0) == std::vector<double>{18});
  Network random = import_network_text(text, "shared.prototxt");
  random_weights(random);
  CHECK(*random.layers.at(1).blobs.at(0).data == *random.layers.at(2).blobs.at(0).data);
}

TEST_CASE("a transposed InnerProduct is turned when it is read") {
  const std::string text = R"(
    input: "x" input_shape { dim: 1 dim: 3 }
    layer { name: "f" type: "InnerProduct" bottom: "x" top: "y"
      inner_product_param { num_output: 2 bias_term: false transpose: true } })";
  const TemporaryFile model(layer("f", blob({3, 2}, {1, 2, 3, 4, 5, 6})));
  ImportOptions options;
  options.weights = model.path.string();
  const Network net = import_network_text(text, "transposed.prototxt", options);
  CHECK(evaluate_reference(net, {{1, 10, 100}}).at(0) == std::vector<double>{531, 642});
}
