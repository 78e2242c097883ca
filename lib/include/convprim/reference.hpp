// The reference: a whole network in double precision, each operation as its textbook defines it.
#pragma once

#include <vector>

#include "convprim/network.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// Computes net.outputs from `inputs`, one for each InputOp in the order of the layers, in (n, c,
/// h, w) order, and returns them in the same order. The network must be sorted, and have shapes and
/// weights. Shares no code with the kernels. threads 0: as many as OpenMP gives. Throws Error if an
/// output needs an opaque layer or missing weights, or if an input has not the network's size.
std::vector<std::vector<double>> evaluate_reference(const Network& net,
                                                    const std::vector<std::vector<float>>& inputs,
                                                    int threads = 0);

/// The same for all tensors, by TensorId; those behind opaque layers stay empty.
std::vector<std::vector<double>> evaluate_reference_tensors(
    const Network& net, const std::vector<std::vector<float>>& inputs, int threads = 0);

}  // namespace convprim
#pragma GCC visibility pop
