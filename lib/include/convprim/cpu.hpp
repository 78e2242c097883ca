// What this machine is, and which instruction set the kernels use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// Instruction sets that the kernels are built for, in the order in which a cap works.
enum class Isa : std::uint8_t { baseline, avx2, avx512, neon };

/// "baseline", "avx2", "avx512" or "neon".
std::string_view name(Isa isa);

/// The instruction set in use: the best that this CPU has and this build holds, capped by the
/// environment variable CONVPRIM_ISA when first called. Throws Error if that variable names none,
/// or one that this CPU lacks.
Isa isa();

/// The CPU's own name, for example "Intel(R) Xeon(R) Processor (family 6, model 207)" or
/// "Cortex-A57"; with kEmulatedSuffix at the end under emulation; "unknown" where the system does
/// not tell.
std::string cpu_name();

/// Whether an emulator runs this program: times taken are times of the emulator then.
bool emulated();

/// Ends the name of a CPU that is emulated.
inline constexpr std::string_view kEmulatedSuffix = " (emulated)";

/// Bytes of a core's data cache of that level (1, 2 or 3), or its share of one that cores have in
/// common; a usual value where the system does not tell.
std::size_t cache_bytes(int level);

/// Processors that this process may run on.
int available_cpus();

/// This library's version: "0.1.0".
std::string_view version();

}  // namespace convprim
#pragma GCC visibility pop
