// Plans as text: JSON with one line a layer, written by hand so that two plans can be compared line
// by line; and back, with nothing taken for granted.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>

#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "convprim/plan.hpp"
#include "selector/candidates.hpp"
#include "selector/program.hpp"

namespace convprim {
namespace {

using Json = nlohmann::json;

constexpr int kPlanSchema = 1;
constexpr int kMostThreads = 1024;

/// A JSON string. Names in files may be in any encoding: what is not UTF-8 is replaced.
std::string json_text(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <class List>
std::string json_list(const List& list) {
  std::vector<std::string> all;
  for (const auto& text : list) all.push_back(json_text(text));
  return fmt::format("[{}]", fmt::join(all, ", "));
}

/// Few digits, so that what is read back is written the same.
std::string ms(double seconds) { return fmt::format("{:.6g}", seconds * 1e3); }

/// What the costs in the file add up to, whatever their order: a plan that was loaded says the
/// same.
double written_total(const Plan& plan) {
  std::vector<double> costs;
  const auto add = [&](double seconds) {
    const std::string text = ms(seconds);
    double written = 0;
    std::from_chars(text.data(), text.data() + text.size(), written);
    costs.push_back(written * 1e-3);
  };
  for (const PlanLayer& l : plan.layers) add(l.seconds);
  for (const PlanConversion& c : plan.conversions) add(c.seconds);
  std::sort(costs.begin(), costs.end());
  return std::accumulate(costs.begin(), costs.end(), 0.0);
}

/// What a layer asks of its implementation.
std::string problem_text(const Network& net, LayerId id) {
  const Layer& layer = net.layers[static_cast<std::size_t>(id)];
  return std::holds_alternative<ConvOp>(layer.op) ? convolution_problem(net, id)
                                                  : str(layer_problem(net, id, 1));
}

/// First channels of the parts of a concatenation.
std::vector<Index> part_begins(const Network& net, LayerId id) {
  std::vector<Index> begins;
  for (std::size_t i = 0; i < net.layers[static_cast<std::size_t>(id)].inputs.size(); ++i)
    begins.push_back(concat_slice(net, id, i).begin);
  return begins;
}

/// Which layer makes each tensor, as its how manieth output.
struct Maker {
  LayerId layer = -1;
  std::size_t output = 0;
};
std::vector<Maker> makers(const Network& net) {
  std::vector<Maker> all(net.tensors.size());
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    const auto& outputs = net.layers[static_cast<std::size_t>(id)].outputs;
    for (std::size_t k = 0; k < outputs.size(); ++k)
      all[static_cast<std::size_t>(outputs[k])] = {id, k};
  }
  return all;
}

std::string layer_line(const Network& net, const Plan& plan, LayerId id) {
  const PlanLayer& l = plan.layers[static_cast<std::size_t>(id)];
  std::string line = fmt::format(
      R"({{"layer": {}, "name": {}, "implementation": {}, "in": "{}", "out": "{}", "cost_ms": {}, )"
      R"("problem": {})",
      id + 1, json_text(l.layer), json_text(l.implementation), name(l.in), name(l.out),
      ms(l.seconds), json_text(problem_text(net, id)));
  if (l.implementation == "slices")
    line += fmt::format(R"(, "parts": [{}])", fmt::join(part_begins(net, id), ", "));
  return line + "}";
}

/// Conversions of one tensor that follow each other, on one line.
std::string chain_line(const Network& net, const Maker& maker,
                       const std::vector<const PlanConversion*>& chain) {
  std::vector<std::string_view> routines;
  std::vector<std::string> costs;
  for (const PlanConversion* c : chain) {
    routines.push_back(c->routine);
    costs.push_back(ms(c->seconds));
  }
  return fmt::format(
      R"({{"layer": {}, "output": {}, "tensor": {}, "from": "{}", "to": "{}", "chain": {}, )"
      R"("cost_ms": [{}]}})",
      maker.layer + 1, maker.output + 1,
      json_text(net.tensors[static_cast<std::size_t>(chain[0]->tensor)].name), name(chain[0]->from),
      name(chain.back()->to), json_list(routines), fmt::join(costs, ", "));
}

std::vector<std::string> chain_lines(const Network& net, const Plan& plan) {
  const std::vector<Maker> all = makers(net);
  const auto maker = [&](const PlanConversion* c) {
    return all[static_cast<std::size_t>(c->tensor)];
  };
  std::vector<const PlanConversion*> sorted;
  for (const PlanConversion& c : plan.conversions) sorted.push_back(&c);
  std::stable_sort(sorted.begin(), sorted.end(), [&](const auto* a, const auto* b) {
    return std::pair(maker(a).layer, maker(a).output) < std::pair(maker(b).layer, maker(b).output);
  });
  std::vector<std::string> lines;
  std::vector<const PlanConversion*> chain;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    chain.push_back(sorted[i]);
    if (i + 1 < sorted.size() && sorted[i + 1]->tensor == sorted[i]->tensor &&
        sorted[i + 1]->from == sorted[i]->to)
      continue;
    lines.push_back(chain_line(net, maker(chain[0]), chain));
    chain.clear();
  }
  return lines;
}

/// Access to a JSON text whose every member may be missing or of another type.
class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(fmt::format("{}: {}", name_, why));
  }

  Json parse(std::string_view text) const {
    constexpr int kDeepest = 8;  // a plan has five levels
    const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
      if (depth > kDeepest)
        fail(fmt::format("has more than {} levels, a plan has fewer", kDeepest));
      return true;
    };
    try {
      return Json::parse(text, shallow);
    } catch (const Json::out_of_range&) {
      fail("holds a number that is too large to be read");
    } catch (const Json::parse_error& e) {
      const auto place = text.begin() + static_cast<std::ptrdiff_t>(std::min(e.byte, text.size()));
      fail(fmt::format("is not JSON, the trouble starts on line {}",
                       std::count(text.begin(), place, '\n') + 1));
    }
  }

  const Json& member(const Json& j, const char* key, const std::string& where) const {
    if (!j.is_object()) fail(fmt::format("{} is no object", where));
    const auto it = j.find(key);
    if (it == j.end()) fail(fmt::format("{} lacks \"{}\"", where, key));
    return *it;
  }

  const Json& list(const Json& j, const char* key, const std::string& where) const {
    const Json& value = member(j, key, where);
    if (!value.is_array()) fail(fmt::format("{}: \"{}\" is no list", where, key));
    return value;
  }

  const std::string& text(const Json& value, const char* key, const std::string& where) const {
    if (!value.is_string()) fail(fmt::format("{}: \"{}\" is no text", where, key));
    return value.get_ref<const std::string&>();
  }
  const std::string& string(const Json& j, const char* key, const std::string& where) const {
    return text(member(j, key, where), key, where);
  }

  /// An integer from 1 to `most`.
  int number(const Json& j, const char* key, const std::string& where, std::size_t most) const {
    const Json& value = member(j, key, where);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() < 1 ||
        value.get<std::uint64_t>() > most)
      fail(fmt::format("{}: \"{}\" is no number from 1 to {}", where, key, most));
    return value.get<int>();
  }

  double seconds(const Json& value, const char* key, const std::string& where) const {
    constexpr double kLongest = 1e15;  // sums of so many ms, too, are written as JSON numbers
    if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= kLongest))
      fail(fmt::format("{}: \"{}\" is no time", where, key));
    return value.get<double>() * 1e-3;
  }

  Layout layout(const Json& j, const char* key, const std::string& where) const {
    const auto layout = layout_of(string(j, key, where));
    if (!layout) fail(fmt::format("{}: \"{}\" is no layout", where, string(j, key, where)));
    return *layout;
  }

 private:
  std::string name_;
};

/// Builds a plan from JSON, layer by layer.
class Loader {
 public:
  Loader(const Network& net, const std::string& name) : net_(net), reader_(name) {}

  Plan load(std::string_view text) {
    const Json j = reader_.parse(text);
    const Json& schema = reader_.member(j, "schema", "it");
    if (schema != kPlanSchema) {
      reader_.fail(fmt::format("is of schema {}, this version reads {}; make the plan anew",
                               schema.is_number() ? schema.dump() : "unknown", kPlanSchema));
    }
    Plan plan;
    plan.network = net_.name;
    plan.file = net_.file;
    load_machine(reader_.member(j, "machine", "it"), plan.machine);
    version_ = plan.machine.version;
    const Json& network = reader_.member(j, "network", "it");
    load_layers(reader_.list(j, "layers", "it"), plan);
    if (reader_.string(network, "fingerprint", "network") != fingerprint(net_)) {
      other_network("the layers are the same, but not their parameters or what they are joined to");
    }
    load_conversions(reader_.list(j, "conversions", "it"), plan);
    load_prediction(reader_.member(j, "predicted", "it"), plan);
    return plan;
  }

 private:
  /// Another version may have written the same network otherwise.
  [[noreturn]] void other_network(const std::string& difference) const {
    if (version_ == version())
      reader_.fail(fmt::format("was made for another network: {}", difference));
    reader_.fail(fmt::format(
        "was made by convprim {}, this is {}, and does not fit the network: {}; make the plan anew",
        version_, version(), difference));
  }

  void load_machine(const Json& j, Machine& machine) const {
    machine.cpu = reader_.string(j, "cpu", "machine");
    machine.isa = reader_.string(j, "isa", "machine");
    machine.version = reader_.string(j, "version", "machine");
    machine.threads = reader_.number(j, "threads", "machine", kMostThreads);
  }

  void load_layers(const Json& layers, Plan& plan) const {
    if (layers.size() != net_.layers.size()) {
      other_network(fmt::format("it has {} layers, not {}", layers.size(), net_.layers.size()));
    }
    for (LayerId id = 0; id < static_cast<LayerId>(net_.layers.size()); ++id)
      plan.layers.push_back(load_layer(layers[static_cast<std::size_t>(id)], id));
  }

  PlanLayer load_layer(const Json& j, LayerId id) const {
    const Layer& layer = net_.layers[static_cast<std::size_t>(id)];
    std::string where = fmt::format("layer {}", id + 1);
    if (reader_.number(j, "layer", where, net_.layers.size()) != id + 1)
      reader_.fail(fmt::format("{} is not at its place in the list", where));
    const std::string& name = reader_.string(j, "name", where);
    if (json_text(name) != json_text(layer.name)) {
      other_network(fmt::format("{} is \"{}\", not \"{}\"", where, name, layer.name));
    }
    where = fmt::format("layer \"{}\"", name);
    const std::string problem = problem_text(net_, id);
    if (const std::string& saved = reader_.string(j, "problem", where); saved != problem) {
      other_network(fmt::format("{} is {}, not {}", where, saved, problem));
    }
    PlanLayer l;
    l.layer = layer.name;
    l.kind = kind(layer.op);
    l.implementation = reader_.string(j, "implementation", where);
    l.in = reader_.layout(j, "in", where);
    l.out = reader_.layout(j, "out", where);
    l.seconds = reader_.seconds(reader_.member(j, "cost_ms", where), "cost_ms", where);
    if (l.implementation == "slices") {
      if (reader_.list(j, "parts", where) != Json(part_begins(net_, id)))
        reader_.fail(fmt::format("{}: \"parts\" are not the first channels of its parts", where));
    } else if (l.implementation != "input") {
      l.problem = problem;
    }
    return l;
  }

  void load_conversions(const Json& all, Plan& plan) const {
    for (std::size_t i = 0; i < all.size(); ++i) load_chain(all[i], i, plan);
  }

  void load_chain(const Json& j, std::size_t i, Plan& plan) const {
    const std::string where = fmt::format("conversion {}", i + 1);
    const auto id =
        static_cast<std::size_t>(reader_.number(j, "layer", where, net_.layers.size()) - 1);
    const auto& outputs = net_.layers[id].outputs;
    if (outputs.empty()) reader_.fail(fmt::format("{}: layer {} has no output", where, id + 1));
    const TensorId tensor =
        outputs[static_cast<std::size_t>(reader_.number(j, "output", where, outputs.size()) - 1)];
    const std::string& name = net_.tensors[static_cast<std::size_t>(tensor)].name;
    if (json_text(reader_.string(j, "tensor", where)) != json_text(name))
      reader_.fail(fmt::format("{}: layer {} makes \"{}\" there", where, id + 1, name));
    const Json& chain = reader_.list(j, "chain", where);
    const Json& costs = reader_.list(j, "cost_ms", where);
    if (chain.empty() || costs.size() != chain.size())
      reader_.fail(fmt::format("{}: needs one cost for each routine of its chain", where));
    Layout at = reader_.layout(j, "from", where);
    for (std::size_t k = 0; k < chain.size(); ++k) {
      const std::string& routine = reader_.text(chain[k], "chain", where);
      const Conversion* conversion = find_conversion(routine);
      if (conversion == nullptr)
        reader_.fail(fmt::format("{}: \"{}\" is no conversion of this build", where, routine));
      if (conversion->from != at)
        reader_.fail(
            fmt::format("{}: \"{}\" does not start from {}", where, routine, convprim::name(at)));
      at = conversion->to;
      plan.conversions.push_back({tensor, conversion->from, conversion->to, routine,
                                  reader_.seconds(costs[k], "cost_ms", where)});
    }
    if (at != reader_.layout(j, "to", where))
      reader_.fail(fmt::format("{}: its chain ends at {}", where, convprim::name(at)));
  }

  /// The cost of the plan is the sum of its parts, whatever the file says.
  void load_prediction(const Json& j, Plan& plan) const {
    const auto seconds = [&](const char* key) {
      return reader_.seconds(reader_.member(j, key, "predicted"), key, "predicted");
    };
    seconds("total_ms");
    plan.solver.objective_seconds = written_total(plan);
    plan.solver.lower_bound_seconds = seconds("lower_bound_ms");
    const Json& proven = reader_.member(j, "proven_optimal", "predicted");
    if (!proven.is_boolean()) reader_.fail("predicted: \"proven_optimal\" is not true or false");
    plan.solver.proven_optimal = proven.get<bool>();
  }

  const Network& net_;
  std::string version_;  // of the library that wrote the plan
  Reader reader_;
};

}  // namespace

std::string fingerprint(const Network& net) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, 64 bits
  const auto add = [&](const std::string& text) {
    for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    hash = (hash ^ 0xff) * 0x100000001b3;
  };
  const std::vector<Maker> all = makers(net);
  const auto add_tensor = [&](TensorId t) {
    const Maker& m = all[static_cast<std::size_t>(t)];
    add(fmt::format("{}.{}", m.layer, m.output));
  };
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    const Layer& layer = net.layers[static_cast<std::size_t>(id)];
    add(problem_text(net, id));
    if (const auto* conv = std::get_if<ConvOp>(&layer.op))
      add(fmt::format("{} {} {}", conv->epilogue.lo, conv->epilogue.hi, conv->bias));
    for (TensorId t : layer.inputs) add_tensor(t);
    for (const Blob& blob : layer.blobs) add(fmt::format("{}", fmt::join(blob.dims, "x")));
  }
  for (TensorId t : net.outputs) add_tensor(t);
  return fmt::format("{:016x}", hash);
}

std::string save_plan(const Plan& plan, const Network& net) {
  if (!plan.cut.empty()) {
    throw Error(fmt::format("a plan that leaves out layer \"{}\" cannot be run and is not saved",
                            plan.cut[0]));
  }
  std::vector<std::string> layers;
  for (LayerId id = 0; id < static_cast<LayerId>(plan.layers.size()); ++id)
    layers.push_back(layer_line(net, plan, id));
  const Machine& m = plan.machine;
  const SolverReport& s = plan.solver;
  const double total = written_total(plan);
  std::string text = fmt::format("{{\n\"schema\": {},\n", kPlanSchema);
  text += fmt::format("\"network\": {{\"name\": {}, \"file\": {}, \"fingerprint\": \"{}\"}},\n",
                      json_text(plan.network), json_text(plan.file), fingerprint(net));
  text +=
      fmt::format("\"machine\": {{\"cpu\": {}, \"isa\": {}, \"threads\": {}, \"version\": {}}},\n",
                  json_text(m.cpu), json_text(m.isa), m.threads, json_text(m.version));
  text += fmt::format(
      "\"predicted\": {{\"total_ms\": {}, \"lower_bound_ms\": {}, \"proven_optimal\": {}}},\n",
      ms(total), ms(std::min(s.lower_bound_seconds, total)), s.proven_optimal);
  text += fmt::format("\"layers\": [\n{}\n],\n", fmt::join(layers, ",\n"));
  const auto chains = chain_lines(net, plan);
  text += fmt::format("\"conversions\": [{}{}]\n}}\n", chains.empty() ? "" : "\n",
                      chains.empty() ? "" : fmt::format("{}\n", fmt::join(chains, ",\n")));
  return text;
}

Plan load_plan(std::string_view text, const Network& net, const std::string& name) {
  Plan plan = Loader(net, name).load(text);
  try {
    check_plan(net, plan);
    lay_out(net, plan);
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", name, e.what()));
  }
  return plan;
}

std::string machine_difference(const Machine& planned, const Machine& here) {
  const auto differ = [](std::string_view what, const auto& a, const auto& b) {
    return fmt::format("it was made for {} {}, not for {}", what, a, b);
  };
  if (planned.cpu != here.cpu) return differ("the CPU", planned.cpu, here.cpu);
  if (planned.isa != here.isa) return differ("the instruction set", planned.isa, here.isa);
  if (planned.threads != here.threads)
    return fmt::format("it was made for {} thread{}, not for {}", planned.threads,
                       planned.threads == 1 ? "" : "s", here.threads);
  if (planned.version != here.version) return differ("convprim", planned.version, here.version);
  return "";
}

}  // namespace convprim
