// Times of the layers between convolutions: those of AlexNet, VGG-D and GoogLeNet in every layout,
// with the bytes that must move against the read bandwidth measured in the same run, and oneDNN's
// time for the same problem, taken in turns with ours.
//
//   bench_layers [THREADS [WORD]]      only problems whose text has the word
#include <fmt/format.h>

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "buffer.hpp"
#include "convprim/layer.hpp"
#include "machine.hpp"
#include "threads.hpp"

#ifdef CONVPRIM_BENCH_DNNL
#include <dnnl.hpp>
#endif

namespace convprim {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Bench {
  std::string name;
  Op op;
  Shape in, out;
};

Op pool(PoolOp::Method method, Index k, Index s, Index p) {
  PoolOp op;
  op.method = method;
  op.kh = op.kw = k;
  op.sh = op.sw = s;
  op.pt = op.pl = op.pb = op.pr = p;
  return op;
}

Op fc(Index m) {
  InnerProductOp op;
  op.m = m;
  return op;
}

std::vector<Bench> problems() {
  constexpr auto kMax = PoolOp::Method::max, kAvg = PoolOp::Method::avg;
  const Op lrn = LrnOp{5, 1e-4F, 0.75F, 1, false};
  return {
      {"alexnet pool1", pool(kMax, 3, 2, 0), {1, 96, 55, 55}, {1, 96, 27, 27}},
      {"alexnet pool2", pool(kMax, 3, 2, 0), {1, 256, 27, 27}, {1, 256, 13, 13}},
      {"alexnet pool5", pool(kMax, 3, 2, 0), {1, 256, 13, 13}, {1, 256, 6, 6}},
      {"vgg pool1", pool(kMax, 2, 2, 0), {1, 64, 224, 224}, {1, 64, 112, 112}},
      {"vgg pool3", pool(kMax, 2, 2, 0), {1, 256, 56, 56}, {1, 256, 28, 28}},
      {"googlenet pool1", pool(kMax, 3, 2, 0), {1, 64, 112, 112}, {1, 64, 56, 56}},
      {"googlenet pool2", pool(kMax, 3, 2, 0), {1, 192, 56, 56}, {1, 192, 28, 28}},
      {"googlenet 3a pool", pool(kMax, 3, 1, 1), {1, 192, 28, 28}, {1, 192, 28, 28}},
      {"googlenet 5b pool", pool(kMax, 3, 1, 1), {1, 832, 7, 7}, {1, 832, 7, 7}},
      {"googlenet pool5", pool(kAvg, 7, 1, 0), {1, 1024, 7, 7}, {1, 1024, 1, 1}},
      {"alexnet norm1", lrn, {1, 96, 55, 55}, {1, 96, 55, 55}},
      {"alexnet norm2", lrn, {1, 256, 27, 27}, {1, 256, 27, 27}},
      {"googlenet norm1", lrn, {1, 64, 56, 56}, {1, 64, 56, 56}},
      {"googlenet norm2", lrn, {1, 192, 56, 56}, {1, 192, 56, 56}},
      {"large pool", pool(kMax, 3, 2, 0), {16, 64, 224, 224}, {16, 64, 112, 112}},
      {"large norm", lrn, {16, 96, 111, 111}, {16, 96, 111, 111}},
      {"softmax", SoftmaxOp{}, {1, 1000, 1, 1}, {1, 1000, 1, 1}},
      {"alexnet fc6", fc(4096), {1, 256, 6, 6}, {1, 4096, 1, 1}},
      {"alexnet fc7", fc(4096), {1, 4096, 1, 1}, {1, 4096, 1, 1}},
      {"alexnet fc8", fc(1000), {1, 4096, 1, 1}, {1, 1000, 1, 1}},
      {"vgg fc6", fc(4096), {1, 512, 7, 7}, {1, 4096, 1, 1}},
      {"alexnet fc6 x10", fc(4096), {10, 256, 6, 6}, {10, 4096, 1, 1}},
  };
}

/// Something to time, and what came of it.
struct Candidate {
  std::string name;
  std::function<void()> run;
  std::vector<double> times;
  double median() {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
};

#ifdef CONVPRIM_BENCH_DNNL
using Tag = dnnl::memory::format_tag;

/// oneDNN's primitive for the problem, if it is one of those it has.
void add_dnnl(std::vector<Candidate>& list, const Bench& b, const char* name, Tag tag) {
  using dnnl::memory;
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(engine);
  const auto desc = [tag](const Shape& s) {
    return memory::desc({s.n, s.c, s.h, s.w}, memory::data_type::f32, tag);
  };
  const memory in(desc(b.in), engine), out(desc(b.out), engine);
  std::fill_n(static_cast<float*>(in.get_data_handle()), in.get_desc().get_size() / 4, 0.5F);
  dnnl::primitive primitive;
  try {
    if (const auto* op = std::get_if<PoolOp>(&b.op)) {
      // Rounding up is padding on the far side.
      const Index pb = (b.out.h - 1) * op->sh + op->kh - b.in.h - op->pt;
      const Index pr = (b.out.w - 1) * op->sw + op->kw - b.in.w - op->pl;
      primitive = dnnl::pooling_forward(
          {{dnnl::prop_kind::forward_inference,
            op->method == PoolOp::Method::max ? dnnl::algorithm::pooling_max
                                              : dnnl::algorithm::pooling_avg_include_padding,
            desc(b.in),
            desc(b.out),
            {op->sh, op->sw},
            {op->kh, op->kw},
            {op->pt, op->pl},
            {pb, pr}},
           engine});
    } else if (const auto* l = std::get_if<LrnOp>(&b.op)) {
      primitive = dnnl::lrn_forward(
          {{dnnl::prop_kind::forward_inference, dnnl::algorithm::lrn_across_channels, desc(b.in),
            l->size, l->alpha, l->beta, l->k},
           engine});
    } else {
      return;
    }
  } catch (const dnnl::error&) {
    return;
  }
  list.push_back({std::string("onednn-") + name,
                  [=]() mutable {
                    primitive.execute(stream, {{DNNL_ARG_SRC, in}, {DNNL_ARG_DST, out}});
                    stream.wait();
                  },
                  {}});
}

void add_dnnl_fc(std::vector<Candidate>& list, const Bench& b) {
  using dnnl::memory;
  const auto* op = std::get_if<InnerProductOp>(&b.op);
  if (op == nullptr) return;
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(engine);
  constexpr auto kF32 = memory::data_type::f32;
  const dnnl::inner_product_forward::primitive_desc pd(
      {dnnl::prop_kind::forward_inference,
       memory::desc({b.in.n, b.in.c, b.in.h, b.in.w}, kF32, Tag::any),
       memory::desc({op->m, b.in.c, b.in.h, b.in.w}, kF32, Tag::any),
       memory::desc({op->m}, kF32, Tag::any), memory::desc({b.in.n, op->m}, kF32, Tag::any)},
      engine);
  const memory in(pd.src_desc(), engine), weights(pd.weights_desc(), engine),
      bias(pd.bias_desc(), engine), out(pd.dst_desc(), engine);
  for (const memory& m : {in, weights, bias}) {
    std::fill_n(static_cast<float*>(m.get_data_handle()), m.get_desc().get_size() / 4, 0.01F);
  }
  const dnnl::inner_product_forward primitive(pd);
  list.push_back({"onednn",
                  [=]() {
                    primitive.execute(stream, {{DNNL_ARG_SRC, in},
                                               {DNNL_ARG_WEIGHTS, weights},
                                               {DNNL_ARG_BIAS, bias},
                                               {DNNL_ARG_DST, out}});
                    dnnl::stream(stream).wait();
                  },
                  {}});
}
#endif

Blob blob(std::vector<Index> dims) {
  Blob b{std::move(dims), nullptr};
  b.data = std::make_shared<const std::vector<float>>(static_cast<std::size_t>(b.count()), 0.01F);
  return b;
}

/// One of our rows, with memory of its own.
void add_row(std::vector<Candidate>& list, const LayerImpl& impl, const LayerProblem& p) {
  struct Ready {
    std::unique_ptr<PreparedLayer> layer;
    Buffer in, out, workspace;
    const float* ins[1];
    float* outs[1];
  };
  auto ready = std::make_shared<Ready>();
  ready->layer = impl.prepare(p);
  ready->in = Buffer(static_cast<std::size_t>(element_count(impl.in, p.in[0])));
  ready->out = Buffer(static_cast<std::size_t>(element_count(impl.out, p.out[0])));
  ready->workspace = Buffer(ready->layer->workspace_bytes() / sizeof(float) + 16);
  std::fill_n(ready->in.data(), ready->in.size(), 0.5F);
  ready->ins[0] = ready->in.data();
  ready->outs[0] = ready->out.data();
  list.push_back({std::string(impl.name),
                  [ready] {
                    ready->layer->run({ready->ins, ready->outs, ready->workspace.data()});
                  },
                  {}});
}

/// Reads as much as drives weights out of the caches, as the rest of a network does; on all
/// threads, so that none is asleep when the layer starts.
void flush(int threads) {
  static const Buffer memory = Buffer::zeros(std::size_t{1} << 26);
  parallel(threads, [&](int thread, int team) {
    volatile float sink = 0;
    const Range r = share(static_cast<Index>(memory.size()), thread, team, 16);
    float sum = 0;
    for (Index i = r.begin; i < r.end; i += 16) sum += memory[static_cast<std::size_t>(i)];
    sink = sum;
    (void)sink;
  });
}

void bench(const Bench& b, int threads) {
  LayerProblem p;
  p.op = &b.op;
  p.in = {b.in};
  p.out = {b.out};
  p.threads = threads;
  std::vector<Blob> blobs;
  double bytes = 4.0 * static_cast<double>(b.in.count() + b.out.count());
  const auto* product = std::get_if<InnerProductOp>(&b.op);
  if (product != nullptr) {
    const Index k = b.in.c * b.in.h * b.in.w;
    blobs = {blob({product->m, k}), blob({product->m})};
    p.blobs = blobs;
    bytes += 4.0 * static_cast<double>(product->m * k);
  }
  std::vector<Candidate> list;
  for (const LayerImpl* impl : layer_impls()) {
    if (impl->kind != kind(b.op) || impl->reject(p) != nullptr) continue;
    // Weights are large: one layout shows what all do.
    if (product != nullptr && impl->in != Layout::chw) continue;
    add_row(list, *impl, p);
  }
#ifdef CONVPRIM_BENCH_DNNL
  add_dnnl(list, b, "chw", Tag::nchw);
  add_dnnl(list, b, "hwc", Tag::nhwc);
  add_dnnl(list, b, "chw8c", Tag::nChw8c);
  add_dnnl(list, b, "chw16c", Tag::nChw16c);
  add_dnnl_fc(list, b);
#endif
  // Once to warm up, and to see how often; then in turns.
  double slowest = 0;
  for (Candidate& c : list) {
    c.run();
    const double start = seconds();
    c.run();
    slowest = std::max(slowest, seconds() - start);
  }
  const int reps = std::clamp(static_cast<int>(0.15 / (slowest + 1e-9)), 7, 300);
  for (int rep = 0; rep < reps; ++rep) {
    for (Candidate& c : list) {
      // The one before left the caches to its own tensors: one run brings ours back.
      if (product != nullptr) {
        flush(threads);
      } else {
        c.run();
      }
      const double start = seconds();
      c.run();
      c.times.push_back(seconds() - start);
    }
  }
  const double bandwidth = read_bandwidth(threads, std::size_t{1} << 28);
  fmt::print("{}: {}, {:.2f} MB, read bandwidth {:.1f} GB/s\n", b.name, str(p), bytes / 1e6,
             bandwidth / 1e9);
  for (Candidate& c : list) {
    const double t = c.median();
    fmt::print("  {:<16} {:9.4f} ms {:7.1f} GB/s {:6.2f} of the bandwidth\n", c.name, t * 1e3,
               bytes / t / 1e9, bytes / t / bandwidth);
  }
}

}  // namespace
}  // namespace convprim

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const std::string word = argc > 2 ? argv[2] : "";
#ifdef CONVPRIM_BENCH_DNNL
  omp_set_num_threads(threads);
#endif
  for (const auto& b : convprim::problems()) {
    if (b.name.find(word) != std::string::npos) convprim::bench(b, threads);
  }
  return 0;
}
