// Cost files as a whole: what machines they hold, and how they are joined and passed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "convprim/costs.hpp"

#pragma GCC visibility push(default)  // exported by the shared library
namespace convprim {

/// All rows of a cost file, whatever its columns. Those of docs/costs.md are always there.
struct CostTable {
  /// Empty, a whole number, a number or text.
  using Value = std::variant<std::monostate, std::int64_t, double, std::string>;
  using Row = std::vector<Value>;
  std::vector<std::string> columns;
  std::vector<Row> rows;       ///< the costs in use: one for each key and machine
  std::vector<Row> set_aside;  ///< costs that gave way to another of the same key in a merge
};

/// Reads a cost file of any number of machines; it must exist, and is left as it is. Throws Error.
CostTable read_costs(const std::string& path);

/// Names a machine in commands, for example "cortex-a57-neon-5f3a09c1": from its CPU, its
/// instruction set and the version of this library. The thread count is no part of it.
std::string host_id(const Machine& machine);

/// What a cost file holds about one machine with one number of threads.
struct MachineCosts {
  Machine machine;
  std::size_t costs = 0;
  std::size_t set_aside = 0;
  std::string newest;  ///< when the latest was taken, in UTC: "2026-11-30 08:00:00"
};
std::vector<MachineCosts> machines_in(const CostTable& table);

/// The machine in a table that `id`, or the start of one, names, with so many threads; 0: the only
/// number of threads that there are costs for. Throws Error, naming the choice, if there is none or
/// more than one.
Machine find_machine(const CostTable& table, const std::string& id, int threads);

/// Only the rows of the machines that `id`, or the start of one, names. Throws Error if there are
/// none.
CostTable only_machine(const CostTable& table, const std::string& id);

/// What merge_costs() did.
struct MergeReport {
  std::size_t added = 0;  ///< costs that the file lacked
  std::size_t same = 0;   ///< costs that it had already
  /// Costs that it had with another value, one sentence each. The better known one is in use
  /// afterwards, or the newer one of two that are equally well known; the other is set aside.
  std::vector<std::string> clashes;
};

/// Adds rows to a cost file, which is made if there is none. All or, on an Error, nothing.
MergeReport merge_costs(const std::string& path, const CostTable& from);

/// As text: with a header line and comma-separated, or as one JSON object; see docs/costs.md.
/// Reading back gives the same table.
std::string costs_to_csv(const CostTable& table);
std::string costs_to_json(const CostTable& table);

/// The other way. `name` is the file's, for errors. Throws Error naming the place.
CostTable costs_from_csv(const std::string& text, const std::string& name);
CostTable costs_from_json(const std::string& text, const std::string& name);

}  // namespace convprim
#pragma GCC visibility pop
