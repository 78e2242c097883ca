// What is measured of the machine.
#include "machine.hpp"

#include "convprim/cpu.hpp"
#include "test.hpp"

using namespace convprim;

TEST_CASE("threads are told how far apart they lie") {
  CHECK(handoff_seconds(1) == 0);
  CHECK(handoff_seconds(available_cpus() + 1) == 0);
  for (int threads = 2; threads <= available_cpus() && threads <= 20; threads += 3) {
    CAPTURE(threads);
    const double seconds = handoff_seconds(threads);
    if (seconds == 0) continue;  // other programs have the processors
    CHECK(seconds > 5e-9);
    CHECK(seconds <= 1e-5);
  }
}
