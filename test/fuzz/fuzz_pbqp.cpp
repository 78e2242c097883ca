// libFuzzer target for everything of the PBQP solver that reads files. The first byte picks the
// reader: text, JSON, wcsp, or a certificate for a fixed problem. What is read is written and read
// again, and solved and checked if it is small.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "pbqp/check.hpp"
#include "pbqp/generate.hpp"
#include "pbqp/io.hpp"
#include "pbqp/pbqp.hpp"

namespace {

void must(bool ok) {
  if (!ok) std::abort();
}

const pbqp::Problem& fixed() {
  static const pbqp::Problem p =
      pbqp::generate({.kind = "dense", .nodes = 5, .options = 6, .layouts = 3, .seed = 3});
  return p;
}

bool small(const pbqp::Problem& p) {
  if (p.node_count() > 12 || p.edge_count() > 40) return false;
  for (std::size_t v = 0; v < p.node_count(); ++v) {
    if (p.option_count(v) > 8) return false;
  }
  return true;
}

void use(const pbqp::Problem& p) {
  // A short wcsp file may hold a large table; writing that out as JSON is no test of anything.
  std::size_t entries = 0;
  for (std::size_t v = 0; v < p.node_count(); ++v) entries += p.option_count(v);
  for (std::size_t e = 0; e < p.edge_count(); ++e) entries += p.edge(e).matrix.data.size();
  if (entries > 1000000) return;
  const std::string text = pbqp::write_text(p);
  must(pbqp::write_text(pbqp::read_text(text, "text")) == text);
  const std::string json = pbqp::write_json(p);
  must(pbqp::write_json(pbqp::read_json(json, "json")) == json);
  try {
    (void)pbqp::read_wcsp(pbqp::write_wcsp(p), "wcsp");
  } catch (const std::invalid_argument&) {  // more than 56 bits
  }
  if (!small(p)) return;
  pbqp::Limits limits;
  limits.seconds = 0.2;
  limits.certificate = true;
  limits.minimise_core = false;
  const pbqp::Result r = pbqp::solve(p, limits);
  must(pbqp::check(p, r.certificate).valid);
  if (r.optimal()) must(p.cost(r.assignment) == r.upper);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 4) {
      case 0:
        use(pbqp::read_text(text, "fuzz"));
        break;
      case 1:
        use(pbqp::read_json(text, "fuzz"));
        break;
      case 2:
        use(pbqp::read_wcsp(text, "fuzz"));
        break;
      default: {
        static const double optimum = pbqp::solve(fixed()).upper;
        // With a checksum that fits, so that the proof itself is what gets tested.
        std::string sealed = text.substr(0, text.rfind("checksum "));
        sealed += "checksum " + pbqp::certificate_checksum(sealed) + "\n";
        const pbqp::CheckReport c = pbqp::check(fixed(), sealed);
        if (c.valid) must(c.lower <= optimum && c.upper >= optimum);
      }
    }
  } catch (const pbqp::FormatError&) {
  }
  return 0;
}
