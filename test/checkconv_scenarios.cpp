// The problems of checkconv's suites.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "checkconv.hpp"
#include "convprim/error.hpp"

namespace convprim {
namespace {

std::vector<Scenario> read_scenarios(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw Error(
        fmt::format("{}: cannot be read; give a file with one problem string a line", path));
  std::vector<Scenario> all;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    const auto first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    line = line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
    try {
      all.push_back(Scenario::parse(line));
    } catch (const Error& e) {
      throw Error(fmt::format("{}:{}: {}", path, number, e.what()));
    }
  }
  return all;
}

/// Small problems over everything that a scenario can vary.
std::vector<Scenario> random_scenarios(int count, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto pick = [&](std::initializer_list<Index> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(rng() % values.size()));
  };
  std::vector<Scenario> all;
  while (static_cast<int>(all.size()) < count) {
    const Index g = pick({1, 1, 1, 1, 2, 3});
    const Shape in{pick({1, 1, 2}), g * pick({1, 3, 4, 7, 8, 15, 16, 17, 24}),
                   pick({1, 5, 7, 8, 13, 14, 19}), pick({1, 5, 7, 8, 13, 14, 19})};
    const Index m = g * pick({1, 5, 8, 15, 16, 17, 32});
    const Index square = pick({1, 3, 3, 5});
    const bool odd = rng() % 4 == 0;
    const Index kh = odd ? pick({1, 2, 3, 7}) : square, kw = odd ? pick({1, 2, 3, 7}) : square;
    const Index sh = pick({1, 1, 1, 2, 3}), sw = rng() % 4 == 0 ? pick({1, 2}) : sh;
    const Index d = pick({1, 1, 1, 1, 2});
    const Index top = static_cast<Index>(rng() % 3),
                left = rng() % 3 == 0 ? static_cast<Index>(rng() % 4) : top;
    try {
      all.push_back(Scenario::padded(in, m, kh, kw, sh, sw, top, left, top, left, d, d, g));
    } catch (const Error&) {  // nothing left of the image: draw again
    }
  }
  return all;
}

std::string data_dir() {
  const char* root = std::getenv("CONVPRIM_DATA");
  return root != nullptr ? root : "data";
}

/// A line of a table with named columns, without quoting.
class Row {
 public:
  Row(const std::vector<std::string>& names, const std::string& line) {
    std::istringstream stream(line);
    std::string cell;
    for (const std::string& name : names) {
      std::getline(stream, cell, ',');
      cells_[name] = cell;
    }
  }
  const std::string& text(const std::string& name) const { return cells_.at(name); }
  /// The number in a column; an empty cell has the usual value.
  Index number(const std::string& name, Index usual = 1) const {
    const std::string& cell = cells_.at(name);
    return cell.empty() ? usual : std::stoll(cell);
  }

 private:
  std::map<std::string, std::string> cells_;
};

std::vector<Row> read_csv(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> names;
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (names.empty()) {
      std::istringstream stream(line);
      for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
    } else {
      rows.emplace_back(names, line);
    }
  }
  return rows;
}

/// The problems of oneDNN's and DeepBench's lists and of public networks, where that data is at
/// hand; batches are capped at 2.
std::vector<Scenario> shared_scenarios() {
  const char* root = std::getenv("CONVPRIM_SHARED");
  std::vector<Scenario> all;
  if (root == nullptr) return all;
  const auto add = [&](Scenario s) {
    s.n = std::min<Index>(s.n, 2);
    try {
      s.check();
      all.push_back(s);
    } catch (const Error& e) {  // more than any primitive is offered
      fmt::print("a listed problem is no scenario: {}\n", e.what());
    }
  };
  const std::string dir = root;
  for (const Row& r : read_csv(dir + "/shapes/onednn_flat.csv")) {
    Scenario s;
    s.n = r.number("mb"), s.g = r.number("g"), s.c = r.number("ic"), s.h = r.number("ih");
    s.w = r.number("iw"), s.m = r.number("oc"), s.oh = r.number("oh"), s.ow = r.number("ow");
    s.kh = r.number("kh"), s.kw = r.number("kw"), s.sh = r.number("sh"), s.sw = r.number("sw");
    s.pt = r.number("ph_top", 0), s.pl = r.number("pw_left", 0);
    s.dh = r.number("dh_caffe"), s.dw = r.number("dw_caffe");
    add(s);
  }
  for (const Row& r : read_csv(dir + "/shapes/deepbench.csv")) {
    const Index ph = r.number("pad_h"), pw = r.number("pad_w");
    add(Scenario::padded({r.number("n"), r.number("c"), r.number("h"), r.number("w")},
                         r.number("k"), r.number("filter_h"), r.number("filter_w"),
                         r.number("stride_h"), r.number("stride_w"), ph, pw, ph, pw));
  }
  for (const Row& r : read_csv(dir + "/nets/expected_convs.csv")) {
    if (r.text("type") == "Deconvolution") continue;
    Scenario s;
    s.n = r.number("N"), s.g = r.number("group"), s.c = r.number("C"), s.h = r.number("H");
    s.w = r.number("W"), s.m = r.number("K"), s.oh = r.number("OH"), s.ow = r.number("OW");
    s.kh = r.number("kh"), s.kw = r.number("kw"), s.sh = r.number("sh"), s.sw = r.number("sw");
    s.pt = r.number("ph"), s.pl = r.number("pw"), s.dh = r.number("dh"), s.dw = r.number("dw");
    add(s);
  }
  return all;
}

}  // namespace

std::vector<Scenario> suite_scenarios(const Settings& settings) {
  std::vector<Scenario> all;
  for (const std::string& text : settings.scenarios) all.push_back(Scenario::parse(text));
  const auto append = [&](const std::vector<Scenario>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const std::string& path : settings.files) append(read_scenarios(path));
  if (all.empty() || !settings.suite.empty()) {
    const std::string dir = data_dir() + "/scenarios";
    append(read_scenarios(dir + "/adversarial.txt"));
    const bool is_long = settings.suite == "long";
    append(random_scenarios(is_long ? 400 : 60, settings.seed));
    if (is_long) {
      for (const auto& entry : std::filesystem::directory_iterator(dir)) {
        if (entry.path().filename() != "adversarial.txt") append(read_scenarios(entry.path()));
      }
      append(shared_scenarios());
    }
  }
  std::vector<Scenario> distinct;
  std::map<std::string, bool> seen;
  int large = 0;
  for (const Scenario& s : all) {
    if (!seen.emplace(s.str(), true).second) continue;
    if (settings.limit_gmac > 0 && s.macs() > settings.limit_gmac * 1e9) {
      ++large;
    } else {
      distinct.push_back(s);
    }
  }
  if (large > 0) {
    fmt::print("{} problems of over {} GMAC left out (--limit-gmac)\n", large, settings.limit_gmac);
  }
  // Small ones first, so that a fault shows early.
  if (settings.suite == "long") {
    std::stable_sort(distinct.begin(), distinct.end(),
                     [](const Scenario& a, const Scenario& b) { return a.macs() < b.macs(); });
  }
  return distinct;
}

}  // namespace convprim
