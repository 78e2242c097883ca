// onednn-*: oneDNN's own convolutions, each kind of implementation and layout a primitive of its
// own.
//
// oneDNN picks an implementation from a list by the scenario, the layouts and the instruction set;
// a row asks for one kind (direct, 1x1, depthwise, GEMM, batch-reduce GEMM, Winograd) in fixed
// layouts and walks that list until the kind turns up. Reference implementations are never taken.
// Layouts: nchw is CHW, nhwc HWC, nChw8c and nChw16c the blocked ones; the weights' order is
// oneDNN's choice, and they are reordered once, in prepare().
//
// The epilogue is fused as post-ops: sum (which adds what the destination holds, so a residual of
// its own is copied there first), then ReLU or clip. For what the row's kind does not fuse, a pass
// of ours follows. oneDNN takes dense destinations only: a channel slice of CHW or a blocked
// layout is dense image by image and is run like that; one of HWC is staged in the workspace.
//
// oneDNN cuts the work for the OpenMP thread count that it finds when the primitive is made and
// must find the same at execution: both set it for the calling thread. Its own bookkeeping mallocs
// some hundred bytes a call; tensors and scratchpads come from the caller. Source: oneDNN 2.6
// developer guide.
#include "primitives/onednn/onednn.hpp"

#include <dnnl.h>
#include <dnnl_debug.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>

#include "buffer.hpp"
#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "kernels/kernels.hpp"
#include "primitives/registry.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

// Handles of the C interface: its calls return a status, where the C++ one throws from run().

template <class Handle, dnnl_status_t (*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) destroy(handle_);
  }
  Handle get() const { return handle_; }
  Handle* out() { return &handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
};

using Engine = Owned<dnnl_engine_t, dnnl_engine_destroy>;
using Stream = Owned<dnnl_stream_t, dnnl_stream_destroy>;
using Memory = Owned<dnnl_memory_t, dnnl_memory_destroy>;
using Attributes = Owned<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOps = Owned<dnnl_post_ops_t, dnnl_post_ops_destroy>;
using Executable = Owned<dnnl_primitive_t, dnnl_primitive_destroy>;
using Descriptor = Owned<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Iterator = Owned<dnnl_primitive_desc_iterator_t, dnnl_primitive_desc_iterator_destroy>;

void ensure(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  throw Error(fmt::format("oneDNN: {} failed ({})", what, dnnl_status2str(status)));
}

/// The process's CPU engine. The cap has to come before any other call of oneDNN.
dnnl_engine_t engine() {
  static const Engine shared = [] {
    // Fails where the host program has used oneDNN before, or on a CPU other than x86: no cap then.
    switch (isa()) {
      case Isa::baseline:
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
        break;
      case Isa::avx2:
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
        break;
      case Isa::avx512:
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core);
        break;
      case Isa::neon:
        break;
    }
    Engine made;
    ensure(dnnl_engine_create(made.out(), dnnl_cpu, 0), "creating the CPU engine");
    return made;
  }();
  return shared.get();
}

/// Sets the calling thread's OpenMP thread count for a scope.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~ThreadScope() { omp_set_num_threads(before_); }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

/// A row's own columns.
struct Kind {
  dnnl_alg_kind_t algorithm;
  const char* prefix;   ///< of the implementation's name
  const char* missing;  ///< the reason to reject where the list has no such implementation
};

/// 2.6.3's SSE depthwise code adds the destination by an instruction that faults unless each pixel
/// is 16-byte aligned: it may not fuse the sum then.
bool faults(std::string_view implementation, const Scenario& s, Layout out,
            const Epilogue& epilogue) {
  return epilogue.residual && implementation == "jit_dw:sse41" && out == Layout::hwc &&
         s.m % 4 != 0;
}

/// oneDNN's names begin with the kind, but for GEMM's, which on x86 have "x64:" before it.
bool is_kind(const Kind& kind, std::string_view implementation) {
  if (implementation.starts_with("x64:")) implementation.remove_prefix(4);
  return implementation.starts_with(kind.prefix);
}

dnnl_format_tag_t tag_of(Layout layout) {
  switch (layout) {
    case Layout::chw:
      return dnnl_nchw;
    case Layout::hwc:
      return dnnl_nhwc;
    case Layout::chw8c:
      return dnnl_nChw8c;
    case Layout::chw16c:
      return dnnl_nChw16c;
    case Layout::hcw:
      break;
  }
  return dnnl_format_tag_undef;
}

dnnl_memory_desc_t tensor_desc(Layout layout, const Shape& s) {
  dnnl_memory_desc_t desc;
  const dnnl_dims_t dims = {s.n, s.c, s.h, s.w};
  ensure(dnnl_memory_desc_init_by_tag(&desc, 4, dims, dnnl_f32, tag_of(layout)),
         "describing a tensor");
  return desc;
}

/// The filter as networks store it, or in an order of oneDNN's choice (dnnl_format_tag_any).
dnnl_memory_desc_t filter_desc(const Scenario& s, bool any) {
  dnnl_memory_desc_t desc;
  if (s.g == 1) {
    const dnnl_dims_t dims = {s.m, s.c, s.kh, s.kw};
    ensure(dnnl_memory_desc_init_by_tag(&desc, 4, dims, dnnl_f32,
                                        any ? dnnl_format_tag_any : dnnl_oihw),
           "describing a filter");
  } else {
    const dnnl_dims_t dims = {s.g, s.mg(), s.cg(), s.kh, s.kw};
    ensure(dnnl_memory_desc_init_by_tag(&desc, 5, dims, dnnl_f32,
                                        any ? dnnl_format_tag_any : dnnl_goihw),
           "describing a filter");
  }
  return desc;
}

dnnl_memory_desc_t bias_desc(const Scenario& s) {
  dnnl_memory_desc_t desc;
  const dnnl_dims_t dims = {s.m};
  ensure(dnnl_memory_desc_init_by_tag(&desc, 1, dims, dnnl_f32, dnnl_x), "describing a bias");
  return desc;
}

/// Padding behind the image. Where the last output ends before the image does, oneDNN's rounding
/// down drops less than a stride; more than that it must be told.
Index padding_behind(Index outputs, Index stride, Index span, Index extent, Index before) {
  const Index exact = (outputs - 1) * stride + span - extent - before;
  return exact < 0 && exact > -stride ? 0 : exact;
}

Attributes attributes(const Epilogue& epilogue) {
  Attributes made;
  ensure(dnnl_primitive_attr_create(made.out()), "creating attributes");
  ensure(dnnl_primitive_attr_set_scratchpad_mode(made.get(), dnnl_scratchpad_mode_user),
         "setting the scratchpad mode");
  PostOps ops;
  ensure(dnnl_post_ops_create(ops.out()), "creating post-ops");
  if (epilogue.residual) ensure(dnnl_post_ops_append_sum(ops.get(), 1), "adding a sum");
  if (epilogue.lo == 0 && std::isinf(epilogue.hi)) {
    ensure(dnnl_post_ops_append_eltwise(ops.get(), 1, dnnl_eltwise_relu, 0, 0), "adding a ReLU");
  } else if (epilogue.clamps()) {
    ensure(dnnl_post_ops_append_eltwise(ops.get(), 1, dnnl_eltwise_clip, epilogue.lo, epilogue.hi),
           "adding a clip");
  }
  ensure(dnnl_primitive_attr_set_post_ops(made.get(), ops.get()), "setting post-ops");
  return made;
}

/// The first implementation of the row's kind; none if there is none. Where only the reference
/// implementation takes the problem, *only_reference says so.
Descriptor find(const Primitive& row, const Scenario& s, const Epilogue& epilogue,
                bool* only_reference = nullptr) {
  const Kind& kind = *static_cast<const Kind*>(row.params);
  const dnnl_memory_desc_t src = tensor_desc(row.in, s.in()), dst = tensor_desc(row.out, s.out());
  const dnnl_memory_desc_t filter = filter_desc(s, true), bias = bias_desc(s);
  const dnnl_dims_t stride = {s.sh, s.sw}, dilation = {s.dh - 1, s.dw - 1}, before = {s.pt, s.pl};
  const dnnl_dims_t behind = {padding_behind(s.oh, s.sh, s.span_h(), s.h, s.pt),
                              padding_behind(s.ow, s.sw, s.span_w(), s.w, s.pl)};
  const Attributes attr = attributes(epilogue);
  // The iterator reads this descriptor at every step: it has to outlive the loop.
  dnnl_convolution_desc_t op;
  if (dnnl_dilated_convolution_forward_desc_init(&op, dnnl_forward_inference, kind.algorithm, &src,
                                                 &filter, &bias, &dst, stride, dilation, before,
                                                 behind) != dnnl_success) {
    return {};
  }
  Iterator it;
  if (dnnl_primitive_desc_iterator_create(it.out(), &op, attr.get(), engine(), nullptr) !=
      dnnl_success) {
    return {};
  }
  bool other = false;
  do {
    Descriptor candidate(dnnl_primitive_desc_iterator_fetch(it.get()));
    const char* implementation = nullptr;
    if (!candidate || dnnl_primitive_desc_query(candidate.get(), dnnl_query_impl_info_str, 0,
                                                &implementation) != dnnl_success) {
      break;
    }
    if (is_kind(kind, implementation)) {
      if (faults(implementation, s, row.out, epilogue)) break;
      return candidate;
    }
    other = other || !std::string_view(implementation).starts_with("ref");
  } while (dnnl_primitive_desc_iterator_next(it.get()) == dnnl_success);
  if (only_reference != nullptr) *only_reference = !other;
  return {};
}

std::size_t desc_bytes(const Descriptor& descriptor, dnnl_query_t what) {
  const dnnl_memory_desc_t* desc = dnnl_primitive_desc_query_md(descriptor.get(), what, 0);
  return desc != nullptr ? dnnl_memory_desc_get_size(desc) : 0;
}

/// True if some output position along one axis has all its taps in the padding.
bool has_empty_window(Index extent, Index outputs, Index kernel, Index stride, Index dilation,
                      Index before) {
  for (Index o = 0; o < outputs; ++o) {
    bool empty = true;
    for (Index i = 0; i < kernel && empty; ++i) {
      const Index at = o * stride - before + i * dilation;
      empty = at < 0 || at >= extent;
    }
    if (empty) return true;
  }
  return false;
}

constexpr std::size_t kScratchLimit = std::size_t{2} << 30;

/// Floats that hold so many bytes, in whole cache lines.
std::size_t floats(std::size_t bytes) { return (bytes + 63) / 64 * 16; }

class OneDnn final : public Convolution {
 public:
  OneDnn(const Primitive& row, const Scenario& s, const Weights& weights, const Options& options)
      : s_(s),
        layout_(row.out),
        threads_(options.threads),
        epilogue_(options.epilogue),
        slice_(options.slice),
        out_(strides(row.out, s.out(), options.slice)) {
    // Some kinds refuse a problem that is too small for the threads; reject() asked for one.
    while (!choose_calls(row)) {
      if (threads_ == 1) {
        throw Error(fmt::format("{} on {}: oneDNN has lost its implementation", row.name, s.str()));
      }
      --threads_;
    }
    const ThreadScope scope(threads_);
    const Scenario each = with_batch(s.n / images_);
    each_ = each.out();
    ensure(dnnl_primitive_create(executable_.out(), descriptor_.get()), "creating a primitive");
    src_ = tensor_desc(row.in, each.in());
    dst_ = tensor_desc(row.out, each.out());
    scratch_ = *dnnl_primitive_desc_query_md(descriptor_.get(), dnnl_query_scratchpad_md, 0);
    src_floats_ = element_count(row.in, each.in());
    scratch_floats_ = static_cast<Index>(floats(dnnl_memory_desc_get_size(&scratch_)));
    staged_floats_ = staged_ ? element_count(row.out, s.out()) : 0;
    pack(weights);
  }

  std::size_t workspace_bytes() const override {
    return floats(static_cast<std::size_t>(staged_floats_) * 4) * 4 +
           static_cast<std::size_t>(scratch_floats_) * 4;
  }
  std::size_t packed_bytes() const override { return filter_.bytes() + bias_.bytes(); }

  void run(const RunArgs& args) const noexcept override {
    const ThreadScope scope(threads_);
    auto* work = static_cast<float*>(args.workspace);
    float* scratch = work + floats(static_cast<std::size_t>(staged_floats_) * 4);
    // Pieces: the images of a sliced output one by one, or everything at once.
    bool done = true;
    for (Index i = 0; i < images_ && done; ++i) {
      const float* in = args.in + i * src_floats_;
      float* out = staged_ ? work : args.out + out_.base + i * out_.n_stride;
      const Index count = element_count(layout_, each_);
      const float* residual = epilogue_.residual ? args.residual + i * count : nullptr;
      if (fused_.residual && residual != out) copy(residual, out, count);
      done = execute(in, out, scratch);
      if (fused_ != epilogue_) finish(out, fused_.residual ? nullptr : residual);
    }
    if (staged_) unstage(work, args.out);
    if (!done) poison(args.out);
  }

 private:
  Scenario with_batch(Index n) const {
    Scenario each = s_;
    each.n = n;
    return each;
  }

  /// Decides how a run calls oneDNN: at once or image by image, into the output or staged.
  bool choose_calls(const Primitive& row) {
    const ThreadScope scope(threads_);
    images_ = 1;
    staged_ = false;
    // An image's slice is dense in the layouts whose outermost dimension is the channel.
    if (slice_.sliced() && layout_ != Layout::hwc && choose(row, with_batch(1)) && !staged_) {
      images_ = s_.n;
      return true;
    }
    staged_ = slice_.sliced();
    return choose(row, s_);
  }

  /// Takes the row's implementation with as much of the epilogue fused as it allows; false if there
  /// is none.
  bool choose(const Primitive& row, const Scenario& each) {
    Epilogue sum_only;
    sum_only.residual = epilogue_.residual;
    for (const Epilogue& fused : {epilogue_, sum_only, Epilogue{}}) {
      fused_ = fused;
      descriptor_ = find(row, each, fused);
      if (descriptor_) break;
    }
    // A residual that is not fused must outlive the call of oneDNN, and may lie where the output
    // goes.
    if (epilogue_.residual && !fused_.residual) staged_ = true;
    return static_cast<bool>(descriptor_);
  }

  /// Brings the filter into the order that the implementation asks for.
  void pack(const Weights& weights) {
    const dnnl_memory_desc_t plain = filter_desc(s_, false);
    packed_ = *dnnl_primitive_desc_query_md(descriptor_.get(), dnnl_query_weights_md, 0);
    bias_desc_ = bias_desc(s_);
    filter_ = Buffer::zeros(floats(dnnl_memory_desc_get_size(&packed_)));
    bias_ = Buffer::zeros(floats(static_cast<std::size_t>(s_.m) * 4));
    if (weights.bias != nullptr) std::copy_n(weights.bias, s_.m, bias_.data());
    Memory from, to;
    Stream stream;
    ensure(dnnl_memory_create(from.out(), &plain, engine(), const_cast<float*>(weights.filter)),
           "wrapping a filter");
    ensure(dnnl_memory_create(to.out(), &packed_, engine(), filter_.data()), "wrapping a filter");
    ensure(dnnl_stream_create(stream.out(), engine(), dnnl_stream_default_flags),
           "creating a stream");
    dnnl_primitive_desc_t reorder = nullptr;
    ensure(
        dnnl_reorder_primitive_desc_create(&reorder, &plain, engine(), &packed_, engine(), nullptr),
        "describing the reorder of a filter");
    const Descriptor owned(reorder);
    Executable move;
    ensure(dnnl_primitive_create(move.out(), reorder), "creating the reorder of a filter");
    const dnnl_exec_arg_t list[] = {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}};
    ensure(dnnl_primitive_execute(move.get(), stream.get(), 2, list), "reordering a filter");
    ensure(dnnl_stream_wait(stream.get()), "reordering a filter");
  }

  /// One call of oneDNN. Memory objects hold pointers, so that each run needs its own.
  bool execute(const float* in, float* out, float* scratch) const {
    struct Argument {
      int id;
      const dnnl_memory_desc_t* desc;
      const float* data;
    };
    const Argument wanted[] = {{DNNL_ARG_SRC, &src_, in},
                               {DNNL_ARG_WEIGHTS, &packed_, filter_.data()},
                               {DNNL_ARG_BIAS, &bias_desc_, bias_.data()},
                               {DNNL_ARG_DST, &dst_, out},
                               {DNNL_ARG_SCRATCHPAD, &scratch_, scratch}};
    constexpr std::size_t kCount = std::size(wanted);
    Memory memory[kCount];
    dnnl_exec_arg_t list[kCount];
    for (std::size_t i = 0; i < kCount; ++i) {
      if (dnnl_memory_create(memory[i].out(), wanted[i].desc, engine(),
                             const_cast<float*>(wanted[i].data)) != dnnl_success) {
        return false;
      }
      list[i] = {wanted[i].id, memory[i].get()};
    }
    Stream stream;
    return dnnl_stream_create(stream.out(), engine(), dnnl_stream_default_flags) == dnnl_success &&
           dnnl_primitive_execute(executable_.get(), stream.get(), static_cast<int>(kCount),
                                  list) == dnnl_success &&
           dnnl_stream_wait(stream.get()) == dnnl_success;
  }

  void copy(const float* from, float* to, Index count) const {
    parallel(threads_, [&](int thread, int team) {
      const Range r = share(count, thread, team, 16);
      std::copy(from + r.begin, from + r.end, to + r.begin);
    });
  }

  /// What oneDNN left of the epilogue of a dense output; padding lanes stay zero.
  void finish(float* out, const float* residual) const {
    const Strides at = strides(layout_, each_);
    const auto& kernel = *kernels::active().elementwise;
    const Index rows = element_count(layout_, each_) / (each_.w * at.block);
    parallel_for(threads_, rows, [&](Index row) {
      const Index first = row * each_.w * at.block, count = each_.w * at.block;
      kernel.epilogue_channel(out + first, residual != nullptr ? residual + first : nullptr, 0,
                              epilogue_.lo, epilogue_.hi, count);
    });
    const Index lanes = each_.c % at.block;
    if (lanes == 0) return;
    for (Index n = 0; n < each_.n; ++n) {
      float* last = out + n * at.n_stride + each_.c / at.block * at.c_stride;
      for (Index i = 0; i < at.c_stride; i += at.block) {
        std::fill(last + i + lanes, last + i + at.block, 0.0F);
      }
    }
  }

  /// Moves the staged output into its slice.
  void unstage(const float* staged, float* out) const {
    const Strides from = strides(layout_, s_.out());
    if (layout_ == Layout::hwc) {
      parallel_for(threads_, s_.n * s_.oh * s_.ow, [&](Index pixel) {
        std::copy_n(staged + pixel * s_.m, s_.m, out + out_.base + pixel * out_.w_stride);
      });
      return;
    }
    const Index image = from.n_stride;
    for (Index n = 0; n < s_.n; ++n) {
      copy(staged + n * image, out + out_.base + n * out_.n_stride, image);
    }
  }

  /// run() may not throw: a call that fails for want of memory leaves an output that nobody takes
  /// for a result.
  void poison(float* out) const {
    for (Index n = 0; n < s_.n; ++n) {
      for (Index m = 0; m < s_.m; ++m) {
        for (Index y = 0; y < s_.oh; ++y) {
          for (Index x = 0; x < s_.ow; ++x) {
            out[out_.at(n, m, y, x)] = std::numeric_limits<float>::quiet_NaN();
          }
        }
      }
    }
  }

  Scenario s_;
  Layout layout_;
  int threads_;
  Epilogue epilogue_;
  ChannelSlice slice_;
  Strides out_;
  Epilogue fused_;  // what of the epilogue oneDNN does itself
  bool staged_ = false;
  Index images_ = 1;  // calls of oneDNN in a run
  Shape each_;        // output of one call
  Index src_floats_ = 0, scratch_floats_ = 0, staged_floats_ = 0;
  Descriptor descriptor_;
  Executable executable_;
  dnnl_memory_desc_t src_, dst_, packed_, bias_desc_, scratch_;
  Buffer filter_, bias_;
};

constexpr dnnl_alg_kind_t kDirectAlgorithm = dnnl_convolution_direct;
constexpr dnnl_alg_kind_t kWinogradAlgorithm = dnnl_convolution_winograd;

constexpr Kind kGemm = {kDirectAlgorithm, "gemm:", "oneDNN has no GEMM implementation"};
constexpr Kind kDirect = {kDirectAlgorithm, "jit:", "oneDNN has no direct implementation"};
constexpr Kind k1x1 = {kDirectAlgorithm, "jit_1x1:", "oneDNN has no 1x1 implementation"};
constexpr Kind kDepthwise = {kDirectAlgorithm, "jit_dw:", "oneDNN has no depthwise implementation"};
constexpr Kind kBrgemm = {kDirectAlgorithm,
                          "brgconv:", "oneDNN has no batch-reduce GEMM implementation"};
constexpr Kind kBrgemm1x1 = {kDirectAlgorithm,
                             "brgconv_1x1:", "oneDNN has no 1x1 batch-reduce GEMM implementation"};
constexpr Kind kBrdgmm = {kDirectAlgorithm,
                          "brdgmm_dw:", "oneDNN has no depthwise batch-reduce implementation"};
constexpr Kind kWinograd2 = {kWinogradAlgorithm,
                             "jit_fp32_wino_2x3:", "oneDNN has no F(2x2, 3x3) implementation"};
constexpr Kind kWinograd4 = {kWinogradAlgorithm,
                             "jit_wino_4x3:", "oneDNN has no F(4x4, 3x3) implementation"};

const char* reject(const Primitive& row, const Scenario& s) {
  const Kind& kind = *static_cast<const Kind*>(row.params);
  if (kind.algorithm == dnnl_convolution_winograd &&
      (s.kh != 3 || s.kw != 3 || !s.unit_stride() || !s.undilated())) {
    return "needs a dense 3x3 kernel and stride 1";
  }
  // 2.6.3's batch-reduce code for outputs that no input reaches faults on more than ten threads.
  if (&kind == &kBrgemm && (has_empty_window(s.h, s.oh, s.kh, s.sh, s.dh, s.pt) ||
                            has_empty_window(s.w, s.ow, s.kw, s.sw, s.dw, s.pl))) {
    return "oneDNN's batch-reduce code fails where a window lies wholly in the padding";
  }
  try {
    const ThreadScope scope(1);
    bool only_reference = false;
    const Descriptor found = find(row, s, {}, &only_reference);
    if (!found) return only_reference ? "oneDNN has only a reference implementation" : kind.missing;
    if (desc_bytes(found, dnnl_query_scratchpad_md) > kScratchLimit) {
      return "oneDNN's scratchpad exceeds 2 GiB";
    }
    return nullptr;
  } catch (const std::exception&) {
    return "oneDNN cannot describe this problem";
  }
}

std::unique_ptr<Convolution> prepare(const Primitive& row, const Scenario& s,
                                     const Weights& weights, const Options& options) {
  return std::make_unique<OneDnn>(row, s, weights, options);
}

constexpr Primitive row(std::string_view name, const Kind& kind, Layout in, Layout out,
                        float error_scale = 1, bool transforms = false) {
  return {name, Family::onednn, in, out, reject, prepare, &kind, error_scale, transforms};
}

constexpr Primitive kRows[] = {
    row("onednn-gemm-chw", kGemm, Layout::chw, Layout::chw),
    row("onednn-gemm-hwc", kGemm, Layout::hwc, Layout::hwc),
    row("onednn-direct-hwc", kDirect, Layout::hwc, Layout::hwc),
    row("onednn-direct-chw8c", kDirect, Layout::chw8c, Layout::chw8c),
    row("onednn-direct-chw16c", kDirect, Layout::chw16c, Layout::chw16c),
    row("onednn-direct-chw-chw8c", kDirect, Layout::chw, Layout::chw8c),
    row("onednn-direct-chw-chw16c", kDirect, Layout::chw, Layout::chw16c),
    row("onednn-1x1-hwc", k1x1, Layout::hwc, Layout::hwc),
    row("onednn-1x1-chw8c", k1x1, Layout::chw8c, Layout::chw8c),
    row("onednn-1x1-chw16c", k1x1, Layout::chw16c, Layout::chw16c),
    row("onednn-depthwise-hwc", kDepthwise, Layout::hwc, Layout::hwc),
    row("onednn-depthwise-chw8c", kDepthwise, Layout::chw8c, Layout::chw8c),
    row("onednn-depthwise-chw16c", kDepthwise, Layout::chw16c, Layout::chw16c),
    row("onednn-brgemm-hwc", kBrgemm, Layout::hwc, Layout::hwc),
    row("onednn-brgemm-1x1-hwc", kBrgemm1x1, Layout::hwc, Layout::hwc),
    row("onednn-brgemm-depthwise-hwc", kBrdgmm, Layout::hwc, Layout::hwc),
    row("onednn-winograd-2x2-3x3-chw16c", kWinograd2, Layout::chw16c, Layout::chw16c, 2, true),
    row("onednn-winograd-4x4-3x3-chw16c", kWinograd4, Layout::chw16c, Layout::chw16c, 4, true),
};

}  // namespace

std::span<const Primitive> onednn_rows() { return kRows; }

std::string onednn_version() {
  engine();  // caps the instruction set first
  const dnnl_version_t* v = dnnl_version();
#ifdef __aarch64__
  const char* isa = "AArch64";  // its numbers have x86's names in the headers at hand
#else
  const char* isa = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
#endif
  return fmt::format("{}.{}.{} ({})", v->major, v->minor, v->patch, isa);
}

}  // namespace convprim
