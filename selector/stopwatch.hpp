// Timing on a machine that may have other work to do.
#pragma once

#include <chrono>
#include <utility>

namespace convprim {

/// Splits time into laps.
class Laps {
 public:
  /// Seconds since the last call, or since this was made.
  double next() {
    const auto last = std::exchange(start_, std::chrono::steady_clock::now());
    return std::chrono::duration<double>(start_ - last).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Seconds that all threads of this process together have spent ready to run but without a
/// processor; 0 where the system does not tell (Linux does, in /proc/self/task/*/schedstat).
double seconds_waited();

/// Times `body`, and again, up to `tries` times, while the process's threads waited for a processor
/// for over 3 per cent of it: then another program took part of the time. `prepare` runs before
/// each. Returns the time that was disturbed least; counts the disturbed ones in `disturbed`.
template <class Prepare, class Body>
double undisturbed_seconds(int tries, int& disturbed, Prepare&& prepare, Body&& body) {
  using Clock = std::chrono::steady_clock;
  double best = 0, least = 0;
  for (int i = 0; i < tries; ++i) {
    prepare();
    const double before = seconds_waited();
    const auto start = Clock::now();
    body();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const double share = (seconds_waited() - before) / seconds;
    if (i == 0 || share < least) best = seconds, least = share;
    if (share <= 0.03) break;
    ++disturbed;
  }
  return best;
}

}  // namespace convprim
