#include "machine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "buffer.hpp"
#include "convprim/cpu.hpp"
#include "kernels/kernels.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

template <class Body>
double seconds(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double peak_flops(int threads) {
  const auto& k = *kernels::active().machine;
  constexpr std::ptrdiff_t kRounds = 100'000;
  double best = 0;
  for (int rep = 0; rep < 4; ++rep) {
    volatile float sink = 0;
    const double t = seconds([&] {
      parallel(threads, [&](int, int) {
        const float r = k.fma_loop(kRounds, 0.999F);
        if (r == 12345.0F) sink = r;  // keeps the loop alive
      });
    });
    best = std::max(
        best, static_cast<double>(threads) * static_cast<double>(kRounds) * k.flops_per_round / t);
  }
  return best;
}

double read_bandwidth(int threads, std::size_t bytes) {
  const auto& k = *kernels::active().machine;
  Buffer data = Buffer::zeros(bytes / sizeof(float));
  double best = 0;
  for (int rep = 0; rep < 5; ++rep) {
    volatile float sink = 0;
    const double t = seconds([&] {
      parallel(threads, [&](int thread, int team) {
        const Range r = share(static_cast<Index>(data.size()), thread, team, 64);
        const float sum = k.read_loop(data.data() + r.begin, r.end - r.begin);
        if (sum != 0.0F) sink = sum;
      });
    });
    best = std::max(best, static_cast<double>(bytes) / t);
  }
  return best;
}

namespace {

/// A line that travels: 2 i - 1 on its way there the i-th time, 2 i on its way back, kEnd at last.
struct alignas(128) Line {
  static constexpr int kEnd = -1;
  std::atomic<int> trips = 0;

  void send(int value) { trips.store(value, std::memory_order_release); }
  /// Waits for a change, and gives the processor to others if that lasts.
  int wait(int old) const {
    for (int spins = 0;; ++spins) {
      const int now = trips.load(std::memory_order_acquire);
      if (now != old) return now;
      if (spins > 5000) std::this_thread::yield();
    }
  }
  void answer() {
    for (int at = 0; (at = wait(at)) != kEnd; ++at) send(at + 1);
  }
};

/// Seconds for there and back; 0 if the other thread hardly ran at the same time.
double round_trip(Line& line) {
  constexpr int kTrips = 10, kRounds = 30;  // the best round counts: another program may interfere
  constexpr double kLongest = 1e-5, kGiveUp = 0.005;
  double best = 1, total = 0;
  for (int round = 0, at = 0; round < kRounds && total < kGiveUp; ++round) {
    const double t = seconds([&] {
      for (int trip = 0; trip < kTrips; ++trip, at += 2) {
        line.send(at + 1);
        line.wait(at + 1);
      }
    });
    best = std::min(best, t / kTrips);
    total += t;
  }
  line.send(Line::kEnd);
  return best < kLongest ? best : 0;
}

}  // namespace

double handoff_seconds(int threads) {
  constexpr int kPartners = 16;
  if (threads <= 1 || threads > available_cpus()) return 0;
  std::vector<Line> lines(static_cast<std::size_t>(threads));
  double most = 0;
  parallel(threads, [&](int thread, int team) {
    const int partners = std::min(team - 1, kPartners);
    const auto partner = [&](int i) { return 1 + i * (team - 1) / partners; };
    for (int i = 0; i < partners; ++i) {
      Line& line = lines[static_cast<std::size_t>(partner(i))];
      if (thread == 0) most = std::max(most, round_trip(line));
      if (thread == partner(i)) line.answer();
    }
  });
  return most;
}

}  // namespace convprim
