// The cuDNN back end; present in every build, able to do something where CUDA and cuDNN were found
// when it was configured. No CUDA type appears here.
#pragma once

#include <memory>
#include <string>

#include "convprim/error.hpp"
#include "gpu/engine.hpp"

namespace convprim::ios {

/// No GPU to run on, or no back end for one in this build.
class NoDevice : public Error {
 public:
  using Error::Error;
};

struct CudaOptions {
  bool graph =
      true;  ///< capture each run into a CUDA graph and replay it; else launch step by step
  bool tf32 = false;  ///< let convolutions use TF32
  std::string costs;  ///< cost file that keeps the algorithms that cuDNN found; empty: none
};

/// Throws NoDevice, with one sentence, unless there is a GPU that this build can use.
void require_cuda();

/// "CUDA 13.0, cuDNN 9.19.0", or "not built in".
std::string cuda_version();

/// The first GPU. Nothing touches the device before the first call of prepare() or of a cost.
/// `graph` must have weights and outlive the engine and its runs. Throws NoDevice.
std::unique_ptr<Engine> cuda_engine(const OperatorGraph& graph, const CudaOptions& options);

}  // namespace convprim::ios
