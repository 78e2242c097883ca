#include "convprim/cpu.hpp"

#include <fmt/format.h>
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>
#ifdef __aarch64__
#include <sys/auxv.h>
#endif

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

/// The values of the lines of /proc/cpuinfo that start with `key`, one for each processor.
std::vector<std::string> cpuinfo(std::string_view key) {
  std::vector<std::string> values;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const auto end = line.find_first_not_of(" \t", key.size());
    if (end == std::string::npos || line[end] != ':') continue;
    const auto start = line.find_first_not_of(" \t:", end);
    values.push_back(start == std::string::npos ? "" : line.substr(start));
  }
  return values;
}

#ifdef __aarch64__

/// A core's name from the implementer and part numbers of its main identification register.
std::string arm_core(unsigned long implementer, unsigned long part) {
  struct Core {
    unsigned long part;
    const char* name;
  };
  constexpr Core kArm[] = {{0xd03, "Cortex-A53"},  {0xd04, "Cortex-A35"}, {0xd05, "Cortex-A55"},
                           {0xd07, "Cortex-A57"},  {0xd08, "Cortex-A72"}, {0xd09, "Cortex-A73"},
                           {0xd0a, "Cortex-A75"},  {0xd0b, "Cortex-A76"}, {0xd0c, "Neoverse-N1"},
                           {0xd40, "Neoverse-V1"}, {0xd49, "Neoverse-N2"}};
  if (implementer == 0x41) {
    for (const Core& core : kArm) {
      if (core.part == part) return core.name;
    }
  }
  return fmt::format("implementer {:#04x} part {:#05x}", implementer, part);
}

/// The names of all kinds of cores that the system tells of: "Cortex-A57 + Cortex-A53".
std::string arm_cores() {
  const auto implementers = cpuinfo("CPU implementer"), parts = cpuinfo("CPU part");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(implementers.size(), parts.size()); ++i) {
    const std::string core = arm_core(std::strtoul(implementers[i].c_str(), nullptr, 0),
                                      std::strtoul(parts[i].c_str(), nullptr, 0));
    if (std::find(names.begin(), names.end(), core) == names.end()) names.push_back(core);
  }
  if (!names.empty()) return fmt::format("{}", fmt::join(names, " + "));
  if ((getauxval(AT_HWCAP) & HWCAP_CPUID) == 0) return "unknown";
  unsigned long midr = 0;
  asm("mrs %0, midr_el1" : "=r"(midr));  // the kernel, or the emulator, answers it
  return arm_core(midr >> 24 & 0xff, midr >> 4 & 0xfff);
}

#endif

#ifdef __aarch64__
/// How many processors a file of the system lists: "0-3" or "0,2"; at least one.
std::size_t listed(const std::string& path) {
  std::ifstream file(path);
  std::size_t count = 0;
  for (std::string range; std::getline(file, range, ',');) {
    const auto dash = range.find('-');
    const long first = std::strtol(range.c_str(), nullptr, 10);
    const long last =
        dash == std::string::npos ? first : std::strtol(range.c_str() + dash + 1, nullptr, 10);
    count += static_cast<std::size_t>(std::max(last - first + 1, 1L));
  }
  return std::max<std::size_t>(count, 1);
}
#endif

/// What the kernel says about the first CPU's data or unified cache of that level, 0 if nothing.
/// The C library gives a whole package's third level, of which a virtual machine may own a part.
std::size_t cache_by_sysfs(int wanted) {
  for (int index = 0; index < 8; ++index) {
    const std::string at = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    std::ifstream level(at + "level"), type(at + "type"), size(at + "size");
    int number = 0;
    std::string kind, unit;
    std::size_t count = 0;
    if (!(level >> number) || !(type >> kind) || !(size >> count)) continue;
    if (number != wanted || kind == "Instruction") continue;
    size >> unit;
#ifdef __aarch64__
    // Level 2 is that of a cluster of cores: each counts on its share.
    if (wanted == 2) count /= listed(at + "shared_cpu_list");
#endif
    return unit == "K" ? count << 10 : unit == "M" ? count << 20 : count;
  }
  return 0;
}

std::size_t find_cache(int level) {
  // An emulator shows the caches of the machine below.
  if (const std::size_t bytes = emulated() ? 0 : cache_by_sysfs(level); bytes > 0) return bytes;
  const int key = level == 1   ? _SC_LEVEL1_DCACHE_SIZE
                  : level == 2 ? _SC_LEVEL2_CACHE_SIZE
                               : _SC_LEVEL3_CACHE_SIZE;
  const long bytes = sysconf(key);
  if (bytes > 0) return static_cast<std::size_t>(bytes);
  return level == 1   ? std::size_t{32} << 10
         : level == 2 ? std::size_t{512} << 10  // one of four Cortex-A57 that share 2 MiB
                      : std::size_t{4} << 20;
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

bool emulated() {
#ifdef __aarch64__
  // In user-mode emulation the files that describe the processor are those of the machine below.
  return !cpuinfo("vendor_id").empty() ||
         std::filesystem::exists("/sys/devices/system/cpu/cpu0/microcode");
#else
  return false;
#endif
}

std::string cpu_name() {
#ifdef __aarch64__
  return arm_cores() + (emulated() ? std::string(kEmulatedSuffix) : "");
#else
  const auto models = cpuinfo("model name");
  if (models.empty()) return "unknown";
  const auto first = [](const std::vector<std::string>& all) {
    return all.empty() ? std::string() : all[0];
  };
  return fmt::format("{} (family {}, model {})", models[0], first(cpuinfo("cpu family")),
                     first(cpuinfo("model")));
#endif
}

std::size_t cache_bytes(int level) {
  static const std::array<std::size_t, 3> sizes{find_cache(1), find_cache(2), find_cache(3)};
  return sizes.at(static_cast<std::size_t>(level - 1));
}

int available_cpus() {
  // Where OpenMP binds threads to processors (OMP_PROC_BIND) this one's are not all there are.
  if (omp_get_proc_bind() != omp_proc_bind_false) return omp_get_num_procs();
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
