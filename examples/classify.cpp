// Classifies an image tensor: which five classes does the network see, and how long does it take?
//
//   classify NET WEIGHTS IMAGE [THREADS]
//
// NET is a Caffe or ONNX file and WEIGHTS its .caffemodel ("-": the weights are in NET, or are made
// up). IMAGE holds the network's input as raw floats in (n, c, h, w) order, preprocessed as the
// network wants it.
#include <algorithm>
#include <chrono>
#include <convprim/cpu.hpp>
#include <convprim/error.hpp>
#include <convprim/executable.hpp>
#include <convprim/import.hpp>
#include <convprim/select.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace convprim;

/// Reads the network and rewrites it for inference: folds batch normalisation, fuses ReLUs.
Network load(const std::string& file, const std::string& weights) {
  Network net = import_network(file, {.weights = weights != "-" ? weights : ""});
  random_weights(net);  // only for blobs that have none
  optimise(net);
  return net;
}

/// One implementation for each layer, the fastest whole for this machine and thread count.
Plan choose(const Network& net, int threads) {
  // Measurements are kept here: the next program with a like layer finds them.
  CostStore costs(CostStore::default_path(), Machine::here(threads));
  profile(net, {}, costs, [](const Progress& p) {
    std::fprintf(stderr, "\rmeasuring %zu of %zu", p.done, p.total);
  });
  return select(net, {}, costs_of(costs), costs.machine());
}

void read_image(const std::string& path, float* data, Index count) {
  std::ifstream file(path, std::ios::binary);
  const auto bytes =
      static_cast<std::streamsize>(count) * static_cast<std::streamsize>(sizeof(float));
  if (!file.read(reinterpret_cast<char*>(data), bytes) || file.get() != EOF)
    throw Error(path + ": not a file of " + std::to_string(count) + " floats");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: classify NET WEIGHTS IMAGE [THREADS]\n");
    return 2;
  }
  try {
    const Network net = load(argv[1], argv[2]);
    const Plan plan = choose(net, argc > 4 ? std::atoi(argv[4]) : available_cpus());

    // Weights packed, memory planned: from here on any number of threads may share the executable,
    // each with a context of its own.
    const Executable executable(net, plan);
    Executable::Context context = executable.make_context();
    read_image(argv[3], context.input(), executable.input_shape(0).count());
    executable.run(context);  // the first run touches the memory
    const auto start = std::chrono::steady_clock::now();
    executable.run(context);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;

    const float* score = context.output();
    std::vector<Index> order(static_cast<std::size_t>(executable.output_shape(0).count()));
    std::iota(order.begin(), order.end(), Index{0});
    const auto top = std::min<std::ptrdiff_t>(5, std::ssize(order));
    std::partial_sort(order.begin(), order.begin() + top, order.end(),
                      [&](Index a, Index b) { return score[a] > score[b]; });
    std::printf("\n%.3f ms, predicted %.3f ms\n", time.count(),
                plan.solver.objective_seconds * 1e3);
    for (std::ptrdiff_t i = 0; i < top; ++i) {
      const Index best = order[static_cast<std::size_t>(i)];
      std::printf("class %4lld  %.5f\n", static_cast<long long>(best),
                  static_cast<double>(score[best]));
    }
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "classify: %s\n", error.what());
    return 2;
  }
}
