// checkconv: every primitive over every scenario against the double-precision reference; and the
// bench of primitives.
//
// A check runs one (row, scenario) pair with NaN in the workspace, a poisoned output between
// canaries, and options (threads, bias, clamp, residual, channel slice) that follow from the pair,
// so that a row meets all of them over its scenarios. A row passes or fails as a whole.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "buffer.hpp"
#include "checkconv_bench.hpp"
#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "convprim/primitive.hpp"
#include "reference.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

struct Settings {
  std::vector<std::string> scenarios, files, primitives, families, exclude;
  std::string suite, resume;
  int threads = 0;  // 0: varied
  std::uint64_t seed = 1;
  bool list = false, bench = false, accuracy = false, verbose = false;
  BenchSettings benching;
  std::vector<std::string> summary;
  double limit_gmac = 0;  // 0: none
};

constexpr double kFullCheckMacs = 2e7;  // larger scenarios are compared at sampled outputs
constexpr Index kSamples = 400;
constexpr float kPoison = -7.25e33F;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2));
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t h = 1469598103934665603ULL;
  for (char ch : text) h = (h ^ static_cast<unsigned char>(ch)) * 1099511628211ULL;
  return h;
}

void fill_uniform(float* data, Index count, std::uint64_t seed) {
  std::mt19937 rng(static_cast<std::uint32_t>(seed ^ (seed >> 32)));
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (Index i = 0; i < count; ++i) data[i] = uniform(rng);
}

Buffer uniform(Index count, std::uint64_t seed) {
  Buffer b(static_cast<std::size_t>(count));
  fill_uniform(b.data(), count, seed);
  return b;
}

/// Floats with a fence of poison on either side.
class Fenced {
 public:
  explicit Fenced(Index count) : all_(static_cast<std::size_t>(count + 2 * kFence)) {
    std::fill(all_.begin(), all_.end(), kPoison);
  }
  float* data() { return all_.data() + kFence; }
  bool intact() const {
    const auto poisoned = [](float x) { return x == kPoison; };
    return std::all_of(all_.begin(), all_.begin() + kFence, poisoned) &&
           std::all_of(all_.end() - kFence, all_.end(), poisoned);
  }

 private:
  static constexpr Index kFence = 64;  // keeps the 64-byte alignment
  Buffer all_;
};

/// A scenario's data in (n, c, h, w) order and its answers before bias, residual and clamp.
struct Problem {
  Scenario s;
  Buffer in, filter, bias, residual;
  std::vector<Index> positions;  // the outputs that are compared, as flat (n, k, y, x) indices
  std::vector<double> value, magnitude;
  double largest = 0;  // of the magnitudes

  Problem(const Scenario& scenario, std::uint64_t seed, int threads) : s(scenario) {
    const std::uint64_t own = mix(seed, hash_text(s.str()));
    in = uniform(s.in().count(), own);
    filter = uniform(s.filter_count(), own + 1);
    bias = uniform(s.m, own + 2);
    residual = uniform(s.out().count(), own + 3);
    const Index outputs = s.out().count();
    if (s.macs() <= kFullCheckMacs || outputs <= kSamples) {
      positions.resize(static_cast<std::size_t>(outputs));
      for (Index i = 0; i < outputs; ++i) positions[static_cast<std::size_t>(i)] = i;
    } else {
      std::mt19937_64 rng(own);
      for (Index i = 0; i < kSamples; ++i) {
        positions.push_back(static_cast<Index>(rng() % static_cast<std::uint64_t>(outputs)));
      }
      for (Index corner : {Index{0}, s.ow - 1, (s.oh - 1) * s.ow, s.oh * s.ow - 1, outputs - 1}) {
        positions.push_back(corner);
      }
    }
    value.resize(positions.size());
    magnitude.resize(positions.size());
    const Weights plain{filter.data(), nullptr};
    parallel_for(threads, static_cast<Index>(positions.size()), [&](Index i) {
      const auto at = static_cast<std::size_t>(i);
      const auto [n, k, y, x] = split(positions[at]);
      std::tie(value[at], magnitude[at]) =
          reference_at(s, in.data(), plain, Epilogue{}, nullptr, n, k, y, x);
    });
    for (double m : magnitude) largest = std::max(largest, m);
  }

  /// The input in a layout, made when first asked for.
  Fenced& input(Layout layout) const {
    auto& made = inputs[static_cast<std::size_t>(layout)];
    if (!made) {
      made = std::make_unique<Fenced>(element_count(layout, s.in()));
      to_layout(layout, s.in(), in.data(), made->data());
    }
    return *made;
  }
  mutable std::array<std::unique_ptr<Fenced>, kLayoutCount> inputs;

  std::array<Index, 4> split(Index flat) const {
    return {flat / (s.ow * s.oh * s.m), flat / (s.ow * s.oh) % s.m, flat / s.ow % s.oh,
            flat % s.ow};
  }
};

/// The options of one check.
struct Variant {
  int threads = 1;
  bool bias = false, sliced = false, in_place = false;
  Epilogue epilogue;
  std::string str() const {
    return fmt::format(
        "threads {}{}{}{}{}", threads, bias ? ", bias" : "",
        epilogue.residual ? (in_place ? ", residual in place" : ", residual") : "",
        epilogue.clamps() ? fmt::format(", clamp {} to {}", epilogue.lo, epilogue.hi) : "",
        sliced ? ", slice" : "");
  }
};

Variant variant(std::uint64_t pick, int threads) {
  Variant v;
  v.threads = threads > 0 ? threads : static_cast<int>(1 + pick % 3);
  v.bias = (pick >> 8) % 4 != 0;
  v.sliced = (pick >> 16) % 3 == 0;
  v.epilogue.residual = (pick >> 24) % 3 == 0;
  v.in_place = v.epilogue.residual && !v.sliced && (pick >> 28) % 2 == 0;
  switch ((pick >> 32) % 3) {
    case 0:
      break;
    case 1:
      v.epilogue.lo = 0;
      break;
    default:
      v.epilogue.lo = -0.5F;
      v.epilogue.hi = 0.75F;
  }
  return v;
}

struct Outcome {
  std::string failure;  // empty: passed
  double worst = 0;     // largest error in units of the tolerance
  double relative = 0;  // largest error over the sum of |x*w|
};

Outcome check(const Primitive& row, const Problem& problem, const Variant& v) {
  const Scenario& s = problem.s;
  Outcome outcome;
  Options options;
  options.threads = v.threads;
  options.epilogue = v.epilogue;
  Shape whole = s.out();
  if (v.sliced) {
    const Index b = block(row.out);
    options.slice = {s.m + 2 * b + (b == 1 ? 3 : 0), b};
    if (s.m % b != 0) options.slice = {s.m + 2 * b, 2 * b};  // a ragged slice must be the last one
    whole.c = options.slice.channels;
  }
  const Weights weights{problem.filter.data(), v.bias ? problem.bias.data() : nullptr};
  const auto conv = row.prepare(s, weights, options);

  Fenced& in = problem.input(row.in);
  Fenced out(element_count(row.out, whole));
  Buffer residual(static_cast<std::size_t>(element_count(row.out, s.out())));
  if (v.epilogue.residual) {
    to_layout(row.out, s.out(), problem.residual.data(), v.in_place ? out.data() : residual.data());
  }
  const auto workspace_floats = static_cast<Index>((conv->workspace_bytes() + 3) / 4);
  Fenced workspace(workspace_floats);
  std::fill_n(workspace.data(), workspace_floats, std::numeric_limits<float>::quiet_NaN());
  const float* added = v.in_place ? out.data() : residual.data();
  conv->run({in.data(), out.data(), v.epilogue.residual ? added : nullptr, workspace.data()});

  if (!out.intact()) outcome.failure = "wrote outside the output";
  if (!workspace.intact()) outcome.failure = "wrote outside the workspace";
  if (!in.intact()) outcome.failure = "wrote outside the input";
  if (!outcome.failure.empty()) return outcome;

  const Strides at = strides(row.out, s.out(), options.slice);
  for (std::size_t i = 0; i < problem.positions.size(); ++i) {
    const auto [n, k, y, x] = problem.split(problem.positions[i]);
    double want = problem.value[i], magnitude = problem.magnitude[i];
    double scale = row.transforms ? problem.largest : magnitude;
    if (v.bias) {
      const double b = problem.bias[static_cast<std::size_t>(k)];
      want += b, scale += std::abs(b);
    }
    if (v.epilogue.residual) {
      const double r = problem.residual[static_cast<std::size_t>(problem.positions[i])];
      want += r, scale += std::abs(r);
    }
    want = std::clamp(want, static_cast<double>(v.epilogue.lo), static_cast<double>(v.epilogue.hi));
    const double got = out.data()[at.at(n, k, y, x)];
    const double error = std::abs(got - want);
    const double tolerance = kErrorUnit * row.error_scale * scale;
    // Written so that a NaN fails.
    if (!(error <= tolerance)) {
      outcome.failure = fmt::format(
          "output n{} m{} y{} x{} is {:.9g}, should be {:.9g}: error {:.3g}, allowed {:.3g}", n, k,
          y, x, got, want, error, tolerance);
      outcome.worst = std::numeric_limits<double>::infinity();
      return outcome;
    }
    if (tolerance > 0) outcome.worst = std::max(outcome.worst, error / tolerance);
    if (scale > 0) outcome.relative = std::max(outcome.relative, error / scale);
  }
  // Outside the slice nothing may change; padding lanes must be zero.
  const Index b = block(row.out), padded = stored_channels(row.out, whole.c);
  for (Index n = 0; n < s.n; ++n) {
    for (Index c = 0; c < padded; ++c) {
      const Index own = c - options.slice.begin;
      if (own >= 0 && own < s.m) continue;
      const bool lane = own >= s.m && own < stored_channels(row.out, s.m);
      const float want = lane ? 0.0F : kPoison;
      for (Index y = 0; y < s.oh; ++y) {
        for (Index x = 0; x < s.ow; ++x) {
          Shape stored = whole;
          stored.c = padded;
          const Index place =
              b > 1 ? offset(row.out, stored, n, c, y, x) : offset(row.out, whole, n, c, y, x);
          if (out.data()[place] != want) {
            outcome.failure = lane ? "a padding lane of the output is not zero"
                                   : "wrote outside its channel slice";
            return outcome;
          }
        }
      }
    }
  }
  return outcome;
}

// Scenarios
// ------------------------------------------------------------------------------------------------------------

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

std::vector<const Primitive*> chosen_rows(const Settings& settings) {
  const auto matches = [](const std::vector<std::string>& list, std::string_view text) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& part) {
      return part == text ||
             (part.ends_with('*') && text.starts_with(part.substr(0, part.size() - 1)));
    });
  };
  std::vector<const Primitive*> rows;
  for (const Primitive* row : primitives()) {
    if (!settings.primitives.empty() && !matches(settings.primitives, row->name)) continue;
    if (!settings.families.empty() && !matches(settings.families, name(row->family))) continue;
    if (matches(settings.exclude, row->name) || matches(settings.exclude, name(row->family)))
      continue;
    rows.push_back(row);
  }
  if (rows.empty()) throw Error("no primitive matches; `checkconv --list` names them all");
  return rows;
}

// Modes
// ---------------------------------------------------------------------------------------------------------------

int list(const Settings& settings) {
  const auto rows = chosen_rows(settings);
  if (settings.scenarios.empty() && settings.files.empty()) {
    for (const Primitive* row : rows) {
      fmt::print("{:<36} {:<10} {:>6} -> {}\n", row->name, name(row->family), name(row->in),
                 name(row->out));
    }
    return 0;
  }
  for (const Scenario& s : suite_scenarios(settings)) {
    fmt::print("{}\n", s.str());
    for (const Primitive* row : rows) {
      const char* why = row->reject(s);
      fmt::print("  {:<36} {}\n", row->name,
                 why != nullptr ? fmt::format("rejects: {}", why) : "solves it");
    }
  }
  return 0;
}

/// Pairs that have passed before, in a file that grows: long suites can be stopped and taken up
/// again. A pair is known by primitive, scenario, seed and instruction set.
class Journal {
 public:
  explicit Journal(const Settings& settings)
      : suffix_(fmt::format(" {} {}", settings.seed, name(isa()))) {
    if (settings.resume.empty()) return;
    std::ifstream known(settings.resume);
    for (std::string line; std::getline(known, line);) {
      // A line that was cut short by a kill has no ending.
      if (line.ends_with(";")) known_.insert(line.substr(0, line.size() - 1));
    }
    known.close();
    file_.open(settings.resume, std::ios::app);
    if (!file_) throw Error(fmt::format("--resume {}: cannot be written", settings.resume));
    file_ << '\n';
  }
  bool holds(const Primitive& row, const Scenario& s) const {
    return !known_.empty() && known_.contains(key(row, s));
  }
  void add(const Primitive& row, const Scenario& s) {
    if (file_.is_open()) file_ << key(row, s) << ";\n" << std::flush;
  }

 private:
  std::string key(const Primitive& row, const Scenario& s) const {
    return fmt::format("{} {}{}", row.name, s.str(), suffix_);
  }
  std::string suffix_;
  std::unordered_set<std::string> known_;
  std::ofstream file_;
};

/// Bytes of the tensors of a check: plain and stored input, filter plain and packed, and output,
/// residual and what the reference holds.
double check_bytes(const Scenario& s) {
  return 4.0 *
         (2.0 * static_cast<double>(s.in().count()) + 4.0 * static_cast<double>(s.filter_count()) +
          3.0 * static_cast<double>(s.out().count()));
}

/// Bytes that programs can still ask for, as the system estimates them.
std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  }
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// Leaves out problems whose tensors alone do not fit into three quarters of the memory that is
/// free, and says which.
void leave_out_huge(std::vector<Scenario>& scenarios) {
  const double memory = 0.75 * static_cast<double>(available_memory());
  std::erase_if(scenarios, [&](const Scenario& s) {
    if (check_bytes(s) <= memory) return false;
    fmt::print("{} left out: its tensors take {:.1f} GB, {:.1f} GB are free\n", s.str(),
               1e-9 * check_bytes(s), memory / 0.75e9);
    return true;
  });
}

int verify(const Settings& settings) {
  const auto rows = chosen_rows(settings);
  Journal journal(settings);
  auto scenarios = suite_scenarios(settings);
  leave_out_huge(scenarios);
  double work = 0, work_done = 0;
  int known = 0;
  for (const Scenario& s : scenarios) work += s.macs() + 1e6;
  auto told = std::chrono::steady_clock::now();
  struct Tally {
    int run = 0, rejected = 0, failed = 0;
    double worst = 0, relative = 0;
    std::string worst_at;
  };
  std::vector<Tally> tallies(rows.size());
  std::map<std::string, int> reasons;
  for (const Scenario& s : scenarios) {
    std::unique_ptr<Problem> problem;  // made when the first row takes it
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const Primitive& row = *rows[r];
      Tally& tally = tallies[r];
      if (const char* why = row.reject(s)) {
        ++tally.rejected;
        ++reasons[why];
        continue;
      }
      if (journal.holds(row, s)) {
        ++tally.run;
        ++known;
        continue;
      }
      if (!problem) problem = std::make_unique<Problem>(s, settings.seed, available_cpus());
      const Variant v = variant(mix(mix(settings.seed, hash_text(row.name)), hash_text(s.str())),
                                settings.threads);
      const auto began = std::chrono::steady_clock::now();
      const Outcome outcome = check(row, *problem, v);
      ++tally.run;
      if (settings.verbose) {
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        fmt::print("{} {} [{}]: {:.3f} of the tolerance, {:.3f} s\n", row.name, s.str(), v.str(),
                   outcome.worst, took.count());
      }
      if (!outcome.failure.empty()) {
        ++tally.failed;
        if (tally.failed <= 5) {
          fmt::print(
              "FAILED {} on {} [{}]: {}\n  again: checkconv --primitive={} --scenario='{}' "
              "--seed={}\n",
              row.name, s.str(), v.str(), outcome.failure, row.name, s.str(), settings.seed);
        }
      } else {
        journal.add(row, s);
        if (outcome.worst > tally.worst) {
          tally.worst = outcome.worst;
          tally.worst_at = s.str();
        }
      }
      tally.relative = std::max(tally.relative, outcome.relative);
    }
    std::fflush(stdout);
    work_done += s.macs() + 1e6;
    if (std::chrono::steady_clock::now() - told > std::chrono::seconds(30)) {
      told = std::chrono::steady_clock::now();
      fmt::print(stderr, "checkconv: {:.1f} % of the work done, at {}\n", 100 * work_done / work,
                 s.str());
    }
  }
  int passed = 0, failed = 0, run = 0, rejected = 0, unused = 0;
  if (settings.accuracy)
    fmt::print("{:<36} {:>10} {:>10}  at\n", "primitive", "error/u", "tolerance");
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Tally& t = tallies[r];
    run += t.run;
    rejected += t.rejected;
    if (t.run == 0) ++unused;
    ++(t.failed > 0 ? failed : passed);
    if (settings.accuracy) {
      fmt::print("{:<36} {:>10.2f} {:>9.1f}%  {}\n", rows[r]->name, t.relative / 0x1p-24,
                 100 * t.worst, t.worst_at);
    }
    if (t.run == 0) fmt::print("{} rejected every scenario\n", rows[r]->name);
  }
  fmt::print("{} primitives over {} scenarios ({}, seed {}): {} pairs run, {} rejected\n",
             rows.size(), scenarios.size(), name(isa()), settings.seed, run, rejected);
  if (known > 0)
    fmt::print("  {:>6} of the pairs had passed before ({})\n", known, settings.resume);
  for (const auto& [why, count] : reasons) fmt::print("  {:>6} rejected: {}\n", count, why);
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace convprim

int main(int argc, char** argv) {
  using namespace convprim;
  Settings settings;
  CLI::App app{
      "Checks convolution primitives against the double-precision reference, and benches them."};
  app.add_option("--scenario", settings.scenarios,
                 "problem string in benchdnn's grammar, repeatable");
  app.add_option("--file", settings.files, "file with one problem string a line, repeatable");
  app.add_option("--suite", settings.suite, "short (default without --scenario) or long")
      ->check(CLI::IsMember({"short", "long"}));
  app.add_option("--primitive", settings.primitives, "only these; a trailing * matches any ending")
      ->delimiter(',');
  app.add_option("--family", settings.families, "only these families")->delimiter(',');
  app.add_option("--exclude", settings.exclude, "not these primitives or families")->delimiter(',');
  app.add_option("--threads", settings.threads,
                 "threads; default: 1 to 3 in checks, 1 in the bench")
      ->check(CLI::Range(1, 1024));
  app.add_option("--seed", settings.seed, "seed of data, options and random scenarios");
  app.add_option("--reps", settings.benching.reps, "rounds of the bench")
      ->check(CLI::Range(1, 1000));
  app.add_option("--limit-gmac", settings.limit_gmac,
                 "leave out problems of more multiplications than this, in units of 1e9; 0: none")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--resume", settings.resume,
                 "file of pairs that passed: they are not run again, and new ones are added");
  app.add_flag("--list", settings.list, "list primitives; with --scenario, who rejects it and why");
  app.add_flag("--bench", settings.bench,
               "time them, interleaved, against the peak measured in the same run");
  app.add_flag("--best", settings.benching.best, "with --bench: only the best of each family");
  app.add_flag(
      "--compare", settings.benching.compare,
      "with --bench: only the best rows that compute all products, the best that transform "
      "and oneDNN's best, and the ratio of the times");
  app.add_option("--results", settings.benching.results,
                 "with --compare: append all times to this file; problems in it are left out");
  app.add_option("--budget", settings.benching.budget,
                 "begin no further problem of the bench after this many seconds; status 3 if some "
                 "are left")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--summary", settings.summary,
                 "print ratios and geometric means of files of --results, one for each run");
  app.add_flag("--accuracy", settings.accuracy,
               "print each primitive's largest error, in units of rounding of its sum of |x*w|");
  app.add_flag("--verbose", settings.verbose, "a line for each check");
  CLI11_PARSE(app, argc, argv);
  try {
    if (settings.list) return list(settings);
    if (!settings.summary.empty()) return summarise(settings.summary);
    if (!settings.bench) return verify(settings);
    settings.benching.threads = std::max(1, settings.threads);
    settings.benching.seed = settings.seed;
    return bench(suite_scenarios(settings), chosen_rows(settings), settings.benching);
  } catch (const Error& e) {
    fmt::print(stderr, "checkconv: {}\n", e.what());
    return 2;
  }
}
