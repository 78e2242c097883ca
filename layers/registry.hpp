// The row tables of this folder's files; registry.cpp joins them.
#pragma once

#include <span>

#include "convprim/layer.hpp"

namespace convprim {

std::span<const LayerImpl> pool_rows();
std::span<const LayerImpl> lrn_rows();
std::span<const LayerImpl> fc_rows();
std::span<const LayerImpl> softmax_rows();
std::span<const LayerImpl> eltwise_rows();
std::span<const LayerImpl> activation_rows();
std::span<const LayerImpl> channelwise_rows();
std::span<const LayerImpl> move_rows();
std::span<const LayerImpl> broadcast_rows();
std::span<const LayerImpl> resize_rows();
std::span<const LayerImpl> reduce_rows();
std::span<const LayerImpl> normalize_rows();
std::span<const LayerImpl> deconv_rows();

}  // namespace convprim
