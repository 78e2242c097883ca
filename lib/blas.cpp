#include "blas.hpp"

#include <cblas.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "convprim/cpu.hpp"

namespace convprim {
namespace {

/// OpenBLAS's name of the kernels that go with our instruction set, or null where its own choice
/// stands.
const char* wanted_core() {
  switch (isa()) {
    case Isa::baseline:
      return "Prescott";
    case Isa::avx2:
      return "Haswell";
    case Isa::avx512:
      return "SkylakeX";
    case Isa::neon:
      return nullptr;
  }
  return nullptr;
}

/// Whether a core of that name uses our instruction set to the full; several do.
bool fits(const std::string& core) {
  switch (isa()) {
    case Isa::baseline:
      return core != "Haswell" && core != "Zen" && core != "SkylakeX" && core != "Cooperlake" &&
             core != "SapphireRapids" && core != "Sandybridge";
    case Isa::avx2:
      return core == "Haswell" || core == "Zen";
    case Isa::avx512:
      return core == "SkylakeX" || core == "Cooperlake" || core == "SapphireRapids";
    case Isa::neon:
      return true;
  }
  return true;
}

/// OpenBLAS picks its kernels when it is loaded, from a list of CPU models that ends with its
/// release date: a newer CPU gets SSE3 kernels. Its undocumented pair gotoblas_dynamic_quit/init
/// makes it choose again, from OPENBLAS_CORETYPE.
std::string settle_core() {
  const std::string before = openblas_get_corename();
  std::string text = before;
  if (!fits(before)) {
    using Hook = void (*)();
    const auto quit = reinterpret_cast<Hook>(dlsym(RTLD_DEFAULT, "gotoblas_dynamic_quit"));
    const auto init = reinterpret_cast<Hook>(dlsym(RTLD_DEFAULT, "gotoblas_dynamic_init"));
    if (quit != nullptr && init != nullptr) {
      setenv("OPENBLAS_CORETYPE", wanted_core(), 1);
      quit();
      init();
    }
    const std::string after = openblas_get_corename();
    text = fits(after)
               ? fmt::format("{} (was {})", after, before)
               : fmt::format(
                     "{} (not the {} kernels that this CPU could run; set OPENBLAS_CORETYPE={})",
                     after, wanted_core(), wanted_core());
  }
  openblas_set_num_threads(1);
  return text;
}

const std::string& settled_core() {
  static const std::string core = settle_core();
  return core;
}

}  // namespace

void init_blas() { settled_core(); }

std::string blas_core() { return settled_core(); }

std::string blas_version() { return openblas_get_config(); }

void sgemm(bool trans_a, bool trans_b, Index m, Index n, Index k, float alpha, const float* a,
           Index lda, const float* b, Index ldb, float beta, float* c, Index ldc) {
  init_blas();
  cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
              trans_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(m), static_cast<blasint>(n),
              static_cast<blasint>(k), alpha, a, static_cast<blasint>(lda), b,
              static_cast<blasint>(ldb), beta, c, static_cast<blasint>(ldc));
}

}  // namespace convprim
