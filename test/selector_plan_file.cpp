// Plans as text: there and back, refused where they do not fit, and never a crash.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "convprim/conversion.hpp"
#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "convprim/layer.hpp"
#include "convprim/plan.hpp"
#include "convprim/reference.hpp"
#include "convprim/select.hpp"
#include "selector/report.hpp"
#include "small_net.hpp"
#include "test.hpp"

using namespace convprim;
using Json = nlohmann::ordered_json;
using test::kSmallNet;
using test::random_costs;

namespace {

Network optimised(const std::string& text) {
  Network net = import_network_text(text, "test");
  random_weights(net);
  optimise(net);
  return net;
}

Plan plan_of(const Network& net, std::uint64_t seed, int threads = 1) {
  return select(net, {}, random_costs(seed), Machine::here(threads), false);
}

/// The sentence with which a text is refused; empty if it is not.
std::string refusal(const std::string& text, const Network& net) {
  try {
    load_plan(text, net, "p.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void check_refusal(const std::string& text, const Network& net,
                   const std::vector<std::string>& words) {
  const std::string why = refusal(text, net);
  CAPTURE(why);
  CHECK(why.starts_with("p.json: "));
  for (const std::string& word : words) {
    CAPTURE(word);
    CHECK(why.find(word) != std::string::npos);
  }
}

std::string changed(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// The member of the layer of that name.
Json& layer(Json& j, const std::string& name) {
  for (Json& l : j["layers"]) {
    if (l["name"] == name) return l;
  }
  FAIL("no layer " << name);
  return j;
}

std::vector<float> output(const Network& net, const Plan& plan) {
  const Executable executable(net, plan);
  auto context = executable.make_context();
  fill_inputs(executable, context);
  executable.run(context);
  std::vector<float> all;
  for (std::size_t o = 0; o < executable.output_count(); ++o)
    all.insert(all.end(), context.output(o),
               context.output(o) + executable.output_shape(o).count());
  return all;
}

}  // namespace

TEST_CASE("a plan is the same after saving and loading, and so is what it computes") {
  const Network net = optimised(kSmallNet);
  bool sliced = false, converted = false;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    const Plan plan = plan_of(net, seed, 1 + static_cast<int>(seed % 2));
    const std::string text = save_plan(plan, net);
    const Plan back = load_plan(text, net);
    CHECK(save_plan(back, net) == text);
    REQUIRE(back.layers.size() == plan.layers.size());
    for (std::size_t i = 0; i < plan.layers.size(); ++i) {
      const PlanLayer &a = plan.layers[i], &b = back.layers[i];
      CHECK(a.layer == b.layer);
      CHECK(a.kind == b.kind);
      CHECK(a.problem == b.problem);
      CHECK(a.implementation == b.implementation);
      CHECK(a.in == b.in);
      CHECK(a.out == b.out);
      CHECK(a.seconds == doctest::Approx(b.seconds));
      sliced = sliced || a.implementation == "slices";
    }
    converted = converted || !plan.conversions.empty();
    CHECK(back.conversions.size() == plan.conversions.size());
    CHECK(back.solver.objective_seconds == doctest::Approx(plan.solver.objective_seconds));
    CHECK(back.solver.proven_optimal);
    CHECK(output(net, back) == output(net, plan));
  }
  CHECK(sliced);
  CHECK(converted);
}

TEST_CASE("one line a layer and a chain, and JSON as a whole") {
  const Network net = optimised(kSmallNet);
  const Plan plan = plan_of(net, 4);
  const std::string text = save_plan(plan, net);
  const Json j = Json::parse(text);
  CHECK(j["schema"] == 1);
  CHECK(j["network"]["fingerprint"].get<std::string>().size() == 16);
  CHECK(j["machine"]["cpu"] == plan.machine.cpu);
  CHECK(j["machine"]["threads"] == 1);
  CHECK(j["layers"].size() == net.layers.size());
  double sum = 0;
  for (const auto& l : j["layers"]) sum += l["cost_ms"].get<double>();
  std::size_t routines = 0;
  for (const auto& c : j["conversions"]) {
    routines += c["chain"].size();
    for (const auto& ms : c["cost_ms"]) sum += ms.get<double>();
  }
  CHECK(routines == plan.conversions.size());
  CHECK(sum == doctest::Approx(j["predicted"]["total_ms"].get<double>()).epsilon(1e-4));
  const auto lines = std::count(text.begin(), text.end(), '\n');
  CHECK(lines == 10 + static_cast<std::ptrdiff_t>(j["layers"].size() + j["conversions"].size()));
}

TEST_CASE("names in any encoding survive") {
  const std::string odd = changed(changed(kSmallNet, "name: \"stem\"", "name: \"st\xe9m\\\"\""),
                                  "name: \"norm\"", "name: \"n\xc3\xb6rm\"");
  const Network net = optimised(odd);
  const Plan plan = plan_of(net, 2);
  CHECK(output(net, load_plan(save_plan(plan, net), net)) == output(net, plan));
}

TEST_CASE("the fingerprint tells networks apart, but not weights or names") {
  const Network net = optimised(kSmallNet);
  Network other = import_network_text(kSmallNet, "elsewhere");
  random_weights(other, 99);
  optimise(other);
  CHECK(fingerprint(other) == fingerprint(net));
  CHECK(fingerprint(optimised(changed(kSmallNet, "name: \"stem\"", "name: \"trunk\""))) ==
        fingerprint(net));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"dim: 2 dim: 3", "dim: 1 dim: 3"},
           {"num_output: 20", "num_output: 24"},
           {"alpha: 0.1", "alpha: 0.2"},
           {"bottom: \"left\" bottom: \"middle\"", "bottom: \"middle\" bottom: \"left\""},
           {"bottom: \"sum\" bottom: \"reduce\"", "bottom: \"reduce\" bottom: \"sum\""}}) {
    CAPTURE(to);
    CHECK(fingerprint(optimised(changed(kSmallNet, from, to))) != fingerprint(net));
  }
}

TEST_CASE("a plan for another network is refused with the reason") {
  const Network net = optimised(kSmallNet);
  const std::string text = save_plan(plan_of(net, 3), net);
  check_refusal(text, optimised(changed(kSmallNet, "dim: 2 dim: 3", "dim: 1 dim: 3")),
                {"another network", "\"data\"", "mb1", "mb2"});
  check_refusal(text, optimised(changed(kSmallNet, "name: \"r1\"", "name: \"r9\"")),
                {"another network", "\"r1\"", "\"r9\""});
  check_refusal(text,
                optimised(changed(kSmallNet, "bottom: \"left\" bottom: \"middle\"",
                                  "bottom: \"middle\" bottom: \"left\"")),
                {"another network", "joined"});
  check_refusal(text,
                optimised(std::string(kSmallNet) +
                          "layer { name: \"more\" type: \"TanH\" bottom: \"prob\" top: \"more\" }"),
                {"another network", "layers"});
  const std::string made = fmt::format("\"version\": \"{}\"", version());
  check_refusal(changed(text, made, "\"version\": \"0.0.9\""),
                optimised(changed(kSmallNet, "name: \"r1\"", "name: \"r9\"")),
                {"convprim 0.0.9", "\"r9\"", "make the plan anew"});
}

TEST_CASE("a plan for another machine says what differs") {
  const Machine here = Machine::here(2);
  CHECK(machine_difference(here, here).empty());
  Machine other = here;
  other.threads = 1;
  CHECK(machine_difference(here, other) == "it was made for 2 threads, not for 1");
  other = here;
  other.cpu = "Z80";
  CHECK(machine_difference(other, here).find("Z80") != std::string::npos);
  other = here;
  other.isa = "mmx";
  CHECK(machine_difference(other, here).find("mmx") != std::string::npos);
  other = here;
  other.version = "0.0.1";
  CHECK(machine_difference(other, here).find("0.0.1") != std::string::npos);
}

TEST_CASE("what does not fit is refused with one sentence") {
  const Network net = optimised(kSmallNet);
  const std::string text = save_plan(plan_of(net, 3), net);
  const Json good = Json::parse(text);
  const auto refused = [&](auto change, const std::vector<std::string>& words) {
    Json j = good;
    change(j);
    check_refusal(j.dump(), net, words);
  };
  REQUIRE(refusal(good.dump(), net).empty());
  check_refusal("", net, {"JSON"});
  check_refusal(text.substr(0, text.size() / 2), net, {"JSON", "line"});
  check_refusal("[]", net, {"no object"});
  check_refusal(std::string(1'000'000, '['), net, {"levels"});
  check_refusal(changed(text, "\"schema\": 1", "\"schema\": 1e999"), net, {"too large"});
  check_refusal(changed(text, "\"threads\": 1", "\"threads\": 1e400"), net, {"too large"});
  refused([](Json& j) { j["schema"] = 2; }, {"schema 2"});
  refused([](Json& j) { j["machine"]["threads"] = 0; }, {"threads"});
  refused([](Json& j) { j["machine"]["threads"] = 1e9; }, {"threads"});
  refused([](Json& j) { j.erase("conversions"); }, {"conversions"});
  refused([](Json& j) { j["layers"].erase(3); }, {"layers"});
  refused([](Json& j) { std::swap(j["layers"][2], j["layers"][3]); }, {"layer 3"});
  refused([](Json& j) { layer(j, "stem")["implementation"] = "direct-magic"; },
          {"\"stem\"", "direct-magic", "lacks"});
  refused([](Json& j) { layer(j, "stem")["implementation"] = "conv-1x1-gemm-ab-ik"; },
          {"\"stem\""});
  refused([](Json& j) { layer(j, "stem")["implementation"] = "pool-chw"; },
          {"\"stem\"", "computes pool, not conv"});
  refused(
      [](Json& j) {
        layer(j, "norm")["implementation"] = "slices", layer(j, "norm")["parts"] = Json::array();
      },
      {"\"norm\"", "parts"});
  refused([](Json& j) { layer(j, "norm")["in"] = "whc"; }, {"\"norm\"", "whc"});
  refused([](Json& j) { layer(j, "norm").erase("out"); }, {"\"norm\"", "\"out\""});
  refused([](Json& j) { layer(j, "norm")["cost_ms"] = -1; }, {"\"norm\"", "cost_ms"});
  refused([](Json& j) { layer(j, "data")["implementation"] = "pool-chw"; }, {"\"data\"", "input"});
  REQUIRE_FALSE(good["conversions"].empty());
  refused([](Json& j) { j["conversions"].clear(); }, {"layout"});
  refused([](Json& j) { j["conversions"][0]["chain"][0] = "chw-to-mars"; }, {"chw-to-mars"});
  refused([](Json& j) { j["conversions"][0]["layer"] = 999; }, {"conversion 1", "layer"});
  refused([](Json& j) { j["conversions"].push_back(j["conversions"][0]); }, {"already"});
  refused([](Json& j) { j["layers"].insert(j["layers"].begin() + 3, j["layers"][2]); }, {"layers"});
  refused([](Json& j) { layer(j, "norm")["cost_ms"] = 1e300; }, {"\"norm\"", "cost_ms"});
  refused([](Json& j) { layer(j, "norm")["layer"] = std::uint64_t{1} << 63; }, {"layer"});
  refused([](Json& j) { j["conversions"][0]["output"] = 2; }, {"conversion 1", "output"});
}

TEST_CASE("a primitive that rejects the layer's problem is refused with its reason") {
  const Network net = optimised(kSmallNet);
  Json j = Json::parse(save_plan(plan_of(net, 3), net));
  int refused = 0;
  for (const Primitive* p : primitives()) {
    for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
      if (net.layers[static_cast<std::size_t>(id)].name != "stem") continue;
      const char* why = p->reject(scenario_of(net, id));
      if (why == nullptr) continue;
      layer(j, "stem")["implementation"] = std::string(p->name);
      check_refusal(j.dump(), net, {"\"stem\"", std::string(p->name), why});
      ++refused;
    }
  }
  CHECK(refused > 10);
}

// Each change is one that a person's slip or a broken disk could make, or worse: another
// implementation, layouts that do not meet, conversions dropped, doubled or exchanged.
TEST_CASE("whatever is done to a plan, it is refused, or it runs and computes the network") {
  Network original = import_network_text(kSmallNet, "test");
  random_weights(original);
  Network net = original;
  optimise(net);
  std::mt19937 rng(11);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(rng() % n); };
  std::vector<std::string> names = {"slices", "input", "cut"};
  for (const Primitive* p : primitives()) names.emplace_back(p->name);
  for (const LayerImpl* impl : layer_impls()) names.emplace_back(impl->name);
  std::vector<Json> goods;
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    goods.push_back(Json::parse(save_plan(plan_of(net, seed), net)));
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<double>> reference;
  int ran = 0, refused = 0;
  // What no plan holds: a number of any size, nesting, another type.
  const std::vector<std::string> hostile = {"-1",
                                            "0",
                                            "1e308",
                                            "1e999",
                                            "18446744073709551615",
                                            "99999999999999999999999",
                                            "1e-999",
                                            "null",
                                            "true",
                                            "\"\"",
                                            "[]",
                                            "{}",
                                            "\"\\u0000\"",
                                            std::string(3000, '[') + std::string(3000, ']')};
  for (int i = 0; i < 3000; ++i) {
    CAPTURE(i);
    Json j = goods[pick(goods.size())];
    const Json& donor = goods[pick(goods.size())];
    std::string text;
    for (std::size_t k = 0; k <= pick(2); ++k) {
      const std::size_t place = pick(j["layers"].size());
      Json& l = j["layers"][place];
      Json& all = j["conversions"];
      switch (rng() % 11) {
        case 0:
          l["implementation"] = names[pick(names.size())];
          break;
        case 1:  // what another plan chose there: fits if the layouts around it do
          l = donor["layers"][std::min(place, donor["layers"].size() - 1)];
          break;
        case 2:
          l[rng() % 2 == 0 ? "in" : "out"] = std::string(name(kLayouts[pick(kLayoutCount)]));
          break;
        case 3:
          if (!all.empty()) all.erase(pick(all.size()));
          break;
        case 4:
          if (!donor["conversions"].empty())
            all.push_back(donor["conversions"][pick(donor["conversions"].size())]);
          break;
        case 5:
          if (!all.empty()) std::swap(all[pick(all.size())], all[pick(all.size())]);
          break;
        case 6:
          l["layer"] = rng() % 30;
          break;
        case 7:
          j["layers"].erase(place);
          break;
        case 8:
          j["layers"].insert(j["layers"].begin() + static_cast<std::ptrdiff_t>(place),
                             donor["layers"][pick(donor["layers"].size())]);
          break;
        case 9: {  // the mark becomes a hostile value in the text
          Json& any = rng() % 2 == 0 || all.empty() ? l : all[pick(all.size())];
          auto member = any.begin();
          std::advance(member, static_cast<std::ptrdiff_t>(pick(any.size())));
          *member = "hostile";
          break;
        }
        default: {
          const Conversion& c = conversions()[pick(conversions().size())];
          Json& target = j["layers"][pick(j["layers"].size())];
          all.push_back({{"layer", target["layer"]},
                         {"output", 1},
                         {"tensor", target["name"]},
                         {"from", std::string(name(c.from))},
                         {"to", std::string(name(c.to))},
                         {"chain", {std::string(c.name)}},
                         {"cost_ms", {0.1}}});
        }
      }
    }
    text = j.dump();
    for (std::size_t at; (at = text.find("\"hostile\"")) != std::string::npos;)
      text.replace(at, 9, hostile[pick(hostile.size())]);
    if (rng() % 16 == 0) text.resize(pick(text.size()));
    if (rng() % 4 == 0 && !text.empty()) {
      for (std::size_t k = 0; k <= pick(3); ++k) text[pick(text.size())] = static_cast<char>(rng());
    }
    try {
      const Plan plan = load_plan(text, net);
      const Executable executable(net, plan);
      auto context = executable.make_context();
      const auto filled = fill_inputs(executable, context);
      if (reference.empty()) reference = evaluate_reference(original, filled, 1);
      executable.run(context);
      double worst = 0;
      for (std::size_t o = 0; o < reference.size(); ++o) {
        double largest = 0, error = 0;
        for (std::size_t e = 0; e < reference[o].size(); ++e) {
          const double off = std::abs(static_cast<double>(context.output(o)[e]) - reference[o][e]);
          error = std::isfinite(off) ? std::max(error, off) : 1e9;
          largest = std::max(largest, std::abs(reference[o][e]));
        }
        worst = std::max(worst, error / largest);
      }
      CHECK(worst < 1e-4);
      if (!(worst < 1e-4)) MESSAGE(save_plan(plan, net));
      ++ran;
    } catch (const Error& e) {
      CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
      ++refused;
    }
  }
  MESSAGE(ran << " ran, " << refused << " refused");
  CHECK(ran > 50);
  CHECK(refused > 50);
}

// 1x1 images lie the same in several layouts, but not every part of a concatenation can be written
// in blocks.
TEST_CASE("parts of concatenations of 1x1 images") {
  std::string text =
      "layer { name: \"x\" type: \"Input\" top: \"x\" input_param { shape { dim: 2 dim: 16 dim: 1 "
      "dim: 1 } } }\n";
  std::string parts;
  for (const int channels : {4, 16, 8, 4}) {
    const std::string name = "c" + std::to_string(parts.size());
    text += "layer { name: \"" + name + "\" type: \"Convolution\" bottom: \"x\" top: \"" + name +
            "\" convolution_param { num_output: " + std::to_string(channels) +
            " kernel_size: 1 } }\n";
    parts += "bottom: \"" + name + "\" ";
  }
  text += "layer { name: \"cat\" type: \"Concat\" top: \"cat\" " + parts + "}\n";
  Network original = import_network_text(text, "test");
  random_weights(original);
  Network net = original;
  optimise(net);
  std::vector<std::vector<double>> reference;
  int sliced = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const Plan plan = load_plan(save_plan(plan_of(net, seed), net), net);
    sliced += plan.layers.back().implementation == "slices" ? 1 : 0;
    const Executable executable(net, plan);
    auto context = executable.make_context();
    const auto inputs = fill_inputs(executable, context);
    if (reference.empty()) reference = evaluate_reference(original, inputs, 1);
    executable.run(context);
    for (std::size_t i = 0; i < reference[0].size(); ++i)
      CHECK(static_cast<double>(context.output(0)[i]) ==
            doctest::Approx(reference[0][i]).epsilon(1e-4));
  }
  CHECK(sliced > 10);
}
