// A small network with everything that makes executors hard, and costs that lead to any plan.
#pragma once

#include <functional>
#include <random>
#include <string>

#include "convprim/select.hpp"

namespace convprim::test {

/// An inception block with a nested concatenation, a residual block, and a classifier.
inline constexpr const char* kSmallNet = R"(
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 21 dim: 19 } } }
layer { name: "stem" type: "Convolution" bottom: "data" top: "stem" convolution_param { num_output: 16 kernel_size: 3 stride: 2 pad: 1 } }
layer { name: "stem_relu" type: "ReLU" bottom: "stem" top: "stem" }
layer { name: "norm" type: "LRN" bottom: "stem" top: "norm" lrn_param { local_size: 5 alpha: 0.1 } }
layer { name: "left" type: "Convolution" bottom: "norm" top: "left" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "left_relu" type: "ReLU" bottom: "left" top: "left" }
layer { name: "middle" type: "Convolution" bottom: "norm" top: "middle" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "pool" type: "Pooling" bottom: "norm" top: "pool" pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 } }
layer { name: "inner" type: "Concat" bottom: "left" bottom: "middle" top: "inner" }
layer { name: "outer" type: "Concat" bottom: "inner" bottom: "pool" top: "outer" }
layer { name: "reduce" type: "Pooling" bottom: "outer" top: "reduce" pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "r1" type: "Convolution" bottom: "reduce" top: "r1" convolution_param { num_output: 48 kernel_size: 5 pad: 2 group: 2 } }
layer { name: "r1_relu" type: "ReLU" bottom: "r1" top: "r1" }
layer { name: "r2" type: "Convolution" bottom: "r1" top: "r2" convolution_param { num_output: 48 kernel_size: 3 pad: 1 } }
layer { name: "sum" type: "Eltwise" bottom: "reduce" bottom: "r2" top: "sum" }
layer { name: "sum_relu" type: "ReLU" bottom: "sum" top: "sum" }
layer { name: "dense" type: "Concat" bottom: "sum" bottom: "reduce" top: "dense" }
layer { name: "mix" type: "Convolution" bottom: "dense" top: "mix" convolution_param { num_output: 20 kernel_size: 1 } }
layer { name: "side" type: "Pooling" bottom: "sum" top: "side" pooling_param { pool: AVE global_pooling: true } }
layer { name: "fc" type: "InnerProduct" bottom: "mix" top: "fc" inner_product_param { num_output: 10 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
)";

/// Costs that make any implementation likely; deterministic.
inline CostFunction random_costs(std::uint64_t seed) {
  return [seed](const CostKey& key) {
    const std::size_t h =
        std::hash<std::string>()(key.problem + "/" + key.implementation) * 31 + seed;
    std::mt19937_64 rng(h);
    const double u = static_cast<double>(rng() % 100'000 + 1) * 1e-5;
    return key.kind == CostKind::conversion ? u * 0.3 : u;
  };
}

}  // namespace convprim::test
