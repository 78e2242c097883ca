// The trained networks of the optional test data, and what another program computed with them.
#pragma once

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "convprim/import.hpp"
#include "import_test.hpp"
#include "test.hpp"

namespace convprim::test {

/// A file of floats.
inline std::vector<float> read_floats(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

inline const Shape& input_shape(const Network& net) {
  return shape_of(net, net.layers.at(0).outputs.at(0));
}

/// The tensor that the last layer of that name makes; -1 if there is none.
inline TensorId made_by(const Network& net, const std::string& layer) {
  TensorId t = -1;
  for (const Layer& l : net.layers) {
    if (l.name == layer) t = l.outputs.at(0);
  }
  return t;
}

/// One network with weights, and its outputs for formula_input().
struct Trained {
  struct Output {
    std::string layer;
    std::vector<float> values;
  };
  std::string name;
  Network net;  ///< as imported
  std::vector<Output> outputs;
};

/// All of them; empty where the test data is absent.
inline std::vector<Trained> trained_networks() {
  std::vector<Trained> all;
  const std::string index = shared("weights/expected/index.json");
  if (index.empty()) return all;
  const std::filesystem::path expected = std::filesystem::path(index).parent_path();
  const auto root = expected.parent_path();
  const auto cases = nlohmann::json::parse(std::ifstream(index)).at("cases");
  for (const auto& c : cases) {
    ImportOptions options;
    options.weights = (root / c.at("caffemodel").get<std::string>()).string();
    options.shapes[c.at("input")] = c.at("input_shape").get<std::vector<Index>>();
    Trained& trained = all.emplace_back();
    trained.name = c.at("name");
    trained.net = import_network((root / c.at("prototxt").get<std::string>()).string(), options);
    for (const auto& output : c.at("outputs")) {
      trained.outputs.push_back(
          {output.at("layer"), read_floats(expected / output.at("file").get<std::string>())});
    }
  }
  return all;
}

}  // namespace convprim::test
