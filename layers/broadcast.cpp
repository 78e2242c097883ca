// Element-wise functions of two tensors with broadcasting, in every layout.
//
// The tensors are nests of loops over images, blocks of channels, rows, columns and lanes, with a
// step of 0 where an operand is repeated; loops that continue each other are merged, and the
// innermost is a kernel. A factor for each channel of a blocked layout, as squeeze-and-excitation
// has it, would leave loops of 8 or 16: that case goes through the affine kernel.
#include <vector>

#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

using Kind = BroadcastOp::Kind;

static_assert(static_cast<int>(Kind::pow) + 1 == kernels::kBinaryKinds);

class Broadcast final : public PreparedLayer {
 public:
  Broadcast(const LayerImpl& impl, const LayerProblem& p)
      : kind_(op_of<BroadcastOp>(p).kind),
        shape_(p.out[0]),
        out_(out_strides(impl, p)),
        layout_(impl.out),
        threads_(useful_threads(p.threads, 3 * shape_.count())) {
    const Strides s[2] = {in_strides(impl, p, 0), in_strides(impl, p, 1)};
    for (int i = 0; i < 2; ++i) {
      const Shape& in = p.in[static_cast<std::size_t>(i)];
      const bool channels = in.c == shape_.c;
      step_[i] = {in.n == shape_.n ? s[i].n_stride : 0, channels ? s[i].c_stride : 0,
                  in.h == shape_.h ? s[i].h_stride : 0, in.w == shape_.w ? s[i].w_stride : 0,
                  channels ? Index{1} : 0};
      const bool factor = channels && in.h == 1 && in.w == 1;
      const bool linear = kind_ == Kind::mul || kind_ == Kind::add || kind_ == Kind::sub;
      const Shape& other = p.in[static_cast<std::size_t>(1 - i)];
      if (out_.block > 1 && factor && linear && other == shape_) per_channel_ = i;
    }
    if (per_channel_ < 0) make_loops();
  }

  void run(const LayerArgs& args) const noexcept override {
    parallel(threads_, [&](int thread, int team) {
      if (per_channel_ >= 0) {
        run_per_channel(args, thread, team);
      } else {
        run_loops(args, thread, team);
      }
      if (shape_.c % out_.block != 0) {
        team_barrier(team);
        zero_lanes(out_, shape_, args.out[0], share(shape_.n, thread, team));
      }
    });
  }

 private:
  struct Loop {
    Index extent, step[2], out;
  };

  void make_loops() {
    const Index extents[5] = {shape_.n, blocks_of(layout_, shape_), shape_.h, shape_.w, out_.block};
    const Index out[5] = {out_.n_stride, out_.c_stride, out_.h_stride, out_.w_stride, 1};
    for (std::size_t i = 0; i < 5; ++i) {
      if (extents[i] > 1) loops_.push_back({extents[i], {step_[0][i], step_[1][i]}, out[i]});
    }
    std::stable_sort(loops_.begin(), loops_.end(),
                     [](const Loop& a, const Loop& b) { return a.out > b.out; });
    for (std::size_t i = 0; i + 1 < loops_.size();) {
      const Loop &a = loops_[i], &b = loops_[i + 1];
      const bool continues = a.out == b.out * b.extent && a.step[0] == b.step[0] * b.extent &&
                             a.step[1] == b.step[1] * b.extent;
      if (!continues) {
        ++i;
        continue;
      }
      loops_[i] = {a.extent * b.extent, {b.step[0], b.step[1]}, b.out};
      loops_.erase(loops_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
    // The kernel's loop has steps of 0 and 1; a slice of one channel leaves wider ones.
    if (loops_.empty() || loops_.back().out != 1 || loops_.back().step[0] > 1 ||
        loops_.back().step[1] > 1) {
      loops_.push_back({1, {1, 1}, 1});
    }
    split_ = 0;
    for (std::size_t i = 1; i < loops_.size(); ++i) {
      if (loops_[i].extent > loops_[split_].extent) split_ = i;
    }
  }

  void run_loops(const LayerArgs& args, int thread, int team) const {
    const auto kernel = kernels::active().elementwise->binary[static_cast<int>(kind_)];
    const std::size_t depth = loops_.size();
    Index begin[6] = {}, end[6] = {}, at[6] = {};
    for (std::size_t i = 0; i < depth; ++i) {
      end[i] = loops_[i].extent;
      if (i == split_) {
        const Range r = share(loops_[i].extent, thread, team, i + 1 == depth ? 16 : 1);
        if (r.begin == r.end) return;
        begin[i] = r.begin;
        end[i] = r.end;
      }
      at[i] = begin[i];
    }
    const Loop& inner = loops_[depth - 1];
    while (true) {
      const float *a = args.in[0], *b = args.in[1];
      float* out = args.out[0] + out_.base;
      for (std::size_t i = 0; i < depth; ++i) {
        a += at[i] * loops_[i].step[0];
        b += at[i] * loops_[i].step[1];
        out += at[i] * loops_[i].out;
      }
      kernel(a, inner.step[0], b, inner.step[1], out, end[depth - 1] - begin[depth - 1]);
      std::size_t i = depth - 1;
      while (i > 0 && ++at[i - 1] == end[i - 1]) {
        at[i - 1] = begin[i - 1];
        --i;
      }
      if (i == 0) return;
    }
  }

  /// Blocked: x * f, x + f, x - f or f - x, one block of one image at a time.
  void run_per_channel(const LayerArgs& args, int thread, int team) const {
    const auto& kernels = *kernels::active().elementwise;
    const int f = per_channel_, x = 1 - f;
    const Index blocks = blocks_of(layout_, shape_), b = out_.block;
    const Range r = share(shape_.n * blocks, thread, team);
    for (Index i = r.begin; i < r.end; ++i) {
      const Index n = i / blocks, c = i % blocks;
      const float* factor = args.in[f] + n * step_[f][0] + c * step_[f][1];
      constexpr Index kPeriod = 16;
      float scale[kPeriod], shift[kPeriod];
      for (Index l = 0; l < kPeriod; ++l) {
        const float v = factor[l % b];
        scale[l] = kind_ == Kind::mul ? v : kind_ == Kind::sub && x == 1 ? -1.0F : 1.0F;
        shift[l] = kind_ == Kind::mul ? 0.0F : kind_ == Kind::sub && x == 0 ? -v : v;
      }
      kernels.affine_periodic(args.in[x] + n * step_[x][0] + c * step_[x][1],
                              args.out[0] + out_.at(n, c * b, 0, 0), shape_.h * shape_.w * b, scale,
                              shift, kPeriod);
    }
  }

  Kind kind_;
  Shape shape_;
  Strides out_;
  Layout layout_;
  int threads_;
  std::array<Index, 5> step_[2];
  int per_channel_ = -1;  // the operand that is a factor for each channel
  std::vector<Loop> loops_;
  std::size_t split_ = 0;
};

constexpr LayerImpl kRows[] = {
    {"broadcast-chw", "broadcast", Layout::chw, Layout::chw, false, accept, make<Broadcast>},
    {"broadcast-hcw", "broadcast", Layout::hcw, Layout::hcw, false, accept, make<Broadcast>},
    {"broadcast-hwc", "broadcast", Layout::hwc, Layout::hwc, false, accept, make<Broadcast>},
    {"broadcast-chw8c", "broadcast", Layout::chw8c, Layout::chw8c, false, accept, make<Broadcast>},
    {"broadcast-chw16c", "broadcast", Layout::chw16c, Layout::chw16c, false, accept,
     make<Broadcast>},
};

}  // namespace

std::span<const LayerImpl> broadcast_rows() { return kRows; }

}  // namespace convprim
