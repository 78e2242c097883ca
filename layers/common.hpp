// What the files of this folder share.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <variant>

#include "convprim/layer.hpp"
#include "kernels/kernels.hpp"
#include "threads.hpp"

namespace convprim {

/// The problem's operation as the type that the row's kind stands for.
template <class T>
const T& op_of(const LayerProblem& p) {
  return std::get<T>(*p.op);
}

/// Strides of output `i`; output 0 may be a slice.
inline Strides out_strides(const LayerImpl& impl, const LayerProblem& p, std::size_t i = 0) {
  return strides(impl.out, p.out[i], i == 0 ? p.slice : ChannelSlice{});
}

/// Strides of input `i`.
inline Strides in_strides(const LayerImpl& impl, const LayerProblem& p, std::size_t i = 0) {
  return strides(impl.in, p.in[i]);
}

/// Images times blocks of channels of a tensor.
inline Index blocks_of(Layout layout, const Shape& s) {
  return stored_channels(layout, s.c) / block(layout);
}

/// Threads that are worth waking for this many floats: a region costs as much as a few thousand.
inline int useful_threads(int threads, Index floats) { return team_of(threads, floats / 4096); }

/// Contiguous runs of a tensor: run i starts at i * length, and at base + i * out_step of a tensor
/// of the same shape and layout that may be a slice of a larger one.
struct Runs {
  Index count, length, base, out_step;
};
inline Runs runs_of(Layout layout, const Shape& s, const ChannelSlice& slice) {
  const Strides out = strides(layout, s, slice);
  const Index total = element_count(layout, s);
  if (!slice.sliced()) return {1, total, 0, 0};
  switch (layout) {
    case Layout::hcw:
      return {s.n * s.h, s.c * s.w, out.base, out.h_stride};
    case Layout::hwc:
      return {s.n * s.h * s.w, s.c, out.base, out.w_stride};
    default:
      return {s.n, total / s.n, out.base, out.n_stride};
  }
}

/// body(input offset, output offset, floats) for a thread's share of the runs.
template <class Body>
void for_runs(const Runs& runs, int thread, int team, Body body) {
  const Range r = share(runs.count * runs.length, thread, team, 16);
  for (Index i = r.begin; i < r.end;) {
    const Index run = i / runs.length, at = i % runs.length;
    const Index n = std::min(runs.length - at, r.end - i);
    body(i, runs.base + run * runs.out_step + at, n);
    i += n;
  }
}

/// Floats of a scratch area that a thread does not share a cache line with another for.
inline Index padded(Index floats) { return (floats + 15) / 16 * 16; }

/// Writes zeros into the lanes of the last block beyond the channels, images [range) only.
inline void zero_lanes(const Strides& out, const Shape& s, float* base, Range images) {
  const Index valid = s.c % out.block;
  if (valid == 0) return;
  for (Index n = images.begin; n < images.end; ++n) {
    for (Index h = 0; h < s.h; ++h) {
      float* row = base + out.at(n, s.c - valid, h, 0);
      for (Index w = 0; w < s.w; ++w)
        std::fill_n(row + w * out.w_stride + valid, out.block - valid, 0.0F);
    }
  }
}

/// prepare() of a row whose prepared form is made from row and problem.
template <class T>
std::unique_ptr<PreparedLayer> make(const LayerImpl& impl, const LayerProblem& p) {
  return std::make_unique<T>(impl, p);
}

/// reject() of a row that takes everything.
inline const char* accept(const LayerImpl&, const LayerProblem&) { return nullptr; }

}  // namespace convprim
