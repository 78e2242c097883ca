#include "convprim/cpu.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "convprim/error.hpp"
#include "kernels/kernels.hpp"

namespace convprim {
namespace {

bool supported([[maybe_unused]] Isa isa) {
  switch (isa) {
#ifdef CONVPRIM_HAVE_BASELINE
    case Isa::baseline:
      return true;
#endif
#ifdef CONVPRIM_HAVE_AVX2
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#ifdef CONVPRIM_HAVE_AVX512
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
#ifdef CONVPRIM_HAVE_NEON
    case Isa::neon:
      return true;
#endif
    default:
      return false;
  }
}

constexpr Isa kIsas[] = {Isa::neon, Isa::avx512, Isa::avx2, Isa::baseline};

Isa choose() {
  Isa best = Isa::baseline;
  for (Isa candidate : kIsas) {
    if (supported(candidate)) {
      best = candidate;
      break;
    }
  }
  const char* cap = std::getenv("CONVPRIM_ISA");
  if (cap == nullptr || *cap == '\0') return best;
  for (Isa candidate : kIsas) {
    if (name(candidate) != cap) continue;
    if (!supported(candidate)) {
      throw Error(
          fmt::format("CONVPRIM_ISA={}: this CPU or this build lacks it, the best here is {}", cap,
                      name(best)));
    }
    return candidate;
  }
  throw Error(fmt::format(
      "CONVPRIM_ISA={}: no such instruction set, use baseline, avx2, avx512 or neon", cap));
}

/// The value of the first line of /proc/cpuinfo that starts with `key`, or an empty string.
std::string cpuinfo(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const auto end = line.find_first_not_of(" \t", key.size());
    if (end == std::string::npos || line[end] != ':') continue;
    const auto start = line.find_first_not_of(" \t:", end);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

}  // namespace

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::neon:
      return "neon";
  }
  return "?";
}

Isa isa() {
  static const Isa chosen = choose();
  return chosen;
}

std::string cpu_name() {
  const std::string model = cpuinfo("model name");
  if (!model.empty()) {
    return fmt::format("{} (family {}, model {})", model, cpuinfo("cpu family"), cpuinfo("model"));
  }
  const std::string part = cpuinfo("CPU part");
  if (!part.empty()) {
    return fmt::format("implementer {} part {}", cpuinfo("CPU implementer"), part);
  }
  return "unknown";
}

std::size_t cache_bytes(int level) {
  const int key = level == 1   ? _SC_LEVEL1_DCACHE_SIZE
                  : level == 2 ? _SC_LEVEL2_CACHE_SIZE
                               : _SC_LEVEL3_CACHE_SIZE;
  const long bytes = sysconf(key);
  if (bytes > 0) return static_cast<std::size_t>(bytes);
  return level == 1   ? std::size_t{32} << 10
         : level == 2 ? std::size_t{512} << 10
                      : std::size_t{4} << 20;
}

int available_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

std::string_view version() { return CONVPRIM_VERSION; }

namespace kernels {

const Kernels& active() {
  switch (isa()) {
#ifdef CONVPRIM_HAVE_AVX2
    case Isa::avx2:
      return avx2::kTable;
#endif
#ifdef CONVPRIM_HAVE_AVX512
    case Isa::avx512:
      return avx512::kTable;
#endif
#ifdef CONVPRIM_HAVE_NEON
    default:
      return neon::kTable;
#else
    default:
      return baseline::kTable;
#endif
  }
}

}  // namespace kernels
}  // namespace convprim
