// The command pbqp: solves, checks, explains, converts and generates PBQP problems.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "pbqp/check.hpp"
#include "pbqp/explain.hpp"
#include "pbqp/generate.hpp"
#include "pbqp/io.hpp"
#include "pbqp/pbqp.hpp"

namespace {

constexpr int kDone = 0;
constexpr int kNo = 1;     // infeasible; a certificate that does not hold
constexpr int kError = 2;  // bad input or options
constexpr int kLimit = 3;  // a limit was reached before the answer was proven

constexpr const char* kExit =
    "Exit status: 0 done (solve: proven optimal or within the gap asked for); 1 infeasible, or the "
    "certificate does not hold; 2 bad input or options; 3 a limit was reached first. FILE may be - "
    "for standard input.";

// Shortest text that reads back the same; JSON has no infinity, so that is a string there.
std::string number(double x) {
  if (x == pbqp::kInfinity) return "inf";
  if (x == -pbqp::kInfinity) return "-inf";
  char buffer[40];
  for (int digits = 6; digits <= 17; ++digits) {
    std::snprintf(buffer, sizeof buffer, "%.*g", digits, x);
    if (std::stod(buffer) == x) break;
  }
  return buffer;
}

std::string json_number(double x) {
  const std::string s = number(x);
  return s.back() == 'f' ? "\"" + s + "\"" : s;
}

std::string json_string(const std::string& s) {
  std::string r = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') r += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c));
      r += buffer;
    } else {
      r += c;
    }
  }
  r += '"';
  return r;
}

std::string json_list(const std::vector<std::size_t>& values) {
  std::string s = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) s += ',';
    s += std::to_string(values[i]);
  }
  s += ']';
  return s;
}

std::string json_costs(const std::vector<double>& values) {
  std::string s = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) s += ',';
    s += json_number(values[i]);
  }
  s += ']';
  return s;
}

// "conv1" or "3": a node by its name.
std::string node_label(const pbqp::Problem& p, std::size_t v) {
  return p.name(v).empty() ? std::to_string(v) : p.name(v);
}

std::string option_label(const pbqp::Problem& p, std::size_t v, std::size_t i) {
  const auto& names = p.option_names(v);
  std::string s = std::to_string(i);
  if (i < names.size() && !names[i].empty()) {
    s += ' ';
    s += names[i];
  }
  return s;
}

int status_code(pbqp::Status status) {
  switch (status) {
    case pbqp::Status::kOptimal:
      return kDone;
    case pbqp::Status::kInfeasible:
      return kNo;
    default:
      return kLimit;
  }
}

std::string json(const pbqp::Result& r) {
  const pbqp::Statistics& s = r.statistics;
  std::string t = "{\"schema\":\"pbqp-result-1\",\"status\":";
  t += json_string(std::string(to_string(r.status)));
  const auto add = [&](const char* key, const std::string& value) {
    t += ",\"";
    t += key;
    t += "\":";
    t += value;
  };
  add("cost", json_number(r.upper));
  add("lower_bound", json_number(r.lower));
  add("gap", json_number(r.has_assignment() ? r.gap() : pbqp::kInfinity));
  add("proven_optimal", r.optimal() ? "true" : "false");
  add("assignment", json_list(r.assignment));
  add("core", json_list(r.core));
  t += ",\"statistics\":{\"nodes\":" + std::to_string(s.nodes);
  add("edges", std::to_string(s.edges));
  add("options", std::to_string(s.options));
  add("parts", std::to_string(s.parts));
  add("part_options", std::to_string(s.part_options));
  add("dropped_edges", std::to_string(s.dropped_edges));
  add("r0", std::to_string(s.r0));
  add("r1", std::to_string(s.r1));
  add("r2", std::to_string(s.r2));
  add("eliminated", std::to_string(s.eliminated));
  add("searched", std::to_string(s.searched));
  add("cut_options", std::to_string(s.cut_options));
  add("blocks", std::to_string(s.blocks));
  add("branches", std::to_string(s.branches));
  add("width", std::to_string(s.width));
  add("number_bits", std::to_string(s.number_bits));
  add("quantum", json_number(s.quantum));
  add("seconds", json_number(s.seconds));
  return t + "}}\n";
}

struct Options {
  std::string file;
  std::string second;  // certificate, or output
  std::string to;
  bool json = false;
  bool quiet = false;
  pbqp::Limits limits;
  double memory_mb = 1024;
  std::size_t count = 0;
  pbqp::GenerateOptions generate;
};

int run_solve(const Options& o) {
  pbqp::Limits limits = o.limits;
  limits.certificate = !o.second.empty();
  limits.memory_bytes = static_cast<std::size_t>(o.memory_mb * 1e6);
  const pbqp::Problem p = pbqp::load(o.file);
  const pbqp::Result r = pbqp::solve(p, limits);
  if (!o.second.empty()) pbqp::write_file(o.second, r.certificate);
  const bool good = r.has_assignment() && r.gap() <= limits.gap;
  if (o.json) {
    std::cout << json(r);
    return good ? kDone : status_code(r.status);
  }
  std::cout << "status " << to_string(r.status) << '\n';
  if (r.has_assignment()) std::cout << "cost " << number(r.upper) << '\n';
  std::cout << "lower bound " << number(r.lower) << '\n';
  if (r.has_assignment() && !r.optimal()) std::cout << "gap " << number(r.gap()) << '\n';
  if (!r.core.empty()) {
    std::cout << "no finite assignment among";
    for (const std::size_t v : r.core) std::cout << ' ' << node_label(p, v);
    std::cout << '\n';
  }
  for (std::size_t v = 0; v < r.assignment.size() && !o.quiet; ++v) {
    std::cout << node_label(p, v) << ": " << option_label(p, v, r.assignment[v]) << '\n';
  }
  const pbqp::Statistics& s = r.statistics;
  std::cerr << s.nodes << " nodes, " << s.edges << " edges; r0 " << s.r0 << ", r1 " << s.r1
            << ", r2 " << s.r2 << ", eliminated " << s.eliminated << ", searched " << s.searched
            << " (" << s.branches << " branches); width " << s.width << "; " << number(s.seconds)
            << " s\n";
  return good ? kDone : status_code(r.status);
}

int run_check(const Options& o) {
  const pbqp::Problem p = pbqp::load(o.file);
  const pbqp::CheckReport c = pbqp::check(p, pbqp::read_file(o.second));
  if (o.json) {
    std::cout << "{\"schema\":\"pbqp-check-1\",\"valid\":" << (c.valid ? "true" : "false")
              << ",\"status\":" << json_string(std::string(to_string(c.status)))
              << ",\"cost\":" << json_number(c.upper) << ",\"lower_bound\":" << json_number(c.lower)
              << ",\"message\":" << json_string(c.message) << ",\"line\":" << c.line << "}\n";
  } else if (c.valid) {
    std::cout << "valid: " << to_string(c.status) << ", cost " << number(c.upper)
              << ", lower bound " << number(c.lower) << '\n';
  } else {
    std::cout << "not valid: " << o.second << ':' << c.line << ": " << c.message << '\n';
  }
  return c.valid ? kDone : kNo;
}

int run_explain(const Options& o) {
  const pbqp::Problem p = pbqp::load(o.file);
  if (o.count > 0) {
    const auto best = pbqp::k_best(p, o.count, o.limits);
    if (o.json) std::cout << "{\"schema\":\"pbqp-best-1\",\"solutions\":[";
    for (std::size_t i = 0; i < best.size(); ++i) {
      if (o.json) {
        std::cout << (i == 0 ? "" : ",") << "\n{\"cost\":" << json_number(best[i].cost)
                  << ",\"assignment\":" << json_list(best[i].assignment) << '}';
        continue;
      }
      std::cout << i + 1 << ". cost " << number(best[i].cost) << ':';
      for (std::size_t v = 0; v < p.node_count(); ++v) {
        // Only what differs from the best.
        if (i == 0 || best[i].assignment[v] != best[0].assignment[v]) {
          std::cout << "  " << node_label(p, v) << '=' << option_label(p, v, best[i].assignment[v]);
        }
      }
      std::cout << '\n';
    }
    if (o.json) std::cout << "]}\n";
    return best.empty() ? kNo : kDone;
  }
  const auto m = pbqp::min_marginals(p, o.limits);
  if (o.json) {
    std::cout << "{\"schema\":\"pbqp-marginals-1\",\"status\":"
              << json_string(std::string(to_string(m.status)))
              << ",\"cost\":" << json_number(m.best)
              << ",\"complete\":" << (m.complete ? "true" : "false")
              << ",\"assignment\":" << json_list(m.assignment) << ",\"min_marginals\":[";
    for (std::size_t v = 0; v < m.cost.size(); ++v) {
      std::cout << (v == 0 ? "\n" : ",\n") << json_costs(m.cost[v]);
    }
    std::cout << "]}\n";
  } else {
    std::cout << "status " << to_string(m.status) << "\ncost " << number(m.best)
              << "\nfor each option the least cost of the whole, and what it is above the best:\n";
    for (std::size_t v = 0; v < m.cost.size(); ++v) {
      std::cout << node_label(p, v) << '\n';
      for (std::size_t i = 0; i < m.cost[v].size(); ++i) {
        const bool chosen = !m.assignment.empty() && m.assignment[v] == i;
        std::cout << (chosen ? "  * " : "    ") << option_label(p, v, i) << "  "
                  << number(m.cost[v][i]) << "  +" << number(m.cost[v][i] - m.best) << '\n';
      }
    }
  }
  if (m.status == pbqp::Status::kInfeasible) return kNo;
  return m.complete ? kDone : kLimit;
}

int run_pareto(const Options& o) {
  const pbqp::Problem p = pbqp::load(o.file);
  if (!p.has_weights()) {
    std::cerr << o.file << ": no node has weights, so there is nothing to trade cost against\n";
    return kError;
  }
  const auto front = pbqp::pareto(p, o.limits);
  if (o.json) {
    std::cout << "{\"schema\":\"pbqp-pareto-1\",\"status\":"
              << json_string(std::string(to_string(front.status))) << ",\"points\":[";
    for (std::size_t i = 0; i < front.points.size(); ++i) {
      const auto& q = front.points[i];
      std::cout << (i == 0 ? "\n" : ",\n") << "{\"weight\":" << json_number(q.weight)
                << ",\"cost\":" << json_number(q.cost)
                << ",\"assignment\":" << json_list(q.assignment) << '}';
    }
    std::cout << "]}\n";
  } else {
    std::cout << "status " << to_string(front.status) << "\nweight cost\n";
    for (const auto& q : front.points) {
      std::cout << number(q.weight) << ' ' << number(q.cost) << '\n';
    }
  }
  return status_code(front.status);
}

pbqp::Format format(const Options& o, const std::string& path) {
  if (o.to == "text") return pbqp::Format::kText;
  if (o.to == "json") return pbqp::Format::kJson;
  if (o.to == "wcsp") return pbqp::Format::kWcsp;
  return pbqp::format_of(path);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Exact solver for partitioned Boolean quadratic problems (PBQP).", "pbqp"};
  app.footer(kExit);
  app.require_subcommand(1);
  Options o;
  const auto limits = [&](CLI::App* c) {
    c->add_option("--time", o.limits.seconds, "Stop after this many seconds")
        ->check(CLI::NonNegativeNumber);
  };
  const auto input = [&](CLI::App* c) {
    c->add_option("FILE", o.file, "Problem: text, JSON or wcsp, told apart by content")->required();
  };
  const auto as_json = [&](CLI::App* c) { c->add_flag("--json", o.json, "Answer in JSON"); };

  CLI::App* solve = app.add_subcommand("solve", "Find the cheapest assignment");
  input(solve);
  limits(solve);
  as_json(solve);
  solve->add_flag("--quiet", o.quiet, "Leave out the assignment");
  solve->add_option("--gap", o.limits.gap, "Stop within this relative gap")
      ->check(CLI::NonNegativeNumber);
  solve->add_option("--memory", o.memory_mb, "Megabytes for tables")->check(CLI::NonNegativeNumber);
  solve->add_option("--capacity", o.limits.capacity, "Limit on the sum of weights")
      ->check(CLI::NonNegativeNumber);
  solve->add_option("--quantum", o.limits.quantum, "Round costs to multiples of this power of two");
  solve->add_option("--certificate", o.second, "Write a proof for \"pbqp check\" to this file");

  CLI::App* check = app.add_subcommand("check", "Verify a certificate against its problem");
  input(check);
  as_json(check);
  check->add_option("CERTIFICATE", o.second, "What \"pbqp solve --certificate\" wrote")->required();

  CLI::App* explain =
      app.add_subcommand("explain", "What each option would cost, or the k best assignments");
  input(explain);
  limits(explain);
  as_json(explain);
  explain->add_option("--best", o.count, "The k best assignments instead");

  CLI::App* pareto = app.add_subcommand("pareto", "All trade-offs between cost and weight");
  input(pareto);
  limits(pareto);
  as_json(pareto);
  pareto->add_option("--capacity", o.limits.capacity, "Limit on the sum of weights")
      ->check(CLI::NonNegativeNumber);

  const auto output = [&](CLI::App* c) {
    c->add_option("--to", o.to, "text, json or wcsp (default: by the output's name)")
        ->check(CLI::IsMember({"text", "json", "wcsp"}));
    c->add_option("--quantum", o.limits.quantum, "wcsp: round costs to multiples of this");
  };
  CLI::App* convert = app.add_subcommand("convert", "Write a problem in another format");
  input(convert);
  convert->add_option("OUTPUT", o.second, "File to write, - for standard output")->required();
  output(convert);

  CLI::App* generate =
      app.add_subcommand("generate", "Write a problem shaped like a well-known network");
  generate->add_option("FILE", o.second, "File to write, - for standard output")->required();
  generate
      ->add_option("--kind", o.generate.kind,
                   "chain, resnet, googlenet, densenet, nasnet, randwire or dense")
      ->capture_default_str();
  generate->add_option("--nodes", o.generate.nodes, "Nodes")->capture_default_str();
  generate->add_option("--options", o.generate.options, "Options per node")->capture_default_str();
  generate->add_option("--layouts", o.generate.layouts, "Layouts")->capture_default_str();
  generate->add_option("--infinite", o.generate.infinite, "Share of infinite costs")
      ->capture_default_str();
  generate->add_option("--seed", o.generate.seed, "Seed")->capture_default_str();
  generate->add_flag("--expanded", o.generate.expanded, "Full matrices instead of class edges");
  generate->add_flag("--weights", o.generate.weights, "Give every option a weight in bytes");
  output(generate);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kDone : kError;
  }
  try {
    if (solve->parsed()) return run_solve(o);
    if (check->parsed()) return run_check(o);
    if (explain->parsed()) return run_explain(o);
    if (pareto->parsed()) return run_pareto(o);
    const pbqp::Problem p = convert->parsed() ? pbqp::load(o.file) : pbqp::generate(o.generate);
    pbqp::save(o.second, p, format(o, o.second), o.limits.quantum);
    return kDone;
  } catch (const std::bad_alloc&) {
    std::cerr << "pbqp: not enough memory for this problem\n";
  } catch (const std::exception& e) {
    std::cerr << "pbqp: " << e.what() << '\n';
  }
  return kError;
}
