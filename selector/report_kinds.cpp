// The report's shares of time by type of layer.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "selector/report_parts.hpp"

namespace convprim {
namespace {

struct Share {
  std::string kind;
  int count = 0;  // layers that cost something, or conversions
  double predicted = 0, measured = 0;
};

/// Shares by kind, the largest prediction first.
std::vector<Share> shares(const Report& report) {
  std::map<std::string, Share> all;
  const auto add = [&](const std::string& kind, double seconds) -> Share& {
    Share& share = all[kind];
    share.kind = kind;
    share.count += seconds > 0 ? 1 : 0;
    share.predicted += seconds;
    return share;
  };
  for (const PlanLayer& l : report.plan->layers) add(l.kind, l.seconds);
  for (const PlanConversion& c : report.plan->conversions) add("conversion", c.seconds);
  if (report.times) {
    const auto& steps = report.executable->steps();
    for (std::size_t i = 0; i < steps.size(); ++i)
      add(steps[i].kind, 0).measured += report.times->step_seconds[i];
  }
  std::vector<Share> sorted;
  for (auto& [kind, share] : all) {
    if (share.predicted > 0 || share.measured > 0) sorted.push_back(std::move(share));
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Share& a, const Share& b) { return a.predicted > b.predicted; });
  return sorted;
}

Share sum_of(const std::vector<Share>& all) {
  Share sum{"sum"};
  for (const Share& s : all) {
    sum.count += s.count;
    sum.predicted += s.predicted;
    sum.measured += s.measured;
  }
  return sum;
}

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

}  // namespace

std::string kinds_table(const Report& report) {
  auto all = shares(report);
  const Share sum = sum_of(all);
  all.push_back(sum);
  std::string out =
      fmt::format("{:<16} {:>6} {:>13} {:>8}", "type of layer", "number", "predicted ms", "share");
  if (report.times) out += fmt::format(" {:>12} {:>8}", "measured ms", "share");
  out += '\n';
  for (const Share& s : all) {
    out += fmt::format("{:<16} {:>6} {:>13.3f} {:>7.1f}%", s.kind, s.count, s.predicted * 1e3,
                       percent(s.predicted, sum.predicted));
    if (report.times)
      out +=
          fmt::format(" {:>12.3f} {:>7.1f}%", s.measured * 1e3, percent(s.measured, sum.measured));
    out += '\n';
  }
  if (report.times) {
    out += fmt::format("the measured layers add up to {:.3f} of the whole pass\n",
                       sum.measured / report.times->median);
  }
  return out;
}

nlohmann::ordered_json kinds_json(const Report& report) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Share& s : shares(report)) {
    nlohmann::ordered_json row = {
        {"type", s.kind}, {"count", s.count}, {"predicted_ms", s.predicted * 1e3}};
    if (report.times) row["measured_ms"] = s.measured * 1e3;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace convprim
