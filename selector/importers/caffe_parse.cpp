// Caffe text to a message. The schema (convprim_caffe.proto) knows what matters for inference;
// everything else is skipped and reported once for each name.
#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <regex>

#include "convprim/error.hpp"
#include "selector/importers/caffe.hpp"
#include "selector/importers/file.hpp"

namespace convprim::caffe {
namespace {

/// Fields that say how to train, to prepare images or to run: skipped without a word.
constexpr auto kSilent = std::to_array<std::string_view>({"accuracy_param",
                                                          "annotated_data_param",
                                                          "backend",
                                                          "bias_filler",
                                                          "blobs_lr",
                                                          "cache",
                                                          "convolution_algo",
                                                          "data_filler",
                                                          "debug_info",
                                                          "decay_mult",
                                                          "default_backward_math",
                                                          "default_backward_type",
                                                          "default_forward_math",
                                                          "default_forward_type",
                                                          "dropout_param",
                                                          "dropout_ratio",
                                                          "engine",
                                                          "filler",
                                                          "force_backward",
                                                          "force_color",
                                                          "force_gray",
                                                          "force_nd_im2col",
                                                          "frozen",
                                                          "infogain_loss_param",
                                                          "is_color",
                                                          "label_map_file",
                                                          "loss_param",
                                                          "loss_weight",
                                                          "lr_mult",
                                                          "mean_file",
                                                          "mean_value",
                                                          "meanfile",
                                                          "mirror",
                                                          "momentum",
                                                          "moving_average_fraction",
                                                          "phase",
                                                          "prefetch",
                                                          "propagate_down",
                                                          "rand_skip",
                                                          "root_folder",
                                                          "scale",
                                                          "scale_filler",
                                                          "share_mode",
                                                          "shuffle",
                                                          "slope_filler",
                                                          "source",
                                                          "stable_prod_grad",
                                                          "threads",
                                                          "variance_norm",
                                                          "weight_decay",
                                                          "weight_filler"});
static_assert(std::is_sorted(kSilent.begin(), kSilent.end()));

/// Messages of layers that are not run, or that only load images: nothing in them matters beside
/// what the schema has.
constexpr auto kSilentMessages = std::to_array<std::string_view>(
    {"DataParameter", "ImageDataParameter", "PriorBoxParameter", "ProposalParameter",
     "PsRoiPoolingParameter", "ResizeParameter", "RoiPoolingParameter", "TransformationParameter",
     "WindowDataParameter"});

struct Complaint {
  int line;  // 1-based
  std::string text;
};

class Collector : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int /*column*/, const std::string& message) override {
    if (!error) error = Complaint{line + 1, message};
  }
  void AddWarning(int line, int /*column*/, const std::string& message) override {
    warnings.push_back({line + 1, message});
  }
  std::optional<Complaint> error;
  std::vector<Complaint> warnings;
};

/// protobuf's parser stops at an enum value that the schema does not know. Blanks out each
/// `field: value` of the text and reports it as a warning, so that parsing can start again.
void blank_value(std::string& text, const std::string& field, const std::string& value,
                 std::vector<Complaint>& warnings) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  int line = 1;
  std::size_t counted = 0;
  for (std::size_t at = text.find(field); at != std::string::npos; at = text.find(field, at + 1)) {
    if (at > 0 && is_word(text[at - 1])) continue;
    const std::size_t colon = text.find_first_not_of(kSpace, at + field.size());
    if (colon == std::string::npos || text[colon] != ':') continue;
    const std::size_t begin = text.find_first_not_of(kSpace, colon + 1);
    if (begin == std::string::npos || text.compare(begin, value.size(), value) != 0) continue;
    const std::size_t end = begin + value.size();
    if (end < text.size() && is_word(text[end])) continue;
    const std::size_t start = text.rfind('\n', at);
    const std::size_t comment = text.find('#', start == std::string::npos ? 0 : start);
    if (comment < at) continue;
    line += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(counted),
                                        text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    counted = at;
    for (std::size_t i = at; i < end; ++i) {
      if (text[i] != '\n') text[i] = ' ';
    }
    warnings.push_back(
        {line, fmt::format("Unknown enumeration value of \"{}\" for field \"{}\".", value, field)});
  }
}

/// Refuses hostile nesting before the recursive parser sees it.
void check_nesting(std::string_view text, const std::string& file) {
  constexpr int kDeepest = 32;
  int depth = 0;
  int line = 1;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (quote != 0) {
      if (c == '\\') {
        ++i;
      } else if (c == quote || c == '\n') {
        quote = 0;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else if (c == '{' || c == '<' || c == '[') {
      if (++depth > kDeepest) {
        throw Error(
            fmt::format("{}:{}: braces are nested more than {} deep, which no network needs; "
                        "look for a missing closing brace.",
                        file, line, kDeepest));
      }
    } else if ((c == '}' || c == '>' || c == ']') && depth > 0) {
      --depth;
    }
  }
}

/// What a file is that is not a network, from the first fields at its top; empty if it may be one.
std::string other_kind(std::string_view text) {
  struct Row {
    const char* pattern;
    const char* what;
  };
  static constexpr Row kRows[] = {
      {R"((^|\n)[ \t]*(net|train_net|test_net|train_net_param)[ \t]*:)",
       "this is a solver, not a network; give the file that its field `net` names"},
      {R"((^|\n)[ \t]*(base_lr|lr_policy|solver_mode|solver_type|max_iter|snapshot_prefix)[ \t]*:)",
       "this is a solver, not a network; give the network's own file"},
      {R"((^|\n)[ \t]*item[ \t]*:?[ \t]*\{)",
       "this is a label map, not a network; give the network's own file"}};
  const std::string head(text.substr(0, 4096));
  if (std::regex_search(head, std::regex(R"((^|\n|\})[ \t]*(layers?|input)[ \t]*[:{])"))) return {};
  for (const Row& row : kRows) {
    if (std::regex_search(head, std::regex(row.pattern))) return row.what;
  }
  return {};
}

/// The sentence for text that the parser stopped at.
std::string explain(std::string_view text, const Complaint& error) {
  const std::string_view line = line_of(text, error.line);
  const bool type_line = line.find("type") != std::string_view::npos;
  if (line.find("${") != std::string_view::npos) {
    return fmt::format(
        "the template \"{}\" has not been filled in; run the script that the file comes with",
        line.substr(line.find("${"), line.substr(line.find("${")).find('}') + 1));
  }
  if (type_line && error.text.starts_with("Expected integer or identifier")) {
    return "a block `layers` takes types such as CONVOLUTION, without quotes; write `layer` for "
           "this type, or the old name";
  }
  if (type_line && error.text.starts_with("Expected string")) {
    return "a block `layer` takes types such as \"Convolution\", in quotes; write `layers` for "
           "this type, or the new name";
  }
  std::string what = error.text;
  while (!what.empty() && (what.back() == '.' || what.back() == ' ')) what.pop_back();
  std::replace(what.begin(), what.end(), '\n', ' ');
  return fmt::format(
      "this does not parse as Caffe text: {}; mend the line, or give the file as its authors "
      "published it",
      what);
}

/// protobuf's words for an enum value that the schema does not know: value, field.
const std::regex& unknown_value() {
  static const std::regex kPattern(
      R"re(Unknown enumeration value of "([^"]*)" for field "([^"]*)".*)re");
  return kPattern;
}

struct Skipped {
  int line = 0;
  int count = 0;
};

/// Turns the parser's warnings into remarks, and those about types of old layers into
/// unknown_types.
void read_warnings(const std::vector<Complaint>& warnings, const std::vector<int>& layer_lines,
                   const std::string& file, std::vector<std::string>& unknown_types,
                   std::vector<std::string>& remarks) {
  static const std::regex kField(R"re(Message type "([^"]*)" has no field named "([^"]*)".*)re");
  std::map<std::string, Skipped> skipped;
  std::vector<std::string> order;
  for (const Complaint& w : warnings) {
    std::smatch m;
    std::string what = w.text;
    if (std::regex_match(w.text, m, kField)) {
      const std::string field = m[2].str();
      const std::string message = m[1].str().substr(m[1].str().rfind('.') + 1);
      const auto has = [](const auto& sorted, const std::string& name) {
        return std::binary_search(sorted.begin(), sorted.end(), std::string_view(name));
      };
      if (has(kSilent, field) || has(kSilentMessages, message)) continue;
      what = fmt::format("the field \"{}\" of {} is unknown and was skipped", field, message);
    } else if (std::regex_match(w.text, m, unknown_value())) {
      const std::string field = m[2].str();
      if (field == "type" && !layer_lines.empty()) {
        const auto next = std::upper_bound(layer_lines.begin(), layer_lines.end(), w.line);
        if (next != layer_lines.begin()) {
          unknown_types[static_cast<std::size_t>(next - layer_lines.begin() - 1)] = m[1].str();
          continue;
        }
      }
      what = fmt::format("the value \"{}\" of \"{}\" is unknown and was skipped", m[1].str(),
                         field.substr(field.rfind('.') + 1));
    }
    Skipped& s = skipped[what];
    if (s.count++ == 0) {
      s.line = w.line;
      order.push_back(what);
    }
  }
  for (const std::string& what : order) {
    const Skipped& s = skipped[what];
    remarks.push_back(
        s.count == 1 ? fmt::format("{}:{}: {}.", file, s.line, what)
                     : fmt::format("{}:{}: {} ({} times in all).", file, s.line, what, s.count));
  }
}

}  // namespace

Parsed parse_text(std::string_view text, const std::string& file) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  if (const std::string kind = other_kind(text); !kind.empty()) {
    throw Error(fmt::format("{}: {}.", file, kind));
  }
  check_nesting(text, file);
  Parsed parsed;
  std::optional<google::protobuf::TextFormat::ParseInfoTree> places;
  std::string work(text);
  std::vector<Complaint> warnings;
  constexpr int kRounds = 64;  // unknown enum values in one file
  for (int round = 0;; ++round) {
    Collector collector;
    places.emplace();
    parsed.net.Clear();
    google::protobuf::TextFormat::Parser parser;
    parser.RecordErrorsTo(&collector);
    parser.WriteLocationsTo(&*places);
    parser.AllowUnknownField(true);
    parser.AllowUnknownExtension(true);
    parser.AllowPartialMessage(true);
    google::protobuf::io::ArrayInputStream stream(work.data(), static_cast<int>(work.size()));
    if (parser.Parse(&stream, &parsed.net) && !collector.error) {
      warnings.insert(warnings.end(), collector.warnings.begin(), collector.warnings.end());
      break;
    }
    const Complaint error =
        collector.error.value_or(Complaint{0, "the parser gave up without a reason"});
    std::smatch m;
    const std::size_t known = warnings.size();
    if (round < kRounds && std::regex_match(error.text, m, unknown_value())) {
      blank_value(work, m[2].str().substr(m[2].str().rfind('.') + 1), m[1].str(), warnings);
    }
    if (warnings.size() == known) {
      throw Error(fmt::format("{}:{}: {}.", file, error.line, explain(text, error)));
    }
  }
  std::stable_sort(warnings.begin(), warnings.end(),
                   [](const Complaint& a, const Complaint& b) { return a.line < b.line; });
  NetParameter& net = parsed.net;
  const auto* const descriptor = NetParameter::descriptor();
  const auto lines_of = [&](int number, int count) {
    std::vector<int> lines;
    for (int i = 0; i < count; ++i) {
      lines.push_back(places->GetLocation(descriptor->FindFieldByNumber(number), i).line + 1);
    }
    return lines;
  };
  const std::vector<int> old_lines = lines_of(NetParameter::kLayersFieldNumber, net.layers_size());
  const std::vector<int> new_lines = lines_of(NetParameter::kLayerFieldNumber, net.layer_size());
  if (!old_lines.empty() && !new_lines.empty()) {
    throw Error(fmt::format(
        "{}:{}: `layer` and `layers`, two generations of the format, are mixed in this file (line "
        "{} has the other one); write all layers in one of them.",
        file, std::max(old_lines[0], new_lines[0]), std::min(old_lines[0], new_lines[0])));
  }
  std::vector<std::string> unknown_types(old_lines.size());
  read_warnings(warnings, old_lines, file, unknown_types, parsed.remarks);
  if (net.layers_size() + net.layer_size() == 0) {
    throw Error(fmt::format(
        "{}: there is no layer in it; give the file that describes the network.", file));
  }
  parsed.lines = old_lines.empty() ? new_lines : old_lines;
  upgrade(net, unknown_types);
  return parsed;
}

}  // namespace convprim::caffe
