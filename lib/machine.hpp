// What the machine can do at best, measured: the yardsticks of the benches.
#pragma once

#include <cstddef>

namespace convprim {

/// Single-precision FLOP/s that `threads` cores reach on independent multiply-adds in registers (a
/// multiply-add counts 2). Takes a few ms.
double peak_flops(int threads);

/// Bytes/s that `threads` cores read from a buffer of that size, streamed repeatedly.
double read_bandwidth(int threads, std::size_t bytes);

}  // namespace convprim
