// Timing on a machine that may have other work to do.
#pragma once

#include <chrono>

namespace convprim {

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
