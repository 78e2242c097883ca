// OpenBLAS: single-precision GEMM, and the process-wide care that OpenBLAS needs.
#pragma once

#include <string>

#include "convprim/layout.hpp"

namespace convprim {

/// C = alpha * op(A) op(B) + beta * C, row-major: op(A) is m x k, op(B) is k x n, C is m x n; lda,
/// ldb and ldc are the row strides as stored. Runs on the calling thread only: threads belong to
/// the primitive around it, never to the BLAS.
void sgemm(bool trans_a, bool trans_b, Index m, Index n, Index k, float alpha, const float* a,
           Index lda, const float* b, Index ldb, float beta, float* c, Index ldc);

/// Makes OpenBLAS single-threaded, and mends its choice of kernels where it took an AVX-capable CPU
/// for an SSE one or where CONVPRIM_ISA caps us below what it chose. Called by sgemm's users before
/// timing anything; cheap after the first time.
void init_blas();

/// What init_blas() found: "SkylakeX", or "SkylakeX (was Prescott)", or with a remark where a wrong
/// choice could not be mended.
std::string blas_core();

/// OpenBLAS's own configuration line: version and build.
std::string blas_version();

}  // namespace convprim
