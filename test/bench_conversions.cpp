// bench_conversions [threads [rounds]]: every conversion routine against memcpy of the same bytes,
// interleaved. A ratio of 1 is the speed of memcpy; the median over the rounds of the ratio within
// each round is printed. GB/s count the tensor once.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "buffer.hpp"
#include "convprim/conversion.hpp"
#include "threads.hpp"

using namespace convprim;

namespace {

template <class Body>
double seconds(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

/// Once the lines that another body's threads hold have moved: the median of three runs after two.
template <class Body>
double settled(Body&& body) {
  body();
  body();
  return median({seconds(body), seconds(body), seconds(body)});
}

std::optional<int> positive(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 1, rounds = 21;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      fmt::print("usage: bench_conversions [THREADS [ROUNDS]]\n");
      return 0;
    }
    const auto value = positive(argument);
    if (!value || i > 2) {
      fmt::print(stderr, "bench_conversions: {} '{}', see --help.\n",
                 i > 2 ? "there is no third argument" : "this is no positive number:", argument);
      return 2;
    }
    (i == 1 ? threads : rounds) = *value;
  }
  const Shape shapes[] = {{1, 3, 224, 224}, {1, 32, 112, 112}, {1, 64, 112, 112}, {1, 64, 224, 224},
                          {1, 128, 56, 56}, {1, 192, 56, 56},  {1, 256, 56, 56},  {1, 512, 28, 28},
                          {8, 480, 14, 14}, {8, 1000, 7, 7},   {1, 147, 73, 71}};
  for (const Shape& s : shapes) {
    const Index most = element_count(Layout::chw16c, s);
    Buffer in = Buffer::zeros(static_cast<std::size_t>(most));
    Buffer out = Buffer::zeros(static_cast<std::size_t>(most));
    const auto bytes = static_cast<double>(s.count()) * sizeof(float);
    const auto copy = [&] {
      parallel(threads, [&](int thread, int team) {
        const Range r = share(s.count(), thread, team, 16);
        std::memcpy(out.data() + r.begin, in.data() + r.begin,
                    static_cast<std::size_t>(r.end - r.begin) * sizeof(float));
      });
    };
    std::vector<double> copies;
    std::vector<std::vector<double>> times(conversions().size()), ratios(conversions().size());
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < conversions().size(); ++i) {
        const Conversion& c = conversions()[i];
        const auto convert = [&] { c.run(s, in.data(), out.data(), {}, threads); };
        const double plain = settled(copy);
        const double t = settled(convert);
        copies.push_back(plain);
        times[i].push_back(t);
        ratios[i].push_back(plain / t);
      }
    }
    fmt::print("n{} c{} h{} w{}: {:.2f} MB, {} threads, memcpy {:.2f} GB/s\n", s.n, s.c, s.h, s.w,
               1e-6 * bytes, threads, 1e-9 * bytes / median(copies));
    for (std::size_t i = 0; i < conversions().size(); ++i) {
      fmt::print("  {:<16} {:>7.2f} GB/s  {:>5.2f} of memcpy\n", conversions()[i].name,
                 1e-9 * bytes / median(times[i]), median(ratios[i]));
    }
  }
  return 0;
}
