// The solver on the selector's own queries: every network at hand, with made-up costs, is proven
// optimal at once.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>

#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "convprim/import.hpp"
#include "convprim/select.hpp"
#include "selector/memory.hpp"
#include "test.hpp"

using namespace convprim;
namespace fs = std::filesystem;

namespace {

/// Costs as a machine might give them: by problem size and implementation, a fixed function of the
/// key.
double made_up(const CostKey& key) {
  std::mt19937_64 rng(std::hash<std::string>()(key.problem + '/' + key.implementation));
  const double u = static_cast<double>(rng() % 100'000 + 1) * 1e-5;
  return key.kind == CostKind::conversion ? 1e-5 * u : 1e-4 * (0.2 + u);
}

/// Workspaces of up to 4 MB for every other implementation.
std::optional<Sizes> made_up_sizes(const CostKey& key) {
  std::mt19937_64 rng(std::hash<std::string>()(key.problem + '+' + key.implementation));
  return Sizes{rng() % 2 == 0 ? 0 : rng() % (4 << 20), 0};
}

struct Tally {
  int solved = 0, refused = 0;
  double slowest = 0;
  double widest = 0;  // arena over its lower bound
};

/// Every step-th network of a folder.
void solve_all(const fs::path& folder, std::size_t step, Tally& tally) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto ending = entry.path().extension();
    if (ending == ".prototxt" || ending == ".pt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (std::size_t i = 0; i < files.size(); i += step) {
    const fs::path& file = files[i];
    CAPTURE(file.string());
    Network net;
    try {
      net = import_network(file.string());
    } catch (const Error&) {  // the importer's tests say which and why
      ++tally.refused;
      continue;
    }
    random_weights(net);
    optimise(net);
    const Plan plan = select(net, {}, made_up, Machine::here(1), false);
    CHECK(plan.solver.proven_optimal);
    CHECK(plan.solver.solve_seconds < 0.05);
    tally.slowest = std::max(tally.slowest, plan.solver.solve_seconds);
    ++tally.solved;
    if (plan.cut.empty()) {
      const SizeFunction sizes = made_up_sizes;
      SizeTable table(net, sizes, false);
      const PlanMemory memory = memory_of(net, plan, table);
      const double ratio = static_cast<double>(memory.arena) / static_cast<double>(memory.live);
      CHECK(ratio <= 1.1);
      tally.widest = std::max(tally.widest, ratio);
    }
    if (plan.solver.width > 2) {
      MESSAGE(file.filename().string()
              << ": width " << plan.solver.width << ", " << plan.solver.nodes
              << " nodes, solved in " << plan.solver.solve_seconds * 1e3 << " ms");
    }
  }
}

}  // namespace

TEST_CASE("the project's networks are proven optimal in under 50 ms each") {
  Tally tally;
  solve_all(test::data("nets"), 1, tally);
  CHECK(tally.solved >= 7);
  CHECK(tally.refused == 0);
}

TEST_CASE("public networks are proven optimal in under 50 ms each") {
  const std::string folder = test::shared("nets");
  if (folder.empty()) {
    test::skip("no shared networks");
    return;
  }
  // Minutes under emulation, where some will do.
  const std::size_t step = emulated() ? 6 : 1;
  Tally tally;
  solve_all(folder, step, tally);
  MESSAGE(tally.solved << " networks solved, the slowest in " << tally.slowest * 1e3
                       << " ms; arenas at most " << tally.widest << " of what is live; "
                       << tally.refused << " files refused by the importer");
  CHECK(tally.solved >= static_cast<int>(80 / step));
}
