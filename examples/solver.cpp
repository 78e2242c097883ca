// Three convolutions in a row, a few primitives for each: which to take, at what price, why, and is
// that proven? The solver is a library of its own: neither networks nor kernels come with it.
#include <cstdio>
#include <string>
#include <vector>

#include <pbqp/check.hpp>
#include <pbqp/explain.hpp>
#include <pbqp/pbqp.hpp>

int main() {
  // A primitive reads one layout and writes another: 0 is CHW, 1 is HWC.
  const std::vector<std::string> names = {"sum2d", "im2col", "im2row", "winograd"};
  const pbqp::Classes in = {0, 0, 1, 0};
  const pbqp::Classes out = {0, 0, 1, 1};
  const std::vector<std::vector<double>> milliseconds = {
      {9.0, 3.1, 3.0, 1.9}, {8.0, 2.2, 1.6, 2.0}, {7.0, 1.5, 1.4, pbqp::kInfinity}};
  // What a conversion of the tensor between two layers costs, from row to column.
  const std::vector<pbqp::Matrix> conversion = {
      pbqp::Matrix(2, 2, std::vector<double>{0.0, 0.4, 0.5, 0.0}),
      pbqp::Matrix(2, 2, std::vector<double>{0.0, 0.2, 0.3, 0.0})};

  pbqp::Problem problem;
  for (std::size_t layer = 0; layer < milliseconds.size(); ++layer) {
    problem.add_node(milliseconds[layer], names, "conv" + std::to_string(layer + 1));
    // The matrix speaks of layouts, not of primitives: with a hundred of them it stays 2 x 2.
    if (layer > 0) problem.add_class_edge(layer - 1, out, layer, in, conversion[layer - 1]);
  }

  pbqp::Limits limits;
  limits.certificate = true;
  const pbqp::Result result = pbqp::solve(problem, limits);
  std::printf("%s, %.2f ms\n", std::string(to_string(result.status)).c_str(), result.upper);

  // What each primitive would make of the whole network.
  const pbqp::Marginals why = pbqp::min_marginals(problem);
  for (std::size_t layer = 0; layer < problem.node_count(); ++layer) {
    std::printf("%s\n", problem.name(layer).c_str());
    for (std::size_t i = 0; i < names.size(); ++i) {
      std::printf("  %c %-9s %5.2f ms\n", result.assignment[layer] == i ? '*' : ' ',
                  names[i].c_str(), why.cost[layer][i]);
    }
  }
  const pbqp::CheckReport report = pbqp::check(problem, result.certificate);
  std::printf("certificate: %s\n", report.valid ? "holds" : report.message.c_str());
  return result.optimal() && report.valid ? 0 : 1;
}
