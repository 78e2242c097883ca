// One instruction set's table of kernels.
#include "kernels/kernels.hpp"
#include "kernels/simd.hpp"

#define CONVPRIM_STRING2(x) #x
#define CONVPRIM_STRING(x) CONVPRIM_STRING2(x)

namespace convprim::kernels::CONVPRIM_KERNELS {

extern const ActivationKernels kActivation;
extern const ComplexKernels kComplex;
extern const DepthwiseKernels kDepthwise;
extern const ElementwiseKernels kElementwise;
extern const FcKernels kFc;
extern const FftKernels kFft;
extern const FirstLayerKernels kFirstLayer;
extern const GemmKernels kGemm;
extern const DirectKernels kDirect;
extern const LrnKernels kLrn;
extern const MachineKernels kMachine;
extern const PoolKernels kPool;
extern const ResizeKernels kResize;
extern const SoftmaxKernels kSoftmax;
extern const TransposeKernels kTranspose;
extern const WinogradKernels kWinograd;

const Kernels kTable = {
    CONVPRIM_STRING(CONVPRIM_KERNELS),
    kLanes,
    &kActivation,
    &kComplex,
    &kDepthwise,
    &kElementwise,
    &kFc,
    &kFft,
    &kFirstLayer,
    &kGemm,
    &kDirect,
    &kLrn,
    &kMachine,
    &kPool,
    &kResize,
    &kSoftmax,
    &kTranspose,
    &kWinograd,
};

}  // namespace convprim::kernels::CONVPRIM_KERNELS
