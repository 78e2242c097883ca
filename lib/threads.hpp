// Explicit thread counts on the one OpenMP runtime of the process.
#pragma once

#include <omp.h>

#include <algorithm>

#include "convprim/layout.hpp"

namespace convprim {

/// Runs body(thread, team) on a team of `threads`; team is the size that OpenMP really gave. One
/// thread costs no region.
template <class Body>
void parallel(int threads, Body&& body) {
  if (threads <= 1) {
    body(0, 1);
    return;
  }
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num(), omp_get_num_threads());
}

/// Size of the team for work that is worth waking `useful` threads: one, or all. OpenMP keeps the
/// threads of a team for the next of that size; between sizes it ends some and makes others, which
/// takes longer than it does to wake some too many, and allocates.
inline int team_of(int threads, Index useful) { return useful > 1 ? threads : 1; }

/// Waits for the whole team inside parallel(); nothing to wait for in a team of one.
inline void team_barrier(int team) {
  if (team > 1) {
#pragma omp barrier
  }
}

/// A thread's share of `count` items, in order and as even as can be, cut at multiples of `grain`.
struct Range {
  Index begin, end;
};
inline Range share(Index count, int thread, int team, Index grain = 1) {
  const Index grains = (count + grain - 1) / grain;
  const Index low = grains * thread / team, high = grains * (thread + 1) / team;
  return {std::min(low * grain, count), std::min(high * grain, count)};
}

/// Runs body(i) for each i < count, in contiguous shares.
template <class Body>
void parallel_for(int threads, Index count, Body&& body) {
  parallel(team_of(threads, count), [&](int thread, int team) {
    const Range r = share(count, thread, team);
    for (Index i = r.begin; i < r.end; ++i) body(i);
  });
}

}  // namespace convprim
