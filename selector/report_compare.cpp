// The report's bars: strategies as they were measured.
#include <fmt/format.h>

#include "selector/report_parts.hpp"

namespace convprim {

std::string table(const Comparison& c) {
  std::string out = fmt::format("\n{:<24} {:>12} {:>10} {:>12} {:>10} {:>6} {:>22} {:>9}\n",
                                "strategy, measured", "predicted ms", "speed-up", "measured ms",
                                "speed-up", "runs", "min to max", "of pred.");
  const auto speed_up = [](double base, double seconds) {
    return base > 0 && seconds > 0 ? fmt::format("{:.2f} x", base / seconds) : std::string();
  };
  for (const Bar& b : c.bars) {
    out += fmt::format("{:<24} {:>12.3f} {:>10} {:>12.3f} {:>10} {:>6} {:>22} {:>9.2f}\n", b.name,
                       b.predicted * 1e3, speed_up(c.predicted_base, b.predicted), b.median * 1e3,
                       speed_up(c.base, b.median), b.runs,
                       fmt::format("{:.3f} to {:.3f}", b.min * 1e3, b.max * 1e3),
                       b.median / b.predicted);
  }
  out += fmt::format(
      "medians of passes taken in turns, {} rounds; strategies that take seconds have fewer runs\n",
      c.rounds);
  if (c.disturbed > 0) {
    out += fmt::format("other programs disturbed {} of these passes, which were taken again\n",
                       c.disturbed);
  }
  if (!c.in_place) {
    out +=
        "some of these rounds were taken with the threads nearer or farther apart than when the "
        "costs were taken\n";
  } else if (c.moved > 0) {
    out += fmt::format(
        "the threads moved nearer or farther apart in {} rounds, which were taken again\n",
        c.moved);
  }
  return out;
}

nlohmann::ordered_json json(const Comparison& c) {
  nlohmann::ordered_json bars = nlohmann::ordered_json::array();
  for (const Bar& b : c.bars) {
    nlohmann::ordered_json bar = {
        {"name", b.name},           {"predicted_ms", json_ms(b.predicted)},
        {"median", b.median * 1e3}, {"min", b.min * 1e3},
        {"max", b.max * 1e3},       {"runs", b.runs}};
    bar["speed_up"] =
        c.base > 0 ? nlohmann::ordered_json(c.base / b.median) : nlohmann::ordered_json(nullptr);
    bars.push_back(std::move(bar));
  }
  return {{"bars", bars},
          {"rounds", c.rounds},
          {"disturbed", c.disturbed},
          {"moved", c.moved},
          {"in_place", c.in_place}};
}

}  // namespace convprim
