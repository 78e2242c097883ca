#include "convprim/primitive.hpp"

#include <fmt/format.h>

#include "convprim/error.hpp"

namespace convprim {

std::string_view name(Family family) {
  switch (family) {
    case Family::direct:
      return "direct";
    case Family::im2:
      return "im2";
    case Family::kn2:
      return "kn2";
    case Family::mec:
      return "mec";
    case Family::conv_1x1:
      return "conv-1x1";
    case Family::implicit:
      return "implicit";
    case Family::winograd:
      return "winograd";
    case Family::fft:
      return "fft";
    case Family::depthwise:
      return "depthwise";
    case Family::onednn:
      return "onednn";
  }
  return "?";
}

std::unique_ptr<Convolution> Primitive::prepare(const Scenario& s, const Weights& weights,
                                                const Options& options) const {
  if (const char* why = reject(s)) {
    throw Error(fmt::format("{} cannot solve {}: {}", name, s.str(), why));
  }
  return prepare_fn(*this, s, weights, options);
}

}  // namespace convprim
