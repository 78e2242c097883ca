// The arena: no two live buffers overlap, and little is wasted.
#include <random>

#include "selector/arena.hpp"
#include "test.hpp"

using namespace convprim;

TEST_CASE("live buffers never overlap and the arena is near its lower bound") {
  std::mt19937 rng(7);
  double wasted = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> buffers;
    const int steps = 5 + static_cast<int>(rng() % 40);
    for (int i = 0; i < steps * 2; ++i) {
      const int first = static_cast<int>(rng() % static_cast<unsigned>(steps));
      const int last = std::min(steps - 1, first + static_cast<int>(rng() % 6));
      buffers.push_back({rng() % 100'000, first, last});
    }
    const ArenaPlan plan = plan_arena(buffers);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      CHECK(plan.offsets[i] % 64 == 0);
      CHECK(plan.offsets[i] + buffers[i].bytes <= plan.bytes);
      for (std::size_t j = 0; j < i; ++j) {
        const bool together =
            buffers[i].first <= buffers[j].last && buffers[j].first <= buffers[i].last;
        const bool apart = plan.offsets[i] + buffers[i].bytes <= plan.offsets[j] ||
                           plan.offsets[j] + buffers[j].bytes <= plan.offsets[i];
        CHECK((!together || apart));
      }
    }
    CHECK(plan.bytes >= peak_bytes(buffers));
    wasted += static_cast<double>(plan.bytes) / static_cast<double>(peak_bytes(buffers)) - 1;
  }
  CHECK(wasted / 200 < 0.1);
}

TEST_CASE("a chain of layers needs its two largest neighbours only") {
  const std::vector<Lifetime> chain = {{6400, 0, 1}, {12800, 1, 2}, {6400, 2, 3}, {640, 3, 4}};
  CHECK(peak_bytes(chain) == 19200);
  CHECK(plan_arena(chain).bytes == 19200);
}
