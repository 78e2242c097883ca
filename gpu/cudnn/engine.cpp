// The cuDNN engine: a device started when first needed, and programs on it.
//
// Each stream has a cuDNN handle and a workspace of its own. A run puts the program's commands on
// the streams, or replays a CUDA graph captured from them; the host waits only at the end.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "convprim/costs.hpp"
#include "convprim/cpu.hpp"
#include "gpu/cuda.hpp"
#include "gpu/cudnn/kernels.hpp"

namespace convprim::ios {
namespace {

constexpr std::size_t kWorkspaceLimit = std::size_t{256} << 20;
constexpr int kRepeats = 8;  // of a stage in one captured graph, when it is measured
constexpr int kTimings = 7;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A stream with what belongs to it.
struct Lane {
  Stream stream;
  Cudnn handle;
  DeviceMemory workspace;
  Lane() { must(cudnnSetStream(handle, stream), "binding a stream"); }
};

/// The GPU with its streams and the kernels of one network.
class Device {
 public:
  Device(const OperatorGraph& graph, const CudaOptions& options)
      : graph_(graph), options_(options) {
    require_cuda();
    must(cudaSetDevice(0), "choosing the first GPU");
    must(cudaGetDeviceProperties(&properties_, 0), "asking for the GPU's properties");
    if (!options.costs.empty())
      store_.emplace(options.costs, Machine{uuid(), "cudnn", cuda_version(), 0});
    lane(0);
  }

  const OperatorGraph& graph() const { return graph_; }
  const CudaOptions& options() const { return options_; }
  std::string name() const { return properties_.name; }
  std::string uuid() const {
    std::string text;
    for (char c : properties_.uuid.bytes)
      text += fmt::format("{:02x}", static_cast<unsigned char>(c));
    return text;
  }

  Lane& lane(int i) {
    while (static_cast<int>(lanes_.size()) <= i) lanes_.push_back(std::make_unique<Lane>());
    return *lanes_[at(i)];
  }

  /// Makes a lane's workspace at least that large. Graphs captured before keep the old one's
  /// address, so runs are prepared before any is captured, or captured anew: see CudaRun.
  bool grow_workspace(int i, std::size_t bytes) {
    Lane& l = lane(i);
    if (l.workspace.bytes() >= bytes) return false;
    must(cudaDeviceSynchronize(), "waiting for the GPU");
    l.workspace = DeviceMemory(bytes);
    ++generation_;
    return true;
  }
  /// Changes whenever a workspace moves.
  int generation() const { return generation_; }

  std::shared_ptr<Kernel> kernel(const Step& step) {
    // Copies depend on where their step's tensors lie.
    const Op& op = graph_.net.layers[at(step.layers[0])].op;
    const bool shared = step.kind == Step::Kind::layer && !std::holds_alternative<ConcatOp>(op);
    if (shared) {
      if (const auto it = kernels_.find(step.layers[0]); it != kernels_.end()) return it->second;
    }
    std::shared_ptr<Kernel> made = make_kernel(graph_, step, options_.tf32);
    Loader loader;
    loader.handle = lane(0).handle;
    loader.workspace_limit = kWorkspaceLimit;
    loader.find_algorithm = [&](const std::string& problem) { return find_algorithm(problem); };
    loader.keep_algorithm = [&](const std::string& problem, int algorithm, double seconds) {
      algorithms_[problem] = algorithm;
      if (store_) store_->put(algorithm_key(problem, algorithm), {seconds, 1, Cost::Stage::quick});
    };
    made->load(loader);
    if (shared) kernels_[step.layers[0]] = made;
    return made;
  }

 private:
  const OperatorGraph& graph_;
  CudaOptions options_;
  cudaDeviceProp properties_ = {};
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::map<LayerId, std::shared_ptr<Kernel>> kernels_;
  static CostKey algorithm_key(const std::string& problem, int algorithm) {
    return {CostKind::convolution, problem, fmt::format("cudnn algorithm {}", algorithm), 0};
  }

  int find_algorithm(const std::string& problem) {
    const auto known = algorithms_.find(problem);
    if (known != algorithms_.end()) return known->second;
    for (int i = 0; store_ && i < CUDNN_CONVOLUTION_FWD_ALGO_COUNT; ++i) {
      if (store_->find(algorithm_key(problem, i))) return algorithms_[problem] = i;
    }
    return -1;
  }

  std::map<std::string, int> algorithms_;
  std::optional<CostStore> store_;
  int generation_ = 0;
};

class CudaRun final : public Run {
 public:
  CudaRun(Device& device, std::span<const StagePlan> stages)
      : device_(device), program_(compile(device.graph(), stages)), arena_(program_.arena.bytes) {
    must(cudaMemset(arena_.data(), 0, arena_.bytes()), "clearing the arena");
    for (const Step& step : program_.steps) bind(step);
    for (int i = 0; i < program_.events; ++i) events_.emplace_back();
  }

  const Program& program() const override { return program_; }

  void set(TensorId t, std::span<const float> values) override {
    must(cudaMemcpy(address(program_.tensors[at(t)]), values.data(), values.size_bytes(),
                    cudaMemcpyHostToDevice),
         "copying an input");
  }

  std::vector<float> values(TensorId t) const override {
    const View& v = program_.tensors[at(t)];
    const Shape& s = device_.graph().net.tensors[at(t)].shape;
    const auto row = static_cast<std::size_t>(s.c * s.h * s.w) * sizeof(float);
    std::vector<float> all(static_cast<std::size_t>(s.count()));
    must(cudaMemcpy2D(all.data(), row, address(v) + v.begin * s.h * s.w,
                      static_cast<std::size_t>(v.channels * s.h * s.w) * sizeof(float), row,
                      static_cast<std::size_t>(s.n), cudaMemcpyDeviceToHost),
         "copying an output");
    return all;
  }

  double run() override {
    if (device_.options().graph) capture(1);
    const double start = now();
    submit();
    wait();
    return now() - start;
  }

  std::vector<StepTime> run_timed() override {
    std::vector<StepTime> times;
    std::vector<TimedEvent> begin(program_.steps.size()), end(program_.steps.size());
    TimedEvent start;
    must(cudaEventRecord(start, device_.lane(0).stream), "recording an event");
    issue([&](int step, cudaStream_t stream, bool after) {
      must(cudaEventRecord(after ? end[at(step)] : begin[at(step)], stream), "recording an event");
    });
    wait();
    for (const Command& c : program_.commands) {
      if (c.kind != Command::Kind::run) continue;
      float from = 0, to = 0;
      must(cudaEventElapsedTime(&from, start, begin[at(c.index)]), "reading an event");
      must(cudaEventElapsedTime(&to, start, end[at(c.index)]), "reading an event");
      times.push_back(
          {c.index, c.stream, 1e-3 * static_cast<double>(from), 1e-3 * static_cast<double>(to)});
    }
    return times;
  }

  /// Seconds of one pass when many follow one another, without the host between them.
  double measure() {
    const bool graph = device_.options().graph;
    if (graph) capture(kRepeats);
    const auto pass = [&] {
      for (int i = 0; i < (graph ? 1 : kRepeats); ++i) submit();
    };
    pass();
    wait();
    TimedEvent start, end;
    std::vector<double> seconds;
    for (int i = 0; i < kTimings; ++i) {
      must(cudaEventRecord(start, device_.lane(0).stream), "recording an event");
      pass();
      must(cudaEventRecord(end, device_.lane(0).stream), "recording an event");
      wait();
      float ms = 0;
      must(cudaEventElapsedTime(&ms, start, end), "reading an event");
      seconds.push_back(1e-3 * static_cast<double>(ms) / kRepeats);
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[kTimings / 2];
  }

 private:
  struct Bound {
    std::shared_ptr<Kernel> kernel;
    std::vector<const float*> in;
    std::vector<float*> out;
  };

  float* address(const View& v) const {
    return arena_.data() + program_.arena.offsets[at(v.buffer)] / sizeof(float);
  }

  void bind(const Step& step) {
    const Network& net = device_.graph().net;
    const Layer& layer = net.layers[at(step.layers[0])];
    Bound& bound = steps_.emplace_back();
    bound.kernel = device_.kernel(step);
    // Copies find slices themselves; others read those that are contiguous.
    const bool copies = step.kind == Step::Kind::copy || std::holds_alternative<ConcatOp>(layer.op);
    for (std::size_t i = 0; i < step.in.size(); ++i) {
      const View& v = step.in[i];
      const Shape& s = net.tensors[at(layer.inputs[i])].shape;
      bound.in.push_back(address(v) + (copies ? 0 : v.begin * s.h * s.w));
    }
    for (const View& v : step.out) bound.out.push_back(address(v));
    device_.grow_workspace(step.group, bound.kernel->workspace_bytes());
  }

  template <class Mark>
  void issue(Mark mark) {
    for (const Command& c : program_.commands) {
      Lane& lane = device_.lane(c.stream);
      if (c.kind == Command::Kind::record) {
        must(cudaEventRecord(events_[at(c.index)], lane.stream), "recording an event");
      } else if (c.kind == Command::Kind::wait) {
        must(cudaStreamWaitEvent(lane.stream, events_[at(c.index)], 0), "waiting for an event");
      } else {
        const Bound& b = steps_[at(c.index)];
        mark(c.index, lane.stream, false);
        b.kernel->launch({lane.handle, lane.stream, lane.workspace.data(), lane.workspace.bytes()},
                         b.in.data(), b.out.data());
        mark(c.index, lane.stream, true);
      }
    }
  }

  void submit() {
    if (device_.options().graph) {
      must(cudaGraphLaunch(graph_, device_.lane(0).stream), "launching a graph");
    } else {
      issue([](int, cudaStream_t, bool) {});
    }
  }

  void wait() { must(cudaStreamSynchronize(device_.lane(0).stream), "running on the GPU"); }

  /// Captures so many passes, one after another, unless that was done with today's workspaces.
  void capture(int passes) {
    if (captured_ == passes && generation_ == device_.generation()) return;
    // What a kernel sets up when it is first launched does not belong into a graph.
    issue([](int, cudaStream_t, bool) {});
    wait();
    const cudaStream_t stream = device_.lane(0).stream;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a graph");
    cudaGraph_t captured = nullptr;
    try {
      for (int i = 0; i < passes; ++i) issue([](int, cudaStream_t, bool) {});
    } catch (...) {
      cudaStreamEndCapture(stream, &captured);
      if (captured != nullptr) cudaGraphDestroy(captured);
      throw;
    }
    must(cudaStreamEndCapture(stream, &captured), "capturing a graph");
    cudaGraphExec_t made = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&made, captured, 0);
    cudaGraphDestroy(captured);
    must(status, "making a graph");
    graph_.reset(made);
    captured_ = passes;
    generation_ = device_.generation();
  }

  struct GraphOwner {
    cudaGraphExec_t graph = nullptr;
    GraphOwner() = default;
    GraphOwner(const GraphOwner&) = delete;
    GraphOwner& operator=(const GraphOwner&) = delete;
    ~GraphOwner() { reset(nullptr); }
    void reset(cudaGraphExec_t other) {
      if (graph != nullptr) cudaGraphExecDestroy(graph);
      graph = other;
    }
    operator cudaGraphExec_t() const { return graph; }
  };

  Device& device_;
  Program program_;
  DeviceMemory arena_;
  std::vector<Bound> steps_;
  std::vector<Event> events_;
  GraphOwner graph_;
  int captured_ = 0, generation_ = -1;
};

class CudaEngine final : public Engine, public StageCosts {
 public:
  CudaEngine(const OperatorGraph& graph, const CudaOptions& options)
      : graph_(graph), options_(options) {}

  std::unique_ptr<Run> prepare(std::span<const StagePlan> stages) override {
    return std::make_unique<CudaRun>(start(), stages);
  }
  StageCosts& costs() override { return *this; }
  std::string device_key() const override { return start().uuid(); }
  std::string version() const override {
    return fmt::format("{} {} {} {}", convprim::version(), cuda_version(),
                       options_.graph ? "graph" : "eager", options_.tf32 ? "tf32" : "fma");
  }

  std::string origin() const override { return "measured"; }
  std::string device() const override { return start().name(); }
  double seconds(const OperatorGraph&, const StagePlan& stage) override {
    return CudaRun(start(), std::span(&stage, 1)).measure();
  }

 private:
  Device& start() const {
    if (!device_) device_ = std::make_unique<Device>(graph_, options_);
    return *device_;
  }
  const OperatorGraph& graph_;
  CudaOptions options_;
  mutable std::unique_ptr<Device> device_;
};

}  // namespace

void require_cuda() {
  int count = 0;  // left alone where there is no driver
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return;
  throw NoDevice(fmt::format("no GPU: CUDA finds {} ({}); use --device cpu or simulated",
                             count > 0 ? "one that it cannot use" : "none",
                             status == cudaSuccess ? "no device" : cudaGetErrorString(status)));
}

std::string cuda_version() {
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  const auto cudnn = static_cast<int>(cudnnGetVersion());
  return fmt::format("CUDA {}.{}, cuDNN {}.{}.{}", runtime / 1000, runtime % 1000 / 10,
                     cudnn / 10000, cudnn % 10000 / 100, cudnn % 100);
}

std::unique_ptr<Engine> cuda_engine(const OperatorGraph& graph, const CudaOptions& options) {
  require_cuda();
  return std::make_unique<CudaEngine>(graph, options);
}

}  // namespace convprim::ios
