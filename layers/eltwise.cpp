// Element-wise functions of several tensors of one shape and layout: runs of memory, whatever the
// layout. Padding lanes stay zeros unless a clamp moves zero.
#include <vector>

#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

using Kind = EltwiseOp::Kind;

class Eltwise final : public PreparedLayer {
 public:
  Eltwise(const LayerImpl& impl, const LayerProblem& p)
      : op_(op_of<EltwiseOp>(p)),
        shape_(p.out[0]),
        count_(static_cast<int>(p.in.size())),
        runs_(runs_of(impl.out, p.out[0], p.slice)),
        out_(out_strides(impl, p)),
        threads_(useful_threads(p.threads, shape_.count() * (count_ + 1))) {}

  void run(const LayerArgs& args) const noexcept override {
    const auto& kernels = *kernels::active().elementwise;
    parallel(threads_, [&](int thread, int team) {
      for_runs(runs_, thread, team, [&](Index in, Index out, Index n) {
        // No more inputs at once than fit here; the rest follow in groups, through the output.
        constexpr int kGroup = 8;
        const float* inputs[kGroup];
        float* to = args.out[0] + out;
        for (int done = 0; done < count_;) {
          int fill = 0;
          float coeff[kGroup];
          if (done > 0) {
            inputs[fill] = to;
            coeff[fill++] = 1;
          }
          while (fill < kGroup && done < count_) {
            coeff[fill] = op_.coeff.empty() ? 1.0F : op_.coeff[static_cast<std::size_t>(done)];
            inputs[fill++] = args.in[done++] + in;
          }
          const bool last = done == count_;
          const float lo = last ? op_.lo : -std::numeric_limits<float>::infinity();
          const float hi = last ? op_.hi : std::numeric_limits<float>::infinity();
          switch (op_.kind) {
            case Kind::sum:
              kernels.sum(inputs, op_.coeff.empty() ? nullptr : coeff, fill, to, n, lo, hi);
              break;
            case Kind::prod:
              kernels.prod(inputs, fill, to, n, lo, hi);
              break;
            case Kind::max:
              kernels.max(inputs, fill, to, n, lo, hi);
              break;
          }
        }
      });
      if (op_.lo > 0 || op_.hi < 0) {
        team_barrier(team);
        zero_lanes(out_, shape_, args.out[0], share(shape_.n, thread, team));
      }
    });
  }

 private:
  EltwiseOp op_;
  Shape shape_;
  int count_;
  Runs runs_;
  Strides out_;
  int threads_;
};

constexpr LayerImpl kRows[] = {
    {"eltwise-chw", "eltwise", Layout::chw, Layout::chw, true, accept, make<Eltwise>},
    {"eltwise-hcw", "eltwise", Layout::hcw, Layout::hcw, true, accept, make<Eltwise>},
    {"eltwise-hwc", "eltwise", Layout::hwc, Layout::hwc, true, accept, make<Eltwise>},
    {"eltwise-chw8c", "eltwise", Layout::chw8c, Layout::chw8c, true, accept, make<Eltwise>},
    {"eltwise-chw16c", "eltwise", Layout::chw16c, Layout::chw16c, true, accept, make<Eltwise>},
};

}  // namespace

std::span<const LayerImpl> eltwise_rows() { return kRows; }

}  // namespace convprim
