// Graph simplifications. Each pass is a function on a Network with shapes and weights; it returns
// how often it applied, and keeps the outputs of the network equal up to rounding.
#pragma once

#include "convprim/network.hpp"

namespace convprim {

/// Removes layers that only pass a tensor on: Dropout, Split, concatenation of one input, powers
/// and shapes that change nothing.
int remove_identities(Network& net);

/// Turns BatchNorm, and powers with exponent 1, into affine layers. Returns those it turned.
int lower_to_affine(Network& net);

/// Folds affine layers into one another, into the convolution or fully connected layer before them,
/// and into the one behind where no padding lies between.
int fold_affine(Network& net);

/// Fuses clamps (ReLU, ReLU6) into the layer before.
int fuse_activations(Network& net);

/// Fuses element-wise sums of two tensors into a convolution that makes one of them.
int fuse_residuals(Network& net);

/// Removes layers that no output needs; inputs stay.
int remove_dead(Network& net);

}  // namespace convprim
