#include "machine.hpp"

#include <algorithm>
#include <chrono>

#include "buffer.hpp"
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

}  // namespace convprim
