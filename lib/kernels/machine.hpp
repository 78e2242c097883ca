// Loops that show what the machine can do at best.
#pragma once

#include <cstddef>

namespace convprim::kernels {

struct MachineKernels {
  /// `rounds` rounds of independent multiply-adds on registers.
  float (*fma_loop)(std::ptrdiff_t rounds, float factor);
  double flops_per_round;
  /// Sum of n floats, as fast as they come.
  float (*read_loop)(const float* p, std::ptrdiff_t n);
};

}  // namespace convprim::kernels
