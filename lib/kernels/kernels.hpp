// The table of inner loops that each instruction set exports. Plain C++ without any standard
// library inline function: this header is included by the kernels themselves.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/complex.hpp"
#include "kernels/depthwise.hpp"
#include "kernels/direct.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/fc.hpp"
#include "kernels/fft.hpp"
#include "kernels/first_layer.hpp"
#include "kernels/gemm.hpp"
#include "kernels/lrn.hpp"
#include "kernels/machine.hpp"
#include "kernels/pool.hpp"
#include "kernels/resize.hpp"
#include "kernels/softmax.hpp"
#include "kernels/transpose.hpp"
#include "kernels/winograd.hpp"

namespace convprim::kernels {

/// All inner loops of one instruction set. A member is one kernel file's own table.
struct Kernels {
  const char* isa;  ///< "baseline", "avx2", "avx512" or "neon"
  int lanes;        ///< floats in a register
  const ActivationKernels* activation;
  const ComplexKernels* complex;
  const DepthwiseKernels* depthwise;
  const ElementwiseKernels* elementwise;
  const FcKernels* fc;
  const FftKernels* fft;
  const FirstLayerKernels* first_layer;
  const GemmKernels* gemm;
  const DirectKernels* direct;
  const LrnKernels* lrn;
  const MachineKernels* machine;
  const PoolKernels* pool;
  const ResizeKernels* resize;
  const SoftmaxKernels* softmax;
  const TransposeKernels* transpose;
  const WinogradKernels* winograd;
};

#define CONVPRIM_DECLARE_ISA(isa) \
  namespace isa {                 \
  extern const Kernels kTable;    \
  }
CONVPRIM_DECLARE_ISA(baseline)
CONVPRIM_DECLARE_ISA(avx2)
CONVPRIM_DECLARE_ISA(avx512)
CONVPRIM_DECLARE_ISA(neon)
#undef CONVPRIM_DECLARE_ISA

/// The table for the instruction set in use, see isa() in cpu.hpp.
const Kernels& active();

}  // namespace convprim::kernels
