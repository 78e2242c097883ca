// Progress of long work on standard error: a bar on a terminal, a line now and then elsewhere.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "convprim/select.hpp"

namespace convprim {

class ProgressBar {
 public:
  /// `work` says what is done ("profiling"), `units` what is counted ("costs").
  explicit ProgressBar(std::string work = "profiling", std::string units = "costs")
      : work_(std::move(work)), units_(std::move(units)) {}

  void operator()(const Progress& p) {
    const auto now = std::chrono::steady_clock::now();
    const bool last = p.done == p.total && p.now.empty();
    const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(15);
    if (!last && shown_ && now - shown_at_ < pause) return;
    if (last && (!shown_ || p.measured == 0)) return;
    shown_ = true;
    shown_at_ = now;
    const double part = p.total > 0 ? static_cast<double>(p.done) / static_cast<double>(p.total)
                        : last      ? 1
                                    : 0;
    const std::string left = last                 ? "done"
                             : p.seconds_left < 0 ? ""
                                                  : fmt::format("{} left", clock(p.seconds_left));
    if (terminal_) {
      constexpr int kWidth = 24;
      const int full = static_cast<int>(part * kWidth);
      std::string what = p.now.substr(0, 56);
      fmt::print(stderr, "\r\033[K{} [{}{}] {}/{} {}  {}", work_,
                 std::string(static_cast<std::size_t>(full), '#'),
                 std::string(static_cast<std::size_t>(kWidth - full), '.'), p.done, p.total, left,
                 what);
      if (last) fmt::print(stderr, "\n");
    } else {
      fmt::print(stderr, "{}: {} of {} {}, {} measured now, {}\n", work_, p.done, p.total, units_,
                 p.measured, left.empty() ? "starting" : left);
    }
    std::fflush(stderr);
  }

 private:
  static std::string clock(double seconds) {
    const auto s = static_cast<long>(seconds + 0.5);
    return s < 60 ? fmt::format("{} s", s) : fmt::format("{}:{:02} min", s / 60, s % 60);
  }

  std::string work_, units_;
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  std::chrono::steady_clock::time_point shown_at_;
};

}  // namespace convprim
