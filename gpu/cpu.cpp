// The CPU back end, see engine.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <map>
#include <numeric>

#include "buffer.hpp"
#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "convprim/layer.hpp"
#include "gpu/engine.hpp"
#include "gpu/merge.hpp"
#include "selector/candidates.hpp"
#include "selector/stopwatch.hpp"
#include "threads.hpp"

namespace convprim::ios {
namespace {

using Clock = std::chrono::steady_clock;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

/// Copies of channels between buffers: one for each image and part.
struct Part {
  std::size_t in = 0;      // input
  Index from = 0, to = 0;  // floats before it in an image
  Index count = 0;         // floats of an image
  Index from_image = 0, to_image = 0;
};

void copy_parts(const std::vector<Part>& parts, Index images, int threads, const float* const* in,
                float* out) noexcept {
  Index total = 0;
  for (const Part& p : parts) total += images * p.count;
  const int useful = static_cast<int>(std::clamp<Index>(total / 16384, 1, threads));
  // Every thread walks all parts and copies its share of each.
  parallel(useful, [&](int thread, int team) {
    for (const Part& p : parts) {
      const Range r = share(p.count, thread, team, 16);
      for (Index n = 0; n < images; ++n) {
        std::memcpy(out + n * p.to_image + p.to + r.begin,
                    in[p.in] + n * p.from_image + p.from + r.begin,
                    static_cast<std::size_t>(r.end - r.begin) * sizeof(float));
      }
    }
  });
}

/// A step made ready for a number of threads.
struct CpuStep {
  std::unique_ptr<Convolution> convolution;
  std::unique_ptr<PreparedLayer> layer;
  std::vector<Part> parts;  // neither of the two: copies
  Index images = 1;
  int threads = 1;

  std::size_t workspace_bytes() const {
    return convolution ? convolution->workspace_bytes() : layer ? layer->workspace_bytes() : 0;
  }
  void run(const float* const* in, std::size_t inputs, float* const* out,
           void* workspace) const noexcept {
    if (convolution) {
      convolution->run({in[0], out[0], inputs > 1 ? in[1] : nullptr, workspace});
    } else if (layer) {
      layer->run({in, out, workspace});
    } else {
      copy_parts(parts, images, threads, in, out[0]);
    }
  }
};

/// Families that win from chw to chw somewhere; trying the others takes most of the time.
bool worth_trying(const Primitive& p) {
  return p.in == Layout::chw && p.out == Layout::chw && p.name != "direct-sum2d" &&
         p.family != Family::kn2 && p.family != Family::mec && p.family != Family::fft;
}

/// Prepares steps of one network and keeps what several stages use.
class CpuKernels {
 public:
  explicit CpuKernels(const OperatorGraph& graph) : graph_(graph) {}
  /// A step for so many threads.
  std::shared_ptr<const CpuStep> prepare(const Step& step, int threads);
  const OperatorGraph& graph() const { return graph_; }

 private:
  const Primitive* fastest(const Scenario& s, const Epilogue& epilogue, int threads);
  std::shared_ptr<const CpuStep> make(const Step& step, int threads);

  const OperatorGraph& graph_;
  std::map<std::pair<std::string, int>, const Primitive*> fastest_;
  std::map<std::pair<LayerId, int>, std::shared_ptr<const CpuStep>> layers_;
};

/// The fastest primitive from chw to chw, found by timing once for each problem and number of
/// threads.
const Primitive* CpuKernels::fastest(const Scenario& s, const Epilogue& epilogue, int threads) {
  const Primitive*& best = fastest_[{s.str(), threads}];
  if (best != nullptr) return best;
  const auto floats = [](Index n) { return Buffer::zeros(static_cast<std::size_t>(n)); };
  Buffer in = floats(s.in().count()), out = floats(s.out().count()),
         filter = floats(s.filter_count()), bias = floats(s.m);
  const Buffer residual = floats(epilogue.residual ? s.out().count() : 0);
  double least = std::numeric_limits<double>::infinity();
  for (const Primitive* p : primitives()) {
    if (!worth_trying(*p) || p->reject(s) != nullptr) continue;
    Options options;
    options.threads = threads;
    options.epilogue = epilogue;
    const auto prepared = p->prepare(s, {filter.data(), bias.data()}, options);
    Buffer workspace(prepared->workspace_bytes() / sizeof(float) + 1);
    // The first run warms up and sorts out what is hopeless.
    for (int run = 0; run < 3; ++run) {
      const double start = now();
      prepared->run(
          {in.data(), out.data(), epilogue.residual ? residual.data() : nullptr, workspace.data()});
      const double seconds = now() - start;
      if (seconds < least) least = seconds, best = p;
      if (seconds > 2 * least) break;
    }
  }
  // The textbook's sum solves what no other does.
  if (best == nullptr && find_primitive("direct-sum2d")->reject(s) == nullptr)
    best = find_primitive("direct-sum2d");
  if (best == nullptr) throw Error(fmt::format("no primitive from chw to chw solves {}", s.str()));
  return best;
}

std::shared_ptr<const CpuStep> CpuKernels::prepare(const Step& step, int threads) {
  if (step.kind != Step::Kind::layer) return make(step, threads);
  // Where a concatenation finds its inputs depends on the step.
  if (std::holds_alternative<ConcatOp>(graph_.net.layers[at(step.layers[0])].op))
    return make(step, threads);
  auto& known = layers_[{step.layers[0], threads}];
  if (!known) known = make(step, threads);
  return known;
}

std::shared_ptr<const CpuStep> CpuKernels::make(const Step& step, int threads) {
  const Network& net = graph_.net;
  const Layer& layer = net.layers[at(step.layers[0])];
  auto made = std::make_shared<CpuStep>();
  made->threads = threads;
  made->images = step.shape.n;
  const Index pixels = step.shape.h * step.shape.w;
  const auto* concat = std::get_if<ConcatOp>(&layer.op);
  if (step.kind == Step::Kind::copy) {
    const View& v = step.in[0];
    const Index count = step.shape.c * pixels;
    made->parts = {{0, v.begin * pixels, 0, count, v.channels * pixels, count}};
    return made;
  }
  if (concat != nullptr && concat->axis == 1) {
    Index to = 0;
    for (std::size_t i = 0; i < step.in.size(); ++i) {
      const View& v = step.in[i];
      const Index c = net.tensors[at(layer.inputs[i])].shape.c;
      made->parts.push_back({i, v.begin * pixels, to * pixels, c * pixels, v.channels * pixels,
                             step.shape.c * pixels});
      to += c;
    }
    return made;
  }
  if (const auto* conv = std::get_if<ConvOp>(&layer.op)) {
    Options options;
    options.threads = threads;
    options.epilogue = conv->epilogue;
    const MergedConv merged = merge(net, step.layers);
    const MergedWeights w = merged_weights(net, step.layers, merged);
    const Primitive* p = fastest(merged.scenario, conv->epilogue, threads);
    made->convolution = p->prepare(
        merged.scenario, {w.filter.data(), w.bias.empty() ? nullptr : w.bias.data()}, options);
    return made;
  }
  const LayerProblem problem = layer_problem(net, step.layers[0], threads);
  for (const LayerImpl* impl : layer_impls()) {
    if (impl->kind != kind(layer.op) || impl->in != Layout::chw || impl->out != Layout::chw)
      continue;
    if (impl->reject(problem) != nullptr) continue;
    made->layer = impl->prepare(problem);
    return made;
  }
  throw Error(fmt::format("layer \"{}\": nothing computes a {} of this shape in chw", layer.name,
                          kind(layer.op)));
}

/// A rough measure of a step's work, to share groups out.
double work(const OperatorGraph& graph, const Step& step) {
  double sum = static_cast<double>(step.shape.count());
  for (LayerId id : step.layers) {
    if (step.kind != Step::Kind::copy &&
        std::holds_alternative<ConvOp>(graph.net.layers[at(id)].op))
      sum += scenario_of(graph.net, id).macs();
  }
  return sum;
}

/// Groups by worker: the largest first, each to the worker with the least so far.
std::vector<std::vector<int>> share_out(const std::vector<double>& groups, int workers) {
  std::vector<int> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return groups[at(a)] > groups[at(b)]; });
  std::vector<std::vector<int>> shares(at(workers));
  std::vector<double> load(at(workers), 0);
  for (int g : order) {
    const auto w = std::min_element(load.begin(), load.end()) - load.begin();
    shares[static_cast<std::size_t>(w)].push_back(g);
    load[static_cast<std::size_t>(w)] += groups[at(g)];
  }
  return shares;
}

class CpuRun final : public Run {
 public:
  CpuRun(CpuKernels& kernels, std::span<const StagePlan> stages, int threads);
  const Program& program() const override { return program_; }
  void set(TensorId t, std::span<const float> values) override {
    std::copy(values.begin(), values.end(), address(program_.tensors[at(t)]));
  }
  std::vector<float> values(TensorId t) const override;
  double run() override {
    const double start = now();
    run_stages(nullptr);
    return now() - start;
  }
  std::vector<StepTime> run_timed() override {
    std::vector<StepTime> times(program_.steps.size());
    run_stages(times.data());
    return times;
  }
  /// Writes the inputs anew, as a run of the layers before would.
  void touch_inputs();

 private:
  struct Bound {
    std::shared_ptr<const CpuStep> step;
    std::vector<const float*> in;
    std::vector<float*> out;
  };
  void bind(CpuKernels& kernels, int s, int threads, int worker);
  /// Start of the buffer that a tensor lies in.
  float* address(const View& v) {
    return arena_.data() + program_.arena.offsets[at(v.buffer)] / sizeof(float);
  }
  void run_worker(std::size_t stage, std::size_t worker, StepTime* times, double start) noexcept;
  void run_stages(StepTime* times) noexcept;

  const OperatorGraph& graph_;
  Program program_;
  Buffer arena_;
  std::vector<Bound> steps_;
  /// workers_[stage][worker]: its steps in their order.
  std::vector<std::vector<std::vector<int>>> workers_;
  std::vector<Buffer> workspaces_;  // of each worker
};

CpuRun::CpuRun(CpuKernels& kernels, std::span<const StagePlan> stages, int threads)
    : graph_(kernels.graph()), program_(compile(graph_, stages)) {
  // A group's share of several threads is a team within a team.
  if (threads > 2) omp_set_max_active_levels(2);
  arena_ = Buffer::zeros(program_.arena.bytes / sizeof(float));
  steps_.resize(program_.steps.size());
  for (const auto& groups : program_.stages) {
    const int workers = std::min(threads, static_cast<int>(groups.size()));
    std::vector<double> loads;
    for (const auto& group : groups) {
      double sum = 0;
      for (int s : group) sum += work(graph_, program_.steps[at(s)]);
      loads.push_back(sum);
    }
    auto& lists = workers_.emplace_back();
    for (const auto& groups_of_worker : share_out(loads, workers)) {
      const auto w = static_cast<int>(lists.size());
      if (w == static_cast<int>(workspaces_.size())) workspaces_.emplace_back(1);
      auto& list = lists.emplace_back();
      for (int g : groups_of_worker) {
        for (int s : groups[at(g)]) {
          bind(kernels, s, threads / workers + (w < threads % workers ? 1 : 0), w);
          list.push_back(s);
        }
      }
    }
  }
}

void CpuRun::bind(CpuKernels& kernels, int s, int threads, int worker) {
  const Step& step = program_.steps[at(s)];
  const Layer& layer = graph_.net.layers[at(step.layers[0])];
  Bound& bound = steps_[at(s)];
  bound.step = kernels.prepare(step, threads);
  for (std::size_t i = 0; i < step.in.size(); ++i) {
    const View& v = step.in[i];
    // Copies find the slice of each image themselves; others read one that is contiguous.
    const Shape& shape = graph_.net.tensors[at(layer.inputs[i])].shape;
    const bool whole = !bound.step->parts.empty() || v.begin == 0;
    assert(whole || shape.n == 1);
    bound.in.push_back(address(v) + (whole ? 0 : v.begin * shape.h * shape.w));
  }
  for (const View& v : step.out) bound.out.push_back(address(v));
  Buffer& workspace = workspaces_[at(worker)];
  const std::size_t floats = bound.step->workspace_bytes() / sizeof(float) + 1;
  if (workspace.size() < floats) workspace = Buffer(floats);
}

std::vector<float> CpuRun::values(TensorId t) const {
  const View& v = program_.tensors[at(t)];
  const Shape& s = graph_.net.tensors[at(t)].shape;
  const float* from =
      arena_.data() + program_.arena.offsets[at(v.buffer)] / sizeof(float) + v.begin * s.h * s.w;
  std::vector<float> all;
  for (Index n = 0; n < s.n; ++n, from += v.channels * s.h * s.w)
    all.insert(all.end(), from, from + s.c * s.h * s.w);
  return all;
}

void CpuRun::run_worker(std::size_t stage, std::size_t worker, StepTime* times,
                        double start) noexcept {
  for (int s : workers_[stage][worker]) {
    const Bound& b = steps_[at(s)];
    const double begin = times != nullptr ? now() - start : 0;
    b.step->run(b.in.data(), b.in.size(), b.out.data(), workspaces_[worker].data());
    if (times != nullptr) times[s] = {s, static_cast<int>(worker), begin, now() - start};
  }
}

void CpuRun::run_stages(StepTime* times) noexcept {
  const double start = times != nullptr ? now() : 0;
  for (std::size_t stage = 0; stage < workers_.size(); ++stage) {
    const std::size_t workers = workers_[stage].size();
    // One team serves all: threads that slept through a stage of one group are those of the next.
    parallel(static_cast<int>(workers), [&](int thread, int team) {
      for (std::size_t w = at(thread); w < workers; w += at(team))
        run_worker(stage, w, times, start);
    });
  }
}

void CpuRun::touch_inputs() {
  for (TensorId t : program_.inputs) {
    const auto count = static_cast<std::size_t>(graph_.net.tensors[at(t)].shape.count());
    std::fill_n(address(program_.tensors[at(t)]), count, 0.5F);
  }
}

/// Measures each stage several times.
class CpuCosts final : public StageCosts {
 public:
  CpuCosts(CpuKernels& kernels, int threads) : kernels_(kernels), threads_(threads) {}
  std::string origin() const override { return "measured"; }
  std::string device() const override;
  double seconds(const OperatorGraph& graph, const StagePlan& stage) override;

 private:
  // Long stages vary less: they need fewer runs.
  static constexpr int kRuns = 3;
  static constexpr double kEnough = 0.02;  // seconds of runs
  void sweep();
  CpuKernels& kernels_;
  int threads_;
  Buffer sweep_;
};

std::string CpuCosts::device() const {
  return fmt::format("{}, {} thread{}", cpu_name(), threads_, threads_ == 1 ? "" : "s");
}

/// Puts the weights out of the caches, as a pass over the rest of the network does.
void CpuCosts::sweep() {
  if (sweep_.size() == 0)
    sweep_ = Buffer::zeros(static_cast<std::size_t>(sweep_megabytes(kernels_.graph().net)) << 18);
  parallel(threads_, [&](int thread, int team) {
    const Range r = share(static_cast<Index>(sweep_.size()), thread, team, 16);
    float sum = 0;
    for (Index i = r.begin; i < r.end; i += 16) sum += sweep_.data()[i];
    sweep_.data()[r.begin] = sum;
  });
}

double CpuCosts::seconds(const OperatorGraph&, const StagePlan& stage) {
  CpuRun run(kernels_, std::span(&stage, 1), threads_);
  run.run();
  std::vector<double> times;
  int disturbed = 0;
  double sum = 0;
  while (static_cast<int>(times.size()) < kRuns && sum < kEnough) {
    const auto prepare = [&] {
      sweep();
      run.touch_inputs();
    };
    times.push_back(undisturbed_seconds(2, disturbed, prepare, [&] { run.run(); }));
    sum += times.back();
  }
  std::sort(times.begin(), times.end());
  return times[(times.size() - 1) / 2];
}

class CpuEngine final : public Engine {
 public:
  CpuEngine(const OperatorGraph& graph, int threads)
      : kernels_(graph), costs_(kernels_, threads), threads_(threads) {}
  std::unique_ptr<Run> prepare(std::span<const StagePlan> stages) override {
    return std::make_unique<CpuRun>(kernels_, stages, threads_);
  }
  StageCosts& costs() override { return costs_; }
  std::string device_key() const override { return cpu_name(); }
  std::string version() const override {
    return fmt::format("{} {}", convprim::version(), name(isa()));
  }

 private:
  CpuKernels kernels_;
  CpuCosts costs_;
  int threads_;
};

}  // namespace

std::unique_ptr<Engine> cpu_engine(const OperatorGraph& graph, int threads) {
  return std::make_unique<CpuEngine>(graph, threads);
}

}  // namespace convprim::ios
