#include "selector/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "convprim/conversion.hpp"
#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "convprim/reference.hpp"
#include "selector/candidates.hpp"
#include "selector/placement.hpp"
#include "selector/printable.hpp"
#include "selector/report_parts.hpp"
#include "selector/stopwatch.hpp"

namespace convprim {
namespace {

constexpr int kReportSchema = 1;
constexpr int kTimedPasses = 10;
constexpr int kTries = 3;  // repetitions of a run that other programs disturbed

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double ms(double seconds) { return seconds * 1e3; }

/// Conversions of one tensor that follow each other.
struct Chain {
  TensorId tensor = -1;
  Layout from{}, to{};
  std::vector<std::string> routines;
  double seconds = 0;
};

std::vector<Chain> chains(const Plan& plan) {
  std::vector<Chain> all;
  for (const PlanConversion& c : plan.conversions) {
    if (!all.empty() && all.back().tensor == c.tensor && all.back().to == c.from) {
      all.back().to = c.to;
    } else {
      all.push_back({c.tensor, c.from, c.to, {}, 0});
    }
    all.back().routines.push_back(c.routine);
    all.back().seconds += c.seconds;
  }
  return all;
}

/// Measured seconds by layer name or conversion label, summed over the steps of that name.
std::map<std::string, double> measured_by_name(const Report& report) {
  std::map<std::string, double> all;
  if (!report.times || report.executable == nullptr) return all;
  const auto& steps = report.executable->steps();
  for (std::size_t i = 0; i < steps.size(); ++i)
    all[steps[i].name] += report.times->step_seconds[i];
  return all;
}

/// Images in a batch, by the first input; 1 where there is none.
Index images_of(const Network& net) {
  for (const Layer& layer : net.layers) {
    if (std::holds_alternative<InputOp>(layer.op) && !layer.outputs.empty())
      return net.tensors[static_cast<std::size_t>(layer.outputs[0])].shape.n;
  }
  return 1;
}

/// Whether layer i reads an input under another layout than any that was written: one that lies the
/// same.
bool renamed(const Network& net, const std::vector<LayerId>& makers, const Plan& plan,
             std::size_t i) {
  if (plan.layers[i].implementation == "cut") return false;
  for (std::size_t k = 0; k < net.layers[i].inputs.size(); ++k) {
    const TensorId t = net.layers[i].inputs[k];
    const LayerId maker = makers[static_cast<std::size_t>(t)];
    if (maker < 0 || plan.layers[static_cast<std::size_t>(maker)].implementation == "cut") continue;
    const bool residual = plan.layers[i].kind == "conv" && k > 0;
    const Layout wanted = residual ? plan.layers[i].out : plan.layers[i].in;
    const bool written =
        plan.layers[static_cast<std::size_t>(maker)].out == wanted ||
        std::any_of(plan.conversions.begin(), plan.conversions.end(),
                    [&](const PlanConversion& c) { return c.tensor == t && c.to == wanted; });
    if (!written) return true;
  }
  return false;
}

std::string shorten(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}

/// What the plan was selected from, and how well.
std::string selection_text(const Report& report) {
  std::string out;
  const auto line = [&]<class... A>(fmt::format_string<A...> format, A&&... args) {
    out += fmt::format(format, std::forward<A>(args)...) + "\n";
  };
  const SolverReport& s = report.plan->solver;
  std::vector<std::string> families;
  for (const auto& [family, count] : report.considered.families)
    families.push_back(fmt::format("{} {}", family, count));
  line("considered: {} (layer, primitive) pairs; {} conversions", fmt::join(families, ", "),
       report.considered.conversions);
  line("costs: {} measured now in {:.1f} s, {} reused, in {}", report.profile.measured,
       report.profile.seconds, report.profile.reused, report.costs_file);
  line(
      "solver: {:.4f} ms, {}; {} nodes, {} edges, {} options; reductions R0 {}, RI {}, RII {}, "
      "eliminated {}, searched {}; solved in {:.2f} ms",
      ms(s.objective_seconds),
      s.proven_optimal
          ? "proven optimal"
          : fmt::format("not proven, lower bound {:.4f} ms", ms(s.lower_bound_seconds)),
      s.nodes, s.edges, s.options, s.r0, s.r1, s.r2, s.eliminated, s.searched, ms(s.solve_seconds));
  return out;
}

/// The strategies and their predicted times.
std::string strategies_text(const Plan& plan) {
  std::string out;
  const auto line = [&]<class... A>(fmt::format_string<A...> format, A&&... args) {
    out += fmt::format(format, std::forward<A>(args)...) + "\n";
  };
  line("");
  line("{:<24} {:>12} {:>10}", "strategy, predicted", "ms", "speed-up");
  const double base = plan.strategies[0].name != "sum2d" ? 0 : plan.strategies[0].seconds;
  for (const Strategy& st : plan.strategies) {
    line("{:<24} {:>12.3f} {:>10}", st.name, ms(st.seconds),
         base > 0 ? fmt::format("{:.1f} x", base / st.seconds) : "");
  }
  return out;
}

}  // namespace

RunTimes measure_runs(const Executable& executable, Executable::Context& context, int runs,
                      const Machine& machine) {
  RunTimes times;
  times.runs = runs;
  executable.run(context);
  if (runs > 1) executable.run(context);
  const std::size_t count = executable.steps().size();
  std::vector<std::vector<double>> steps(count);
  std::vector<double> all, pass(count);
  const int every = std::max(1, runs / kTimedPasses);
  for (int i = 0; i < runs;) {
    const double seconds = undisturbed_seconds(
        kTries, times.disturbed, [] {}, [&] { executable.run(context); });
    // In between, so that both meet the same state of the machine.
    const bool step_by_step = i % every == 0;
    if (step_by_step) {
      undisturbed_seconds(
          kTries, times.disturbed, [] {}, [&] { executable.run_timed(context, pass.data()); });
    }
    times.in_place = in_place(machine);
    if (!times.in_place && times.moved < runs) {
      ++times.moved;
      continue;
    }
    all.push_back(seconds);
    for (std::size_t k = 0; step_by_step && k < count; ++k) steps[k].push_back(pass[k]);
    ++i;
  }
  if (machine.apart_ns > 0)
    times.apart_ns = static_cast<int>(std::lround(threads_apart(machine.threads) * 1e9));
  times.median = median(all);
  times.min = *std::min_element(all.begin(), all.end());
  times.max = *std::max_element(all.begin(), all.end());
  for (auto& samples : steps) times.step_seconds.push_back(median(samples));
  return times;
}

std::vector<std::vector<float>> fill_inputs(const Executable& executable,
                                            Executable::Context& context, std::uint64_t seed) {
  std::vector<std::vector<float>> inputs;
  for (std::size_t i = 0; i < executable.input_count(); ++i) {
    std::mt19937_64 rng(seed + i);
    auto& values = inputs.emplace_back(static_cast<std::size_t>(executable.input_shape(i).count()));
    for (float& v : values) v = static_cast<float>(rng() >> 40) * 0x1p-23F - 1;
    std::copy(values.begin(), values.end(), context.input(i));
  }
  return inputs;
}

Verification verify(const Network& original, const std::vector<std::vector<float>>& inputs,
                    const Executable& executable, const Executable::Context& context, int threads) {
  const auto reference = evaluate_reference(original, inputs, threads);
  Verification v;
  v.passed = true;
  for (std::size_t i = 0; i < executable.output_count(); ++i) {
    double largest = 0, error = 0;
    bool finite = true;
    for (std::size_t k = 0; k < reference[i].size(); ++k) {
      const double got = static_cast<double>(context.output(i)[k]);
      finite = finite && std::isfinite(got) && std::isfinite(reference[i][k]);
      largest = std::max(largest, std::abs(reference[i][k]));
      error = std::max(error, std::abs(got - reference[i][k]));
    }
    const double relative = !finite       ? std::numeric_limits<double>::infinity()
                            : largest > 0 ? error / largest
                                          : error;
    v.max_relative_error = std::max(v.max_relative_error, relative);
    v.passed = v.passed && relative <= v.tolerance;
  }
  return v;
}

Considered count_candidates(const Network& net, const Filter& filter) {
  Considered considered;
  std::map<Family, int> families;
  std::set<std::string> shapes;
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    for (const Choice& c : choices(net, id, filter)) {
      if (c.primitive != nullptr) ++families[c.primitive->family];
    }
    for (TensorId t : net.layers[static_cast<std::size_t>(id)].outputs) {
      const Shape& shape = net.tensors[static_cast<std::size_t>(t)].shape;
      if (known(shape)) shapes.insert(text(shape));
    }
  }
  for (const auto& [family, count] : families)
    considered.families.emplace_back(name(family), count);
  considered.conversions = static_cast<int>(shapes.size() * conversions().size());
  return considered;
}

std::string table(const Report& report) {
  const Network& net = *report.net;
  const Plan& plan = *report.plan;
  const auto measured = measured_by_name(report);
  std::string out;
  const auto line = [&]<class... A>(fmt::format_string<A...> format, A&&... args) {
    out += printable(fmt::format(format, std::forward<A>(args)...)) + "\n";
  };
  const auto measured_text = [&](const std::string& name) {
    const auto it = measured.find(name);
    return it == measured.end() ? std::string(measured.empty() ? "" : "-")
                                : fmt::format("{:.3f}", ms(it->second));
  };
  line("{:<34} {:<44} {:<30} {:<16} {:>9} {:>9}", "layer", "problem", "implementation", "layouts",
       "ms", measured.empty() ? "" : "measured");
  const auto all_chains = chains(plan);
  const auto makers = producers(net);
  bool any_renamed = false;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const PlanLayer& l = plan.layers[i];
    const bool is_renamed = renamed(net, makers, plan, i);
    any_renamed = any_renamed || is_renamed;
    line("{:<34} {:<44} {:<30} {:<16} {:>9.3f} {:>9}", shorten(l.layer, 34),
         shorten(l.problem.empty() ? l.kind : l.problem, 44), l.implementation,
         fmt::format("{}{} -> {}", is_renamed ? "=" : "", name(l.in), name(l.out)), ms(l.seconds),
         measured_text(l.layer));
    for (TensorId t : net.layers[i].outputs) {
      for (const Chain& c : all_chains) {
        if (c.tensor != t) continue;
        const std::string& tensor = net.tensors[static_cast<std::size_t>(t)].name;
        line("  {:<32} {:<44} {:<30} {:<16} {:>9.3f} {:>9}", "conversion",
             shorten(tensor + " " + text(net.tensors[static_cast<std::size_t>(t)].shape), 44),
             fmt::format("{}", fmt::join(c.routines, ", ")),
             fmt::format("{} -> {}", name(c.from), name(c.to)), ms(c.seconds),
             c.routines.size() == 1
                 ? measured_text(fmt::format("{}: {} to {}", tensor, name(c.from), name(c.to)))
                 : "");
      }
    }
  }
  if (any_renamed) {
    line(
        "=: read as it was written: the two layouts lie the same in memory, no conversion is "
        "needed");
  }
  line("");
  line("{}: {}, {} thread{}{}, {}", plan.network.empty() ? plan.file : plan.network,
       plan.machine.cpu, plan.machine.threads, plan.machine.threads == 1 ? "" : "s",
       plan.machine.apart_ns > 0 ? fmt::format(" {} ns apart", plan.machine.apart_ns) : "",
       plan.machine.isa);
  line(
      "passes: {} dropout and split layers removed, {} BatchNorm and Scale folded, {} activations "
      "and {} residual sums fused, {} dead layers dropped",
      report.passes.identities, report.passes.folded, report.passes.activations,
      report.passes.residuals, report.passes.dead);
  if (plan.machine.cpu.ends_with(kEmulatedSuffix))
    line("emulated: costs and times are those of the emulator, not of the processor");
  const SolverReport& s = plan.solver;
  if (!report.plan_file.empty()) {
    line("plan: read from {}; nothing was measured or solved", report.plan_file);
  } else {
    out += selection_text(report);
  }
  for (const std::string& layer : plan.cut)
    line("cut: layer \"{}\" cannot be computed here: predicted without it, not run", layer);
  if (!plan.strategies.empty()) out += strategies_text(plan);
  line("");
  out += kinds_table(report);
  line("");
  const Index images = images_of(net);
  line("predicted {:.3f} ms{}", ms(s.objective_seconds),
       images > 1 ? fmt::format(", {:.3f} ms for each of {} images",
                                ms(s.objective_seconds) / static_cast<double>(images), images)
                  : "");
  if (report.times) {
    const RunTimes& t = *report.times;
    line("measured  {:.3f} ms (median of {} runs; {:.3f} to {:.3f}), {:.2f} of predicted{}",
         ms(t.median), t.runs, ms(t.min), ms(t.max), t.median / s.objective_seconds,
         images > 1
             ? fmt::format(", {:.3f} ms an image", ms(t.median) / static_cast<double>(images))
             : "");
  }
  const int disturbed = report.profile.disturbed + (report.times ? report.times->disturbed : 0);
  if (disturbed > 0) {
    line(
        "other programs disturbed {} timed runs, profiling included, which were taken again; "
        "predictions are better on a quiet machine",
        disturbed);
  }
  if (report.profile.moves > 0) {
    line("the system moved the threads nearer or farther apart {} times while costs were taken",
         report.profile.moves);
  }
  if (report.times && !report.times->in_place) {
    line(
        "the threads lay {} ns apart when the network ran, and {} ns when its costs were taken: "
        "the prediction is for those; run again to plan for where they lie now",
        report.times->apart_ns, plan.machine.apart_ns);
  }
  out += memory_text(report);
  if (report.executable != nullptr) {
    const StartTimes& t = report.start;
    line(
        "start: {:.0f} ms: network and weights {:.0f}, passes {:.0f}, plan {:.0f}, kernels and "
        "memory {:.0f}",
        ms(t.import + t.passes + t.plan + t.prepare), ms(t.import), ms(t.passes), ms(t.plan),
        ms(t.prepare));
  }
  if (report.verification) {
    const Verification& v = *report.verification;
    line("verified against double precision: {}, largest relative error {:.2e}, tolerance {:.0e}",
         v.passed ? "passed" : "FAILED", v.max_relative_error, v.tolerance);
  }
  if (report.comparison) out += table(*report.comparison);
  for (const Explanation& e : report.explanations) out += table(e);
  return out;
}

std::string json(const Report& report) {
  using Json = nlohmann::ordered_json;
  const Plan& plan = *report.plan;
  const SolverReport& s = plan.solver;
  const auto measured = measured_by_name(report);
  const auto finite = [](double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); };
  Json j;
  j["schema"] = kReportSchema;
  j["network"] = {{"name", plan.network}, {"file", plan.file}};
  j["machine"] = {
      {"cpu", plan.machine.cpu},
      {"isa", plan.machine.isa},
      {"emulated", plan.machine.cpu.ends_with(kEmulatedSuffix)},
      {"threads", plan.machine.threads},
      {"apart_ns", plan.machine.apart_ns > 0 ? Json(plan.machine.apart_ns) : Json(nullptr)},
      {"version", plan.machine.version}};
  j["solver"] = {{"objective_ms", ms(s.objective_seconds)},
                 {"lower_bound_ms", ms(s.lower_bound_seconds)},
                 {"proven_optimal", s.proven_optimal},
                 {"solve_ms", ms(s.solve_seconds)},
                 {"nodes", s.nodes},
                 {"edges", s.edges},
                 {"options", s.options},
                 {"reductions",
                  {{"r0", s.r0},
                   {"r1", s.r1},
                   {"r2", s.r2},
                   {"eliminated", s.eliminated},
                   {"searched", s.searched}}},
                 {"width", s.width}};
  j["layers"] = Json::array();
  for (const PlanLayer& l : plan.layers) {
    Json layer = {{"name", l.layer},         {"type", l.kind},
                  {"problem", l.problem},    {"primitive", l.implementation},
                  {"in", name(l.in)},        {"out", name(l.out)},
                  {"cost_ms", ms(l.seconds)}};
    if (const auto it = measured.find(l.layer); it != measured.end())
      layer["measured_ms"] = ms(it->second);
    j["layers"].push_back(std::move(layer));
  }
  j["types"] = kinds_json(report);
  j["conversions"] = Json::array();
  for (const Chain& c : chains(plan)) {
    j["conversions"].push_back(
        {{"tensor", report.net->tensors[static_cast<std::size_t>(c.tensor)].name},
         {"from", name(c.from)},
         {"to", name(c.to)},
         {"chain", c.routines},
         {"cost_ms", ms(c.seconds)}});
  }
  j["cut"] = plan.cut;
  j["images"] = images_of(*report.net);
  j["predicted_ms"] = ms(s.objective_seconds);
  j["measured_ms"] = nullptr;
  if (report.times) {
    const RunTimes& t = *report.times;
    j["measured_ms"] = {{"median", ms(t.median)},
                        {"min", ms(t.min)},
                        {"max", ms(t.max)},
                        {"runs", t.runs},
                        {"disturbed", t.disturbed},
                        {"moved", t.moved},
                        {"apart_ns", t.apart_ns > 0 ? Json(t.apart_ns) : Json(nullptr)},
                        {"in_place", t.in_place}};
  }
  j["strategies"] = Json::array();
  for (const Strategy& st : plan.strategies)
    j["strategies"].push_back({{"name", st.name}, {"predicted_ms", ms(st.seconds)}});
  j["verify"] = nullptr;
  if (report.verification) {
    const Verification& v = *report.verification;
    j["verify"] = {{"max_relative_error", finite(v.max_relative_error)},
                   {"tolerance", v.tolerance},
                   {"passed", v.passed}};
  }
  Json families = Json::object();
  for (const auto& [family, count] : report.considered.families) families[family] = count;
  j["considered"] = {{"families", families}, {"conversions", report.considered.conversions}};
  j["profile"] = {{"measured", report.profile.measured}, {"reused", report.profile.reused},
                  {"seconds", report.profile.seconds},   {"disturbed", report.profile.disturbed},
                  {"moves", report.profile.moves},       {"file", report.costs_file}};
  if (report.executable != nullptr) {
    j["memory"] = memory_json(report);
    const StartTimes& t = report.start;
    j["start"] = {{"import_ms", ms(t.import)},
                  {"passes_ms", ms(t.passes)},
                  {"plan_ms", ms(t.plan)},
                  {"prepare_ms", ms(t.prepare)}};
  }
  if (!report.plan_file.empty()) j["plan_file"] = report.plan_file;
  j["passes"] = {{"identities", report.passes.identities},
                 {"folded", report.passes.folded},
                 {"activations", report.passes.activations},
                 {"residuals", report.passes.residuals},
                 {"dead", report.passes.dead}};
  j["compare"] = report.comparison ? json(*report.comparison) : Json(nullptr);
  j["explain"] = Json::array();
  for (const Explanation& e : report.explanations) j["explain"].push_back(json(e));
  j["remarks"] = report.net->remarks;
  // Names in files may be in any encoding.
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace convprim
