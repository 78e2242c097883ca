// One primitive by hand: which of them solve a convolution, what one of them needs, and does it
// compute the textbook's sum?
//
//   primitive [NAME] [SCENARIO] [THREADS]
#include <algorithm>
#include <cmath>
#include <convprim/error.hpp>
#include <convprim/primitive.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace convprim;

/// Tensors and workspaces are the caller's, aligned to 64 bytes.
struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<float, Free>;
Memory allocate(std::size_t bytes) {
  return Memory(static_cast<float*>(std::aligned_alloc(64, bytes / 64 * 64 + 64)));
}

float value(Index i) { return static_cast<float>(i * 7919 % 1009) / 1009.0F - 0.5F; }

/// Prepares a primitive, runs it once, and returns its output in (n, c, h, w) order.
std::vector<float> compute(const Primitive& primitive, const Scenario& s, int threads) {
  std::vector<float> filter(static_cast<std::size_t>(s.filter_count()));
  for (std::size_t i = 0; i < filter.size(); ++i) filter[i] = value(static_cast<Index>(i) * 3);
  const std::vector<float> bias(static_cast<std::size_t>(s.m), 0.25F);

  const Options options = {.threads = threads, .epilogue = {.lo = 0}};  // a ReLU, fused
  // Packs the weights, which may be freed afterwards. The result is immutable: several threads may
  // run it at once, each with memory of its own.
  const auto convolution = primitive.prepare(s, {filter.data(), bias.data()}, options);
  filter.clear();

  const Shape in = s.in(), out = s.out();
  const Memory input =
      allocate(sizeof(float) * static_cast<std::size_t>(element_count(primitive.in, in)));
  const Memory output =
      allocate(sizeof(float) * static_cast<std::size_t>(element_count(primitive.out, out)));
  const Memory workspace = allocate(convolution->workspace_bytes());

  // Each primitive reads and writes a layout of its own; offset() knows where elements lie. The
  // lanes that blocked layouts add to the channels must be zero.
  std::fill_n(input.get(), element_count(primitive.in, in), 0.0F);
  Index i = 0;
  for (Index n = 0; n < in.n; ++n)
    for (Index c = 0; c < in.c; ++c)
      for (Index h = 0; h < in.h; ++h)
        for (Index w = 0; w < in.w; ++w)
          input.get()[offset(primitive.in, in, n, c, h, w)] = value(i++);

  convolution->run({input.get(), output.get(), nullptr, workspace.get()});

  std::printf("%s: %s to %s, %zu bytes of workspace, %zu of packed weights\n",
              primitive.name.data(), name(primitive.in).data(), name(primitive.out).data(),
              convolution->workspace_bytes(), convolution->packed_bytes());
  std::vector<float> result;
  for (Index n = 0; n < out.n; ++n)
    for (Index c = 0; c < out.c; ++c)
      for (Index h = 0; h < out.h; ++h)
        for (Index w = 0; w < out.w; ++w)
          result.push_back(output.get()[offset(primitive.out, out, n, c, h, w)]);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string wanted = argc > 1 ? argv[1] : "winograd-4x4-3x3-vec-8";
    // benchdnn's problem strings: 64 channels of 28x28 pixels, 96 filters of 3x3, padded by 1.
    const Scenario s = Scenario::parse(argc > 2 ? argv[2] : "mb1ic64ih28oc96kh3ph1");
    const int threads = argc > 3 ? std::atoi(argv[3]) : 1;

    std::size_t able = 0;
    for (const Primitive* p : primitives()) able += p->reject(s) == nullptr ? 1 : 0;
    std::printf("%zu of %zu primitives solve %s\n", able, primitives().size(), s.str().c_str());

    const Primitive* primitive = find_primitive(wanted);
    if (primitive == nullptr) throw Error("there is no primitive '" + wanted + "'");
    const auto got = compute(*primitive, s, threads);  // throws Error if it cannot solve s
    const auto expected = compute(*find_primitive("direct-sum2d"), s, 1);
    double error = 0, largest = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      error =
          std::max(error, std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])));
      largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    }
    std::printf("largest difference from direct-sum2d: %.1e of %.3g\n", error, largest);
    return error <= 1e-4 * largest ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "primitive: %s\n", error.what());
    return 2;
  }
}
