// The executor: a program made ready, its buffers placed in one arena.
#include "convprim/executable.hpp"

#include <cassert>
#include <chrono>

#include "buffer.hpp"
#include "convprim/select.hpp"
#include "selector/program.hpp"

namespace convprim {
namespace {

/// What run() needs of a step.
struct Step {
  PreparedStep ready;
  const Conversion* conversion = nullptr;
  Shape shape;         // of a conversion
  ChannelSlice slice;  // of a conversion
  std::vector<int> in, out;
  int residual = kNoBuffer;
  int workspace = kNoBuffer;
};

}  // namespace

struct Executable::Impl {
  std::vector<Step> steps;
  std::vector<StepInfo> infos;
  std::vector<Lifetime> buffers;
  ArenaPlan arena;
  std::vector<int> inputs, outputs;  // buffers
  std::vector<Tensor> input_tensors, output_tensors;
  std::size_t packed = 0;
  int threads = 1;
};

struct Executable::Context::Impl {
  Buffer arena;
  std::vector<float*> buffers;                // address of each
  std::vector<std::vector<const float*>> in;  // for each step
  std::vector<std::vector<float*>> out;
  const Executable::Impl* executable = nullptr;
};

Executable::Executable(const Network& net, const Plan& plan) : impl_(std::make_unique<Impl>()) {
  Impl& e = *impl_;
  check_plan(net, plan);
  Program program = lay_out(net, plan);
  std::vector<PreparedStep> ready = prepare_all(net, program);
  e.threads = program.threads;
  const auto tensor = [&](const ProgramPort& port) {
    return net.tensors[static_cast<std::size_t>(port.tensor)];
  };
  for (const ProgramPort& port : program.inputs) {
    e.inputs.push_back(port.buffer);
    e.input_tensors.push_back(tensor(port));
  }
  for (const ProgramPort& port : program.outputs) {
    e.outputs.push_back(port.buffer);
    e.output_tensors.push_back(tensor(port));
  }
  e.arena = place_buffers(program);
  e.buffers = std::move(program.buffers);
  for (std::size_t i = 0; i < ready.size(); ++i) {
    ProgramStep& step = program.steps[i];
    e.packed += ready[i].sizes().packed;
    e.infos.push_back(std::move(step.info));
    e.steps.push_back({std::move(ready[i]), step.conversion, step.shape, step.slice,
                       std::move(step.in), std::move(step.out), step.residual, step.workspace});
  }
}

Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;
Executable::~Executable() = default;

Executable::Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executable::Context::Context(Context&&) noexcept = default;
Executable::Context& Executable::Context::operator=(Context&&) noexcept = default;
Executable::Context::~Context() = default;

float* Executable::Context::input(std::size_t i) {
  return impl_->buffers[static_cast<std::size_t>(impl_->executable->inputs[i])];
}

const float* Executable::Context::output(std::size_t i) const {
  return impl_->buffers[static_cast<std::size_t>(impl_->executable->outputs[i])];
}

Executable::Context Executable::make_context() const {
  const Impl& e = *impl_;
  auto context = std::make_unique<Context::Impl>();
  context->arena = Buffer::zeros(e.arena.bytes / sizeof(float));
  context->executable = &e;
  for (std::size_t offset : e.arena.offsets)
    context->buffers.push_back(context->arena.data() + offset / sizeof(float));
  const auto address = [&](int buffer) {
    return context->buffers[static_cast<std::size_t>(buffer)];
  };
  for (const Step& step : e.steps) {
    auto& in = context->in.emplace_back();
    auto& out = context->out.emplace_back();
    for (int b : step.in) in.push_back(address(b));
    for (int b : step.out) out.push_back(address(b));
  }
  return Context(std::move(context));
}

namespace {

void run_step(const Step& step, const std::vector<const float*>& in, const std::vector<float*>& out,
              const std::vector<float*>& buffers, int threads) {
  const auto address = [&](int buffer) {
    return buffer == kNoBuffer ? nullptr : buffers[static_cast<std::size_t>(buffer)];
  };
  if (step.ready.convolution) {
    step.ready.convolution->run({in[0], out[0], address(step.residual), address(step.workspace)});
  } else if (step.ready.layer) {
    step.ready.layer->run({in.data(), out.data(), address(step.workspace)});
  } else {
    step.conversion->run(step.shape, in[0], out[0], step.slice, threads);
  }
}

}  // namespace

void Executable::run(Context& context) const noexcept {
  Context::Impl& c = *context.impl_;
  assert(c.executable == impl_.get());
  for (std::size_t i = 0; i < impl_->steps.size(); ++i)
    run_step(impl_->steps[i], c.in[i], c.out[i], c.buffers, impl_->threads);
}

void Executable::run_timed(Context& context, double* seconds) const noexcept {
  Context::Impl& c = *context.impl_;
  for (std::size_t i = 0; i < impl_->steps.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    run_step(impl_->steps[i], c.in[i], c.out[i], c.buffers, impl_->threads);
    seconds[i] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
}

const std::vector<StepInfo>& Executable::steps() const { return impl_->infos; }
std::size_t Executable::input_count() const { return impl_->inputs.size(); }
std::size_t Executable::output_count() const { return impl_->outputs.size(); }
const Shape& Executable::input_shape(std::size_t i) const {
  return impl_->input_tensors.at(i).shape;
}
const Shape& Executable::output_shape(std::size_t i) const {
  return impl_->output_tensors.at(i).shape;
}
const std::string& Executable::input_name(std::size_t i) const {
  return impl_->input_tensors.at(i).name;
}
const std::string& Executable::output_name(std::size_t i) const {
  return impl_->output_tensors.at(i).name;
}
std::size_t Executable::arena_bytes() const { return impl_->arena.bytes; }
std::size_t Executable::packed_bytes() const { return impl_->packed; }
std::size_t Executable::live_bytes() const { return peak_bytes(impl_->buffers); }

}  // namespace convprim
