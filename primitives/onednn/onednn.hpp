// What the rest of the library asks of oneDNN beside its primitives.
#pragma once

#include <string>

namespace convprim {

/// Version and instruction set of the oneDNN in use, for example
/// "2.6.3 (Intel AVX-512 with AVX512BW, AVX512VL, and AVX512DQ extensions)"; "not built in" without
/// oneDNN. The first call caps oneDNN at isa().
std::string onednn_version();

}  // namespace convprim
