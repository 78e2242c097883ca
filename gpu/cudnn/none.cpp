// What stands for the cuDNN back end in builds without it.
#include "gpu/cuda.hpp"

namespace convprim::ios {

void require_cuda() {
  throw NoDevice(
      "this build has no GPU back end: configure it with -Dgpu=enabled where CUDA and cuDNN are "
      "installed (-Dcudnn_root= names cuDNN's folder), or use --device cpu or simulated");
}

std::string cuda_version() { return "not built in"; }

std::unique_ptr<Engine> cuda_engine(const OperatorGraph&, const CudaOptions&) {
  require_cuda();
  return nullptr;
}

}  // namespace convprim::ios
