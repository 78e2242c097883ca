// Tensors in, tensors out, saved plans and emitted programs, with the command and the compiler at
// hand. The plans come from made-up costs: nothing is measured, and no layout is out of reach.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "convprim/import.hpp"
#include "convprim/plan.hpp"
#include "convprim/select.hpp"
#include "convprim/tensor_file.hpp"
#include "emit_util.hpp"
#include "process.hpp"
#include "small_net.hpp"
#include "test.hpp"

using namespace convprim;
using test::compiled;
using test::content;
using test::Outcome;
using test::slurp;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

/// Two inputs, three outputs, a parameter of two layers, names that no program can have, and layers
/// of every kind.
constexpr const char* kOddNet = R"(
name: "odd \"net\" // ?"
layer { name: "x/in" type: "Input" top: "x/in" input_param { shape { dim: 1 dim: 8 dim: 10 dim: 12 } } }
layer { name: "x in" type: "Input" top: "x in" input_param { shape { dim: 1 dim: 8 dim: 10 dim: 12 } } }
layer { name: "int" type: "Convolution" bottom: "x/in" top: "a" param { name: "w" } param { name: "b" } convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "2nd \\ layer" type: "Convolution" bottom: "x in" top: "b" param { name: "w" } param { name: "b" } convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "prelu" type: "PReLU" bottom: "a" top: "a1" }
layer { name: "elu" type: "ELU" bottom: "b" top: "b1" elu_param { alpha: 0.7 } }
layer { name: "diff" type: "Eltwise" bottom: "a1" bottom: "b1" top: "d" eltwise_param { operation: SUM coeff: 1 coeff: -0.3 } }
layer { name: "norm" type: "Normalize" bottom: "d" top: "e" norm_param { across_spatial: false channel_shared: false } }
layer { name: "lrn" type: "LRN" bottom: "e" top: "f" lrn_param { local_size: 3 alpha: 0.1 } }
layer { name: "shuffle" type: "ShuffleChannel" bottom: "f" top: "g" shuffle_channel_param { group: 4 } }
layer { name: "slice" type: "Slice" bottom: "g" top: "h1" top: "h2" slice_param { axis: 1 slice_point: 6 } }
layer { name: "up" type: "Deconvolution" bottom: "h1" top: "i" convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 } }
layer { name: "interp" type: "Interp" bottom: "h2" top: "j" interp_param { height: 20 width: 24 } }
layer { name: "cat" type: "Concat" bottom: "i" bottom: "j" top: "k" }
layer { name: "pool" type: "Pooling" bottom: "k" top: "l" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }
layer { name: "scale" type: "Scale" bottom: "l" top: "m" scale_param { bias_term: true } }
layer { name: "power" type: "Power" bottom: "m" top: "m1" power_param { power: 2 scale: 0.5 shift: 1 } }
layer { name: "permute" type: "Permute" bottom: "m1" top: "n" permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "reshape" type: "Reshape" bottom: "n" top: "o" reshape_param { shape { dim: 0 dim: -1 dim: 7 } } }
layer { name: "reduce" type: "Reduction" bottom: "m1" top: "r" reduction_param { operation: MEAN axis: 2 coeff: 2 } }
layer { name: "tile" type: "Tile" bottom: "r" top: "t" tile_param { axis: 1 tiles: 2 } }
layer { name: "fc" type: "InnerProduct" bottom: "m1" top: "fc" inner_product_param { num_output: 12 } }
layer { name: "soft/max" type: "Softmax" bottom: "fc" top: "soft/max" }
)";

/// A network in a file, with inputs and a plan from made-up costs.
struct Setting {
  TemporaryFolder folder;
  std::string net, plan;
  std::vector<std::string> inputs;  // NAME=FILE

  Setting(const std::string& text, std::uint64_t seed, int threads) {
    net = folder.write("net.prototxt", text);
    Network network = import_network(net);
    random_weights(network);
    optimise(network);
    plan = folder.write("plan.json", save_plan(select(network, {}, test::random_costs(seed),
                                                      Machine::here(threads), false),
                                               network));
    std::mt19937 rng(5);
    for (const Layer& layer : network.layers) {
      if (!std::holds_alternative<InputOp>(layer.op)) continue;
      const Tensor& t = network.tensors[static_cast<std::size_t>(layer.outputs[0])];
      std::vector<float> values(static_cast<std::size_t>(t.shape.count()));
      for (float& v : values) v = static_cast<float>(rng() % 2001) * 1e-3F - 1;
      const std::string file = folder.file("in" + std::to_string(inputs.size()) + ".npy");
      write_npy(file, file_dims(t.shape, t.rank), values.data());
      inputs.push_back(t.name + "=" + file);
    }
  }

  Outcome run(std::vector<std::string> arguments, bool with_inputs = true) const {
    arguments.insert(arguments.begin(), {"--net", net, "--quiet", "--runs", "0"});
    for (const std::string& input : inputs) {
      if (with_inputs) arguments.insert(arguments.end(), {"--input", input});
    }
    return test::run_program(folder, test::selector(), arguments);
  }
};

void check_emitted(const std::string& text, std::uint64_t seed, int threads) {
  CAPTURE(seed);
  const Setting s(text, seed, threads);
  const std::string program = s.folder.file("program"), out = s.folder.file("out"),
                    again = s.folder.file("again");
  const Outcome o = s.run({"--load-plan", s.plan, "--verify", "--output", out, "--emit", program});
  CAPTURE(o.err);
  REQUIRE(o.status == 0);
  CHECK(o.out.find("nothing was measured") != std::string::npos);
  CHECK(content(program).size() == 6);
  const std::string readme = content(program)["README.md"];
  CHECK(std::count(readme.begin(), readme.end(), '\n') == 6);
  const std::string exe = compiled(s.folder, program);
  REQUIRE_FALSE(exe.empty());
  std::vector<std::string> arguments = {"--weights", program + "/weights.bin", "--output", again};
  arguments.insert(arguments.end(), s.inputs.begin(), s.inputs.end());
  const Outcome run = test::run_emitted(s.folder, exe, arguments);
  CAPTURE(run.err);
  REQUIRE(run.status == 0);
  CHECK(run.out.find("class") != std::string::npos);
  CHECK(content(out) == content(again));
  CHECK_FALSE(content(out).empty());
}

void check_refusal(const Outcome& o, const std::vector<std::string>& words) {
  CAPTURE(o.err);
  CHECK(o.status == 2);
  CHECK(o.out.empty());
  for (const std::string& word : words) {
    CAPTURE(word);
    CHECK(o.err.find(word) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("an emitted program computes the same bits as the plan") {
  check_emitted(test::kSmallNet, 3, 1);
  check_emitted(test::kSmallNet, 8, 2);
}

TEST_CASE("emitted layers of every kind, odd names, shared parameters") {
  check_emitted(kOddNet, 5, 2);
  // The parameter that two layers share is there once.
  Setting s(kOddNet, 5, 1);
  REQUIRE(s.run({"--load-plan", s.plan, "--emit", s.folder.file("p")}).status == 0);
  const std::string code = slurp(s.folder.file("p/net.cpp"));
  const std::size_t first = code.find("p[0]->data()");
  REQUIRE(first != std::string::npos);
  CHECK(code.find("p[0]->data()", first + 1) != std::string::npos);
}

TEST_CASE("an emitted program says what is wrong with its files") {
  const Setting s(test::kSmallNet, 3, 1);
  const std::string program = s.folder.file("program");
  REQUIRE(s.run({"--load-plan", s.plan, "--emit", program}).status == 0);
  const std::string exe = compiled(s.folder, program);
  REQUIRE_FALSE(exe.empty());
  const std::string weights = slurp(program + "/weights.bin");
  const std::string input = s.inputs[0];
  const auto why = [&](const std::vector<std::string>& arguments) {
    const Outcome o = test::run_emitted(s.folder, exe, arguments);
    CHECK(o.status == 2);
    return o.err;
  };
  const auto with = [&](const std::string& file) { return why({"--weights", file, input}); };
  CHECK(with(s.folder.write("short.bin", weights.substr(4))).find("too short") !=
        std::string::npos);
  CHECK(with(s.folder.write("long.bin", weights + "x")).find("too long") != std::string::npos);
  CHECK(with(s.folder.file("none.bin")).find("none.bin") != std::string::npos);
  CHECK(why({}).find("one file for each") != std::string::npos);
  CHECK(why({"--weights", program + "/weights.bin", s.folder.write("a.npy", "x")}).find("npy") !=
        std::string::npos);
}

TEST_CASE("inputs come from files, outputs go to files, classes are named") {
  const Setting s(test::kSmallNet, 3, 1);
  std::string labels;
  for (int i = 0; i < 10; ++i) labels += "label" + std::to_string(i) + "\r\n";
  const std::string out = s.folder.file("out");
  const Outcome o = s.run({"--load-plan", s.plan, "--output", out, "--top", "3", "--labels",
                           s.folder.write("labels", labels + "\n\n")});
  CAPTURE(o.err);
  REQUIRE(o.status == 0);
  REQUIRE(content(out).size() == 2);
  const FileTensor prob = read_npy(out + "/prob.npy");
  CHECK(prob.dims == std::vector<Index>{2, 10});
  const auto best = std::max_element(prob.values.begin(), prob.values.begin() + 10);
  const std::string line = "class " + std::to_string(best - prob.values.begin()) + ": label" +
                           std::to_string(best - prob.values.begin()) + "\n";
  const std::size_t first = o.out.find("  class ", o.out.find("prob, image 1 of 2"));
  REQUIRE(first != std::string::npos);
  CHECK(o.out.substr(first + 2, line.size()) == line);
  CHECK(o.out.find("image 2 of 2") != std::string::npos);
  // The same values as raw numbers.
  const FileTensor in = read_npy(s.folder.file("in0.npy"));
  const std::string raw = s.folder.write("in.bin", {reinterpret_cast<const char*>(in.values.data()),
                                                    in.values.size() * sizeof(float)});
  REQUIRE(s.run({"--load-plan", s.plan, "--output", s.folder.file("o2"), "--input", raw}, false)
              .status == 0);
  CHECK(content(s.folder.file("o2")) == content(out));
  // Other values make other outputs, and random ones are made where none are given.
  REQUIRE(s.run({"--load-plan", s.plan, "--output", s.folder.file("o3")}, false).status == 0);
  CHECK(content(s.folder.file("o3")) != content(out));
}

TEST_CASE("tensors that do not fit are refused, and nothing is written") {
  const Setting s(test::kSmallNet, 3, 1);
  const std::string out = s.folder.file("out");
  const auto refused = [&](std::vector<std::string> arguments,
                           const std::vector<std::string>& words) {
    arguments.insert(arguments.end(), {"--load-plan", s.plan, "--output", out});
    check_refusal(s.run(arguments, false), words);
    CHECK_FALSE(fs::exists(out));
  };
  const std::vector<float> some(12);
  write_npy(s.folder.file("small.npy"), std::vector<Index>{1, 3, 2, 2}, some.data());
  refused({"--input", s.folder.file("small.npy")}, {"(1, 3, 2, 2)", "(2, 3, 21, 19)"});
  refused({"--input", s.folder.file("none.npy")}, {"none.npy"});
  refused({"--input", "label=" + s.folder.file("small.npy")}, {"label", "data"});
  refused({"--input", s.inputs[0], "--input", s.inputs[0]}, {"twice"});
  refused({"--top", "5", "--labels", s.folder.write("l", "one\ntwo\n")}, {"2 lines", "10"});
  refused({"--labels", s.folder.file("l")}, {"--top"});
  check_refusal(s.run({"--load-plan", s.plan, "--output", s.net}), {"--output", "file"});
  check_refusal(s.run({"--load-plan", s.plan, "--output", s.folder.file("no/out")}), {"no/out"});
  CHECK_FALSE(fs::exists(s.folder.file("no")));
  // An output that would replace an input.
  fs::create_directory(out);
  fs::copy(s.folder.file("in0.npy"), out + "/prob.npy");
  check_refusal(
      s.run({"--load-plan", s.plan, "--output", out, "--input", out + "/prob.npy"}, false),
      {"--output", "replace"});
  const Setting two(kOddNet, 5, 1);
  check_refusal(two.run({"--load-plan", two.plan, "--input", two.inputs[0]}, false), {"x in"});
  check_refusal(two.run({"--load-plan", two.plan, "--input", two.folder.file("in0.npy")}, false),
                {"NAME=FILE", "x in"});
}

TEST_CASE("a plan is saved, loaded, and refused on another machine unless forced") {
  const Setting s(test::kSmallNet, 3, 2);
  const std::string saved = s.folder.file("saved.json");
  REQUIRE(s.run({"--load-plan", s.plan, "--save-plan", saved}).status == 0);
  CHECK(slurp(saved) == slurp(s.plan));
  CHECK_FALSE(fs::exists(s.folder.file("costs.db")));
  check_refusal(s.run({"--load-plan", s.plan, "--threads", "1"}),
                {"2 threads, not for 1", "--force-plan"});
  CHECK(s.run({"--load-plan", s.plan, "--threads", "1", "--force-plan", "--verify"}).status == 0);
  std::string other = slurp(s.plan);
  const auto replace = [&](const std::string& from, const std::string& to) {
    REQUIRE(other.find(from) != std::string::npos);
    other.replace(other.find(from), from.size(), to);
  };
  replace("\"cpu\": \"", "\"cpu\": \"Not ");
  s.folder.write("other.json", other);
  check_refusal(s.run({"--load-plan", s.folder.file("other.json")}), {"the CPU", "--force-plan"});
  CHECK(s.run({"--load-plan", s.folder.file("other.json"), "--force-plan", "--verify"}).status ==
        0);
  replace("\"pool-", "\"pond-");
  s.folder.write("other.json", other);
  check_refusal(s.run({"--load-plan", s.folder.file("other.json"), "--force-plan"}), {"pond-"});
  check_refusal(s.run({"--load-plan", s.folder.file("none.json")}), {"none.json"});
  check_refusal(s.run({"--load-plan", s.plan, "--families", "im2"}), {"--families"});
  check_refusal(s.run({"--load-plan", s.plan, "--save-plan", s.plan}), {"--save-plan", "replace"});
  check_refusal(s.run({"--force-plan"}), {"--load-plan"});
  const Setting odd(kOddNet, 5, 1);
  check_refusal(odd.run({"--load-plan", s.plan, "--force-plan"}), {"another network"});
  check_refusal(s.run({"--load-plan", s.plan, "--force-plan", "--batch", "4"}, false),
                {"another network", "mb4", "mb2"});
  const std::string good = slurp(s.plan);
  for (const auto& [key, what] :
       {std::pair{"isa", "the instruction set"}, {"version", "convprim"}}) {
    CAPTURE(key);
    std::string text = good;
    text.insert(
        text.find('"', text.find("\"" + std::string(key) + "\":") + 3 + std::string(key).size()) +
            1,
        "other-");
    const std::string file = s.folder.write("changed.json", text);
    check_refusal(s.run({"--load-plan", file}), {what, "other-", "--force-plan"});
    CHECK(s.run({"--load-plan", file, "--force-plan", "--verify"}).status == 0);
  }
  check_refusal(s.run({"--load-plan", s.folder.write("cut.json", good.substr(0, good.size() / 2))}),
                {"cut.json", "not JSON"});
}

TEST_CASE("a measured plan is the same plan when it is loaded") {
  const Setting s(test::kSmallNet, 3, 1);
  const std::string plan = s.folder.file("m.json"), out = s.folder.file("out");
  const Outcome o = s.run({"--families", "im2", "--threads", "1", "--costs",
                           s.folder.file("costs.db"), "--save-plan", plan, "--output", out});
  CAPTURE(o.err);
  REQUIRE(o.status == 0);
  REQUIRE(s.run({"--load-plan", plan, "--output", s.folder.file("again")}).status == 0);
  CHECK(content(out) == content(s.folder.file("again")));
}
