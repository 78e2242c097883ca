// Fuzz target of load_weights(): any bytes fill the blobs of a small network or give one sentence.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "convprim/error.hpp"
#include "selector/importers/caffe.hpp"

namespace {

constexpr char kNet[] = R"(
  input: "data" input_shape { dim: 1 dim: 1 dim: 28 dim: 28 }
  layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
    convolution_param { num_output: 2 kernel_size: 3 } }
  layer { name: "bn" type: "BatchNorm" bottom: "conv1" top: "conv1" }
  layer { name: "old" type: "BN" bottom: "conv1" top: "conv1" }
  layer { name: "ip" type: "InnerProduct" bottom: "conv1" top: "ip"
    inner_product_param { num_output: 3 transpose: true } })";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const convprim::caffe::Parsed parsed = convprim::caffe::parse_text(kNet, "net");
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    convprim::caffe::Built built = convprim::caffe::build(parsed, "net", {});
    convprim::caffe::load_weights(built, bytes, "file");
  } catch (const convprim::Error& e) {
    const std::string message = e.what();
    if (message.empty() || message.find('\n') != std::string::npos) __builtin_trap();
  }
  return 0;
}
