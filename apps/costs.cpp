#include "apps/costs.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <memory>

#include "apps/output.hpp"
#include "convprim/cost_files.hpp"
#include "convprim/error.hpp"

namespace convprim {
namespace {

constexpr std::size_t kClashesShown = 10;

void list(const std::string& file) {
  fmt::print("{:<40} {:>7} {:>7} {:>9}  {:<19}  {}\n", "machine", "threads", "costs", "set aside",
             "newest", "CPU");
  for (const MachineCosts& m : machines_in(read_costs(file))) {
    fmt::print("{:<40} {:>7} {:>7} {:>9}  {:<19}  {}, {}, convprim {}\n", host_id(m.machine),
               m.machine.threads, m.costs, m.set_aside, m.newest, m.machine.cpu_and_place(),
               m.machine.isa, m.machine.version);
  }
}

void merge(const std::string& into, const std::string& name, const CostTable& from) {
  const MergeReport report = merge_costs(into, from);
  fmt::print("{}: {} costs added, {} there already, {} clashed\n", name, report.added, report.same,
             report.clashes.size());
  for (std::size_t i = 0; i < report.clashes.size() && i < kClashesShown; ++i)
    fmt::print("  {}\n", report.clashes[i]);
  if (report.clashes.size() > kClashesShown) {
    fmt::print("  and {} more; all that gave way are set aside in {}, and exported with it\n",
               report.clashes.size() - kClashesShown, into);
  }
}

/// Whether a text file of costs is JSON; else it is CSV.
bool is_json(const std::string& path) {
  if (path.ends_with(".json")) return true;
  if (path.ends_with(".csv")) return false;
  throw Error(fmt::format("{}: the name must end in .csv or .json, which tells the format", path));
}

void import_text(const std::string& into, const std::string& path) {
  const bool json = is_json(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(fmt::format("{}: cannot be read; give an exported file", path));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  merge(into, path, json ? costs_from_json(text, path) : costs_from_csv(text, path));
}

void export_text(const std::string& from, const std::string& path, const std::string& target) {
  const bool json = is_json(path);
  check_writable("export", path, {from});
  CostTable table = read_costs(from);
  if (!target.empty()) table = only_machine(table, target);
  write_file(path, json ? costs_to_json(table) : costs_to_csv(table));
  fmt::print("{}: {} costs, {} set aside\n", path, table.rows.size(), table.set_aside.size());
}

}  // namespace

void add_costs_command(CLI::App& app) {
  struct Arguments {
    std::string file, text, target;
    std::vector<std::string> from;
  };
  const auto a = std::make_shared<Arguments>();
  CLI::App* costs = app.add_subcommand("costs", "list, merge, export and import files of costs");
  costs->require_subcommand(1);

  CLI::App* sub = costs->add_subcommand("list", "the machines that a file holds costs of");
  sub->add_option("file", a->file, "cost file; default: the one in the user's cache folder");
  sub->callback([a] { list(a->file.empty() ? CostStore::default_path() : a->file); });

  sub = costs->add_subcommand("merge", "add the costs of other files to a file");
  sub->add_option("into", a->file, "cost file that grows; made if there is none")->required();
  sub->add_option("from", a->from, "cost files that are added")->required();
  sub->callback([a] {
    std::vector<CostTable> tables;  // all are read before anything is written
    for (const std::string& path : a->from) tables.push_back(read_costs(path));
    for (std::size_t i = 0; i < tables.size(); ++i) merge(a->file, a->from[i], tables[i]);
  });

  sub = costs->add_subcommand("export", "write a file's costs as text");
  sub->add_option("file", a->file, "cost file")->required();
  sub->add_option("text", a->text, "what to write: a name that ends in .csv or .json")->required();
  sub->add_option("--target", a->target, "only this machine's costs, named as in the list");
  sub->callback([a] { export_text(a->file, a->text, a->target); });

  sub = costs->add_subcommand("import", "add costs that were exported to a file");
  sub->add_option("file", a->file, "cost file that grows; made if there is none")->required();
  sub->add_option("text", a->text, "an exported file, .csv or .json")->required();
  sub->callback([a] { import_text(a->file, a->text); });
}

}  // namespace convprim
