// See table_copy.hpp. Each axis is cut into segments of constant steps; segments of equal length
// and steps make two loops, a listed one over their starts and a plain one inside. Plain loops that
// continue each other are merged, so that a copy of whole tensors ends as one run.
#include "layers/table_copy.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "layers/common.hpp"

namespace convprim {
namespace {

/// Consecutive positions of an axis whose offsets grow by constant steps.
struct Segment {
  Index start, length, in_step, out_step;
};

std::vector<Segment> segments(const AxisTable& t) {
  std::vector<Segment> found;
  const Index count = static_cast<Index>(t.in.size());
  const auto in = [&](Index i) { return t.in[static_cast<std::size_t>(i)]; };
  const auto out = [&](Index i) { return t.out[static_cast<std::size_t>(i)]; };
  for (Index i = 0; i < count;) {
    Segment s{i, 1, 0, 0};
    if (i + 1 < count) {
      s.in_step = in(i + 1) - in(i);
      s.out_step = out(i + 1) - out(i);
      while (i + s.length < count && in(i + s.length) - in(i + s.length - 1) == s.in_step &&
             out(i + s.length) - out(i + s.length - 1) == s.out_step) {
        ++s.length;
      }
    }
    if (s.length == 1) s.in_step = s.out_step = 0;
    found.push_back(s);
    i += s.length;
  }
  return found;
}

}  // namespace

std::vector<Index> axis_offsets(const Strides& s, int axis, Index extent) {
  std::vector<Index> offsets(static_cast<std::size_t>(extent));
  for (Index i = 0; i < extent; ++i) {
    Index at[4] = {0, 0, 0, 0};
    at[axis] = i;
    offsets[static_cast<std::size_t>(i)] = s.at(at[0], at[1], at[2], at[3]) - s.base;
  }
  return offsets;
}

void TableCopy::add(int source, Index in_base, int target, Index out_base,
                    const std::array<AxisTable, 4>& axes) {
  // Each axis as alternatives of at most two loops; a nest for every combination.
  std::vector<Nest> nests = {{source, target, in_base, out_base, {}, 0}};
  for (const AxisTable& axis : axes) {
    std::vector<std::vector<Loop>> alternatives;
    const std::vector<Segment> all = segments(axis);
    const Index count = static_cast<Index>(axis.in.size());
    if (count == 0) return;
    if (static_cast<Index>(all.size()) * 4 > count && all.size() > 1) {
      Loop list;
      list.extent = count;
      list.in_list.assign(axis.in.begin(), axis.in.end());
      list.out_list.assign(axis.out.begin(), axis.out.end());
      // Outputs in steps make the loop a gather, if it is the innermost.
      list.out_step = count > 1 ? axis.out[1] - axis.out[0] : 0;
      for (Index i = 0; i < count; ++i) {
        if (axis.out[static_cast<std::size_t>(i)] != axis.out[0] + i * list.out_step)
          list.out_step = 0;
      }
      alternatives.push_back({list});
    } else {
      std::map<std::tuple<Index, Index, Index>, Loop> by_kind;
      for (const Segment& s : all) {
        Loop& starts = by_kind[{s.length, s.in_step, s.out_step}];
        starts.in_list.push_back(axis.in[static_cast<std::size_t>(s.start)]);
        starts.out_list.push_back(axis.out[static_cast<std::size_t>(s.start)]);
        starts.extent = static_cast<Index>(starts.in_list.size());
      }
      for (const auto& [kind, starts] : by_kind) {
        Loop inner;
        std::tie(inner.extent, inner.in_step, inner.out_step) = kind;
        alternatives.push_back({starts, inner});
      }
    }
    std::vector<Nest> grown;
    for (const Nest& nest : nests) {
      for (const auto& loops : alternatives) {
        grown.push_back(nest);
        grown.back().loops.insert(grown.back().loops.end(), loops.begin(), loops.end());
      }
    }
    nests = std::move(grown);
  }
  for (Nest& nest : nests) {
    order(nest);
    nests_.push_back(std::move(nest));
  }
}

void TableCopy::order(Nest& nest) {
  std::vector<Loop>& loops = nest.loops;
  // Starts in constant steps are plain loops after all; a single one is an offset.
  for (Loop& loop : loops) {
    if (!loop.listed()) continue;
    const AxisTable table{{loop.in_list.begin(), loop.in_list.end()},
                          {loop.out_list.begin(), loop.out_list.end()}};
    const std::vector<Segment> all = segments(table);
    if (all.size() != 1) continue;
    nest.in_base += loop.in_list[0];
    nest.out_base += loop.out_list[0];
    loop = {all[0].length, all[0].in_step, all[0].out_step, {}, {}};
  }
  std::erase_if(loops, [](const Loop& l) { return l.extent == 1 && !l.listed(); });
  // Outermost the largest output step, as memory is written front to back; but plain unit steps on
  // both sides beat a gather.
  std::stable_sort(loops.begin(), loops.end(), [](const Loop& a, const Loop& b) {
    const auto weight = [](const Loop& l) {
      if (l.listed() && l.out_step != 1) return Index{1} << 60;
      return std::abs(l.out_step) * 2 + (l.listed() ? 1 : 0);
    };
    return weight(a) > weight(b);
  });
  for (std::size_t i = 0; i + 1 < loops.size();) {
    Loop& outer = loops[i];
    const Loop& inner = loops[i + 1];
    if (!outer.listed() && !inner.listed() && outer.in_step == inner.in_step * inner.extent &&
        outer.out_step == inner.out_step * inner.extent) {
      outer.extent *= inner.extent;
      outer.in_step = inner.in_step;
      outer.out_step = inner.out_step;
      loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      if (i > 0) --i;
    } else {
      ++i;
    }
  }
  // The kernels take two loops: the inner one plain or a gather, the other one plain.
  if (loops.empty() || (loops.back().listed() && loops.back().out_step != 1)) {
    loops.push_back({1, 1, 1, {}, {}});
  }
  if (loops.size() < 2 || loops[loops.size() - 2].listed()) loops.insert(loops.end() - 1, Loop{});
  nest.split = 0;
  for (std::size_t i = 1; i < loops.size(); ++i) {
    if (loops[i].extent > loops[nest.split].extent) nest.split = i;
  }
}

void TableCopy::run_nest(const Nest& nest, const float* in, float* out, int thread,
                         int team) const {
  const auto& kernels = *kernels::active().elementwise;
  const auto& transposes = *kernels::active().transpose;
  const std::vector<Loop>& loops = nest.loops;
  const std::size_t depth = loops.size(), outer = depth - 2;
  constexpr std::size_t kMaxDepth = 10;
  Index begin[kMaxDepth], end[kMaxDepth], at[kMaxDepth];
  for (std::size_t i = 0; i < depth; ++i) {
    begin[i] = 0;
    end[i] = loops[i].extent;
    if (i == nest.split) {
      const Range r = share(loops[i].extent, thread, team, i + 1 == depth ? 16 : 1);
      begin[i] = r.begin;
      end[i] = r.end;
      if (r.begin == r.end) return;
    }
    at[i] = begin[i];
  }
  const Loop &rows = loops[outer], &run = loops[outer + 1];
  const Index n = end[outer + 1] - begin[outer + 1], m = end[outer] - begin[outer];
  while (true) {
    const float* from = in + nest.in_base + begin[outer] * rows.in_step;
    float* to = out + nest.out_base + begin[outer] * rows.out_step;
    for (std::size_t i = 0; i < outer; ++i) {
      const Loop& l = loops[i];
      from += l.listed() ? l.in_list[static_cast<std::size_t>(at[i])] : at[i] * l.in_step;
      to += l.listed() ? l.out_list[static_cast<std::size_t>(at[i])] : at[i] * l.out_step;
    }
    if (run.listed()) {
      kernels.gather_rows(from, rows.in_step, run.in_list.data() + begin[outer + 1],
                          to + run.out_list[static_cast<std::size_t>(begin[outer + 1])],
                          rows.out_step, m, n);
    } else if (run.in_step == 1 && run.out_step == 1) {
      const Index skip = begin[outer + 1];
      transposes.copy_rows(m, n, from + skip, rows.in_step, to + skip, rows.out_step);
    } else if (rows.in_step == 1 && run.out_step == 1) {
      const Index skip = begin[outer + 1];
      transposes.transpose(n, m, from + skip * run.in_step, run.in_step, to + skip, rows.out_step);
    } else {
      kernels.copy_strided(from + begin[outer + 1] * run.in_step, rows.in_step, run.in_step,
                           to + begin[outer + 1] * run.out_step, rows.out_step, run.out_step, m, n);
    }
    std::size_t i = outer;
    while (i > 0) {
      --i;
      if (++at[i] < end[i]) break;
      at[i] = begin[i];
      if (i == 0) return;
    }
    if (outer == 0) return;
  }
}

void TableCopy::run(const float* const* in, float* const* out, int thread, int team) const {
  for (const Nest& nest : nests_) {
    run_nest(nest, in[nest.source], out[nest.target], thread, team);
  }
}

}  // namespace convprim
