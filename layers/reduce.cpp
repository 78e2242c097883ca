// Reductions over axes, in every layout. Sums, means and maxima over height and width are global
// pooling; all others are summed in double, one output after the other.
#include <cmath>

#include "layers/common.hpp"
#include "layers/registry.hpp"

namespace convprim {
namespace {

using Kind = ReduceOp::Kind;

class Reduce final : public PreparedLayer {
 public:
  Reduce(const LayerImpl& impl, const LayerProblem& p)
      : op_(op_of<ReduceOp>(p)),
        in_shape_(p.in[0]),
        shape_(p.out[0]),
        in_(in_strides(impl, p)),
        out_(out_strides(impl, p)),
        threads_(useful_threads(p.threads, in_shape_.count())) {
    const bool image = !op_.axes[0] && !op_.axes[1] && op_.axes[2] && op_.axes[3];
    if (!image || !(op_.kind == Kind::sum || op_.kind == Kind::mean || op_.kind == Kind::max))
      return;
    PoolOp pool;
    pool.global = true;
    pool.method = op_.kind == Kind::max ? PoolOp::Method::max : PoolOp::Method::avg;
    const Op op = pool;
    LayerProblem problem = p;
    problem.op = &op;
    for (const LayerImpl& row : pool_rows()) {
      if (row.in == impl.in) pool_ = row.prepare(problem);
    }
    factor_ = op_.coeff;
    if (op_.kind == Kind::sum) factor_ *= static_cast<float>(in_shape_.h * in_shape_.w);
  }

  std::size_t workspace_bytes() const override { return pool_ ? pool_->workspace_bytes() : 0; }

  void run(const LayerArgs& args) const noexcept override {
    if (pool_) {
      pool_->run(args);
      if (factor_ == 1) return;
      for (Index n = 0; n < shape_.n; ++n) {
        for (Index c = 0; c < shape_.c; ++c) args.out[0][out_.at(n, c, 0, 0)] *= factor_;
      }
      return;
    }
    parallel(threads_, [&](int thread, int team) {
      const Range r = share(shape_.count(), thread, team, 16);
      for (Index i = r.begin; i < r.end; ++i) {
        const Index w = i % shape_.w, h = i / shape_.w % shape_.h;
        const Index c = i / (shape_.w * shape_.h) % shape_.c;
        const Index n = i / (shape_.w * shape_.h * shape_.c);
        args.out[0][out_.at(n, c, h, w)] = static_cast<float>(value(args.in[0], n, c, h, w));
      }
      team_barrier(team);
      zero_lanes(out_, shape_, args.out[0], share(shape_.n, thread, team));
    });
  }

 private:
  double value(const float* in, Index n0, Index c0, Index h0, Index w0) const {
    const auto end = [](bool reduced, Index at, Index extent) { return reduced ? extent : at + 1; };
    double sum = op_.kind == Kind::max   ? -std::numeric_limits<double>::infinity()
                 : op_.kind == Kind::min ? std::numeric_limits<double>::infinity()
                                         : 0.0;
    for (Index n = n0; n < end(op_.axes[0], n0, in_shape_.n); ++n) {
      for (Index c = c0; c < end(op_.axes[1], c0, in_shape_.c); ++c) {
        for (Index h = h0; h < end(op_.axes[2], h0, in_shape_.h); ++h) {
          const float* row = in + in_.at(n, c, h, 0);
          for (Index w = w0; w < end(op_.axes[3], w0, in_shape_.w); ++w) {
            sum = join(sum, row[w * in_.w_stride]);
          }
        }
      }
    }
    if (op_.kind == Kind::mean) sum /= static_cast<double>(in_shape_.count() / shape_.count());
    if (op_.kind == Kind::l2) sum = std::sqrt(sum);
    return sum * static_cast<double>(op_.coeff);
  }

  double join(double sum, double x) const {
    switch (op_.kind) {
      case Kind::max:
        return std::max(sum, x);
      case Kind::min:
        return std::min(sum, x);
      case Kind::l1:
        return sum + std::abs(x);
      case Kind::l2:
      case Kind::sum_square:
        return sum + x * x;
      default:
        return sum + x;
    }
  }

  ReduceOp op_;
  Shape in_shape_, shape_;
  Strides in_, out_;
  int threads_;
  std::unique_ptr<PreparedLayer> pool_;
  float factor_ = 1;
};

constexpr LayerImpl kRows[] = {
    {"reduce-chw", "reduce", Layout::chw, Layout::chw, false, accept, make<Reduce>},
    {"reduce-hcw", "reduce", Layout::hcw, Layout::hcw, false, accept, make<Reduce>},
    {"reduce-hwc", "reduce", Layout::hwc, Layout::hwc, false, accept, make<Reduce>},
    {"reduce-chw8c", "reduce", Layout::chw8c, Layout::chw8c, false, accept, make<Reduce>},
    {"reduce-chw16c", "reduce", Layout::chw16c, Layout::chw16c, false, accept, make<Reduce>},
};

}  // namespace

std::span<const LayerImpl> reduce_rows() { return kRows; }

}  // namespace convprim
