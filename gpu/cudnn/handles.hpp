// Owners of what CUDA and cuDNN hand out, and errors as exceptions.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "convprim/error.hpp"

namespace convprim::ios {

/// Throws Error unless the call that returned `status` succeeded. `what` is what was tried.
inline void must(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  throw Error(fmt::format("GPU: {} failed: {}", what, cudaGetErrorString(status)));
}
inline void must(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(fmt::format("cuDNN: {} failed: {}", what, cudnnGetErrorString(status)));
}

/// A handle made by Create(&handle) and given back by Destroy(handle).
template <class T, auto Create, auto Destroy>
class Owned {
 public:
  Owned() { must(Create(&handle_), "making a handle"); }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) Destroy(handle_);
  }
  operator T() const { return handle_; }

 private:
  T handle_ = nullptr;
};

using TensorDescriptor =
    Owned<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using FilterDescriptor =
    Owned<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using ConvDescriptor = Owned<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                             cudnnDestroyConvolutionDescriptor>;
using PoolDescriptor =
    Owned<cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor, cudnnDestroyPoolingDescriptor>;
using ActivationDescriptor = Owned<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor,
                                   cudnnDestroyActivationDescriptor>;
using LrnDescriptor =
    Owned<cudnnLRNDescriptor_t, cudnnCreateLRNDescriptor, cudnnDestroyLRNDescriptor>;
using OpDescriptor =
    Owned<cudnnOpTensorDescriptor_t, cudnnCreateOpTensorDescriptor, cudnnDestroyOpTensorDescriptor>;
using Cudnn = Owned<cudnnHandle_t, cudnnCreate, cudnnDestroy>;

inline cudaError_t make_stream(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
}
inline cudaError_t make_plain_event(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDisableTiming);
}
inline cudaError_t make_timed_event(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
using Stream = Owned<cudaStream_t, make_stream, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, make_plain_event, cudaEventDestroy>;
using TimedEvent = Owned<cudaEvent_t, make_timed_event, cudaEventDestroy>;

/// Memory of the device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0) must(cudaMalloc(&data_, bytes), fmt::format("allocating {} bytes", bytes));
  }
  /// A copy of floats of the host.
  explicit DeviceMemory(std::span<const float> values) : DeviceMemory(values.size_bytes()) {
    if (bytes_ == 0) return;
    must(cudaMemcpy(data_, values.data(), bytes_, cudaMemcpyHostToDevice), "copying to the GPU");
  }
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() { cudaFree(data_); }
  float* data() const { return static_cast<float*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace convprim::ios
