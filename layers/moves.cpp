// Layers that only move elements: concat, slice, crop, pad, permute, flatten, reshape, shuffle,
// constant, identity. Each fills tables of offsets, see table_copy.hpp.
#include <array>
#include <vector>

#include "layers/common.hpp"
#include "layers/registry.hpp"
#include "layers/table_copy.hpp"

namespace convprim {
namespace {

Index axis_of(const Shape& s, int axis) {
  const Index extents[4] = {s.n, s.c, s.h, s.w};
  return extents[axis];
}

/// The copies of one layer, and what else its outputs need.
class Move : public PreparedLayer {
 public:
  Move(const LayerImpl& impl, const LayerProblem& p) : threads_(0) {
    Index floats = 0;
    for (std::size_t i = 0; i < p.out.size(); ++i) {
      outputs_.push_back({out_strides(impl, p, i), p.out[i]});
      floats += 2 * p.out[i].count();
    }
    threads_ = useful_threads(p.threads, floats);
  }

  void run(const LayerArgs& args) const noexcept override {
    parallel(threads_, [&](int thread, int team) {
      before(args, thread, team);
      copies_.run(args.in, args.out, thread, team);
      for (std::size_t i = 0; i < outputs_.size(); ++i) {
        const auto& [strides, shape] = outputs_[i];
        if (shape.c % strides.block == 0) continue;
        if (dirty_) team_barrier(team);
        zero_lanes(strides, shape, args.out[i], share(shape.n, thread, team));
      }
    });
  }

 protected:
  struct Output {
    Strides strides;
    Shape shape;
  };

  virtual void before(const LayerArgs&, int, int) const {}

  /// Offsets of `count` positions of an axis from `begin`, `step` apart.
  static std::vector<Index> positions(const Strides& s, int axis, Index begin, Index count,
                                      Index step = 1) {
    if (count <= 0) return {};
    const std::vector<Index> all = axis_offsets(s, axis, begin + (count - 1) * step + 1);
    std::vector<Index> some;
    for (Index i = 0; i < count; ++i)
      some.push_back(all[static_cast<std::size_t>(begin + i * step)]);
    return some;
  }

  TableCopy copies_;
  std::vector<Output> outputs_;
  bool dirty_ = false;  // copies or fills may have touched padding lanes
  int threads_;
};

/// A whole tensor to another of the same shape: also from one layout to another.
std::array<AxisTable, 4> whole(const Strides& in, const Strides& out, const Shape& s) {
  std::array<AxisTable, 4> axes;
  for (int a = 0; a < 4; ++a) {
    axes[static_cast<std::size_t>(a)] = {axis_offsets(in, a, axis_of(s, a)),
                                         axis_offsets(out, a, axis_of(s, a))};
  }
  return axes;
}

class Concat final : public Move {
 public:
  Concat(const LayerImpl& impl, const LayerProblem& p) : Move(impl, p) {
    const int axis = op_of<ConcatOp>(p).axis;
    const Strides out = out_strides(impl, p);
    Index begin = 0;
    for (std::size_t i = 0; i < p.in.size(); ++i) {
      const Strides in = in_strides(impl, p, i);
      auto axes = whole(in, out, p.in[i]);
      const Index extent = axis_of(p.in[i], axis);
      axes[static_cast<std::size_t>(axis)].out = positions(out, axis, begin, extent);
      copies_.add(static_cast<int>(i), in.base, 0, out.base, axes);
      begin += extent;
    }
  }
};

class SliceLayer final : public Move {
 public:
  SliceLayer(const LayerImpl& impl, const LayerProblem& p) : Move(impl, p) {
    const int axis = op_of<SliceOp>(p).axis;
    const Strides in = in_strides(impl, p);
    Index begin = 0;
    for (std::size_t i = 0; i < p.out.size(); ++i) {
      const Strides out = out_strides(impl, p, i);
      auto axes = whole(in, out, p.out[i]);
      const Index extent = axis_of(p.out[i], axis);
      axes[static_cast<std::size_t>(axis)].in = positions(in, axis, begin, extent);
      copies_.add(0, in.base, static_cast<int>(i), out.base, axes);
      begin += extent;
    }
  }
};

class Crop final : public Move {
 public:
  Crop(const LayerImpl& impl, const LayerProblem& p) : Move(impl, p) {
    const CropOp& op = op_of<CropOp>(p);
    const Strides in = in_strides(impl, p), out = out_strides(impl, p);
    auto axes = whole(out, out, p.out[0]);
    for (int a = 0; a < 4; ++a) {
      const auto i = static_cast<std::size_t>(a);
      axes[i].in = positions(in, a, op.begin[i], axis_of(p.out[0], a), op.step[i]);
    }
    copies_.add(0, in.base, 0, out.base, axes);
  }
};

class Permute final : public Move {
 public:
  Permute(const LayerImpl& impl, const LayerProblem& p) : Move(impl, p) {
    const PermuteOp& op = op_of<PermuteOp>(p);
    const Strides in = in_strides(impl, p), out = out_strides(impl, p);
    auto axes = whole(out, out, p.out[0]);
    for (std::size_t a = 0; a < 4; ++a) {
      axes[a].in = axis_offsets(in, op.order[a], axis_of(p.in[0], op.order[a]));
    }
    copies_.add(0, in.base, 0, out.base, axes);
  }
};

/// The same elements in (n, c, h, w) order under another shape, to CHW: the output is that of a
/// conversion to CHW in the input's own shape.
class Flatten final : public Move {
 public:
  Flatten(const LayerImpl& impl, const LayerProblem& p) : Move(impl, p) {
    const Strides in = in_strides(impl, p);
    Strides out = strides(Layout::chw, p.in[0]);
    const Strides real = out_strides(impl, p);
    out.base = real.base;
    if (p.slice.sliced()) out.n_stride = real.n_stride;  // one image stays one run
    copies_.add(0, in.base, 0, out.base, whole(in, out, p.in[0]));
  }
};

const char* reject_flatten(const LayerImpl&, const LayerProblem& p) {
  return p.slice.sliced() && p.in[0].n != p.out[0].n ? "a slice that cuts the images anew"
                                                     : nullptr;
}

class Pad final : public Move {
 public:
  Pad(const LayerImpl& impl, const LayerProblem& p) : Move(impl, p), value_(op_of<PadOp>(p).value) {
    const PadOp& op = op_of<PadOp>(p);
    const Strides in = in_strides(impl, p), out = out_strides(impl, p);
    auto axes = whole(out, out, p.out[0]);
    if (op.mode == PadOp::Mode::constant) {
      fill_ = true;
      dirty_ = value_ != 0;
      for (int a = 0; a < 4; ++a) {
        const auto i = static_cast<std::size_t>(a);
        axes[i].in = axis_offsets(in, a, axis_of(p.in[0], a));
        axes[i].out = positions(out, a, op.before[i], axis_of(p.in[0], a));
      }
    } else {
      for (int a = 0; a < 4; ++a) {
        const auto i = static_cast<std::size_t>(a);
        const std::vector<Index> all = axis_offsets(in, a, axis_of(p.in[0], a));
        axes[i].in.clear();
        for (Index o = 0; o < axis_of(p.out[0], a); ++o) {
          const Index from = source(op.mode, o - op.before[i], axis_of(p.in[0], a));
          axes[i].in.push_back(all[static_cast<std::size_t>(from)]);
        }
      }
    }
    copies_.add(0, in.base, 0, out.base, axes);
    runs_ = runs_of(impl.out, p.out[0], p.slice);
  }

 private:
  static Index source(PadOp::Mode mode, Index i, Index extent) {
    if (mode == PadOp::Mode::edge) return std::clamp<Index>(i, 0, extent - 1);
    // A walk to and fro, should the padding be longer than the image.
    const Index period = std::max<Index>(1, 2 * (extent - 1));
    i = (i % period + period) % period;
    return i < extent ? i : period - i;
  }

  void before(const LayerArgs& args, int thread, int team) const override {
    if (!fill_) return;
    for_runs(runs_, thread, team,
             [&](Index, Index out, Index n) { std::fill_n(args.out[0] + out, n, value_); });
    team_barrier(team);
  }

  float value_;
  bool fill_ = false;
  Runs runs_{};
};

class Shuffle final : public Move {
 public:
  Shuffle(const LayerImpl& impl, const LayerProblem& p) : Move(impl, p) {
    const Index g = op_of<ShuffleOp>(p).g, each = p.in[0].c / g;
    const Strides in = in_strides(impl, p), out = out_strides(impl, p);
    auto axes = whole(in, out, p.out[0]);
    const std::vector<Index> channels = axis_offsets(in, 1, p.in[0].c);
    for (Index i = 0; i < each; ++i) {
      for (Index j = 0; j < g; ++j) {
        axes[1].in[static_cast<std::size_t>(i * g + j)] =
            channels[static_cast<std::size_t>(j * each + i)];
      }
    }
    copies_.add(0, in.base, 0, out.base, axes);
  }
};

/// Copies the input to every output.
class Identity final : public Move {
 public:
  Identity(const LayerImpl& impl, const LayerProblem& p) : Move(impl, p) {
    const Strides in = in_strides(impl, p);
    for (std::size_t i = 0; i < p.out.size(); ++i) {
      const Strides out = out_strides(impl, p, i);
      copies_.add(0, in.base, static_cast<int>(i), out.base, whole(in, out, p.in[0]));
    }
  }
};

class Constant final : public Move {
 public:
  Constant(const LayerImpl& impl, const LayerProblem& p)
      : Move(impl, p), value_(*p.blobs[0].data), source_{value_.data()} {
    const Strides in = strides(Layout::chw, p.out[0]), out = out_strides(impl, p);
    copies_.add(0, 0, 0, out.base, whole(in, out, p.out[0]));
  }

  std::size_t packed_bytes() const override { return value_.size() * sizeof(float); }

  void run(const LayerArgs& args) const noexcept override {
    Move::run({source_.data(), args.out, args.workspace});
  }

 private:
  std::vector<float> value_;
  std::array<const float*, 1> source_;
};

constexpr LayerImpl kRows[] = {
    {"concat-chw", "concat", Layout::chw, Layout::chw, false, accept, make<Concat>},
    {"concat-hcw", "concat", Layout::hcw, Layout::hcw, false, accept, make<Concat>},
    {"concat-hwc", "concat", Layout::hwc, Layout::hwc, false, accept, make<Concat>},
    {"concat-chw8c", "concat", Layout::chw8c, Layout::chw8c, false, accept, make<Concat>},
    {"concat-chw16c", "concat", Layout::chw16c, Layout::chw16c, false, accept, make<Concat>},
    {"slice-chw", "slice", Layout::chw, Layout::chw, false, accept, make<SliceLayer>},
    {"slice-hcw", "slice", Layout::hcw, Layout::hcw, false, accept, make<SliceLayer>},
    {"slice-hwc", "slice", Layout::hwc, Layout::hwc, false, accept, make<SliceLayer>},
    {"slice-chw8c", "slice", Layout::chw8c, Layout::chw8c, false, accept, make<SliceLayer>},
    {"slice-chw16c", "slice", Layout::chw16c, Layout::chw16c, false, accept, make<SliceLayer>},
    {"crop-chw", "crop", Layout::chw, Layout::chw, false, accept, make<Crop>},
    {"crop-hcw", "crop", Layout::hcw, Layout::hcw, false, accept, make<Crop>},
    {"crop-hwc", "crop", Layout::hwc, Layout::hwc, false, accept, make<Crop>},
    {"crop-chw8c", "crop", Layout::chw8c, Layout::chw8c, false, accept, make<Crop>},
    {"crop-chw16c", "crop", Layout::chw16c, Layout::chw16c, false, accept, make<Crop>},
    {"pad-chw", "pad", Layout::chw, Layout::chw, false, accept, make<Pad>},
    {"pad-hcw", "pad", Layout::hcw, Layout::hcw, false, accept, make<Pad>},
    {"pad-hwc", "pad", Layout::hwc, Layout::hwc, false, accept, make<Pad>},
    {"pad-chw8c", "pad", Layout::chw8c, Layout::chw8c, false, accept, make<Pad>},
    {"pad-chw16c", "pad", Layout::chw16c, Layout::chw16c, false, accept, make<Pad>},
    {"permute-chw", "permute", Layout::chw, Layout::chw, false, accept, make<Permute>},
    {"permute-hwc", "permute", Layout::hwc, Layout::hwc, false, accept, make<Permute>},
    {"permute-hwc-chw", "permute", Layout::hwc, Layout::chw, false, accept, make<Permute>},
    {"permute-chw8c-chw", "permute", Layout::chw8c, Layout::chw, false, accept, make<Permute>},
    {"permute-chw16c-chw", "permute", Layout::chw16c, Layout::chw, false, accept, make<Permute>},
    {"flatten-chw", "flatten", Layout::chw, Layout::chw, true, reject_flatten, make<Flatten>},
    {"flatten-hcw", "flatten", Layout::hcw, Layout::chw, false, reject_flatten, make<Flatten>},
    {"flatten-hwc", "flatten", Layout::hwc, Layout::chw, false, reject_flatten, make<Flatten>},
    {"flatten-chw8c", "flatten", Layout::chw8c, Layout::chw, false, reject_flatten, make<Flatten>},
    {"flatten-chw16c", "flatten", Layout::chw16c, Layout::chw, false, reject_flatten,
     make<Flatten>},
    {"reshape-chw", "reshape", Layout::chw, Layout::chw, true, reject_flatten, make<Flatten>},
    {"reshape-hcw", "reshape", Layout::hcw, Layout::chw, false, reject_flatten, make<Flatten>},
    {"reshape-hwc", "reshape", Layout::hwc, Layout::chw, false, reject_flatten, make<Flatten>},
    {"reshape-chw8c", "reshape", Layout::chw8c, Layout::chw, false, reject_flatten, make<Flatten>},
    {"reshape-chw16c", "reshape", Layout::chw16c, Layout::chw, false, reject_flatten,
     make<Flatten>},
    {"shuffle-chw", "shuffle", Layout::chw, Layout::chw, false, accept, make<Shuffle>},
    {"shuffle-hcw", "shuffle", Layout::hcw, Layout::hcw, false, accept, make<Shuffle>},
    {"shuffle-hwc", "shuffle", Layout::hwc, Layout::hwc, false, accept, make<Shuffle>},
    {"shuffle-chw8c", "shuffle", Layout::chw8c, Layout::chw8c, false, accept, make<Shuffle>},
    {"shuffle-chw16c", "shuffle", Layout::chw16c, Layout::chw16c, false, accept, make<Shuffle>},
    {"constant-chw", "constant", Layout::chw, Layout::chw, false, accept, make<Constant>},
    {"constant-hcw", "constant", Layout::hcw, Layout::hcw, false, accept, make<Constant>},
    {"constant-hwc", "constant", Layout::hwc, Layout::hwc, false, accept, make<Constant>},
    {"constant-chw8c", "constant", Layout::chw8c, Layout::chw8c, false, accept, make<Constant>},
    {"constant-chw16c", "constant", Layout::chw16c, Layout::chw16c, false, accept, make<Constant>},
    {"identity-chw", "identity", Layout::chw, Layout::chw, true, accept, make<Identity>},
    {"identity-hcw", "identity", Layout::hcw, Layout::hcw, true, accept, make<Identity>},
    {"identity-hwc", "identity", Layout::hwc, Layout::hwc, true, accept, make<Identity>},
    {"identity-chw8c", "identity", Layout::chw8c, Layout::chw8c, true, accept, make<Identity>},
    {"identity-chw16c", "identity", Layout::chw16c, Layout::chw16c, true, accept, make<Identity>},
};

}  // namespace

std::span<const LayerImpl> move_rows() { return kRows; }

}  // namespace convprim
