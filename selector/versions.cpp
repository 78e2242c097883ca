#include "selector/versions.hpp"

#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>
#include <sqlite3.h>

#include <boost/version.hpp>
#include <nlohmann/json.hpp>

#include "blas.hpp"
#include "convprim/cpu.hpp"
#include "convprim/primitive.hpp"
#include "primitives/onednn/onednn.hpp"
#ifdef CONVPRIM_HAVE_FFT
#include <fftw3.h>
#endif

namespace convprim {

std::string versions() {
  std::string out;
  const auto line = [&](std::string_view what, const auto& value) {
    out += fmt::format("{:<14} {}\n", what, value);
  };
  line("convprim", version());
  line("CPU", cpu_name());
  line("CPUs", available_cpus());
  line("instructions", name(isa()));
  line("caches", fmt::format("L1d {} KiB, L2 {} KiB, L3 {} KiB", cache_bytes(1) >> 10,
                             cache_bytes(2) >> 10, cache_bytes(3) >> 10));
  line("primitives", primitives().size());
  line("OpenBLAS", fmt::format("core {}; {}", blas_core(), blas_version()));
  line("oneDNN", onednn_version());
#ifdef CONVPRIM_HAVE_FFT
  line("FFTW", fmt::format("{} (GPL: this build is GPL too)", fftwf_version));
#else
  line("FFTW", "not built in");
#endif
  line("protobuf",
       fmt::format("{}.{}.{}", GOOGLE_PROTOBUF_VERSION / 1000000,
                   GOOGLE_PROTOBUF_VERSION / 1000 % 1000, GOOGLE_PROTOBUF_VERSION % 1000));
  line("SQLite", sqlite3_libversion());
  line("Boost", fmt::format("{}.{}.{}", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000,
                            BOOST_VERSION % 100));
  line("fmt",
       fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100));
  line("nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                    NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH));
  return out;
}

}  // namespace convprim
