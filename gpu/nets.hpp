// Networks of the IOS paper that have no file: built here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convprim/network.hpp"

namespace convprim::ios {

/// Edges of a graph of `nodes` nodes, each from the lower to the higher one, sorted.
using Wiring = std::vector<std::pair<int, int>>;

/// A random graph of Watts and Strogatz: a ring in which each node knows its k nearest neighbours,
/// and each of these edges is replaced with that probability by one to a node drawn at random. The
/// same seed gives the same graph on every machine. Throws Error unless k is even and 0 < k <
/// nodes.
Wiring watts_strogatz(int nodes, int k, double probability, std::uint64_t seed);

/// The 32 nodes of the third random stage of the RandWire network that the paper measured: the
/// wiring that its authors published with their code. It came from a generator without a seed, so
/// it is a list.
Wiring published_stage();

/// A random stage alone (Xie et al., arXiv 1904.01569): each node sums its inputs and applies ReLU
/// and a separable 3x3 convolution; nodes without inputs read the stage's input with stride 2; the
/// nodes without outputs are summed. `in` is the input's shape.
Network randwire_stage(const Shape& in, Index channels, int nodes, const Wiring& wiring);

/// RandWire in its regular regime, with `channels` in the first stage (the paper: 154): four
/// stages, of 16 and three times 32 nodes, Watts-Strogatz(4, 0.75), wired from the seed.
Network randwire(Index batch = 1, std::uint64_t seed = 1, Index channels = 154);

/// NASNet-A (Zoph et al., arXiv 1707.07012), `repeats` normal cells between reductions and
/// `filters` in the first of them: 6 and 168 are "6 @ 4032". The strided shortcut of a cell after a
/// reduction is two 1x1 convolutions that read the same pixels, and the second half of its first
/// sum reads the newer input (NASNet-A has the older): so has the network that the IOS paper
/// measured, and its counts are of that cell.
Network nasnet(Index batch = 1, int repeats = 6, Index filters = 168);

/// SqueezeNet 1.0 with complex bypass (Iandola et al., arXiv 1602.07360, figure 2): every fire
/// module's input is added to its output, through a 1x1 convolution where the channels differ.
Network squeezenet_bypass(Index batch = 1);

/// The network of that name: "nasnet", "nasnet-mobile", "randwire", "randwire:SEED",
/// "squeezenet-bypass". Throws Error.
Network built_in(std::string_view name, Index batch);

}  // namespace convprim::ios
