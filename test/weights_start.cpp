// From files to a network that is ready to run: the same weights, and in little time.
#include <algorithm>
#include <ctime>

#include "convprim/cpu.hpp"
#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "convprim/plan.hpp"
#include "convprim/select.hpp"
#include "files.hpp"
#include "import_test.hpp"
#include "test.hpp"

using namespace convprim;
using namespace convprim::test;

namespace {

/// The parameters of a network as a .caffemodel.
std::string model_of(const Network& net) {
  std::string model;
  for (const Layer& layer : net.layers) {
    std::string content = wire::field(1, layer.name);
    for (const Blob& blob : layer.blobs) {
      std::string dims;
      for (const Index d : blob.dims) dims += wire::varint(static_cast<std::uint64_t>(d));
      content += wire::field(
          7, wire::field(7, wire::field(1, dims)) + wire::field(5, wire::packed(*blob.data)));
    }
    model += wire::field(100, content);
  }
  return model;
}

/// Costs that make implicit GEMM likely, which packs its weights; conversions cost little.
double plausible(const CostKey& key) {
  if (key.kind == CostKind::conversion) return 1e-5;
  if (key.kind == CostKind::layer) return 1e-4;
  const Family family = find_primitive(key.implementation)->family;
  return family == Family::implicit || family == Family::winograd ? 1e-3 : 1e-2;
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

// Of the processor's time, so that other programs do not count; some 0.1 s where this was written.
TEST_CASE("GoogLeNet with weights and plan is ready to run in half a second") {
  const std::string file = data("nets/googlenet.prototxt");
  Network original = import_network(file);
  random_weights(original);
  const TemporaryFolder folder;
  ImportOptions options;
  options.weights = folder.write("googlenet.caffemodel", model_of(original));
  Network small = original;
  optimise(small);
  const std::string plan = save_plan(select(small, {}, plausible, Machine::here(2), false), small);
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    const double start = cpu_seconds();
    Network net = import_network(file, options);
    if (i == 0) {
      REQUIRE(net.layers.size() == original.layers.size());
      for (std::size_t l = 0; l < net.layers.size(); ++l) {
        for (std::size_t b = 0; b < net.layers[l].blobs.size(); ++b)
          CHECK(*net.layers[l].blobs[b].data == *original.layers[l].blobs[b].data);
      }
      continue;
    }
    optimise(net);
    const Executable executable(net, load_plan(plan, net));
    const auto context = executable.make_context();
    best = std::min(best, cpu_seconds() - start);
  }
  MESSAGE("ready after " << best << " s of the processor's time");
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (!emulated()) CHECK(best < 0.5);
#endif
}
