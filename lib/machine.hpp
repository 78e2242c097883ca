// What the machine can do, measured: the yardsticks of the benches, and how far apart its threads
// are.
#pragma once

#include <cstddef>

namespace convprim {

/// Single-precision FLOP/s that `threads` cores reach on independent multiply-adds in registers (a
/// multiply-add counts 2). Takes a few ms.
double peak_flops(int threads);

/// Bytes/s that `threads` cores read from a buffer of that size, streamed repeatedly.
double read_bandwidth(int threads, std::size_t bytes);

/// Seconds that a cache line takes from the first of a team's threads to another and back, the most
/// of all others (of 16 of them in a larger team): tens of ns within a cache that they share,
/// hundreds between chips. 0 where there are not as many processors as threads, or other programs
/// kept the threads from running at the same time. Takes some tens of us for each, 5 ms at most.
double handoff_seconds(int threads);

}  // namespace convprim
