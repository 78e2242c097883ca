// Networks with trained weights, run by the executor: every family forced in turn, and mixed plans,
// give the outputs that other programs computed.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "convprim/executable.hpp"
#include "convprim/select.hpp"
#include "trained.hpp"

using namespace convprim;
using namespace convprim::test;
namespace fs = std::filesystem;

namespace {

/// Made-up costs: a fixed function of key and seed, a thousand times less for what is favoured.
template <class Favoured>
CostFunction costs_for(Favoured favoured, std::uint64_t seed = 1) {
  return [favoured, seed](const CostKey& key) {
    std::mt19937_64 rng(std::hash<std::string>()(key.problem + '/' + key.implementation) * 31 +
                        seed);
    const double u = 1 + static_cast<double>(rng() % 1000) * 1e-3;
    if (key.kind != CostKind::convolution) return 1e-6 * u;
    return favoured(*find_primitive(key.implementation)) ? 1e-3 * u : u;
  };
}

/// Runs a network on `input` and returns its outputs.
std::vector<std::vector<float>> outputs_of(const Network& net, const Plan& plan,
                                           const std::vector<float>& input) {
  const Executable executable(net, plan);
  auto context = executable.make_context();
  std::copy(input.begin(), input.end(), context.input());
  executable.run(context);
  std::vector<std::vector<float>> all;
  for (std::size_t o = 0; o < executable.output_count(); ++o) {
    const float* data = context.output(o);
    all.emplace_back(data, data + executable.output_shape(o).count());
  }
  return all;
}

/// Where in net.outputs each expected output of a trained network is.
std::vector<std::size_t> positions(const Trained& trained) {
  std::vector<std::size_t> found;
  for (const auto& output : trained.outputs) {
    const auto& all = trained.net.outputs;
    const auto it = std::find(all.begin(), all.end(), made_by(trained.net, output.layer));
    REQUIRE(it != all.end());
    found.push_back(static_cast<std::size_t>(it - all.begin()));
  }
  return found;
}

/// Selects with these costs, runs, and compares. Returns the primitives of the plan.
std::set<const Primitive*> check_outputs(const Trained& trained, const CostFunction& costs,
                                         int threads) {
  Network net = trained.net;
  optimise(net);
  const Plan plan = select(net, {}, costs, Machine::here(threads), false);
  REQUIRE(plan.cut.empty());
  const auto got = outputs_of(net, plan, formula_input(input_shape(net).count()));
  const auto where = positions(trained);
  for (std::size_t i = 0; i < where.size(); ++i) {
    CAPTURE(trained.outputs[i].layer);
    CHECK(relative_error(got.at(where[i]), trained.outputs[i].values) < 1e-4);
  }
  std::set<const Primitive*> used;
  for (const PlanLayer& l : plan.layers) {
    if (l.kind == "conv") used.insert(find_primitive(l.implementation));
  }
  return used;
}

}  // namespace

TEST_CASE("trained networks give the outputs that were computed elsewhere, in every family") {
  const auto all = trained_networks();
  if (all.empty()) return skip("no trained networks");
  std::set<Family> families;
  for (const Primitive* p : primitives()) families.insert(p->family);
  for (const Family family : families) {
    CAPTURE(name(family));
    bool used = false;
    for (const Trained& trained : all) {
      CAPTURE(trained.name);
      const auto favoured = [family](const Primitive& p) { return p.family == family; };
      for (const Primitive* p : check_outputs(trained, costs_for(favoured), 2))
        used = used || p->family == family;
    }
    CHECK(used);
  }
}

TEST_CASE("trained networks give the outputs that were computed elsewhere, with mixed plans") {
  const auto all = trained_networks();
  if (all.empty()) return skip("no trained networks");
  std::set<const Primitive*> used;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    for (const Trained& trained : all) {
      CAPTURE(trained.name);
      const auto costs = costs_for([](const Primitive&) { return true; }, seed);
      used.merge(check_outputs(trained, costs, 1 + static_cast<int>(seed % 2)));
    }
  }
  CHECK(used.size() > 60);
}

TEST_CASE("a trained network gives the outputs that were computed elsewhere, by every primitive") {
  const auto all = trained_networks();
  if (all.empty()) return skip("no trained networks");
  const auto it =
      std::find_if(all.begin(), all.end(), [](const Trained& t) { return t.name == "mtcnn_det3"; });
  REQUIRE(it != all.end());
  for (const Primitive* forced : primitives()) {
    CAPTURE(forced->name);
    check_outputs(*it, costs_for([&](const Primitive& p) { return &p == forced; }), 1);
  }
}

TEST_CASE("benchmark networks, from Caffe and from ONNX, give their reference outputs") {
  const char* folder = std::getenv("CONVPRIM_PEER_NETS");
  if (folder == nullptr) return skip("CONVPRIM_PEER_NETS names no folder with NET.ref.bin files");
  int compared = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().string();
    if (!file.ends_with(".ref.bin")) continue;
    const std::string stem = file.substr(0, file.size() - 8);
    const auto input = read_floats(stem + ".input.bin");
    const auto want = read_floats(file);
    for (const std::string form : {".prototxt", ".onnx"}) {
      if (!fs::exists(stem + form)) continue;
      CAPTURE(stem + form);
      ImportOptions options;
      if (form == ".prototxt") options.weights = stem + ".caffemodel";
      Network net = import_network(stem + form, options);
      optimise(net);
      for (const Family family : {Family::implicit, Family::winograd}) {
        CAPTURE(name(family));
        // What the family cannot solve goes to others, none of them slow.
        const auto costs = [&](const CostKey& key) {
          const double cost =
              costs_for([&](const Primitive& p) { return p.family == family; })(key);
          return key.implementation.starts_with("sum2d") ? 10 * cost : cost;
        };
        const Plan plan = select(net, {}, costs, Machine::here(2), false);
        const auto got = outputs_of(net, plan, input);
        REQUIRE(got.size() == 1);
        CHECK(relative_error(got[0], want) < 1e-4);
        ++compared;
      }
    }
  }
  CHECK(compared > 0);
}
