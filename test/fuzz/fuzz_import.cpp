// Fuzz target of import_network_text(): any bytes give a network or one sentence. Both importers
// are behind it, told apart by content; the seeds steer to either.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "convprim/error.hpp"
#include "convprim/import.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    convprim::import_network_text(bytes, "file");
  } catch (const convprim::Error& e) {
    const std::string message = e.what();
    if (message.empty() || message.find('\n') != std::string::npos) __builtin_trap();
  }
  return 0;
}
