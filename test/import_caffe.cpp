// The Caffe text importer on real files: shapes of every convolution, refusals in one sentence.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "convprim/error.hpp"
#include "convprim/import.hpp"
#include "test.hpp"

using namespace convprim;
namespace fs = std::filesystem;

namespace {

fs::path shared() {
  return test::shared("nets").empty() ? fs::path() : fs::path(test::shared("nets")).parent_path();
}

/// One line of expected_convs.csv, or of what the importer makes of the same file, without the
/// number of products.
struct ConvRow {
  std::string layer;
  std::vector<Index> numbers;  // N C H W K kh kw sh sw ph pw dh dw group OH OW bias
  friend bool operator==(const ConvRow&, const ConvRow&) = default;
  std::string str() const { return fmt::format("{} {}", layer, fmt::join(numbers, ",")); }
};

std::map<std::string, std::vector<ConvRow>> expected_rows() {
  std::map<std::string, std::vector<ConvRow>> files;
  std::ifstream in(shared() / "nets" / "expected_convs.csv");
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::stringstream cells(line);
    std::string cell;
    std::vector<std::string> row;
    while (std::getline(cells, cell, ',')) row.push_back(cell);
    ConvRow conv{row.at(1), {}};
    for (std::size_t i = 3; i < 20; ++i) conv.numbers.push_back(std::stoll(row.at(i)));
    files[row.at(0)].push_back(conv);
  }
  return files;
}

std::vector<ConvRow> rows_of(const Network& net) {
  std::vector<ConvRow> rows;
  for (const Layer& layer : net.layers) {
    const auto shape = [&](const std::vector<TensorId>& t) {
      return net.tensors[static_cast<std::size_t>(t.at(0))].shape;
    };
    const auto add = [&](const auto& op) {
      const Shape in = shape(layer.inputs);
      const Shape out = shape(layer.outputs);
      rows.push_back({layer.name,
                      {in.n, in.c, in.h, in.w, op.m, op.kh, op.kw, op.sh, op.sw, op.pt, op.pl,
                       op.dh, op.dw, op.g, out.h, out.w, op.bias ? 1 : 0}});
    };
    if (const auto* conv = std::get_if<ConvOp>(&layer.op)) add(*conv);
    if (const auto* deconv = std::get_if<DeconvOp>(&layer.op)) add(*deconv);
  }
  return rows;
}

/// One sentence: ends in a full stop, one line, names the file.
void check_sentence(const std::string& message, const std::string& file) {
  CAPTURE(message);
  CHECK(message.find('\n') == std::string::npos);
  CHECK(message.ends_with("."));
  CHECK(message.find(file) != std::string::npos);
}

}  // namespace

TEST_CASE("public files are imported with the right convolutions, or refused in one sentence") {
  if (shared().empty()) return test::skip("the public network files are not there");
  const auto expected = expected_rows();
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(shared() / "nets")) {
    const std::string ending = entry.path().extension();
    if (ending == ".prototxt" || ending == ".pt") files.push_back(entry.path());
  }
  for (const char* file : {"det1", "det2", "det3", "det4"}) {
    files.push_back(shared() / "weights" / "mtcnn" / (std::string(file) + ".prototxt"));
  }
  std::sort(files.begin(), files.end());
  int matched = 0;
  int imported = 0;
  int refused = 0;
  std::size_t rows = 0;
  for (const fs::path& file : files) {
    const std::string key = fs::relative(file, shared()).string();
    CAPTURE(key);
    const auto want = expected.find(key);
    Network net;
    try {
      net = import_network(file.string());
    } catch (const Error& e) {
      check_sentence(e.what(), file.filename().string());
      CHECK_MESSAGE(want == expected.end(), e.what());
      fmt::print("refused: {}\n", e.what());
      ++refused;
      continue;
    }
    ++imported;
    for (const std::string& remark : net.remarks) check_sentence(remark, file.filename().string());
    if (std::getenv("CONVPRIM_VERBOSE") != nullptr) {
      for (const std::string& remark : net.remarks) fmt::print("  {}\n", remark);
    }
    if (want == expected.end()) continue;
    const std::vector<ConvRow> got = rows_of(net);
    REQUIRE(got.size() == want->second.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i].str() == want->second[i].str());
    ++matched;
    rows += got.size();
  }
  fmt::print(
      "{} files: {} imported ({} of them with expected convolutions, {} rows compared), {} "
      "refused\n",
      files.size(), imported, matched, rows, refused);
  CHECK(matched == static_cast<int>(expected.size()));
}

TEST_CASE("our networks have the convolutions of the public files of the same networks") {
  struct Pair {
    const char* ours;
    const char* theirs;
  };
  constexpr Pair kPairs[] = {
      {"alexnet", "bvlc__models_bvlc_alexnet_deploy"},
      {"vgg_a", "soumith__caffe_imagenet_winners_vgg_a"},
      {"vgg_d", "soeaver__cls_vgg_deploy_vgg16-pytorch"},
      {"vgg_e", "soeaver__cls_vgg_deploy_vgg19-pytorch"},
      {"googlenet", "bvlc__models_bvlc_googlenet_deploy"},
      {"resnet18", "nvidia__models_resnet18_train_val_fp16"},
      {"resnet50", "kaiming__prototxt_ResNet-50-deploy"},
      {"squeezenet_v1.1", "forresti__SqueezeNet_v1.1_deploy"},
      {"mobilenet_v1", "shicai__mobilenet_deploy"},
  };
  if (shared().empty()) return test::skip("the public network files are not there");
  ImportOptions options;
  options.batch = 1;
  for (const Pair& pair : kPairs) {
    CAPTURE(pair.ours);
    const auto numbers = [&](const std::string& file) {
      std::vector<std::string> problems;
      for (ConvRow& row : rows_of(import_network(file, options))) {
        row.numbers.pop_back();  // biases before a BatchNorm are a matter of taste
        problems.push_back(fmt::format("{}", fmt::join(row.numbers, ",")));
      }
      std::sort(problems.begin(), problems.end());  // branches may be written in another order
      return problems;
    };
    const auto ours = numbers(test::data(fmt::format("nets/{}.prototxt", pair.ours)));
    const auto theirs =
        numbers((shared() / "nets" / (std::string(pair.theirs) + ".prototxt")).string());
    REQUIRE(ours.size() == theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) CHECK(ours[i] == theirs[i]);
  }
}

TEST_CASE("the scenario files list the convolutions of our networks") {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(test::data("nets"))) {
    CAPTURE(entry.path().stem().string());
    const Network net = import_network(entry.path().string());
    std::set<std::string> want;
    for (std::size_t i = 0; i < net.layers.size(); ++i) {
      if (!std::holds_alternative<ConvOp>(net.layers[i].op)) continue;
      want.insert(scenario_of(net, static_cast<LayerId>(i)).str());
    }
    std::set<std::string> got;
    std::ifstream in(test::data("scenarios/" + entry.path().stem().string() + ".txt"));
    for (std::string line; std::getline(in, line);) {
      if (!line.empty() && line[0] != '#') got.insert(Scenario::parse(line).str());
    }
    CHECK(got == want);
    ++files;
  }
  CHECK(files >= 11);
}
