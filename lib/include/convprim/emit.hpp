// Plans as C++ programs.
#pragma once

#include <string>
#include <vector>

#include "convprim/network.hpp"
#include "convprim/plan.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// A file of an emitted program.
struct EmittedFile {
  std::string name;     ///< "main.cpp"
  std::string content;  ///< text, or bytes of the weights
};

/// A C++ program that computes a network as a plan says: the network as calls of this library in
/// the plan's order (net.hpp, net.cpp), a main program that reads a tensor, runs and prints the top
/// 5 (main.cpp), the weights as raw float32 (weights.bin), a Meson file and a README. It builds
/// against an installed convprim and gives the same bits as Executable with that plan. `net` must
/// be the optimised network that the plan was made for, with weights. Throws Error if the plan does
/// not fit the network.
std::vector<EmittedFile> emit(const Network& net, const Plan& plan);

/// The names of the files that emit() makes.
std::vector<std::string> emitted_names();

}  // namespace convprim
#pragma GCC visibility pop
