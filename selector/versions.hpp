// What this build is linked with.
#pragma once

#include <string>

namespace convprim {

/// Several lines: this library, the CPU, the instruction set, OpenBLAS's core, and the versions of
/// everything linked.
std::string versions();

}  // namespace convprim
