// The bench of primitives, see checkconv_bench.hpp.
#include "checkconv_bench.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>

#include "buffer.hpp"
#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "machine.hpp"
#include "reference.hpp"

namespace convprim {
namespace {

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

/// How a row computes: the groups among which a comparison seeks the best.
enum class Side : std::uint8_t { onednn, plain, transforms };

Side side(const Primitive& row) {
  if (row.family == Family::onednn) return Side::onednn;
  return row.transforms ? Side::transforms : Side::plain;
}

/// A problem's tensors with uniform random data. Inputs, outputs and the workspace are shared by
/// the rows: none of them holds anything between runs.
class Bench {
 public:
  Bench(const Scenario& s, const BenchSettings& settings)
      : s_(s),
        settings_(settings),
        filter_(uniform(s.filter_count())),
        bias_(uniform(s.m)),
        plain_(uniform(s.in().count())) {}

  void add_rows(const std::vector<const Primitive*>& rows) {
    Options options;
    options.threads = settings_.threads;
    options.epilogue.lo = 0;
    // One run each first: those far behind the best of their group are not run again.
    std::map<int, double> best;
    for (const Primitive* row : rows) {
      if (row->reject(s_) != nullptr) continue;
      Entry e{row, row->prepare(s_, {filter_.data(), bias_.data()}, options), {}};
      const std::size_t floats = (e.conv->workspace_bytes() + 3) / 4;
      if (workspace_.size() < floats) workspace_ = Buffer::zeros(floats);
      double t = once(e);
      if (chosen() && t < 0.2) t = std::min(once(e), once(e));
      e.seconds.push_back(t);
      double& least = best.emplace(group(*row), t).first->second;
      least = std::min(least, t);
      if (t < limit() * least) entries_.push_back(std::move(e));
    }
    std::erase_if(entries_,
                  [&](const Entry& e) { return e.seconds[0] > limit() * best[group(*e.row)]; });
  }

  /// Interleaved: each round measures the peak and runs every row once warm.
  void measure() {
    std::vector<double> peaks;
    for (Entry& e : entries_) e.seconds.clear();
    for (int rep = 0; rep < settings_.reps; ++rep) {
      peaks.push_back(peak_flops(settings_.threads));
      for (Entry& e : entries_) {
        if (e.seconds.empty() || e.seconds[0] < 0.2) once(e);
        e.seconds.push_back(once(e));
      }
    }
    peak_ = median(peaks);
    for (Entry& e : entries_) e.median = median(e.seconds);
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.median < b.median; });
  }

  void print() const {
    fmt::print("{}: {:.1f} MFLOP, {} thread{}, {}, measured peak {:.1f} GFLOP/s\n", s_.str(),
               2e-6 * s_.macs(), settings_.threads, settings_.threads == 1 ? "" : "s", name(isa()),
               peak_ * 1e-9);
    std::set<int> shown;
    for (const Entry& e : entries_) {
      if (chosen() && !shown.insert(group(*e.row)).second) continue;
      const double rate = 2 * s_.macs() / e.median;
      fmt::print(
          "  {:<36} {:>10.4f} ms {:>8.1f} GFLOP/s {:>6.1f} % of peak  workspace {:.1f} MB, packed "
          "{:.1f} MB\n",
          e.row->name, e.median * 1e3, rate * 1e-9, 100 * rate / peak_,
          1e-6 * static_cast<double>(e.conv->workspace_bytes()),
          1e-6 * static_cast<double>(e.conv->packed_bytes()));
    }
    if (settings_.compare) print_ratio();
  }

  /// A line of the table over all problems: the winner, and what the next family's best takes.
  std::string summary() const {
    if (entries_.empty()) return fmt::format("{:<46} no row takes it", s_.str());
    const Entry& first = entries_[0];
    const auto next = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
      return group(*e.row) != group(*first.row);
    });
    const double rate = 2 * s_.macs() / first.median;
    return fmt::format(
        "{:<46} {:<30} {:>9.4f} {:>9.1f} {:>7.1f}%  {}", s_.str(), first.row->name,
        first.median * 1e3, rate * 1e-9, 100 * rate / peak_,
        next == entries_.end()
            ? "none"
            : fmt::format("{:.2f} {}", next->median / first.median, next->row->name));
  }

  /// A line for each row: problem, threads, GFLOP/s of the peak, side, row, milliseconds.
  void append_to(std::ofstream& file) const {
    for (const Entry& e : entries_) {
      file << fmt::format("{}\t{}\t{:.2f}\t{}\t{}\t{:.6f}\n", s_.str(), settings_.threads,
                          peak_ * 1e-9, static_cast<int>(side(*e.row)), e.row->name,
                          e.median * 1e3);
    }
    file.flush();
  }

 private:
  struct Entry {
    const Primitive* row;
    std::unique_ptr<Convolution> conv;
    std::vector<double> seconds;
    double median = 0;
  };

  Buffer uniform(Index count) {
    std::uniform_real_distribution<float> draw(-1, 1);
    Buffer b(static_cast<std::size_t>(count));
    for (float& x : b) x = draw(rng_);
    return b;
  }

  int group(const Primitive& row) const {
    return settings_.compare ? static_cast<int>(side(row)) : static_cast<int>(row.family);
  }
  /// Whether only the best of a group are wanted.
  bool chosen() const { return settings_.compare || settings_.best; }
  double limit() const { return chosen() ? 1.25 : 3; }

  double once(const Entry& e) {
    const auto at = [](Layout layout) { return static_cast<std::size_t>(layout); };
    Buffer& in = inputs_[at(e.row->in)];
    if (in.size() == 0) {
      in = Buffer::zeros(static_cast<std::size_t>(element_count(e.row->in, s_.in())));
      to_layout(e.row->in, s_.in(), plain_.data(), in.data());
    }
    Buffer& out = outputs_[at(e.row->out)];
    if (out.size() == 0) {
      out = Buffer::zeros(static_cast<std::size_t>(element_count(e.row->out, s_.out())));
    }
    const auto start = std::chrono::steady_clock::now();
    e.conv->run({in.data(), out.data(), nullptr, workspace_.data()});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void print_ratio() const {
    double own = 0, other = 0;
    for (const Entry& e : entries_) {
      double& least = side(*e.row) == Side::onednn ? other : own;
      if (least == 0) least = e.median;
    }
    if (own > 0 && other > 0) fmt::print("  ours over oneDNN's: {:.3f}\n", own / other);
  }

  Scenario s_;
  const BenchSettings& settings_;
  std::mt19937 rng_{static_cast<std::uint32_t>(settings_.seed)};
  Buffer filter_, bias_, plain_, workspace_;
  std::array<Buffer, kLayoutCount> inputs_, outputs_;
  std::vector<Entry> entries_;
  double peak_ = 0;
};

/// A line of a file of results.
struct Result {
  std::string problem;
  int threads = 0;
  double peak = 0;
  Side side{};
  std::string row;
  double ms = 0;
};

std::vector<Result> read_results(const std::string& path, bool may_lack) {
  std::ifstream file(path);
  if (!file && !may_lack) throw Error(fmt::format("{}: cannot be read", path));
  std::vector<Result> all;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::istringstream stream(line);
    Result r;
    int s = 0;
    stream >> r.problem >> r.threads >> r.peak >> s >> r.row >> r.ms;
    if (!stream || s < 0 || s > 2 || r.ms <= 0) {
      throw Error(fmt::format("{}:{}: not a line of results of this bench", path, number));
    }
    r.side = static_cast<Side>(s);
    all.push_back(r);
  }
  return all;
}

/// What the runs say about one problem.
struct Contest {
  Scenario s;
  struct Best {
    std::string row;
    double ms = 0;  // geometric mean over the runs; 0: no row
    std::vector<double> each;
  };
  Best own, plain, other;
  double peak = 0;
  double ratio() const { return own.ms > 0 && other.ms > 0 ? own.ms / other.ms : 0; }
};

double geometric_mean(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += std::log(x);
  return v.empty() ? 0 : std::exp(sum / static_cast<double>(v.size()));
}

Contest contest(const std::string& problem, const std::vector<const Result*>& lines,
                std::size_t runs) {
  Contest c;
  c.s = Scenario::parse(problem);
  std::map<std::string, std::vector<const Result*>> rows;
  std::vector<double> peaks;
  for (const Result* line : lines) {
    rows[line->row].push_back(line);
    peaks.push_back(line->peak);
  }
  c.peak = median(peaks);
  for (const auto& [row, times] : rows) {
    if (times.size() != runs) continue;  // not in the running each time
    std::vector<double> each;
    for (const Result* t : times) each.push_back(t->ms);
    const double ms = geometric_mean(each);
    const auto offer = [&](Contest::Best& best) {
      if (best.ms == 0 || ms < best.ms) best = {row, ms, each};
    };
    offer(times[0]->side == Side::onednn ? c.other : c.own);
    if (times[0]->side == Side::plain) offer(c.plain);
  }
  return c;
}

void print_means(std::string_view what, const std::vector<Contest>& contests,
                 bool (*takes)(const Scenario&)) {
  std::vector<double> ratios;
  const Contest* worst = nullptr;
  int behind = 0;
  for (const Contest& c : contests) {
    if (c.ratio() == 0 || !takes(c.s)) continue;
    ratios.push_back(c.ratio());
    if (c.ratio() > 1.25) ++behind;
    if (worst == nullptr || c.ratio() > worst->ratio()) worst = &c;
  }
  if (worst == nullptr) return;
  fmt::print("{}: geometric mean {:.3f} of {} problems, worst {:.3f} at {}, {} above 1.25\n", what,
             geometric_mean(ratios), ratios.size(), worst->ratio(), worst->s.str(), behind);
}

/// The winners of several problems.
void print_table(const std::vector<std::string>& lines) {
  if (lines.size() < 2) return;
  fmt::print("\n{:<46} {:<30} {:>9} {:>9} {:>8}  {}\n", "problem", "best row", "ms", "GFLOP/s",
             "of peak", "times as long: best row of another family");
  for (const std::string& line : lines) fmt::print("{}\n", line);
}

}  // namespace

int bench(const std::vector<Scenario>& scenarios, const std::vector<const Primitive*>& rows,
          const BenchSettings& settings) {
  const auto start = std::chrono::steady_clock::now();
  std::set<std::string> done;
  std::ofstream file;
  if (!settings.results.empty()) {
    for (const Result& r : read_results(settings.results, true)) {
      if (r.threads == settings.threads) done.insert(r.problem);
    }
    file.open(settings.results, std::ios::app);
    if (!file) throw Error(fmt::format("{}: cannot be written", settings.results));
  }
  std::vector<std::string> table;
  std::size_t left = scenarios.size();
  for (const Scenario& s : scenarios) {
    const double passed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!done.contains(s.str())) {
      if (settings.budget > 0 && passed > settings.budget) {
        print_table(table);
        fmt::print("{} problems left for another call\n", left);
        return 3;
      }
      if (isatty(STDERR_FILENO) != 0) {
        fmt::print(stderr, "checkconv: problem {} of {}\n", scenarios.size() - left + 1,
                   scenarios.size());
      }
      Bench b(s, settings);
      b.add_rows(rows);
      b.measure();
      b.print();
      if (file.is_open()) b.append_to(file);
      if (settings.best) table.push_back(b.summary());
      std::fflush(stdout);
    }
    --left;
  }
  print_table(table);
  return 0;
}

int summarise(const std::vector<std::string>& files) {
  std::map<std::pair<int, std::string>, std::vector<const Result*>> problems;
  std::vector<std::vector<Result>> runs;
  for (const std::string& file : files) runs.push_back(read_results(file, false));
  std::vector<std::pair<int, std::string>> order;
  for (const auto& run : runs) {
    for (const Result& r : run) {
      auto& lines = problems[{r.threads, r.problem}];
      if (lines.empty()) order.emplace_back(r.threads, r.problem);
      lines.push_back(&r);
    }
  }
  std::map<int, std::vector<Contest>> by_threads;
  for (const auto& key : order) {
    by_threads[key.first].push_back(contest(key.second, problems[key], files.size()));
  }
  for (auto& [threads, contests] : by_threads) {
    fmt::print("{} thread{}, {} run{}\n", threads, threads == 1 ? "" : "s", files.size(),
               files.size() == 1 ? "" : "s");
    fmt::print("{:<46} {:>9} {:>8} {:>9}  {:<28} {:<28}\n", "problem", "ours/ms", "ratio",
               "plain/pk", "ours", "oneDNN's");
    std::sort(contests.begin(), contests.end(),
              [](const Contest& a, const Contest& b) { return a.ratio() > b.ratio(); });
    int slow = 0;
    for (const Contest& c : contests) {
      const double share =
          c.plain.ms > 0 ? 2 * c.s.macs() / (c.plain.ms * 1e-3) / (c.peak * 1e9) : 0;
      if (2e-6 * c.s.macs() > 100 && share < 0.8 && !c.s.depthwise()) ++slow;
      std::string each;
      for (std::size_t i = 0; files.size() > 1 && i < c.own.each.size() && i < c.other.each.size();
           ++i) {
        each += fmt::format(" {:.3f}", c.own.each[i] / c.other.each[i]);
      }
      fmt::print("{:<46} {:>9.4f} {:>8.3f} {:>8.1f}%  {:<28} {:<28}{}\n", c.s.str(), c.own.ms,
                 c.ratio(), 100 * share, c.own.row, c.other.row, each);
    }
    print_means("all", contests, [](const Scenario&) { return true; });
    print_means("3x3, stride 1, 64 channels or more each side", contests, [](const Scenario& s) {
      return s.kh == 3 && s.kw == 3 && s.unit_stride() && s.g == 1 && s.c >= 64 && s.m >= 64;
    });
    fmt::print("direct and GEMM rows under 80 % of the peak on problems of over 100 MFLOP: {}\n\n",
               slow);
  }
  return 0;
}

}  // namespace convprim
