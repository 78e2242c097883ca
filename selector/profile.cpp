// Profiling: what each candidate takes, measured in the state of the caches that a run of the whole
// network finds.
//
// Before each timed run the caches are swept by reading as much as a pass over the network does,
// once since the candidate ran last, as one pass does: caches keep part of what comes back through
// such a stream, code and weights (of a Zen 5, a run that takes 0.28 ms after one sweep takes 0.39
// after eight). Then workspace and output are touched, since the layers share one arena that stays
// in the caches, half of it by each other thread than will use it, since each layer cuts it in its
// own way; and at last the input is written anew: so the input lies where the layer before has left
// it, and the weights where the rest of the network has pushed them. What reads the network's input
// has no layer before it: its tensors are the largest, and a whole pass has gone since they were in
// use. Candidates for the same problem are compared with each other: one whose first run is far
// behind the best so far is not run again, and those near the best are measured a second time in
// interleaved rounds, since the smallest of many noisy medians is a biased one.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <thread>

#include "buffer.hpp"
#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "kernels/kernels.hpp"
#include "reference.hpp"
#include "selector/candidates.hpp"
#include "selector/measure_lock.hpp"
#include "selector/placement.hpp"
#include "selector/stopwatch.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

constexpr double kHopeless = 3;   // first run beyond this many times the best: not run again
constexpr double kClose = 1.15;   // within this of the best: measured again
constexpr int kRefineLimit = 8;   // at most so many candidates of a problem are measured again
constexpr int kFirstSweep = 128;  // MB, at most, before the run that tells which are hopeless
constexpr double kQuickSeconds = 0.01;   // timed work of a quick measurement
constexpr double kRefineSeconds = 0.08;  // and of a refined one, for each candidate

constexpr std::size_t kWorkspaceLimit = std::size_t{2} << 30;  // more: not measured, never chosen

constexpr int kTries = 5;       // repetitions of a run that other programs disturbed
constexpr int kMostMoves = 50;  // of the threads, after which it does not matter where they lie

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void fill_random(float* data, Index count) {
  std::uint32_t state = 12345;
  for (Index i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    data[i] = static_cast<float>(state >> 8) * 0x1p-23F - 1;
  }
}

Buffer random_buffer(Index count) {
  Buffer b(static_cast<std::size_t>(count));
  fill_random(b.data(), count);
  return b;
}

/// Pushes everything out of the caches that a pass over so many MB passes through.
class Sweeper {
 public:
  explicit Sweeper(int threads) : threads_(threads) {}
  void sweep(int megabytes) {
    const auto least = static_cast<Index>(2 * cache_bytes(2) / sizeof(float));
    const Index each = std::max<Index>(least, (Index{megabytes} << 18) / threads_);
    const auto total = static_cast<std::size_t>(each * threads_);
    if (data_.size() < total) data_ = Buffer::zeros(total);
    parallel(threads_, [&](int thread, int) {
      const float sum = kernels::active().machine->read_loop(data_.data() + thread * each, each);
      if (sum != 0) data_[0] = 0;  // never: the buffer holds zeros
    });
  }

 private:
  int threads_;
  Buffer data_;
};

/// Writes memory as the layer before would, with all threads, and without reading anything else:
/// its numbers change their sign.
void rewrite(Buffer& buffer, int threads, Index most = std::numeric_limits<Index>::max()) {
  const Index count = std::min(most, static_cast<Index>(buffer.size()));
  parallel(threads, [&](int thread, int team) {
    const Range r = share(count, thread, team, 16);
    float* const data = buffer.data();
    for (Index i = r.begin; i < r.end; ++i) data[i] = -data[i];
  });
}

/// Writes memory in which other tensors lay before, each cut among the threads in its own way: half
/// of it is then in the caches of others than the thread that writes it next.
void scatter(Buffer& buffer, int threads, Index most = std::numeric_limits<Index>::max()) {
  constexpr Index kPiece = 1024;  // floats
  const Index count = std::min(most, static_cast<Index>(buffer.size()));
  parallel(threads, [&](int thread, int team) {
    float* const data = buffer.data();
    for (Index begin = thread * kPiece; begin < count; begin += team * kPiece) {
      const Index end = std::min(begin + kPiece, count);
      for (Index i = begin; i < end; ++i) data[i] = -data[i];
    }
  });
}

/// Touches workspace as far as neighbouring layers have used the same memory for theirs: few need
/// more than fits their cores' caches.
void touch_workspace(Buffer& buffer, int threads) {
  scatter(buffer, threads, threads * static_cast<Index>(cache_bytes(2) / sizeof(float)));
}

/// A candidate ready to be timed.
class Subject {
 public:
  Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  virtual ~Subject() = default;
  virtual Sizes sizes() const { return {}; }
  virtual bool cold() const { return false; }  ///< its tensors are as cold as its weights
  virtual void refresh_workspace() {}
  virtual void refresh_tensors() = 0;  ///< touches the outputs, then writes the inputs
  virtual void run() = 0;
};

class ConvolutionSubject final : public Subject {
 public:
  ConvolutionSubject(const Primitive& primitive, const Scenario& s, bool residual, bool cold,
                     int threads)
      : threads_(threads), cold_(cold) {
    const Buffer filter = random_buffer(s.filter_count()), bias = random_buffer(s.m);
    Options options;
    options.threads = threads;
    options.epilogue.residual = residual;
    options.epilogue.lo = 0;
    convolution_ = primitive.prepare(s, {filter.data(), bias.data()}, options);
    in_ = random_buffer(element_count(primitive.in, s.in()));
    out_ = Buffer::zeros(static_cast<std::size_t>(element_count(primitive.out, s.out())));
    // The sum is mostly written over the residual, which no later layer reads.
    if (residual) residual_ = out_.data();
  }
  bool cold() const override { return cold_; }
  Sizes sizes() const override {
    return {convolution_->workspace_bytes(), convolution_->packed_bytes()};
  }
  void refresh_workspace() override {
    if (workspace_.size() == 0) workspace_ = Buffer::zeros(sizes().workspace / sizeof(float) + 1);
    touch_workspace(workspace_, threads_);
  }
  void refresh_tensors() override {
    scatter(out_, threads_);
    rewrite(in_, threads_);
  }
  void run() override {
    convolution_->run({in_.data(), out_.data(), residual_, workspace_.data()});
  }

 private:
  int threads_;
  bool cold_;
  std::unique_ptr<Convolution> convolution_;
  Buffer in_, out_, workspace_;
  const float* residual_ = nullptr;
};

class LayerSubject final : public Subject {
 public:
  LayerSubject(const LayerImpl& impl, const LayerProblem& problem) : threads_(problem.threads) {
    layer_ = impl.prepare(problem);
    for (const Shape& shape : problem.in)
      in_.push_back(random_buffer(element_count(impl.in, shape)));
    for (const Shape& shape : problem.out)
      out_.push_back(Buffer::zeros(static_cast<std::size_t>(element_count(impl.out, shape))));
    for (const Buffer& b : in_) in_pointers_.push_back(b.data());
    for (Buffer& b : out_) out_pointers_.push_back(b.data());
    workspace_ = Buffer::zeros(layer_->workspace_bytes() / sizeof(float) + 1);
  }
  Sizes sizes() const override { return {layer_->workspace_bytes(), layer_->packed_bytes()}; }
  void refresh_workspace() override { touch_workspace(workspace_, threads_); }
  void refresh_tensors() override {
    for (Buffer& b : out_) scatter(b, threads_);
    for (Buffer& b : in_) rewrite(b, threads_);
  }
  void run() override {
    layer_->run({in_pointers_.data(), out_pointers_.data(), workspace_.data()});
  }

 private:
  int threads_;
  std::unique_ptr<PreparedLayer> layer_;
  std::vector<Buffer> in_, out_;
  std::vector<const float*> in_pointers_;
  std::vector<float*> out_pointers_;
  Buffer workspace_;
};

class ConversionSubject final : public Subject {
 public:
  ConversionSubject(const Conversion& conversion, const Shape& shape, int threads)
      : conversion_(conversion),
        shape_(shape),
        threads_(threads),
        in_(random_buffer(element_count(conversion.from, shape))),
        out_(Buffer::zeros(static_cast<std::size_t>(element_count(conversion.to, shape)))) {}
  void refresh_tensors() override {
    scatter(out_, threads_);
    rewrite(in_, threads_);
  }
  void run() override { conversion_.run(shape_, in_.data(), out_.data(), {}, threads_); }

 private:
  const Conversion& conversion_;
  Shape shape_;
  int threads_;
  Buffer in_, out_;
};

/// One measurement to take.
struct Task {
  CostKey key;
  double work = 0;  ///< guessed seconds, for the estimate of the time left
  std::function<std::unique_ptr<Subject>()> make;
};

/// Tasks that are candidates for the same problem, the likely best first.
struct Group {
  std::string label;
  std::vector<Task> tasks;
  bool rivals = true;  ///< false: each is needed for itself, none is hopeless (conversions)
};

/// Families in the order in which to measure, so that hopeless candidates meet a good best early.
int order(Family family) {
  constexpr Family kOrder[] = {
      Family::implicit, Family::depthwise, Family::onednn, Family::winograd, Family::conv_1x1,
      Family::im2,      Family::mec,       Family::fft,    Family::kn2,      Family::direct};
  return static_cast<int>(std::find(std::begin(kOrder), std::end(kOrder), family) -
                          std::begin(kOrder));
}

std::vector<Group> collect(const Network& net, Filter filter, const CostStore& store) {
  filter.force.clear();  // other layers may pose the same problem

  const int threads = store.machine().threads;
  std::vector<Group> groups;
  std::map<std::pair<CostKind, std::string>, bool> seen;
  std::map<std::string, Shape> shapes;
  for (LayerId id = 0; id < static_cast<LayerId>(net.layers.size()); ++id) {
    const Layer& layer = net.layers[static_cast<std::size_t>(id)];
    for (TensorId t : layer.outputs) {
      const Shape& shape = net.tensors[static_cast<std::size_t>(t)].shape;
      if (known(shape)) shapes.emplace(text(shape), shape);
    }
    auto all = choices(net, id, filter);
    std::erase_if(all, [](const Choice& c) { return c.free(); });
    if (all.empty() || !seen.emplace(std::pair{all[0].key.kind, all[0].key.problem}, true).second)
      continue;
    Group group;
    group.label = all[0].key.problem;
    std::stable_sort(all.begin(), all.end(), [](const Choice& a, const Choice& b) {
      const auto rank = [](const Choice& c) {
        return c.primitive == nullptr                ? 0
               : c.primitive->name == "direct-sum2d" ? 99
                                                     : order(c.primitive->family);
      };
      return rank(a) < rank(b);
    });
    for (const Choice& c : all) {
      Task task;
      task.key = c.key;
      const double each = 0.005 + 0.0004 * c.key.sweep;  // preparing, and sweeping before each run
      if (c.primitive != nullptr) {
        const Scenario s = scenario_of(net, id);
        const bool residual = std::get<ConvOp>(layer.op).epilogue.residual;
        const bool cold = reads_network_input(net, id);
        task.work = s.macs() * 2e-10 + each;
        task.make = [&primitive = *c.primitive, s, residual, cold, threads] {
          return std::make_unique<ConvolutionSubject>(primitive, s, residual, cold, threads);
        };
      } else {
        task.work = each;
        for (const Blob& b : layer.blobs) task.work += static_cast<double>(b.count()) * 1e-8;
        task.make = [&impl = *c.impl, &net, id, threads] {
          return std::make_unique<LayerSubject>(impl, layer_problem(net, id, threads));
        };
      }
      group.tasks.push_back(std::move(task));
    }
    groups.push_back(std::move(group));
    // A concat that copies only some of its inputs into place.
    if (std::holds_alternative<ConcatOp>(layer.op)) {
      for (TensorId t : layer.inputs) {
        const Shape& part = net.tensors[static_cast<std::size_t>(t)].shape;
        const std::string problem = str(copy_problem(part, 1));
        if (!seen.emplace(std::pair{CostKind::layer, problem}, true).second) continue;
        Group copies{.label = problem, .tasks = {}, .rivals = false};
        for (Layout layout : kLayouts) {
          const LayerImpl* impl = copy_impl(layout);
          if (impl == nullptr || impl->reject(copy_problem(part, threads)) != nullptr) continue;
          copies.tasks.push_back(
              {{CostKind::layer, problem, std::string(impl->name)}, 0.001, [impl, part, threads] {
                 return std::make_unique<LayerSubject>(*impl, copy_problem(part, threads));
               }});
        }
        groups.push_back(std::move(copies));
      }
    }
  }
  for (const auto& [label, shape] : shapes) {
    Group group{.label = label, .tasks = {}, .rivals = false};
    for (const Conversion& conversion : conversions()) {
      group.tasks.push_back(
          {conversion_key(shape, conversion), 0.001 + 1e-8 * static_cast<double>(shape.count()),
           [&conversion, shape = shape, threads] {
             return std::make_unique<ConversionSubject>(conversion, shape, threads);
           }});
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

class Profiler {
 public:
  Profiler(CostStore& store, const std::function<void(const Progress&)>& report, bool sizes_wanted)
      : store_(store),
        report_(report),
        sweeper_(store.machine().threads),
        sizes_wanted_(sizes_wanted) {}

  ProfileReport run(const std::vector<Group>& groups) {
    const auto start = Clock::now();
    store_.place(threads_apart(store_.machine().threads));
    MeasureLock lock(store_.path());
    std::size_t measured_elsewhere = 0;
    for (;;) {
      if (lacks_something(groups)) wait_for(lock);
      measured_elsewhere = progress_.measured;
      progress_.total = progress_.done = 0;
      work_left_ = 0;
      for (const Group& group : groups) {
        progress_.total += group.tasks.size();
        for (const Task& task : group.tasks) {
          if (!store_.find(task.key)) work_left_ += task.work;
        }
      }
      try {
        for (const Group& group : groups) measure(group);
        break;
      } catch (const Moved&) {
      }
    }
    progress_.now.clear();
    progress_.seconds_left = 0;
    if (report_) report_(progress_);
    const std::size_t measured_here = progress_.measured - measured_elsewhere;
    return {progress_.measured, progress_.done - measured_here, since(start), disturbed_, moves_};
  }

 private:
  /// The threads lie elsewhere: other costs are wanted.
  struct Moved {};

  /// Keeps a cost if the threads still lie where they did; else turns to the costs for where they
  /// lie now and throws Moved. After many moves they are taken as they come.
  void keep(const Task& task, const Cost& cost) {
    if (moves_ < kMostMoves && store_.place(threads_apart(store_.machine().threads))) {
      ++moves_;
      throw Moved{};
    }
    store_.put(task.key, cost);
  }

  bool lacks_something(const std::vector<Group>& groups) const {
    return std::any_of(groups.begin(), groups.end(), [&](const Group& group) {
      return std::any_of(group.tasks.begin(), group.tasks.end(), [&](const Task& task) {
        return !store_.find(task.key) || lacks_sizes(task);
      });
    });
  }

  /// Lets another program that measures into the same file finish, and takes in what it found.
  void wait_for(MeasureLock& lock) {
    while (!lock.try_take()) {
      progress_.now = "waiting for another program that measures into this cost file";
      if (report_) report_(progress_);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    store_.refresh();
  }

  void measure(const Group& group) {
    double best = std::numeric_limits<double>::infinity();
    for (const Task& task : group.tasks) {
      if (const auto cost = store_.find(task.key)) best = std::min(best, cost->seconds);
    }
    for (const Task& task : group.tasks) {
      if (lacks_sizes(task)) {
        Cost cost = *store_.find(task.key);
        cost.sizes = task.make()->sizes();
        store_.put(task.key, cost);
      }
      if (!store_.find(task.key)) {
        progress_.now = fmt::format("{} {}", group.label, task.key.implementation);
        if (report_) report_(progress_);
        const auto start = Clock::now();
        best = std::min(best,
                        quick(task, group.rivals ? best : std::numeric_limits<double>::infinity()));
        seconds_spent_ += since(start);
        work_done_ += task.work;
        work_left_ -= task.work;
        ++progress_.measured;
        progress_.seconds_left = seconds_spent_ / work_done_ * work_left_;
      }
      ++progress_.done;
    }
    if (group.rivals && !rough_) {
      const auto start = Clock::now();
      refine(group);
      seconds_spent_ += since(start);
    }
  }

  /// Whether the cost comes from a file without sizes, and they are wanted.
  bool lacks_sizes(const Task& task) const {
    const auto cost = store_.find(task.key);
    return sizes_wanted_ && cost && !cost->sizes;
  }

  double timed(Subject& subject, int sweep) {
    return undisturbed_seconds(
        rough_ ? 1 : kTries, disturbed_,
        [&] {
          if (subject.cold()) subject.refresh_tensors();
          if (!rough_) sweeper_.sweep(sweep);
          subject.refresh_workspace();
          if (!subject.cold()) subject.refresh_tensors();
        },
        [&] { subject.run(); });
  }

  double quick(const Task& task, double best) {
    const auto subject = task.make();
    Cost cost;
    if (subject->sizes().workspace > kWorkspaceLimit) {
      cost = {std::numeric_limits<double>::infinity(), 0, Cost::Stage::cut};
    } else {
      const double first = timed(*subject, std::min(task.key.sweep, kFirstSweep));
      if (first > kHopeless * best) {
        cost = {first, 1, Cost::Stage::cut};
      } else {
        std::vector<double> runs;
        if (rough_) runs.push_back(first);
        double total = 0;
        while (!rough_ && (runs.size() < 3 || (runs.size() < 5 && total < kQuickSeconds))) {
          runs.push_back(timed(*subject, task.key.sweep));
          total += runs.back();
        }
        cost = {median(runs), static_cast<int>(runs.size()), Cost::Stage::quick};
      }
    }
    cost.sizes = subject->sizes();
    keep(task, cost);
    return cost.seconds;
  }

  /// Measures the candidates near the best again, together, until the best and all close to it are
  /// refined.
  void refine(const Group& group) {
    for (;;) {  // each pass refines at least one more
      std::vector<std::pair<double, const Task*>> ranked;
      for (const Task& task : group.tasks)
        ranked.emplace_back(store_.find(task.key)->seconds, &task);
      std::sort(ranked.begin(), ranked.end());
      if (ranked.empty() || ranked[0].first == std::numeric_limits<double>::infinity()) return;
      std::vector<const Task*> close;
      for (const auto& [seconds, task] : ranked) {
        if (seconds > kClose * ranked[0].first || close.size() == kRefineLimit) break;
        close.push_back(task);
      }
      std::erase_if(
          close, [&](const Task* t) { return store_.find(t->key)->stage == Cost::Stage::refined; });
      if (close.empty()) return;
      progress_.now = fmt::format("{}: the {} best once more", group.label, close.size());
      if (report_) report_(progress_);
      interleave(close);
    }
  }

  void interleave(const std::vector<const Task*>& tasks) {
    std::vector<std::unique_ptr<Subject>> subjects;
    for (const Task* task : tasks) subjects.push_back(task->make());
    std::vector<std::vector<double>> runs(tasks.size());
    for (auto& subject : subjects) timed(*subject, 0);  // warm-up
    double total = 0;
    const double limit = kRefineSeconds * static_cast<double>(tasks.size());
    while (runs[0].size() < 5 || (runs[0].size() < 11 && total < limit)) {
      for (std::size_t i = 0; i < subjects.size(); ++i) {
        subjects[i]->run();  // the pass before: the others' sweeps lie between
        runs[i].push_back(timed(*subjects[i], tasks[i]->key.sweep));
        total += runs[i].back();
      }
    }
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      keep(*tasks[i], {median(runs[i]), static_cast<int>(runs[i].size()), Cost::Stage::refined,
                       subjects[i]->sizes()});
    }
  }

  CostStore& store_;
  const std::function<void(const Progress&)>& report_;
  Sweeper sweeper_;
  bool sizes_wanted_;
  // What an emulator takes depends on no cache, means little, and lasts long: one run each.
  const bool rough_ = emulated();
  Progress progress_;
  int disturbed_ = 0, moves_ = 0;
  double work_left_ = 0, work_done_ = 0, seconds_spent_ = 0;
};

}  // namespace

ProfileReport profile(const Network& net, const Filter& filter, CostStore& store,
                      const std::function<void(const Progress&)>& progress) {
  return Profiler(store, progress,
                  filter.max_workspace != kNoLimit || filter.max_memory != kNoLimit)
      .run(collect(net, filter, store));
}

}  // namespace convprim
