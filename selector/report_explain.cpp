// The report's explanation of a layer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "selector/printable.hpp"
#include "selector/report_parts.hpp"

namespace convprim {
namespace {

std::string ms_text(double seconds) {
  return std::isfinite(seconds) ? fmt::format("{:.4f}", seconds * 1e3) : "-";
}

std::string megabytes(std::size_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) * 1e-6);
}

}  // namespace

nlohmann::ordered_json json_ms(double seconds) {
  using Json = nlohmann::ordered_json;
  return std::isfinite(seconds) ? Json(seconds * 1e3) : Json(nullptr);
}

std::string table(const Explanation& explanation) {
  std::string out = fmt::format("\nlayer {} ({})\n", printable(explanation.layer),
                                printable(explanation.problem));
  out += fmt::format("  {:<36} {:<16} {:>11} {:>12} {:>11} {:>8} {:>9} {:>9}\n", "implementation",
                     "layouts", "own ms", "conversions", "network ms", "", "work MB", "packed MB");
  double best = 0;
  for (const ExplainedRow& r : explanation.rows) {
    if (r.left_out.empty()) {
      best = r.network_seconds;  // rows are sorted
      break;
    }
  }
  for (const ExplainedRow& r : explanation.rows) {
    const bool may = r.left_out.empty();
    out += fmt::format(
        "{} {:<36} {:<16} {:>11} {:>12} {:>11} {:>8} {:>9} {:>9}{}\n", r.chosen ? '*' : ' ',
        r.implementation, fmt::format("{} -> {}", name(r.in), name(r.out)), ms_text(r.seconds),
        may ? ms_text(r.conversion_seconds) : "", may ? ms_text(r.network_seconds) : "",
        may && std::isfinite(r.network_seconds) && best > 0
            ? fmt::format("+{:.1f}%", 100 * (r.network_seconds / best - 1))
            : "",
        r.sizes ? megabytes(r.sizes->workspace) : "", r.sizes ? megabytes(r.sizes->packed) : "",
        may ? "" : "  left out: " + printable(r.left_out));
  }
  out +=
      "  *: in the plan. conversions: around the layer, all others as in the plan; network: the "
      "least with this implementation forced\n";
  return out;
}

nlohmann::ordered_json json(const Explanation& explanation) {
  nlohmann::ordered_json j = {{"layer", explanation.layer},
                              {"type", explanation.kind},
                              {"problem", explanation.problem},
                              {"rows", nlohmann::ordered_json::array()}};
  for (const ExplainedRow& r : explanation.rows) {
    nlohmann::ordered_json row = {{"implementation", r.implementation},
                                  {"in", name(r.in)},
                                  {"out", name(r.out)},
                                  {"chosen", r.chosen},
                                  {"cost_ms", json_ms(r.seconds)},
                                  {"conversions_ms", json_ms(r.conversion_seconds)},
                                  {"network_ms", json_ms(r.network_seconds)}};
    if (r.sizes) {
      row["workspace_bytes"] = r.sizes->workspace;
      row["packed_bytes"] = r.sizes->packed;
    }
    row["left_out"] =
        r.left_out.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(r.left_out);
    j["rows"].push_back(std::move(row));
  }
  return j;
}

}  // namespace convprim
