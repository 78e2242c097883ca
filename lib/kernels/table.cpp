// One instruction set's table of kernels.
#include "kernels/kernels.hpp"
#include "kernels/simd.hpp"

#define CONVPRIM_STRING2(x) #x
#define CONVPRIM_STRING(x) CONVPRIM_STRING2(x)

namespace convprim::kernels::CONVPRIM_KERNELS {

extern const ElementwiseKernels kElementwise;
extern const GemmKernels kGemm;
extern const MachineKernels kMachine;
extern const TransposeKernels kTranspose;
extern const WinogradKernels kWinograd;

const Kernels kTable = {
    CONVPRIM_STRING(CONVPRIM_KERNELS),
    kLanes,
    &kElementwise,
    &kGemm,
    &kMachine,
    &kTranspose,
    &kWinograd,
};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
