// An executable is immutable: many threads may run it at once, each with a context of its own. This
// file is also compiled with ThreadSanitizer (tsan.sh), which does not know OpenMP's barriers: the
// executables have one thread each, so that no parallel region is entered.
#include <algorithm>
#include <thread>
#include <vector>

#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "small_net.hpp"
#include "test.hpp"

using namespace convprim;

namespace {

constexpr int kThreads = 8;

/// Fills the input by a formula of the caller's number, runs, and returns output 0.
std::vector<float> answer(const Executable& executable, Executable::Context& context, int caller) {
  float* in = context.input();
  for (Index i = 0; i < executable.input_shape(0).count(); ++i)
    in[i] = static_cast<float>((i * 7919 + caller * 101) % 1009) / 1009.0F - 0.5F;
  executable.run(context);
  const float* out = context.output();
  return {out, out + executable.output_shape(0).count()};
}

}  // namespace

TEST_CASE("eight threads share one executable, each with its context and its input") {
  Network net = import_network_text(test::kSmallNet, "test");
  random_weights(net);
  optimise(net);
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    const Plan plan = select(net, {}, test::random_costs(seed), Machine::here(1), false);
    const Executable executable(net, plan);
    std::vector<std::vector<float>> alone, together(kThreads);
    auto context = executable.make_context();
    for (int t = 0; t < kThreads; ++t) alone.push_back(answer(executable, context, t));
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        auto own = executable.make_context();
        for (int i = 0; i < 3; ++i)
          together[static_cast<std::size_t>(t)] = answer(executable, own, t);
      });
    }
    for (std::thread& t : threads) t.join();
    CHECK(alone == together);
    CHECK(alone[0] != alone[1]);
  }
}
