// A benchmark: the PBQP solver beside LLVM's (llvm/CodeGen/PBQP, float costs, full matrices), in
// one process, on the same generated problems. LLVM's is a register allocator's solver and no
// oracle: it is exact only where R0, RI and RII suffice, and then up to float rounding.
//
//   meson test --benchmark pbqp_llvm -v        (or: test/pbqp_llvm [nodes...])
#include <llvm/CodeGen/RegAllocPBQP.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "pbqp/generate.hpp"
#include "pbqp/pbqp.hpp"

namespace {

namespace lp = llvm::PBQP;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The metadata holds references to a compiler's state that the solver never looks at.
lp::RegAlloc::GraphMetadata metadata() {
  alignas(16) static char nothing[64];
  return lp::RegAlloc::GraphMetadata(*reinterpret_cast<llvm::MachineFunction*>(nothing),
                                     *reinterpret_cast<llvm::LiveIntervals*>(nothing),
                                     *reinterpret_cast<llvm::MachineBlockFrequencyInfo*>(nothing));
}

struct Run {
  double seconds = 0;  // of the solve alone
  pbqp::Assignment assignment;
};

Run run_llvm(const pbqp::Problem& p) {
  lp::RegAlloc::PBQPRAGraph graph(metadata());
  for (std::size_t v = 0; v < p.node_count(); ++v) {
    lp::Vector c(static_cast<unsigned>(p.option_count(v)));
    for (unsigned i = 0; i < c.getLength(); ++i) c[i] = static_cast<float>(p.costs(v)[i]);
    graph.addNode(std::move(c));
  }
  for (std::size_t k = 0; k < p.edge_count(); ++k) {
    const pbqp::Edge& e = p.edge(k);
    lp::Matrix m(static_cast<unsigned>(p.option_count(e.u)),
                 static_cast<unsigned>(p.option_count(e.v)), 0);
    for (unsigned i = 0; i < m.getRows(); ++i) {
      for (unsigned j = 0; j < m.getCols(); ++j) m[i][j] = static_cast<float>(e.cost(i, j));
    }
    graph.addEdge(static_cast<unsigned>(e.u), static_cast<unsigned>(e.v), std::move(m));
  }
  Run r;
  const double start = now();
  const lp::Solution s = lp::RegAlloc::solve(graph);
  r.seconds = now() - start;
  for (std::size_t v = 0; v < p.node_count(); ++v) {
    r.assignment.push_back(s.getSelection(static_cast<unsigned>(v)));
  }
  return r;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::size_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoul(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {100, 1000, 10000};
  std::printf(
      "80 options, 10 layouts; seconds of the solve, three runs each; excess: LLVM's cost "
      "above the optimum\n%-10s %7s %34s %34s %8s %9s\n",
      "kind", "nodes", "pbqp", "LLVM", "ratio", "excess");
  for (const char* kind : {"chain", "googlenet", "resnet"}) {
    for (const std::size_t nodes : sizes) {
      pbqp::GenerateOptions o;
      o.kind = kind;
      o.nodes = nodes;
      const pbqp::Problem p = pbqp::generate(o);
      double ours[3];
      double theirs[3];
      double cost = 0;
      double excess = 0;
      for (int k = 0; k < 3; ++k) {  // in turns, so that a slow spell hits both
        const double start = now();
        const pbqp::Result r = pbqp::solve(p);
        ours[k] = now() - start;
        cost = r.upper;
        if (!r.optimal()) std::printf("%s: not proven optimal\n", kind);
        const Run l = run_llvm(p);
        theirs[k] = l.seconds;
        excess = p.cost(l.assignment) / cost - 1;
      }
      const auto least = [](const double* x) { return std::min(x[0], std::min(x[1], x[2])); };
      std::printf("%-10s %7zu  %10.6f %10.6f %10.6f  %10.6f %10.6f %10.6f %8.1f %8.5f%%\n", kind,
                  nodes, ours[0], ours[1], ours[2], theirs[0], theirs[1], theirs[2],
                  least(theirs) / least(ours), 100 * excess);
      std::fflush(stdout);
    }
  }
}
