#include "apps/cpus.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <charconv>
#include <sstream>

#include "convprim/error.hpp"

namespace convprim {

std::vector<int> parse_cpus(const std::string& list) {
  const auto bad = [&](const std::string& part) {
    throw Error(fmt::format(
        "--cpus {}: \"{}\" is no processor; give numbers and ranges such as 0-3 or 0,2,4-5", list,
        part));
  };
  std::vector<int> cpus;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) {
    int first = 0;
    const char* end = part.data() + part.size();
    auto parsed = std::from_chars(part.data(), end, first);
    int last = first;
    if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-')
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc() || parsed.ptr != end || first < 0 || last < first ||
        last >= CPU_SETSIZE)
      bad(part);
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  if (cpus.empty()) bad("");
  return cpus;
}

void pin(const std::vector<int>& cpus) {
  cpu_set_t allowed, wanted;
  CPU_ZERO(&wanted);
  const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  for (int cpu : cpus) {
    if (known && !CPU_ISSET(static_cast<unsigned>(cpu), &allowed)) {
      throw Error(
          fmt::format("--cpus: processor {} is not there, or not for this process to use", cpu));
    }
    CPU_SET(static_cast<unsigned>(cpu), &wanted);
  }
  if (sched_setaffinity(0, sizeof wanted, &wanted) != 0)
    throw Error("--cpus: the system refuses to pin this process; leave it out");
}

}  // namespace convprim
