// Generations and phases: what turns any Caffe file into a plain list of layers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "convprim/error.hpp"
#include "selector/importers/caffe.hpp"

namespace convprim::caffe {
namespace {

struct TypeRow {
  std::string_view old_name;
  std::string_view new_name;
};

/// Types of the second generation whose new name does not follow from the old one by the rule in
/// new_type(), and those of forks, which the schema does not know.
constexpr auto kTypes = std::to_array<TypeRow>({{"ABSVAL", "AbsVal"},
                                                {"BN", "BN"},
                                                {"BNLL", "BNLL"},
                                                {"HDF5_DATA", "HDF5Data"},
                                                {"HDF5_OUTPUT", "HDF5Output"},
                                                {"LRN", "LRN"},
                                                {"MVN", "MVN"},
                                                {"PRELU", "PReLU"},
                                                {"RELU", "ReLU"},
                                                {"RELU6", "ReLU6"},
                                                {"SOFTMAX_LOSS", "SoftmaxWithLoss"},
                                                {"SPP", "SPP"},
                                                {"TANH", "TanH"},
                                                {"ARGMAX", "ArgMax"}});

/// "INNER_PRODUCT" becomes "InnerProduct".
std::string new_type(std::string_view old_name) {
  for (const TypeRow& row : kTypes) {
    if (row.old_name == old_name) return std::string(row.new_name);
  }
  std::string name;
  bool start = true;
  for (const char c : old_name) {
    if (c == '_') {
      start = true;
      continue;
    }
    const bool upper = c >= 'A' && c <= 'Z';
    name += upper && !start ? static_cast<char>(c - 'A' + 'a') : c;
    start = false;
  }
  return name;
}

/// Types of the first generation.
constexpr auto kFirstTypes =
    std::to_array<TypeRow>({{"accuracy", "Accuracy"},
                            {"bnll", "BNLL"},
                            {"concat", "Concat"},
                            {"conv", "Convolution"},
                            {"data", "Data"},
                            {"dropout", "Dropout"},
                            {"euclidean_loss", "EuclideanLoss"},
                            {"flatten", "Flatten"},
                            {"hdf5_data", "HDF5Data"},
                            {"hdf5_output", "HDF5Output"},
                            {"hinge_loss", "HingeLoss"},
                            {"im2col", "Im2col"},
                            {"images", "ImageData"},
                            {"infogain_loss", "InfogainLoss"},
                            {"innerproduct", "InnerProduct"},
                            {"lrn", "LRN"},
                            {"multinomial_logistic_loss", "MultinomialLogisticLoss"},
                            {"padding", "Padding"},
                            {"pool", "Pooling"},
                            {"relu", "ReLU"},
                            {"sigmoid", "Sigmoid"},
                            {"softmax", "Softmax"},
                            {"softmax_loss", "SoftmaxWithLoss"},
                            {"split", "Split"},
                            {"tanh", "TanH"},
                            {"window_data", "WindowData"}});

/// Moves a sub-message of the same type from the old layer to the new one.
#define CONVPRIM_MOVE_FIELD(field) \
  if (from.has_##field()) to.mutable_##field()->Swap(from.mutable_##field())

void upgrade_first(V0LayerParameter& from, LayerParameter& to) {
  to.set_name(from.name());
  to.set_type(from.type());
  for (const TypeRow& row : kFirstTypes) {
    if (row.old_name == from.type()) to.set_type(std::string(row.new_name));
  }
  to.mutable_blobs()->Swap(from.mutable_blobs());
  const std::string& type = to.type();
  if (type == "Convolution") {
    auto& p = *to.mutable_convolution_param();
    if (from.has_num_output()) p.set_num_output(from.num_output());
    p.set_bias_term(from.biasterm());
    p.add_pad(from.pad());
    if (from.has_kernelsize()) p.add_kernel_size(from.kernelsize());
    p.add_stride(from.stride());
    p.set_group(from.group());
  } else if (type == "Pooling") {
    auto& p = *to.mutable_pooling_param();
    p.set_pool(static_cast<PoolingParameter::PoolMethod>(from.pool()));
    if (from.has_kernelsize()) p.set_kernel_size(from.kernelsize());
    p.set_stride(from.stride());
    p.set_pad(from.pad());
  } else if (type == "LRN") {
    auto& p = *to.mutable_lrn_param();
    p.set_local_size(from.local_size());
    p.set_alpha(from.alpha());
    p.set_beta(from.beta());
    p.set_k(from.k());
  } else if (type == "InnerProduct") {
    auto& p = *to.mutable_inner_product_param();
    if (from.has_num_output()) p.set_num_output(from.num_output());
    p.set_bias_term(from.biasterm());
  } else if (type == "Concat") {
    to.mutable_concat_param()->set_axis(from.concat_dim());
  } else if (type == "Data" || type == "ImageData" || type == "WindowData") {
    if (from.has_batchsize()) to.mutable_data_param()->set_batch_size(from.batchsize());
    if (from.cropsize() > 0) to.mutable_transform_param()->set_crop_size(from.cropsize());
    if (from.has_new_height()) {
      to.mutable_image_data_param()->set_new_height(from.new_height());
      to.mutable_image_data_param()->set_new_width(from.new_width());
    }
  }
}

void upgrade_second(V1LayerParameter& from, const std::string& unknown_type, LayerParameter& to) {
  if (from.has_layer()) {
    upgrade_first(*from.mutable_layer(), to);
  } else {
    to.set_name(from.name());
    if (from.has_type()) {
      to.set_type(new_type(V1LayerParameter::LayerType_Name(from.type())));
    } else if (!unknown_type.empty()) {
      to.set_type(new_type(unknown_type));
    }
    to.mutable_blobs()->Swap(from.mutable_blobs());
  }
  to.mutable_bottom()->Swap(from.mutable_bottom());
  to.mutable_top()->Swap(from.mutable_top());
  to.mutable_include()->Swap(from.mutable_include());
  to.mutable_exclude()->Swap(from.mutable_exclude());
  for (const std::string& name : from.param()) to.add_param()->set_name(name);
  CONVPRIM_MOVE_FIELD(concat_param);
  CONVPRIM_MOVE_FIELD(convolution_param);
  CONVPRIM_MOVE_FIELD(data_param);
  CONVPRIM_MOVE_FIELD(hdf5_data_param);
  CONVPRIM_MOVE_FIELD(image_data_param);
  CONVPRIM_MOVE_FIELD(inner_product_param);
  CONVPRIM_MOVE_FIELD(lrn_param);
  CONVPRIM_MOVE_FIELD(pooling_param);
  CONVPRIM_MOVE_FIELD(window_data_param);
  CONVPRIM_MOVE_FIELD(power_param);
  CONVPRIM_MOVE_FIELD(memory_data_param);
  CONVPRIM_MOVE_FIELD(argmax_param);
  CONVPRIM_MOVE_FIELD(eltwise_param);
  CONVPRIM_MOVE_FIELD(dummy_data_param);
  CONVPRIM_MOVE_FIELD(relu_param);
  CONVPRIM_MOVE_FIELD(slice_param);
  CONVPRIM_MOVE_FIELD(transform_param);
  CONVPRIM_MOVE_FIELD(softmax_param);
  CONVPRIM_MOVE_FIELD(exp_param);
  CONVPRIM_MOVE_FIELD(crop_param);
  CONVPRIM_MOVE_FIELD(interp_param);
  CONVPRIM_MOVE_FIELD(bn_param);
}

#undef CONVPRIM_MOVE_FIELD

bool has(const google::protobuf::RepeatedPtrField<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool meets(const NetStateRule& rule, const NetState& state) {
  if (rule.has_phase() && rule.phase() != state.phase()) return false;
  if (rule.has_min_level() && state.level() < rule.min_level()) return false;
  if (rule.has_max_level() && state.level() > rule.max_level()) return false;
  for (const std::string& stage : rule.stage()) {
    if (!has(state.stage(), stage)) return false;
  }
  for (const std::string& stage : rule.not_stage()) {
    if (has(state.stage(), stage)) return false;
  }
  return true;
}

}  // namespace

void upgrade(NetParameter& net, const std::vector<std::string>& unknown_types) {
  // A padding layer of the first generation belongs to the convolution that reads it.
  struct Padded {
    std::string bottom;
    Index pad;
  };
  std::map<std::string, Padded> padded;
  for (int i = 0; i < net.layers_size(); ++i) {
    V1LayerParameter& from = *net.mutable_layers(i);
    const Index pad = from.layer().pad();
    LayerParameter& to = *net.add_layer();
    upgrade_second(from,
                   static_cast<std::size_t>(i) < unknown_types.size()
                       ? unknown_types[static_cast<std::size_t>(i)]
                       : std::string(),
                   to);
    if (to.type() == "Padding" && to.bottom_size() == 1 && to.top_size() == 1) {
      padded[to.top(0)] = {to.bottom(0), pad};
    } else if (to.type() == "Convolution" && to.bottom_size() == 1) {
      const auto it = padded.find(to.bottom(0));
      if (it == padded.end()) continue;
      to.set_bottom(0, it->second.bottom);
      to.mutable_convolution_param()->clear_pad();
      to.mutable_convolution_param()->add_pad(it->second.pad);
    }
  }
  net.clear_layers();
}

void filter_phase(Parsed& parsed, const std::string& file, const ImportOptions& options) {
  NetState state = parsed.net.state();
  state.set_phase(options.train ? TRAIN : TEST);
  if (options.level != 0) state.set_level(options.level);
  for (const std::string& stage : options.stages) state.add_stage(stage);
  NetParameter kept;
  std::vector<int> lines;
  for (int i = 0; i < parsed.net.layer_size(); ++i) {
    LayerParameter& layer = *parsed.net.mutable_layer(i);
    const int line = parsed.lines[static_cast<std::size_t>(i)];
    if (layer.include_size() > 0 && layer.exclude_size() > 0) {
      throw Error(
          fmt::format("{}:{}: layer \"{}\" has rules to include and rules to exclude it; "
                      "keep one kind.",
                      file, line, layer.name()));
    }
    const auto met = [&](const NetStateRule& rule) { return meets(rule, state); };
    const bool keep = layer.include_size() > 0
                          ? std::any_of(layer.include().begin(), layer.include().end(), met)
                          : std::none_of(layer.exclude().begin(), layer.exclude().end(), met);
    if (!keep) continue;
    kept.add_layer()->Swap(&layer);
    lines.push_back(line);
  }
  if (kept.layer_size() == 0) {
    throw Error(
        fmt::format("{}: no layer is left for the {} phase; choose the other phase or the "
                    "right stage.",
                    file, options.train ? "training" : "test"));
  }
  parsed.net.mutable_layer()->Swap(kept.mutable_layer());
  parsed.lines = std::move(lines);
}

}  // namespace convprim::caffe
