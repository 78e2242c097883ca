// Element-wise functions of one tensor: runs of memory, whatever the layout.
#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

using Kind = ActivationOp::Kind;

static_assert(static_cast<int>(Kind::softplus) + 1 == kernels::kActKinds);

/// True if f(0) is 0, so that padding lanes need no care.
bool keeps_zero(const ActivationOp& op) {
  switch (op.kind) {
    case Kind::clamp:
      return op.lo <= 0 && op.hi >= 0;
    case Kind::leaky:
    case Kind::tanh:
    case Kind::elu:
    case Kind::swish:
    case Kind::hard_swish:
    case Kind::abs:
      return true;
    default:
      return false;
  }
}

class Activation final : public PreparedLayer {
 public:
  Activation(const LayerImpl& impl, const LayerProblem& p)
      : op_(op_of<ActivationOp>(p)),
        shape_(p.out[0]),
        runs_(runs_of(impl.out, p.out[0], p.slice)),
        out_(out_strides(impl, p)),
        threads_(useful_threads(p.threads, 2 * shape_.count())) {}

  void run(const LayerArgs& args) const noexcept override {
    const auto kernel = kernels::active().activation->run[static_cast<int>(op_.kind)];
    const kernels::ActParams params = {op_.lo,    op_.hi,    op_.slope,
                                       op_.scale, op_.shift, op_.exponent};
    parallel(threads_, [&](int thread, int team) {
      for_runs(runs_, thread, team, [&](Index in, Index out, Index n) {
        kernel(args.in[0] + in, args.out[0] + out, n, params);
      });
      if (!keeps_zero(op_)) {
        team_barrier(team);
        zero_lanes(out_, shape_, args.out[0], share(shape_.n, thread, team));
      }
    });
  }

 private:
  ActivationOp op_;
  Shape shape_;
  Runs runs_;
  Strides out_;
  int threads_;
};

constexpr LayerImpl kRows[] = {
    {"act-chw", "act", Layout::chw, Layout::chw, true, accept, make<Activation>},
    {"act-hcw", "act", Layout::hcw, Layout::hcw, true, accept, make<Activation>},
    {"act-hwc", "act", Layout::hwc, Layout::hwc, true, accept, make<Activation>},
    {"act-chw8c", "act", Layout::chw8c, Layout::chw8c, true, accept, make<Activation>},
    {"act-chw16c", "act", Layout::chw16c, Layout::chw16c, true, accept, make<Activation>},
};

}  // namespace

std::span<const LayerImpl> activation_rows() { return kRows; }

}  // namespace convprim
