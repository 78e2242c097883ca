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

/// Whether a team can share so many rows evenly enough.
inline bool enough_rows(Index rows, int team) { return rows >= 3 * team; }

/// A thread's share of the rows of `images` tensors of so many blocks of channels: the same rows of
/// all blocks, as convolutions cut an image too, so that what a layer reads lies in the cache of
/// the core that wrote it. Few rows are cut by blocks as well. Calls body(image, block, first row,
/// end).
template <class Body>
void share_rows(Index images, Index blocks, Index rows, int thread, int team, Body&& body) {
  const bool whole = enough_rows(images * rows, team);
  const Range mine = share(images * rows * (whole ? 1 : blocks), thread, team);
  for (Index i = mine.begin; i < mine.end;) {
    const Index plane = i / rows, begin = i % rows, end = std::min(rows, begin + mine.end - i);
    if (whole) {
      for (Index block = 0; block < blocks; ++block) body(plane, block, begin, end);
    } else {
      body(plane / blocks, plane % blocks, begin, end);
    }
    i += end - begin;
  }
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
