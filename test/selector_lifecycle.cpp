// A network's whole life: load, select, run, destroy; small enough to be run under valgrind too.
#include <cmath>
#include <memory>

#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "files.hpp"
#include "small_net.hpp"
#include "test.hpp"

using namespace convprim;

TEST_CASE("a network is loaded, selected for, run and destroyed") {
  const test::TemporaryFolder folder;
  const std::string file = folder.write("net.prototxt", test::kSmallNet);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    auto net = std::make_unique<Network>(import_network(file));
    random_weights(*net);
    optimise(*net);
    auto plan =
        std::make_unique<Plan>(select(*net, {}, test::random_costs(seed), Machine::here(1), false));
    auto executable = std::make_unique<Executable>(*net, *plan);
    // Neither is needed any more.
    net.reset();
    plan.reset();
    auto context = executable->make_context();
    auto other = executable->make_context();
    for (std::size_t i = 0; i < executable->input_count(); ++i) {
      const Index count = executable->input_shape(i).count();
      for (Index k = 0; k < count; ++k)
        context.input(i)[k] = other.input(i)[k] = static_cast<float>(k % 17) - 8;
    }
    executable->run(context);
    executable->run(other);
    for (std::size_t o = 0; o < executable->output_count(); ++o) {
      for (Index k = 0; k < executable->output_shape(o).count(); ++k) {
        CHECK(std::isfinite(context.output(o)[k]));
        CHECK(context.output(o)[k] == other.output(o)[k]);
      }
    }
  }
}
