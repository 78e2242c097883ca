// Several convolutions of one input as one: their filters padded to one size and stacked.
//
// The merged kernel is as high and wide as the largest, and its padding P that of the largest; the
// kernel of part i lies in it at offset P - p_i, so that each output reads what it read before, and
// zeros. That needs 0 <= P - p_i <= K - k_i on both axes, and equal outputs.
#pragma once

#include <span>
#include <vector>

#include "gpu/operators.hpp"

namespace convprim::ios {

/// nullptr if the layers can be merged, else why not, as one clause. One layer alone always can.
const char* cannot_merge(const Network& net, std::span<const LayerId> layers);

/// The same for operators: each must be a single convolution.
const char* cannot_merge(const OperatorGraph& graph, std::span<const int> operators);

/// A merged convolution. Output channels are those of the parts, one after another.
struct MergedConv {
  ConvOp op;                 ///< with bias if any part has one
  std::vector<Index> begin;  ///< the first channel of each part
  Scenario scenario;
};

/// Merges layers that can be merged.
MergedConv merge(const Network& net, std::span<const LayerId> layers);

/// Its filter, [m][c][kh][kw], and bias [m] (empty if no part has one). Throws Error if a layer has
/// no weights.
struct MergedWeights {
  std::vector<float> filter, bias;
};
MergedWeights merged_weights(const Network& net, std::span<const LayerId> layers,
                             const MergedConv& merged);

}  // namespace convprim::ios
