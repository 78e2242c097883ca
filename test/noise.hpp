// Random numbers for the tests of primitives.
#pragma once

#include <random>

#include "buffer.hpp"
#include "convprim/layout.hpp"

namespace convprim::test {

/// Numbers between -1 and 1, the same for the same seed.
inline Buffer noise(Index count, unsigned seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Buffer values(static_cast<std::size_t>(count));
  for (float& x : values) x = uniform(rng);
  return values;
}

}  // namespace convprim::test
