// Measured costs, kept in a data base file between runs.
#pragma once

#include <compare>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// What was measured: a convolution primitive, another layer's implementation, a conversion, or a
/// stage of several operators (gpu/).
enum class CostKind : char { convolution = 'p', layer = 'l', conversion = 'c', stage = 's' };

/// Names one cost on one machine.
struct CostKey {
  CostKind kind = CostKind::convolution;
  std::string problem;         ///< Scenario::str(), a layer problem's text, or a tensor shape
  std::string implementation;  ///< name of the primitive, layer implementation or conversion
  /// How cold the weights were: MB that the cores read before each run, see sweep_megabytes(). 0
  /// for what has no weights.
  int sweep = 0;
  friend auto operator<=>(const CostKey&, const CostKey&) = default;
};

/// Memory that an implementation takes for one problem, in bytes.
struct Sizes {
  std::size_t workspace = 0;  ///< scratch memory of a run, output in a tensor of its own
  std::size_t packed = 0;     ///< packed weights and tables
  friend bool operator==(const Sizes&, const Sizes&) = default;
};

/// A measurement.
struct Cost {
  double seconds = 0;  ///< median of the runs
  int runs = 0;        ///< timed runs
  /// How well it is known. A quick cost comes from few runs, or from a single one where that was
  /// hopelessly behind; a refined one was taken again, interleaved with the other good candidates
  /// for the same problem.
  enum class Stage : int { cut = 0, quick = 1, refined = 2 };
  Stage stage = Stage::quick;
  std::optional<Sizes> sizes = std::nullopt;  ///< absent in files of earlier versions
};

/// What costs depend on beside the key: costs of other machines, thread counts and versions lie in
/// the same file but are not seen.
struct Machine {
  std::string cpu;      ///< cpu_name()
  std::string isa;      ///< name(isa())
  std::string version;  ///< version() of this library
  int threads = 1;
  /// How far apart the threads lie: ns that a cache line takes from one to another and back, as
  /// first measured for costs like these. 0: one thread, or not told apart (see CostStore::place).
  int apart_ns = 0;
  /// This machine with so many threads, not placed.
  static Machine here(int threads);
  /// The CPU's name, with `apart_ns` behind it if that is not 0: what cost files call it.
  std::string cpu_and_place() const;
  /// Sets cpu and apart_ns from such a text.
  void set_cpu_and_place(const std::string& text);
};

/// A file of costs, for one machine and thread count. One thread at a time may use an object;
/// several processes may share the file.
class CostStore {
 public:
  /// Opens the file, or makes it; ":memory:" stands for none. Throws Error if it cannot be read and
  /// written, is no cost file, or is of a newer format; such a file is left as it was.
  CostStore(const std::string& path, Machine machine);
  CostStore(const CostStore&) = delete;
  CostStore& operator=(const CostStore&) = delete;
  ~CostStore();

  /// The cost of that key, if there is one.
  std::optional<Cost> find(const CostKey& key) const;

  /// Keeps a cost, replacing an older one. Committed to the file when it returns. Throws Error if
  /// the file cannot be written.
  void put(const CostKey& key, const Cost& cost);

  /// Tells apart where the machine's threads lie, since costs depend on it: within one cache or in
  /// two, by what a cache line takes from one to another and back (`handoff` seconds; 0: not known,
  /// which changes nothing). Turns to the costs in the file that were taken at about that distance,
  /// within a factor of two, or to none. Returns whether they are others than before. profile()
  /// does this.
  bool place(double handoff);

  /// Takes in the costs that other programs have put into the file since it was opened. Throws
  /// Error if it cannot be read.
  void refresh();

  const Machine& machine() const;
  const std::string& path() const;

  /// $XDG_CACHE_HOME/convprim/costs.db, or ~/.cache/convprim/costs.db. Makes the folder. Throws
  /// Error if there is none to be had.
  static std::string default_path();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convprim
#pragma GCC visibility pop
