// What real Caffe files contain, each in its smallest form: syntax, generations, inputs, phases,
// layers; and public bug reports against other importers, replayed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "convprim/error.hpp"
#include "convprim/import.hpp"
#include "convprim/reference.hpp"
#include "import_test.hpp"
#include "test.hpp"

using namespace convprim;
using test::has;

namespace {

Network read(const std::string& text, const ImportOptions& options = {}) {
  return import_network_text(text, "n.prototxt", options);
}

/// The refusal of a text; checked to be one sentence.
std::string refusal(const std::string& text, const ImportOptions& options = {}) {
  try {
    read(text, options);
  } catch (const Error& e) {
    const std::string message = e.what();
    CAPTURE(message);
    CHECK(message.starts_with("n.prototxt"));
    CHECK(!has(message, "\n"));
    CHECK(message.ends_with("."));
    return message;
  }
  return "";
}

/// The tensor of that name that was made last.
Shape shape(const Network& net, const std::string& name) {
  Shape s{0, 0, 0, 0};
  for (const Tensor& t : net.tensors) {
    if (t.name == name) s = t.shape;
  }
  return s;
}

const Layer& layer(const Network& net, const std::string& name) {
  for (const Layer& l : net.layers) {
    if (l.name == name) return l;
  }
  throw std::runtime_error("no layer " + name);
}

template <class T>
const T& op(const Network& net, const std::string& name) {
  return std::get<T>(layer(net, name).op);
}

int remarks(const Network& net, const std::string& part) {
  return static_cast<int>(std::count_if(net.remarks.begin(), net.remarks.end(),
                                        [&](const std::string& r) { return has(r, part); }));
}

std::vector<std::string> outputs(const Network& net) {
  std::vector<std::string> names;
  for (const TensorId t : net.outputs)
    names.push_back(net.tensors[static_cast<std::size_t>(t)].name);
  return names;
}
using Names = std::vector<std::string>;

std::string input(const std::string& dims, const std::string& name = "x") {
  std::string text = "input: \"" + name + "\" input_shape {";
  for (const char c : dims + ",") {
    static std::string number;
    if (c == ',') {
      text += " dim: " + number;
      number.clear();
    } else {
      number += c;
    }
  }
  return text + " }\n";
}

std::string one(const std::string& type, const std::string& param = "",
                const std::string& bottoms = "bottom: \"x\"",
                const std::string& tops = "top: \"y\"") {
  return "layer { name: \"l\" type: \"" + type + "\" " + bottoms + " " + tops + " " + param +
         " }\n";
}

/// Values of the first output.
std::vector<double> run(const std::string& text, const std::vector<std::vector<float>>& inputs) {
  return evaluate_reference(read(text), inputs).at(0);
}

const std::string kTwoBottoms = "bottom: \"x\" bottom: \"z\"";

}  // namespace

TEST_CASE("syntax that occurs in public files") {
  const std::string text =
      "\xef\xbb\xbf# \xe7\xbd\x91\xe7\xbb\x9c\r\n"
      "name: 'net'\r\n"
      "input: 'x' # comment with } and \"\r\n"
      "input_shape: { dim: 1 dim: 3 dim: 8 dim: 8 }\r\n"
      "layer {\tname: 'c'\ttype: \"Convolution\" bottom: 'x' top: 'c'\r\n"
      "  convolution_param: { num_output: 2 kernel_size: 3 bias_term: False\r\n"
      "    weight_filler { type: 'gaussian' std: 1. } } }layer {\r\n"
      "  name: \"r\" type: \"ReLU\" bottom: \"c\" top: \"c\" relu_param { negative_slope: 0. } "
      "}layer{name:"
      "'b' type:'BatchNorm' bottom:'c' top:'c' batch_norm_param{use_global_stats:True eps:1e-3}}";
  const Network net = read(text);
  CHECK(net.name == "net");
  CHECK(shape(net, "c") == Shape{1, 2, 6, 6});
  CHECK(!op<ConvOp>(net, "c").bias);
  CHECK(op<ActivationOp>(net, "r").kind == ActivationOp::Kind::clamp);
  CHECK(op<BatchNormOp>(net, "b").eps == 1e-3F);
  CHECK(layer(net, "c").line == 5);
  CHECK(layer(net, "b").line == 8);
  CHECK(net.remarks.empty());
}

TEST_CASE("unknown fields and values are skipped and reported once, by name and line") {
  const std::string conv =
      one("Convolution",
          "convolution_param { num_output: 2 kernel_size: 1 sparsity: 3 engine: CAFFE }");
  const Network net =
      read(input("1,3,8,8") + conv + "\n" + conv + "mystery_param { a: 1 b { c: [1, 2] } }\n");
  CHECK(remarks(net, "n.prototxt:2: the field \"sparsity\" of ConvolutionParameter") == 1);
  CHECK(remarks(net, "2 times") == 1);
  CHECK(remarks(net, "\"mystery_param\"") == 1);
  CHECK(remarks(net, "engine") == 0);
  const Network pool =
      read(input("1,3,8,8") + "\n# pool: FANCY\n" +
           one("Pooling", "pooling_param { pool: FANCY kernel_size: 2 stride: 2 }"));
  CHECK(remarks(pool, "n.prototxt:4: the value \"FANCY\" of \"pool\"") == 1);
  CHECK(shape(pool, "y") == Shape{1, 3, 4, 4});
}

TEST_CASE("files that are no network are refused with what they are") {
  CHECK(has(refusal(""), "empty"));
  CHECK(has(refusal("# only a comment\n\n"), "empty"));
  CHECK(has(refusal("<!DOCTYPE html>\n<html>"), "web page"));  // opensharp#498
  CHECK(has(refusal("  \n<html>"), "web page"));
  CHECK(has(refusal("{ \"layers\": [] }"), "JSON"));
  CHECK(has(refusal(std::string("\x0a\x04net\x00\x01", 7)), "binary"));
  CHECK(has(refusal("\x89HDF\r\n\x1a\n"), "HDF5"));
  CHECK(has(refusal("net: \"train.prototxt\"\nbase_lr: 0.1\n"), "solver"));
  CHECK(has(refusal("# s\nbase_lr: 0.1\nmax_iter: 5\n"), "solver"));
  CHECK(has(refusal("item {\n name: \"n\" label: 1 }\n"), "label map"));
  CHECK(has(refusal("name: \"only a name\"\n"), "no layer"));
  CHECK(has(refusal("hello world"), "n.prototxt:1:"));
  CHECK(has(refusal(input("1,1,1,1") + "layer { name: \"a\"\n"), "n.prototxt:3:"));
  CHECK(has(refusal("layer {\n name: \"a\"\n ip: { n: ${NUM_LABELS}\n } }"), "${NUM_LABELS}"));
  const std::string cls = refusal(input("1,1,1,1") + "\n" +
                                  one("InnerProduct", "inner_product_param { num_output: cls3x }"));
  CHECK(has(cls, "n.prototxt:3:"));
  CHECK(has(cls, "cls3x"));
  std::string deep = "layer ";
  for (int i = 0; i < 100000; ++i) deep += "{ a ";
  CHECK(has(refusal(deep), "nested"));
  CHECK_THROWS_WITH_AS(import_network("/no/such/file"), doctest::Contains("cannot be read"), Error);
  CHECK_THROWS_WITH_AS(import_network("/"), doctest::Contains("folder"), Error);
}

TEST_CASE("generations: the second's types are bare words, the third's are quoted") {
  const std::string v1 = R"(
    input: "x" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
    layers { name: "c" type: CONVOLUTION bottom: "x" top: "c" blobs_lr: 1 weight_decay: 0
      param: "w" convolution_param { num_output: 2 kernel_size: 3 } }
    layers { name: "r" type: RELU bottom: "c" top: "c" }
    layers { name: "f" type: INNER_PRODUCT bottom: "c" top: "f" inner_product_param { num_output: 5 } }
    layers { name: "l" type: SOFTMAX_LOSS bottom: "f" bottom: "label" }
    layers { name: "p" type: SOFTMAX bottom: "f" top: "p" })";
  const Network net = read(v1);
  CHECK(shape(net, "c") == Shape{1, 2, 6, 6});
  CHECK(layer(net, "f").type == "InnerProduct");
  CHECK(layer(net, "c").blobs.at(0).name == "w");
  CHECK(outputs(net) == Names{"p"});
  const std::string quoted = refusal("\n\nlayers { name: \"c\"\n type: \"Convolution\" }");
  CHECK(has(quoted, "n.prototxt:4:"));
  CHECK(has(quoted, "quotes"));
  const std::string bare = refusal("\nlayer { name: \"c\" type: CONVOLUTION }");
  CHECK(has(bare, "n.prototxt:2:"));
  const std::string mixed = refusal("layers { name: \"c\" type: RELU }\n\nlayer { name: \"d\" }");
  CHECK(has(mixed, "n.prototxt:3:"));
  CHECK(has(mixed, "line 1"));
  // An unknown type of the second generation (train-CRF-RNN#14).
  const Network odd =
      read(input("1,3,8,8") +
           "layers { name: \"m\"\n type: MULTI_STAGE_MEANFIELD\n bottom: \"x\" top: \"m\" }");
  CHECK(std::holds_alternative<OpaqueOp>(layer(odd, "m").op));
  CHECK(remarks(odd, "n.prototxt:2: layer \"m\" (MultiStageMeanfield)") == 1);
}

TEST_CASE("the first generation: types in lower case, padding as a layer") {
  const Network net = read(R"(
    input: "x" input_dim: 1 input_dim: 4 input_dim: 9 input_dim: 9
    layers { layer { name: "pad" type: "padding" pad: 2 } bottom: "x" top: "pad" }
    layers { layer { name: "c" type: "conv" num_output: 6 kernelsize: 5 group: 2 stride: 2 biasterm: false } bottom: "pad" top: "c" }
    layers { layer { name: "r" type: "relu" } bottom: "c" top: "c" }
    layers { layer { name: "n" type: "lrn" local_size: 3 alpha: 0.1 beta: 0.5 } bottom: "c" top: "n" }
    layers { layer { name: "p" type: "pool" pool: AVE kernelsize: 3 stride: 2 } bottom: "n" top: "p" }
    layers { layer { name: "f" type: "innerproduct" num_output: 7 } bottom: "p" top: "f" }
    layers { layer { name: "s" type: "softmax" } bottom: "f" top: "s" })");
  CHECK(shape(net, "c") == Shape{1, 6, 5, 5});
  const auto& conv = op<ConvOp>(net, "c");
  CHECK(conv.pt == 2);
  CHECK(conv.pr == 2);
  CHECK(conv.g == 2);
  CHECK(!conv.bias);
  CHECK(op<LrnOp>(net, "n").size == 3);
  CHECK(op<LrnOp>(net, "n").beta == 0.5F);
  CHECK(op<PoolOp>(net, "p").method == PoolOp::Method::avg);
  CHECK(shape(net, "s") == Shape{1, 7, 1, 1});
  CHECK(outputs(net) == Names{"s"});
}

TEST_CASE("inputs in all their forms") {
  const std::string relu = one("ReLU");
  CHECK(shape(read("input: \"x\" input_dim: 2 input_dim: 3 input_dim: 4 input_dim: 5\n" + relu),
              "x") == Shape{2, 3, 4, 5});
  const std::string two =
      "input: \"x\" input_dim: 2 input_dim: 3 input_dim: 4 input_dim: 5\n"
      "input: \"z\" input_dim: 1 input_dim: 6 input_dim: 7 input_dim: 8\n" +
      relu + one("ReLU", "", "bottom: \"z\"", "top: \"q\"");
  CHECK(shape(read(two), "q") == Shape{1, 6, 7, 8});
  CHECK(
      shape(read(one("Input", "input_param { shape { dim: 2 dim: 3 } }", "", "top: \"x\"") + relu),
            "y") == Shape{2, 3, 1, 1});
  const std::string dummy =
      "layer { name: \"d\" type: \"DummyData\" top: \"x\" top: \"z\" dummy_data_param { ";
  CHECK(shape(read(dummy + "shape { dim: 1 dim: 2 } shape { dim: 3 } } }" +
                   one("ReLU", "", "bottom: \"z\"")),
              "y") == Shape{3, 1, 1, 1});
  CHECK(shape(read(dummy + "num: 1 num: 4 channels: 2 height: 5 width: 6 } }" +
                   one("ReLU", "", "bottom: \"z\"")),
              "y") == Shape{4, 2, 5, 6});
  CHECK(shape(read(one("MemoryData",
                       "memory_data_param { batch_size: 2 channels: 3 height: 4 width: 5 }", "",
                       "top: \"x\" top: \"label\"") +
                   relu),
              "y") == Shape{2, 3, 4, 5});
  CHECK(
      shape(read("input: \"x\"\n" +
                 one("Input", "input_param { shape { dim: 2 dim: 3 } }", "", "top: \"x\"") + relu),
            "y") == Shape{2, 3, 1, 1});
  // named twice, fed once
  CHECK(read("input: \"x\" input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 1\n" +
             one("Input", "input_param { shape { dim: 2 dim: 3 } }", "", "top: \"x\"") + relu)
            .layers.size() == 2);
  const std::string data =
      one("Data", "transform_param { crop_size: 227 } data_param { batch_size: 50 }", "",
          "top: \"x\" top: \"label\"") +
      relu;
  CHECK(shape(read(data), "y") == Shape{50, 3, 227, 227});
  CHECK(remarks(read(data), "assumed 3 channels") == 1);
  // opencv#9980
  const std::string window =
      one("WindowData", "window_data_param { batch_size: 8 %s }", "", "top: \"x\" top: \"label\"") +
      relu;
  std::string cropped = window;
  cropped.replace(cropped.find("%s"), 2, "crop_size: 30");
  CHECK(shape(read(cropped), "y") == Shape{8, 3, 30, 30});
  std::string bare = window;
  bare.replace(bare.find("%s"), 2, "");
  CHECK(has(refusal(bare), "--input-shape x=N,C,H,W"));
  CHECK(has(refusal(bare), "layer \"l\" (WindowData)"));
  ImportOptions given;
  given.shapes["x"] = {2, 1, 9, 9};
  CHECK(shape(read(bare, given), "y") == Shape{2, 1, 9, 9});
  CHECK(has(refusal("input: \"x\"\n" + relu), "--input-shape"));
  CHECK(shape(read("input: \"x\"\n" + relu, given), "y") == Shape{2, 1, 9, 9});
  given.shapes["wrong"] = {1};
  CHECK(has(refusal(bare, given), "\"wrong\""));
  // Rank 5 is known to be there, but cannot be run.
  const Network video = read(input("1,3,16,112,112") + relu);
  CHECK(!known(shape(video, "y")));
  CHECK(remarks(video, "1 to 4 axes") == 1);
  // 1x1 placeholders
  const std::string conv = one("Convolution", "convolution_param { num_output: 1 kernel_size: 3 }");
  CHECK(has(refusal(input("1,3,1,1") + conv), "kernel spans 3"));
  ImportOptions real;
  real.shapes["x"] = {1, 3, 20, 20};
  CHECK(shape(read(input("1,3,1,1") + conv, real), "y") == Shape{1, 1, 18, 18});
}

TEST_CASE("an option sets the batch of all inputs that share it") {
  ImportOptions options;
  options.batch = 3;
  const std::string text = input("10,3,8,8") + input("10,4", "z") + input("1,5", "info") +
                           one("ReLU") + one("ReLU", "", "bottom: \"z\"", "top: \"q\"") +
                           one("ReLU", "", "bottom: \"info\"", "top: \"i\"");
  const Network net = read(text, options);
  CHECK(shape(net, "y") == Shape{3, 3, 8, 8});
  CHECK(shape(net, "q") == Shape{3, 4, 1, 1});
  CHECK(shape(net, "i") == Shape{1, 5, 1, 1});
  const std::string fixed =
      input("10,4,1,1") + one("Reshape", "reshape_param { shape { dim: 10 dim: 4 } }");
  CHECK(has(refusal(fixed, options), "batch"));
  options.batch = -1;
  CHECK_THROWS_AS(read(text, options), Error);
}

TEST_CASE("input shapes as arguments") {
  const auto [name, dims] = parse_input_shape("data=1,3,224,224");
  CHECK(name == "data");
  CHECK(dims == std::vector<Index>{1, 3, 224, 224});
  CHECK(parse_input_shape("a=b=2x3").first == "a=b");
  for (const char* bad : {"", "data", "=1,2", "data=", "data=1,", "data=1,,2", "data=0,1",
                          "data=-1", "data=1,2,3,4,5", "data=1;2", "data=99999999999999999999"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_input_shape(bad), Error);
  }
}

TEST_CASE("phases, stages and levels choose layers before anything else is checked") {
  // opencv#14829: two data layers with the same top
  const std::string both =
      "layer { name: \"data\" type: \"Data\" top: \"x\" include { phase: TRAIN } transform_param { "
      "crop_size: 4 } data_param { batch_size: 2 } }\n"
      "layer { name: \"data\" type: \"Data\" top: \"x\" include { phase: TEST } transform_param { "
      "crop_size: 8 } data_param { batch_size: 1 } }\n" +
      one("ReLU") +
      "layer { name: \"broken\" type: \"Convolution\" bottom: \"nothing\" top: \"b\" include { "
      "phase: TRAIN stage: \"s\" } }";
  CHECK(shape(read(both), "y") == Shape{1, 3, 8, 8});
  ImportOptions train;
  train.train = true;
  CHECK(shape(read(both, train), "y") == Shape{2, 3, 4, 4});
  const auto kept = [&](const std::string& rules, const ImportOptions& options = {}) {
    const Network net =
        read(input("1,1,1,1") + one("TanH") +
                 "layer { name: \"k\" type: \"ReLU\" bottom: \"x\" top: \"k\" " + rules + " }",
             options);
    return std::any_of(net.layers.begin(), net.layers.end(),
                       [](const Layer& l) { return l.name == "k"; });
  };
  CHECK(kept(""));
  CHECK(kept("include { phase: TRAIN } include { phase: TEST }"));
  CHECK(!kept("exclude { phase: TEST }"));
  CHECK(kept("exclude { phase: TRAIN }"));
  CHECK(!kept("include { stage: \"a\" }"));
  CHECK(kept("include { not_stage: \"a\" }"));
  CHECK(!kept("include { min_level: 1 }"));
  CHECK(kept("include { max_level: 1 }"));
  ImportOptions staged;
  staged.stages = {"a", "b"};
  staged.level = 2;
  CHECK(kept("include { stage: \"a\" stage: \"b\" }", staged));
  CHECK(!kept("include { stage: \"a\" stage: \"c\" }", staged));
  CHECK(!kept("include { not_stage: \"b\" }", staged));
  CHECK(kept("include { min_level: 2 }", staged));
  CHECK(!kept("include { max_level: 1 }", staged));
  CHECK(has(
      refusal(input("1,1,1,1") + one("ReLU", "include { phase: TEST } exclude { phase: TRAIN }")),
      "layer \"l\""));
  CHECK(
      has(refusal(input("1,1,1,1") + one("ReLU", "include { phase: TRAIN }")), "no layer is left"));
  const std::string orphan =
      refusal(one("Data", "include { phase: TRAIN }", "", "top: \"x\"") + one("ReLU"));
  CHECK(has(orphan, "bottom \"x\""));
  ImportOptions fed;
  fed.shapes["x"] = {1, 2, 3, 4};
  CHECK(shape(read(one("Data", "include { phase: TRAIN }", "", "top: \"x\"") + one("ReLU"), fed),
              "y") == Shape{1, 2, 3, 4});
}

TEST_CASE("the graph: in place, fan-out, dead ends") {
  const Network chain = read(
      input("1,2,4,4") + one("Power", "power_param { shift: 1 }", "bottom: \"x\"", "top: \"a\"") +
      one("Power", "power_param { scale: 2 }", "bottom: \"a\"", "top: \"a\"") +
      one("Power", "power_param { scale: 3 }", "bottom: \"a\"", "top: \"b\"") +
      one("Power", "power_param { shift: 100 }", "bottom: \"a\"", "top: \"a\""));
  CHECK(outputs(chain) == Names{"b", "a"});
  const auto values = evaluate_reference(chain, {std::vector<float>(32, 1.0F)});
  CHECK(values[0][0] == 12);   // (1 + 1) * 2 * 3
  CHECK(values[1][0] == 104);  // the same tensor, rewritten later
  const Network silent =
      read(input("1,2,4,4") + one("Split", "", "bottom: \"x\"", "top: \"a\" top: \"b\"") +
           one("Silence", "", "bottom: \"a\"", "") + one("TanH", "", "bottom: \"b\"") +
           one("SoftmaxWithLoss", "", "bottom: \"y\" bottom: \"label\"", "top: \"loss\"") +
           one("Accuracy", "", "bottom: \"y\" bottom: \"label\"", "top: \"acc\""));
  CHECK(outputs(silent) == Names{"y"});
  CHECK(remarks(silent, "judge or store") == 1);
  CHECK(has(refusal(input("1,1,1,1") + one("ReLU", "", "bottom: \"ghost\"")), "bottom \"ghost\""));
  CHECK(has(refusal(input("1,1,1,1") + one("Silence", "", "bottom: \"x\"", "")),
            "nothing is computed"));
}

TEST_CASE("convolution parameters in all their forms") {
  const auto conv = [](const std::string& param, const std::string& type = "Convolution",
                       const std::string& dims = "1,6,20,30") {
    const Network net =
        read(input(dims) + one(type, "convolution_param { num_output: 6 " + param + " }"));
    return op<ConvOp>(net, "l");
  };
  ConvOp c = conv(
      "kernel_size: 3 kernel_size: 1 stride: 2 stride: 1 pad: 1 pad: 0 dilation: 2 dilation: 3");
  CHECK(c.kh == 3);
  CHECK(c.kw == 1);
  CHECK(c.sh == 2);
  CHECK(c.sw == 1);
  CHECK(c.pt == 1);
  CHECK(c.pb == 1);
  CHECK(c.pl == 0);
  CHECK(c.dh == 2);
  CHECK(c.dw == 3);
  c = conv("kernel_h: 1 kernel_w: 7 stride_h: 3 stride_w: 2 pad_h: 0 pad_w: 3");
  CHECK(c.kh == 1);
  CHECK(c.kw == 7);
  CHECK(c.sh == 3);
  CHECK(c.sw == 2);
  CHECK(c.pt == 0);
  CHECK(c.pr == 3);
  CHECK(c.bias);
  c = conv("kernel_size: 3 hole: 4");
  CHECK(c.dh == 4);
  CHECK(c.dw == 4);
  CHECK(conv("kernel_size: 1 pad: 100").pt == 100);
  // ncnn#540: the type says depthwise, no group is given
  CHECK(conv("kernel_size: 3", "DepthwiseConvolution").g == 6);
  CHECK(conv("kernel_size: 3", "ConvolutionDepthwise").g == 6);
  CHECK(conv("kernel_size: 3 group: 3", "DepthwiseConvolution").g == 3);
  CHECK(has(refusal(input("1,6,9,9") + one("Convolution", "convolution_param { kernel_size: 3 }")),
            "num_output"));
  CHECK(has(refusal(input("1,6,9,9") + one("Convolution", "convolution_param { num_output: 3 }")),
            "kernel_size"));
  CHECK(has(
      refusal(input("1,6,9,9") +
              one("Convolution", "convolution_param { num_output: 4 kernel_size: 3 group: 4 }")),
      "4 groups"));
  CHECK(has(
      refusal(input("1,6,9,9") +
              one("Convolution", "convolution_param { num_output: 4 kernel_size: 3 stride: 0 }")),
      "stride"));
  CHECK(has(refusal(input("1,6,9,9") +
                    one("Convolution", "convolution_param { num_output: -4 kernel_size: 3 }")),
            "-4"));
  CHECK(has(refusal(input("1,6,9,9") +
                    one("Convolution",
                        "convolution_param { num_output: 99999999999999 kernel_size: 3 }")),
            "99999999999999"));
  const Network solid =
      read(input("1,6,9,9") +
           one("Convolution",
               "convolution_param { num_output: 4 kernel_size: 3 kernel_size: 3 kernel_size: 3 }"));
  CHECK(std::holds_alternative<OpaqueOp>(layer(solid, "l").op));
  const Network twice =
      read(input("1,6,9,9") + input("1,6,5,5", "z") +
           one("Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", kTwoBottoms,
               "top: \"a\" top: \"b\""));
  CHECK(shape(twice, "a") == Shape{1, 4, 7, 7});
  CHECK(shape(twice, "b") == Shape{1, 4, 3, 3});
  CHECK(twice.layers[2].blobs[0].name == twice.layers[3].blobs[0].name);
  CHECK(!twice.layers[2].blobs[0].name.empty());
  const Network de = read(input("1,6,9,9") + one("Deconvolution",
                                                 "convolution_param { num_output: 6 kernel_size: 4 "
                                                 "stride: 2 pad: 1 group: 6 bias_term: false }"));
  CHECK(shape(de, "y") == Shape{1, 6, 18, 18});
}

TEST_CASE("pooling rounds as Caffe and its forks do") {
  const auto rows = [](const std::string& dims, const std::string& param) {
    return shape(read(input(dims) + one("Pooling", "pooling_param { " + param + " }")), "y");
  };
  CHECK(rows("1,1,112,112", "pool: MAX kernel_size: 3 stride: 2") ==
        Shape{1, 1, 56, 56});  // caffe#4781
  CHECK(rows("1,1,54,54", "pool: MAX kernel_size: 3 stride: 2") == Shape{1, 1, 27, 27});
  CHECK(rows("1,1,112,112", "pool: MAX kernel_size: 3 stride: 2 pad: 1") ==
        Shape{1, 1, 57, 57});  // DenseNet-Caffe#20
  CHECK(rows("1,1,112,112", "pool: MAX kernel_size: 3 stride: 2 pad: 1 ceil_mode: false") ==
        Shape{1, 1, 56, 56});
  CHECK(rows("1,1,112,112", "pool: MAX kernel_size: 3 stride: 2 pad: 1 round_mode: FLOOR") ==
        Shape{1, 1, 56, 56});
  CHECK(rows("1,2,7,9", "pool: AVE global_pooling: true") == Shape{1, 2, 1, 1});
  CHECK(rows("1,2,7,9", "kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1") == Shape{1, 2, 3, 8});
  CHECK(rows("1,2,7,9", "kernel_size: 3") == Shape{1, 2, 5, 7});
  CHECK(has(refusal(input("1,2,7,9") + one("Pooling", "pooling_param { pool: MAX }")),
            "kernel_size"));
  CHECK(has(refusal(input("1,2,7,9") +
                    one("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 }")),
            "tochastic"));
  // caffe#6297: AVE divides by the window clipped to the padded image
  const auto corner =
      run(input("1,1,35,35") +
              one("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 1 }"),
          {std::vector<float>(35 * 35, 9.0F)});
  CHECK(corner[0] == doctest::Approx(4));
  CHECK(corner[1] == doctest::Approx(6));
  CHECK(corner[36] == doctest::Approx(9));
  const Network mask = read(input("1,1,4,4") +
                            one("Pooling", "pooling_param { kernel_size: 2 stride: 2 }",
                                "bottom: \"x\"", "top: \"y\" top: \"m\"") +
                            one("ReLU", "", "bottom: \"m\"", "top: \"r\""));
  CHECK(layer(mask, "l").outputs.size() == 2);
  const Network unread =
      read(input("1,1,4,4") + one("Pooling", "pooling_param { kernel_size: 2 stride: 2 }",
                                  "bottom: \"x\"", "top: \"y\" top: \"m\""));
  CHECK(layer(unread, "l").outputs.size() == 1);
}

TEST_CASE("layers that scale: alone, with a second bottom, from axis 0") {
  const std::string x = input("1,2,1,2");
  const std::vector<float> v = {1, 2, 3, 4};
  const std::string z = input("1,2", "z");
  using D = std::vector<double>;
  CHECK(run(x + z + one("Scale", "scale_param { axis: 0 }", kTwoBottoms), {v, {10, 100}}) ==
        D{10, 20, 300, 400});
  CHECK(run(x + input("2", "z") + one("Scale", "", kTwoBottoms), {v, {10, 100}}) ==
        D{10, 20, 300, 400});
  CHECK(run(x + input("2", "z") + one("Bias", "bias_param { axis: 3 }", kTwoBottoms),
            {v, {10, 100}}) == D{11, 102, 13, 104});
  CHECK(run(x + z + input("1,2,1,2", "w") +
                one("Axpy", "", "bottom: \"z\" bottom: \"x\" bottom: \"w\""),
            {v, {10, 100}, {1, 1, 1, 1}}) == D{11, 21, 301, 401});
  Network own = read(x + one("Scale", "scale_param { axis: 2 num_axes: 2 bias_term: true }"));
  random_weights(own);
  CHECK(own.layers[1].blobs[0].dims == std::vector<Index>{1, 1, 1, 2});
  CHECK(evaluate_reference(own, {v})[0].size() == 4);
  CHECK(has(refusal(x + input("1,2,1,2", "z") + one("Scale", "", kTwoBottoms)), "axes"));
}

TEST_CASE("layers that choose, order and join elements") {
  const std::string x = input("1,2,2,3");
  std::vector<float> v(12);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);
  using D = std::vector<double>;
  // opencv#10577: Crop without an offset cuts at 0
  CHECK(run(x + input("1,1,1,2", "z") + one("Crop", "", kTwoBottoms), {v, {0, 0}}) ==
        D{0, 1, 6, 7});
  CHECK(
      run(x + input("1,1,1,2", "z") + one("Crop", "crop_param { axis: 1 offset: 1 }", kTwoBottoms),
          {v, {0, 0}}) == D{10, 11});
  CHECK(run(x + input("1,1,1,2", "z") +
                one("Crop", "crop_param { axis: 2 offset: 0 offset: 1 }", kTwoBottoms),
            {v, {0, 0}}) == D{1, 2, 7, 8});
  CHECK(has(refusal(x + input("1,1,3,3", "z") + one("Crop", "", kTwoBottoms)), "box"));
  CHECK(run(x + one("Concat"), {v}).size() == 12);
  CHECK(shape(read(x +
                   one("Concat", "concat_param { concat_dim: 0 }", "bottom: \"x\" bottom: \"x\"")),
              "y") == Shape{2, 2, 2, 3});
  CHECK(shape(read(x + one("Concat", "concat_param { axis: -1 }", "bottom: \"x\" bottom: \"x\"")),
              "y") == Shape{1, 2, 2, 6});
  CHECK(shape(read(x + one("Slice", "slice_param { slice_dim: 3 slice_point: 1 }", "bottom: \"x\"",
                           "top: \"y\" top: \"q\"")),
              "q") == Shape{1, 2, 2, 2});
  CHECK(run(x + one("Slice", "slice_param { axis: 1 slice_point: 1 }", "bottom: \"x\"",
                    "top: \"y\" top: \"q\""),
            {v}) == D{0, 1, 2, 3, 4, 5});
  CHECK(run(x + one("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }"), {v}) ==
        D{0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11});
  CHECK(shape(read(x + one("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }")), "y") ==
        Shape{1, 12, 1, 1});
  CHECK(shape(read(x + one("Reshape", "reshape_param { axis: 1 num_axes: 2 shape { dim: 4 } }")),
              "y") == Shape{1, 4, 3, 1});
  CHECK(shape(read(x + one("Flatten", "flatten_param { axis: 2 end_axis: 3 }")), "y") ==
        Shape{1, 2, 6, 1});
  CHECK(shape(read(x + one("InnerProduct", "inner_product_param { num_output: 5 axis: 2 }")),
              "y") == Shape{1, 2, 5, 1});
  CHECK(shape(read(x + one("Tile", "tile_param { axis: 1 tiles: 3 }")), "y") == Shape{1, 6, 2, 3});
  CHECK(run(x + one("Reduction", "reduction_param { operation: MEAN axis: 2 coeff: 2 }"), {v}) ==
        D{5, 17});
  CHECK(shape(read(x + one("SPP", "spp_param { pyramid_height: 2 pool: MAX }")), "y") ==
        Shape{1, 10, 1, 1});
  CHECK(run(input("1,4,1,1") + one("ShuffleChannel", "shuffle_channel_param { group: 2 }"),
            {{0, 1, 2, 3}}) == D{0, 2, 1, 3});
  CHECK(
      has(refusal(x + one("Reshape", "reshape_param { shape { dim: 5 dim: -1 } }")), "do not fit"));
  const Network five =
      read(x + one("Reshape", "reshape_param { shape { dim: 1 dim: 1 dim: 2 dim: 2 dim: 3 } }"));
  CHECK(remarks(five, "5 axes") == 1);
}

TEST_CASE("element-wise layers") {
  const std::string x = input("1,1,1,2");
  using D = std::vector<double>;
  CHECK(run(x + one("ReLU", "relu_param { negative_slope: 0.5 }"), {{-2, 2}}) == D{-1, 2});
  CHECK(run(x + one("ReLU6"), {{-2, 8}}) == D{0, 6});
  CHECK(run(x + one("Clip", "clip_param { min: -1 max: 1 }"), {{-2, 8}}) == D{-1, 1});
  CHECK(run(x + one("AbsVal"), {{-2, 8}}) == D{2, 8});
  CHECK(run(x + one("Power", "power_param { power: 2 scale: 3 shift: 1 }"), {{1, 2}}) == D{16, 49});
  CHECK(run(x + one("Exp", "exp_param { base: 2 shift: 1 }"), {{1, 2}})[1] == doctest::Approx(8));
  CHECK(run(x + one("Log", "log_param { base: 2 }"), {{4, 8}})[1] == doctest::Approx(3));
  CHECK(run(x + one("Swish", "swish_param { beta: 2 }"), {{0, 1}})[1] ==
        doctest::Approx(1 / (1 + std::exp(-2.0))));
  CHECK(run(x + one("ELU", "elu_param { alpha: 2 }"), {{-1, 1}})[0] ==
        doctest::Approx(2 * std::expm1(-1.0)));
  CHECK(run(x + one("SeLu"), {{-1, 1}})[1] == doctest::Approx(1.0507010));
  CHECK(run(x + input("1,1,1,2", "z") +
                one("Eltwise", "eltwise_param { operation: SUM coeff: 1 coeff: -1 }", kTwoBottoms),
            {{1, 2}, {5, 3}}) == D{-4, -1});
  CHECK(run(x + one("Eltwise", "eltwise_param { operation: PROD }",
                    "bottom: \"x\" bottom: \"x\" bottom: \"x\""),
            {{2, 3}}) == D{8, 27});
  CHECK(has(refusal(x + input("1,1,1,3", "z") + one("Eltwise", "", kTwoBottoms)), "differ"));
  CHECK(has(refusal(x + one("Eltwise", "eltwise_param { coeff: 2 coeff: 3 }")), "coefficients"));
  CHECK(has(refusal(x + one("LRN", "lrn_param { local_size: 4 }")), "odd"));
  const Network interp = read(input("1,1,3,3") + one("Interp", "interp_param { zoom_factor: 4 }"));
  CHECK(shape(interp, "y") == Shape{1, 1, 9, 9});
  CHECK(run(input("1,1,1,2") + one("Interp", "interp_param { height: 1 width: 3 }"), {{1, 3}}) ==
        D{1, 2, 3});
  CHECK(run(input("1,1,1,2") + one("Upsample", "upsample_param { scale: 2 }"), {{1, 3}}) ==
        D{1, 1, 3, 3, 1, 1, 3, 3});
  const Network norm =
      read(input("1,3,2,2") +
           one("Normalize", "norm_param { across_spatial: false channel_shared: false }"));
  CHECK(layer(norm, "l").blobs[0].dims == std::vector<Index>{3});
  const Network shared =
      read(input("1,3,2,2") + one("PReLU", "prelu_param { channel_shared: true }"));
  CHECK(layer(shared, "l").blobs[0].dims == std::vector<Index>{1});
}

TEST_CASE("layers that cannot be run keep their shapes where those are known") {
  const std::string x = input("1,8,16,16");
  const std::string conv =
      "layer { name: \"c\" type: \"Convolution\" bottom: \"y\" top: \"c\" convolution_param { "
      "num_output: 2 kernel_size: 3 } }\n";
  const Network roi =
      read(x + input("5,5", "z") +
           one("ROIPooling", "roi_pooling_param { pooled_h: 7 pooled_w: 6 }", kTwoBottoms) + conv);
  CHECK(shape(roi, "c") == Shape{5, 2, 5, 4});
  const Network unknown =
      read(x + one("Mystery") + conv + one("TanH", "", "bottom: \"x\"", "top: \"t\""));
  CHECK(std::holds_alternative<OpaqueOp>(layer(unknown, "c").op));
  CHECK(remarks(unknown, "(Mystery): cannot be run") == 1);
  CHECK(remarks(unknown, "unknown shape: c") == 1);
  const Network in_place =
      read(x + "layer { name: \"m\" type: \"Mystery\" bottom: \"x\" top: \"x\" }\n" +
           one("Convolution", "convolution_param { num_output: 2 kernel_size: 3 }"));
  CHECK(shape(in_place, "y") == Shape{1, 2, 14, 14});
  CHECK(shape(read(x + one("Reorg", "reorg_param { stride: 2 }")), "y") == Shape{1, 32, 8, 8});
  CHECK(shape(read(x + one("MVN")), "y") == Shape{1, 8, 16, 16});
  CHECK(shape(read(input("10,2,6") + input("10,2", "z") +
                   one("LSTM", "recurrent_param { num_output: 9 }", kTwoBottoms)),
              "y") == Shape{10, 2, 9, 1});
  const Network prior = read(
      x + input("1,3,300,300", "z") +
      one("PriorBox", "prior_box_param { min_size: 30 max_size: 60 aspect_ratio: 2 flip: true }",
          kTwoBottoms));
  CHECK(shape(prior, "y") == Shape{1, 2, 16 * 16 * 4 * 4, 1});
}

TEST_CASE("public files whose importers failed elsewhere") {
  const std::string squeezenet = test::shared("nets/forresti__SqueezeNet_v1.1_train_val.prototxt");
  if (squeezenet.empty()) return test::skip("the public network files are not there");
  const Network net = import_network(squeezenet);  // opencv#14829
  CHECK(std::count_if(net.layers.begin(), net.layers.end(),
                      [](const Layer& l) { return std::holds_alternative<InputOp>(l.op); }) == 1);
  const Network crf =
      import_network(test::shared("nets/crfrnn__python-scripts_TVG_CRFRNN_COCO_VOC.prototxt"));
  CHECK(remarks(crf, ":130: layer \"inference1\" (MultiStageMeanfield)") == 1);
  const Network mtcnn = import_network(test::shared("weights/mtcnn/det1.prototxt"));
  CHECK(std::holds_alternative<ConvOp>(layer(mtcnn, "conv4-1").op));
  const Network mobilenet =
      import_network(test::shared("nets/jixing__mobilenet_v3_small_1.0.prototxt"));
  int depthwise = 0;
  for (const Layer& l : mobilenet.layers) {
    const auto* conv = std::get_if<ConvOp>(&l.op);
    if (conv != nullptr && l.type == "DepthwiseConvolution")
      depthwise += conv->g == conv->m ? 1 : 0;
  }
  CHECK(depthwise == 11);
}
