// OpenBLAS: right results, and kernels that fit the CPU.
#include <cmath>
#include <vector>

#include "blas.hpp"
#include "convprim/cpu.hpp"
#include "test.hpp"

using namespace convprim;

TEST_CASE("sgemm multiplies, transposed or not") {
  const Index m = 7, n = 9, k = 5;
  const auto value = [](Index i, Index j) { return static_cast<float>((i * 7 + j * 3) % 11) - 5; };
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      std::vector<float> a(35), b(45), c(63, 1.0F);
      for (Index i = 0; i < m; ++i)
        for (Index p = 0; p < k; ++p)
          a[static_cast<std::size_t>(ta ? p * m + i : i * k + p)] = value(i, p);
      for (Index p = 0; p < k; ++p)
        for (Index j = 0; j < n; ++j)
          b[static_cast<std::size_t>(tb ? j * k + p : p * n + j)] = value(p + 2, j);
      sgemm(ta, tb, m, n, k, 2, a.data(), ta ? m : k, b.data(), tb ? k : n, 1, c.data(), n);
      for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < n; ++j) {
          float want = 1;
          for (Index p = 0; p < k; ++p) want += 2 * value(i, p) * value(p + 2, j);
          CHECK(c[static_cast<std::size_t>(i * n + j)] == want);  // small integers: exact
        }
    }
  }
}

TEST_CASE("OpenBLAS runs kernels of our instruction set") {
  init_blas();
  CHECK(blas_core().find("set OPENBLAS_CORETYPE") == std::string::npos);
}
