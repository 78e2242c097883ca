// The run over all pairs of rows and problems, in one process or several.
//
// Processes take the next problem as they get free, and write what came out into memory that all of
// them see. One that crashes costs the pair that it was at: another takes its place.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <optional>
#include <thread>
#include <unordered_set>

#include "checkconv.hpp"
#include "checkconv_check.hpp"
#include "convprim/cpu.hpp"
#include "convprim/error.hpp"

namespace convprim {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
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
    // One write for each line, so that several processes may append.
    if (file_.is_open()) file_ << key(row, s) + ";\n" << std::flush;
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

/// Leaves out problems whose tensors alone do not fit into the memory, and says which.
void leave_out_huge(std::vector<Scenario>& scenarios, double memory) {
  std::erase_if(scenarios, [&](const Scenario& s) {
    if (check_bytes(s) <= memory) return false;
    fmt::print("{} left out: its tensors take {:.1f} GB, {:.1f} GB are free\n", s.str(),
               1e-9 * check_bytes(s), memory / 0.75e9);
    return true;
  });
}

/// Zeroed objects in memory that forked processes share; kept to the end.
template <class T>
T* shared(std::size_t count) {
  void* memory = mmap(nullptr, std::max<std::size_t>(1, count * sizeof(T)), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<T*>(memory);
}

enum class State : std::uint8_t { open, rejected, known, running, passed, failed };

/// What came out for one row and problem.
struct Pair {
  State state;
  const char* why;  ///< of a rejection: a literal, in the same place in all processes
  double worst, relative;
};

/// What the processes tell each other.
struct Board {
  std::atomic<std::size_t> next;    ///< problem that nobody has taken
  std::atomic<double> work;         ///< that is done, by guess()
  std::atomic<std::size_t> newest;  ///< problem taken last
};

/// Guessed seconds of a problem's checks by all rows: products, tensors, and what each costs.
double guess(const Scenario& s) {
  const double floats = static_cast<double>(s.in().count() + s.out().count() + s.filter_count());
  return 0.02 + 3e-9 * s.macs() + 4e-7 * floats;
}

constexpr const char* kClearLine = "\r\x1b[K";

/// How far the run is, on stderr: a line that is rewritten on a terminal, else one now and then.
class Meter {
 public:
  Meter(const std::vector<Scenario>& scenarios, const Board& board, bool verbose)
      : scenarios_(scenarios),
        board_(board),
        live_(isatty(STDERR_FILENO) != 0 && !verbose),
        every_(live_ ? 1 : 30) {
    for (const Scenario& s : scenarios) total_ += guess(s);
  }
  ~Meter() { clear(); }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void tick() {
    if (since(told_) < every_) return;
    told_ = Clock::now();
    const double done = board_.work, left = done > 0 ? since(start_) * (total_ / done - 1) : 0;
    const std::size_t at = std::min<std::size_t>(board_.newest, scenarios_.size() - 1);
    const std::string text = fmt::format(
        "checkconv: {:.1f} %, problem {} of {}, about {} left, at {}", 100 * done / total_, at + 1,
        scenarios_.size(), span(left), scenarios_[at].str());
    if (live_) {
      fmt::print(stderr, "\r{:.{}}\x1b[K", text, kColumns);
      shown_ = true;
    } else {
      fmt::print(stderr, "{}\n", text);
    }
    std::fflush(stderr);
  }
  /// Takes the line away, before another is printed.
  void clear() {
    if (shown_) std::fputs(kClearLine, stderr);
    shown_ = false;
  }

 private:
  static constexpr int kColumns = 79;
  static std::string span(double seconds) {
    const auto s = static_cast<long>(seconds);
    return s >= 3600 ? fmt::format("{} h {} min", s / 3600, s / 60 % 60)
           : s >= 60 ? fmt::format("{} min {} s", s / 60, s % 60)
                     : fmt::format("{} s", s);
  }
  const std::vector<Scenario>& scenarios_;
  const Board& board_;
  bool live_, shown_ = false;
  double every_, total_ = 0;
  Clock::time_point start_ = Clock::now(), told_ = start_;
};

/// All pairs of a suite.
class Suite {
 public:
  Suite(const Settings& settings, const std::vector<const Primitive*>& rows)
      : settings_(settings),
        rows_(rows),
        journal_(settings),
        jobs_(settings.jobs > 0 ? settings.jobs : available_cpus()),
        scenarios_(suite_scenarios(settings)) {
    const double memory = 0.75 * static_cast<double>(available_memory());
    leave_out_huge(scenarios_, memory);
    // Those that fill the memory come last, one at a time.
    alone_ =
        std::stable_partition(scenarios_.begin(), scenarios_.end(),
                              [&](const Scenario& s) { return check_bytes(s) * jobs_ <= memory; }) -
        scenarios_.begin();
    board_ = shared<Board>(1);
    pairs_ = shared<Pair>(scenarios_.size() * rows_.size());
    failures_ = shared<std::atomic<int>>(rows_.size());
    at_ = shared<std::atomic<std::size_t>>(static_cast<std::size_t>(jobs_));
  }

  void run() {
    Meter meter(scenarios_, *board_, settings_.verbose);
    if (jobs_ == 1) {
      work(scenarios_.size(), 0, [&] { meter.tick(); });
      return;
    }
    share_out(jobs_, static_cast<std::size_t>(alone_), meter);
    board_->next = static_cast<std::size_t>(alone_);
    share_out(1, scenarios_.size(), meter);
  }

  int summary() const;

 private:
  Pair& pair(std::size_t problem, std::size_t row) const {
    return pairs_[problem * rows_.size() + row];
  }

  /// Takes problems up to `end` until none is left.
  template <class Tick>
  void work(std::size_t end, int job, Tick&& tick) {
    for (;;) {
      const std::size_t i = board_->next.fetch_add(1);
      if (i >= end) return;
      board_->newest = i;
      solve(i, job, tick);
    }
  }

  /// All open pairs of one problem.
  template <class Tick>
  void solve(std::size_t i, int job, Tick&& tick) {
    at_[job] = i;
    const Scenario& s = scenarios_[i];
    const double each = guess(s) / static_cast<double>(rows_.size());
    std::unique_ptr<Problem> problem;  // made when the first row takes it
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const Primitive& row = *rows_[r];
      Pair& p = pair(i, r);
      if (p.state != State::open) continue;
      board_->work += each;  // begun, at least
      p.state = State::running;
      p.why = row.reject(s);
      if (p.why != nullptr) {
        p.state = State::rejected;
      } else if (journal_.holds(row, s)) {
        p.state = State::known;
      } else {
        try {
          if (!problem) {
            problem =
                std::make_unique<Problem>(s, settings_.seed, std::max(1, available_cpus() / jobs_));
          }
          check_pair(i, r, *problem);
        } catch (const std::exception& e) {
          fail(i, r, fmt::format("throws: {}", e.what()));
        }
      }
      tick();
    }
  }

  Variant options(const Primitive& row, const Scenario& s) const {
    return variant(mix(mix(settings_.seed, hash_text(row.name)), hash_text(s.str())),
                   settings_.threads);
  }

  void check_pair(std::size_t i, std::size_t r, const Problem& problem) {
    const Primitive& row = *rows_[r];
    const Variant v = options(row, problem.s);
    const auto began = Clock::now();
    const Outcome outcome = check(row, problem, v);
    if (settings_.verbose) {
      say(fmt::format("{} {} [{}]: {:.3f} of the tolerance, {:.3f} s\n", row.name, problem.s.str(),
                      v.str(), outcome.worst, since(began)));
    }
    Pair& p = pair(i, r);
    p.worst = outcome.worst;
    p.relative = outcome.relative;
    if (!outcome.failure.empty()) return fail(i, r, outcome.failure);
    p.state = State::passed;
    journal_.add(row, problem.s);
  }

  /// Notes that a pair failed; the first few of a row are printed.
  void fail(std::size_t i, std::size_t r, const std::string& failure) {
    pair(i, r).state = State::failed;
    if (failures_[r].fetch_add(1) >= kPrinted) return;
    const Primitive& row = *rows_[r];
    const Scenario& s = scenarios_[i];
    say(fmt::format(
        "FAILED {} on {} [{}]: {}\n  again: checkconv --primitive={} --scenario='{}' "
        "--seed={}\n",
        row.name, s.str(), options(row, s).str(), failure, row.name, s.str(), settings_.seed));
  }

  /// At once, so that lines of several processes do not mix.
  static void say(const std::string& text) {
    static const bool both = isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0;
    if (both) std::fputs(kClearLine, stdout);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  void share_out(int jobs, std::size_t end, Meter& meter);
  pid_t begin_process(int job, std::size_t end, std::optional<std::size_t> left);

  static constexpr int kPrinted = 5;
  const Settings& settings_;
  const std::vector<const Primitive*>& rows_;
  Journal journal_;
  int jobs_;
  std::vector<Scenario> scenarios_;
  std::ptrdiff_t alone_ = 0;  // problems from this one on are solved one at a time
  Board* board_ = nullptr;
  Pair* pairs_ = nullptr;
  std::atomic<int>* failures_ = nullptr;    // of each row
  std::atomic<std::size_t>* at_ = nullptr;  // problem of each process
};

/// A process that takes problems, beginning with what another has left of one.
pid_t Suite::begin_process(int job, std::size_t end, std::optional<std::size_t> left) {
  std::fflush(nullptr);
  const pid_t parent = getpid(), pid = fork();
  if (pid < 0) throw Error(fmt::format("--jobs: no further process: {}", std::strerror(errno)));
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == parent) {
    if (left) solve(*left, job, [] {});
    work(end, job, [] {});
  }
  std::fflush(nullptr);
  _exit(0);
}

void Suite::share_out(int jobs, std::size_t end, Meter& meter) {
  std::map<pid_t, int> alive;
  for (int job = 0; job < jobs; ++job) alive[begin_process(job, end, {})] = job;
  while (!alive.empty()) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      meter.tick();
      continue;
    }
    const int job = alive.at(pid);
    alive.erase(pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    const std::size_t at = at_[job];
    const std::string how = WIFSIGNALED(status)
                                ? fmt::format("signal {}", strsignal(WTERMSIG(status)))
                                : fmt::format("status {}", WEXITSTATUS(status));
    bool found = false;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (pair(at, r).state != State::running) continue;
      fail(at, r, fmt::format("ended its process: {}", how));
      found = true;
    }
    if (!found) throw Error(fmt::format("--jobs: a process ended between two checks: {}", how));
    alive[begin_process(job, end, at)] = job;
  }
}

int Suite::summary() const {
  int passed = 0, failed = 0, run = 0, rejected = 0, known = 0, open = 0;
  std::map<std::string, int> reasons;
  if (settings_.accuracy)
    fmt::print("{:<36} {:>10} {:>10}  at\n", "primitive", "error/u", "tolerance");
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    int tried = 0, wrong = 0;
    double worst = 0, relative = 0;
    std::string worst_at;
    for (std::size_t i = 0; i < scenarios_.size(); ++i) {
      const Pair& p = pair(i, r);
      if (p.state == State::rejected) ++rejected, ++reasons[p.why];
      if (p.state == State::open || p.state == State::running) ++open;
      if (p.state == State::known) ++known, ++tried;
      if (p.state == State::failed) ++wrong, ++tried;
      if (p.state == State::passed) ++tried;
      if (p.state == State::passed && p.worst > worst) {
        worst = p.worst;
        worst_at = scenarios_[i].str();
      }
      relative = std::max(relative, p.relative);
    }
    run += tried;
    ++(wrong > 0 ? failed : passed);
    if (settings_.accuracy) {
      fmt::print("{:<36} {:>10.2f} {:>9.1f}%  {}\n", rows_[r]->name, relative / 0x1p-24,
                 100 * worst, worst_at);
    }
    if (wrong > kPrinted) fmt::print("{} failed on {} scenarios\n", rows_[r]->name, wrong);
    if (tried == 0) fmt::print("{} rejected every scenario\n", rows_[r]->name);
  }
  fmt::print("{} primitives over {} scenarios ({}, seed {}): {} pairs run, {} rejected\n",
             rows_.size(), scenarios_.size(), name(isa()), settings_.seed, run, rejected);
  if (known > 0)
    fmt::print("  {:>6} of the pairs had passed before ({})\n", known, settings_.resume);
  for (const auto& [why, count] : reasons) fmt::print("  {:>6} rejected: {}\n", count, why);
  if (open > 0) fmt::print("{} pairs were not run\n", open);
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 && open == 0 ? 0 : 1;
}

}  // namespace

int verify(const Settings& settings, const std::vector<const Primitive*>& rows) {
  Suite suite(settings, rows);
  suite.run();
  return suite.summary();
}

}  // namespace convprim
