// The report's lines on memory.
#include <fmt/format.h>

#include "selector/report_parts.hpp"

namespace convprim {
namespace {

double megabytes(std::size_t bytes) { return static_cast<double>(bytes) * 1e-6; }

}  // namespace

std::string memory_text(const Report& report) {
  std::string out;
  if (report.executable != nullptr) {
    const Executable& e = *report.executable;
    out = fmt::format(
        "memory: {:.1f} MB: arena {:.1f} MB (largest sum of live tensors and workspace {:.1f} MB), "
        "packed weights {:.1f} MB\n",
        megabytes(e.arena_bytes() + e.packed_bytes()), megabytes(e.arena_bytes()),
        megabytes(e.live_bytes()), megabytes(e.packed_bytes()));
  }
  if (!report.plan->memory) return out;
  const MemoryReport& m = *report.plan->memory;
  const SolverReport& s = report.plan->solver;
  const double price = s.objective_seconds - m.unlimited_seconds;
  out += fmt::format(
      "limited to {:.1f} MB: {:.3f} ms ({:.1f} %) slower than without the limit, where {:.1f} MB "
      "give {:.3f} ms; {}\n",
      megabytes(m.limit), price * 1e3, 100 * price / m.unlimited_seconds,
      megabytes(m.unlimited_bytes), m.unlimited_seconds * 1e3,
      s.proven_optimal ? "proven optimal"
                       : fmt::format("no plan within the limit takes less than {:.3f} ms",
                                     s.lower_bound_seconds * 1e3));
  return out;
}

nlohmann::ordered_json memory_json(const Report& report) {
  const Executable& e = *report.executable;
  nlohmann::ordered_json j = {{"arena_bytes", e.arena_bytes()},
                              {"live_bytes", e.live_bytes()},
                              {"packed_bytes", e.packed_bytes()},
                              {"total_bytes", e.arena_bytes() + e.packed_bytes()}};
  if (!report.plan->memory) return j;
  const MemoryReport& m = *report.plan->memory;
  const double price = report.plan->solver.objective_seconds - m.unlimited_seconds;
  j["limit_bytes"] = m.limit;
  j["unlimited_bytes"] = m.unlimited_bytes;
  j["unlimited_ms"] = m.unlimited_seconds * 1e3;
  j["price_ms"] = price * 1e3;
  j["price_percent"] = 100 * price / m.unlimited_seconds;
  return j;
}

}  // namespace convprim
