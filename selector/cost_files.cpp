#include "convprim/cost_files.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "convprim/cpu.hpp"
#include "convprim/error.hpp"

namespace convprim {
namespace {

using Value = CostTable::Value;
using Row = CostTable::Row;

/// The columns that make a row's key, and those that each row must have beside them.
constexpr const char* kKey[] = {"cpu",  "isa",     "version",        "threads",
                                "kind", "problem", "implementation", "sweep"};
constexpr const char* kRest[] = {"seconds", "runs", "stage", "taken"};
constexpr const char* kSetAside = "set_aside";  // a table's name, and a column's in text files

std::string text(const Value& value) {
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  if (const auto* i = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&value)) return fmt::format("{}", *d);
  return "";
}

/// The columns of a table by name.
class Columns {
 public:
  explicit Columns(const std::vector<std::string>& names) {
    for (std::size_t i = 0; i < names.size(); ++i) at_[names[i]] = i;
  }
  const Value& get(const Row& row, const std::string& name) const {
    static const Value none;
    const auto it = at_.find(name);
    return it == at_.end() ? none : row[it->second];
  }
  std::string get_text(const Row& row, const std::string& name) const {
    return text(get(row, name));
  }
  Machine machine(const Row& row) const {
    Machine m{"", get_text(row, "isa"), get_text(row, "version")};
    m.set_cpu_and_place(get_text(row, "cpu"));
    if (const auto* threads = std::get_if<std::int64_t>(&get(row, "threads")))
      m.threads = static_cast<int>(*threads);
    return m;
  }

 private:
  std::map<std::string, std::size_t> at_;
};

// Data bases
// -------------------------------------------------------------------------------------------------

struct CloseDb {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

/// A cost file that exists.
class Db {
 public:
  Db(std::string path, bool write) : path_(std::move(path)) {
    if (!std::filesystem::exists(path_)) {
      throw Error(fmt::format("cost file {}: there is no such file", path_));
    }
    sqlite3* raw = nullptr;
    int status = sqlite3_open_v2(path_.c_str(), &raw, SQLITE_OPEN_READWRITE, nullptr);
    if (status != SQLITE_OK && !write) {
      sqlite3_close(raw);
      status = sqlite3_open_v2(path_.c_str(), &raw, SQLITE_OPEN_READONLY, nullptr);
    }
    db_.reset(raw);
    if (status != SQLITE_OK) fail("cannot be opened");
    sqlite3_busy_timeout(raw, 10'000);
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(fmt::format("cost file {}: {} ({})", path_, what, sqlite3_errmsg(db_.get())));
  }

  void run(const std::string& sql) const {
    if (sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
      fail("cannot be written");
  }

  /// All rows that a query gives.
  std::vector<Row> rows(const std::string& sql) const {
    const auto statement = prepare(sql);
    std::vector<Row> all;
    int status = 0;
    while ((status = sqlite3_step(statement.get())) == SQLITE_ROW) {
      Row& row = all.emplace_back();
      for (int i = 0; i < sqlite3_column_count(statement.get()); ++i)
        row.push_back(value(statement.get(), i));
    }
    if (status != SQLITE_DONE) fail("cannot be read");
    return all;
  }

  std::vector<std::string> columns(const std::string& table) const {
    std::vector<std::string> names;
    for (const Row& row : rows(fmt::format("SELECT name FROM pragma_table_info('{}')", table)))
      names.push_back(text(row[0]));
    return names;
  }

  /// Puts rows into a table, replacing those of the same key.
  void put(const std::string& table, const std::vector<std::string>& columns,
           const std::vector<Row>& all) const {
    std::string marks;
    for (std::size_t i = 0; i < columns.size(); ++i) marks += i == 0 ? "?" : ",?";
    const auto statement = prepare(fmt::format("INSERT OR REPLACE INTO {}({}) VALUES({})", table,
                                               fmt::join(columns, ","), marks));
    for (const Row& row : all) {
      for (std::size_t i = 0; i < row.size(); ++i)
        bind(statement.get(), static_cast<int>(i) + 1, row[i]);
      if (sqlite3_step(statement.get()) != SQLITE_DONE) fail("cannot be written");
      sqlite3_reset(statement.get());
    }
  }

 private:
  using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

  Statement prepare(const std::string& sql) const {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(db_.get(), sql.c_str(), -1, &raw, nullptr) != SQLITE_OK)
      fail("is no cost file of this software");
    return Statement(raw);
  }

  static Value value(sqlite3_stmt* s, int column) {
    switch (sqlite3_column_type(s, column)) {
      case SQLITE_INTEGER:
        return std::int64_t{sqlite3_column_int64(s, column)};
      case SQLITE_FLOAT:
        return sqlite3_column_double(s, column);
      case SQLITE_NULL:
        return {};
      default:
        return std::string(reinterpret_cast<const char*>(sqlite3_column_text(s, column)));
    }
  }

  static void bind(sqlite3_stmt* s, int at, const Value& value) {
    if (const auto* t = std::get_if<std::string>(&value)) {
      sqlite3_bind_text(s, at, t->data(), static_cast<int>(t->size()), SQLITE_STATIC);
    } else if (const auto* i = std::get_if<std::int64_t>(&value)) {
      sqlite3_bind_int64(s, at, *i);
    } else if (const auto* d = std::get_if<double>(&value)) {
      sqlite3_bind_double(s, at, *d);
    } else {
      sqlite3_bind_null(s, at);
    }
  }

  std::string path_;
  std::unique_ptr<sqlite3, CloseDb> db_;
};

/// The rows of `from`, with the columns `to` in that order; absent ones are empty.
std::vector<Row> rearrange(const std::vector<Row>& rows, const std::vector<std::string>& from,
                           const std::vector<std::string>& to) {
  const Columns at(from);
  std::vector<Row> all;
  for (const Row& row : rows) {
    Row& moved = all.emplace_back();
    for (const std::string& name : to) moved.push_back(at.get(row, name));
  }
  return all;
}

// Keys and clashes
// -------------------------------------------------------------------------------------------------

std::vector<Value> key_of(const Columns& at, const Row& row) {
  std::vector<Value> key;
  for (const char* name : kKey) key.push_back(at.get(row, name));
  return key;
}

/// Whether `a` is better known than `b`, or newer.
bool better(const Columns& at, const Row& a, const Row& b) {
  for (const char* name : {"stage", "taken"}) {
    if (at.get(a, name) != at.get(b, name)) return at.get(a, name) > at.get(b, name);
  }
  return false;
}

std::string clash(const Columns& at, const Row& kept, const Row& other) {
  const Machine m = at.machine(kept);
  const auto cost = [&](const Row& row) {
    return fmt::format("{} s of {}", at.get_text(row, "seconds"), at.get_text(row, "taken"));
  };
  return fmt::format("{}, {} thread{}, {} on {}: {} in use, {} set aside", host_id(m), m.threads,
                     m.threads == 1 ? "" : "s", at.get_text(kept, "implementation"),
                     at.get_text(kept, "problem"), cost(kept), cost(other));
}

// Text
// -------------------------------------------------------------------------------------------------

/// Throws unless a row has what a data base asks for.
void check_row(const Columns& at, const Row& row, const std::string& place) {
  const auto bad = [&](const char* name, const char* what) {
    throw Error(
        fmt::format("{}: \"{}\" is {}; give {}", place, name, at.get_text(row, name), what));
  };
  for (const char* name : {"cpu", "isa", "version", "kind", "problem", "implementation", "taken"}) {
    if (!std::holds_alternative<std::string>(at.get(row, name))) bad(name, "text");
  }
  for (const char* name : {"threads", "sweep", "runs", "stage"}) {
    if (!std::holds_alternative<std::int64_t>(at.get(row, name))) bad(name, "a whole number");
  }
  const auto* seconds = std::get_if<double>(&at.get(row, "seconds"));
  if (seconds == nullptr || !(*seconds >= 0)) bad("seconds", "a number that is not negative");
}

void check_columns(const std::vector<std::string>& columns, const std::string& place) {
  const auto require = [&](const char* name) {
    if (std::find(columns.begin(), columns.end(), name) == columns.end())
      throw Error(fmt::format("{}: has no column \"{}\"; docs/costs.md names them", place, name));
  };
  for (const char* name : kKey) require(name);
  for (const char* name : kRest) require(name);
  const std::set<std::string> distinct(columns.begin(), columns.end());
  if (distinct.size() != columns.size()) throw Error(fmt::format("{}: has a column twice", place));
  for (const std::string& name : columns) {
    // They become names in SQL.
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || c == '_';
    });
    if (!plain)
      throw Error(
          fmt::format("{}: \"{}\" is no name of a column; use letters a to z", place, name));
  }
}

bool is_text(const std::string& column) {
  static const std::set<std::string> kText = {
      "cpu", "isa", "version", "kind", "problem", "implementation", "taken"};
  return kText.contains(column);
}

template <class T>
bool parse_whole(const std::string& cell, T& value) {
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  return error == std::errc() && end == cell.data() + cell.size();
}

Value parse_cell(const std::string& column, const std::string& cell) {
  if (is_text(column)) return cell;
  if (cell.empty()) return {};
  std::int64_t whole = 0;
  if (column != "seconds" && parse_whole(cell, whole)) return whole;
  double number = 0;
  if (parse_whole(cell, number)) return number;
  return cell;
}

std::string csv_cell(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (char c : cell) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// One record of a CSV text from `at` on, which moves behind it; `line` counts lines.
std::vector<std::string> csv_record(const std::string& text, std::size_t& at, int& line,
                                    const std::string& name) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  const int start = line;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n') ++line;
    if (quoted) {
      if (c != '"') {
        cells.back() += c;
      } else if (at + 1 < text.size() && text[at + 1] == '"') {
        cells.back() += text[++at];
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      cells.emplace_back();
    } else if (c == '\n') {
      ++at;
      return cells;
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  if (quoted) throw Error(fmt::format("{}:{}: a quoted cell does not end", name, start));
  return cells;
}

}  // namespace

CostTable read_costs(const std::string& path) {
  const Db db(path, false);
  CostTable table;
  table.columns = db.columns("costs");
  check_columns(table.columns, fmt::format("cost file {}", path));
  const std::string names = fmt::format("{}", fmt::join(table.columns, ","));
  table.rows = db.rows(fmt::format("SELECT {} FROM costs", names));
  if (const auto aside = db.columns(kSetAside); !aside.empty()) {
    table.set_aside =
        rearrange(db.rows(fmt::format("SELECT * FROM {}", kSetAside)), aside, table.columns);
  }
  return table;
}

std::string host_id(const Machine& machine) {
  std::string id;
  for (char c : machine.cpu) {
    const bool digit = c >= '0' && c <= '9', upper = c >= 'A' && c <= 'Z',
               lower = c >= 'a' && c <= 'z';
    if (digit || lower || upper) {
      id += static_cast<char>(upper ? c - 'A' + 'a' : c);
    } else if (!id.empty() && id.back() != '-') {
      id += '-';
    }
    if (id.size() == 24) break;
  }
  if (id.empty() || id.back() != '-') id += '-';
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const std::string& part : {machine.cpu_and_place(), machine.isa, machine.version}) {
    for (char c : part + '\n') hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  return fmt::format("{}{}-{:08x}", id, machine.isa, hash);
}

std::vector<MachineCosts> machines_in(const CostTable& table) {
  const Columns at(table.columns);
  std::map<std::pair<std::string, int>, MachineCosts> all;
  const auto of = [&](const Row& row) -> MachineCosts& {
    const Machine m = at.machine(row);
    MachineCosts& entry = all[{host_id(m), m.threads}];
    entry.machine = m;
    entry.newest = std::max(entry.newest, at.get_text(row, "taken"));
    return entry;
  };
  for (const Row& row : table.rows) ++of(row).costs;
  for (const Row& row : table.set_aside) ++of(row).set_aside;
  std::vector<MachineCosts> list;
  for (auto& [id, entry] : all) list.push_back(std::move(entry));
  return list;
}

Machine find_machine(const CostTable& table, const std::string& id, int threads) {
  std::vector<MachineCosts> found;
  std::string choice;
  for (const MachineCosts& m : machines_in(table)) {
    choice += fmt::format("{}{} with {} thread{}", choice.empty() ? "" : ", ", host_id(m.machine),
                          m.machine.threads, m.machine.threads == 1 ? "" : "s");
    if (!host_id(m.machine).starts_with(id)) continue;
    if (threads == 0 || threads == m.machine.threads) found.push_back(m);
  }
  // Where one machine's threads have lain in several places, that with the most costs.
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.costs > b.costs; });
  const bool one = std::all_of(found.begin(), found.end(), [&](const MachineCosts& m) {
    const Machine &a = m.machine, &b = found[0].machine;
    return a.cpu == b.cpu && a.isa == b.isa && a.version == b.version && a.threads == b.threads;
  });
  if (!found.empty() && one) return found[0].machine;
  throw Error(fmt::format("--target {}{}: {} in the cost file, which holds {}", id,
                          threads > 0 ? fmt::format(" --threads {}", threads) : "",
                          found.empty() ? "no such machine" : "more than one such machine",
                          choice.empty() ? "no costs" : choice));
}

CostTable only_machine(const CostTable& table, const std::string& id) {
  const Columns at(table.columns);
  CostTable some;
  some.columns = table.columns;
  const auto matches = [&](const Row& row) { return host_id(at.machine(row)).starts_with(id); };
  std::copy_if(table.rows.begin(), table.rows.end(), std::back_inserter(some.rows), matches);
  std::copy_if(table.set_aside.begin(), table.set_aside.end(), std::back_inserter(some.set_aside),
               matches);
  if (some.rows.empty() && some.set_aside.empty())
    throw Error(fmt::format("{}: no such machine in the cost file", id));
  return some;
}

MergeReport merge_costs(const std::string& path, const CostTable& from) {
  { const CostStore made(path, Machine{}); }  // the file and its columns
  const Db db(path, true);
  db.run("BEGIN IMMEDIATE");
  auto columns = db.columns("costs");
  for (const std::string& name : from.columns) {
    if (std::find(columns.begin(), columns.end(), name) != columns.end()) continue;
    db.run(fmt::format("ALTER TABLE costs ADD COLUMN {}", name));
    columns.push_back(name);
  }
  db.run(fmt::format("CREATE TABLE IF NOT EXISTS {} AS SELECT * FROM costs WHERE 0", kSetAside));
  const auto aside_columns = db.columns(kSetAside);
  for (const std::string& name : columns) {
    if (std::find(aside_columns.begin(), aside_columns.end(), name) == aside_columns.end())
      db.run(fmt::format("ALTER TABLE {} ADD COLUMN {}", kSetAside, name));
  }

  const Columns at(columns);
  const std::string names = fmt::format("{}", fmt::join(columns, ","));
  std::map<std::vector<Value>, Row> in_use;
  for (Row& row : db.rows(fmt::format("SELECT {} FROM costs", names)))
    in_use.emplace(key_of(at, row), std::move(row));
  std::set<Row> aside;
  for (Row& row : db.rows(fmt::format("SELECT {} FROM {}", names, kSetAside)))
    aside.insert(std::move(row));

  MergeReport report;
  std::vector<Row> put, put_aside;
  const auto set_aside = [&](const Row& row) {
    if (aside.insert(row).second) put_aside.push_back(row);
  };
  for (const Row& row : rearrange(from.set_aside, from.columns, columns)) set_aside(row);
  for (const Row& row : rearrange(from.rows, from.columns, columns)) {
    const auto [it, added] = in_use.emplace(key_of(at, row), row);
    if (added) {
      ++report.added;
      put.push_back(row);
    } else if (it->second == row || aside.contains(row)) {
      ++report.same;
    } else if (better(at, row, it->second)) {
      report.clashes.push_back(clash(at, row, it->second));
      set_aside(it->second);
      it->second = row;
      put.push_back(row);
    } else {
      report.clashes.push_back(clash(at, it->second, row));
      set_aside(row);
    }
  }
  db.put("costs", columns, put);
  db.put(kSetAside, columns, put_aside);
  db.run("COMMIT");
  return report;
}

std::string costs_to_csv(const CostTable& table) {
  std::string out = fmt::format("{},{}\n", fmt::join(table.columns, ","), kSetAside);
  const auto append = [&](const std::vector<Row>& rows, const char* aside) {
    for (const Row& row : rows) {
      for (const Value& value : row) out += csv_cell(text(value)) + ",";
      out += aside;
      out += '\n';
    }
  };
  append(table.rows, "0");
  append(table.set_aside, "1");
  return out;
}

CostTable costs_from_csv(const std::string& text, const std::string& name) {
  CostTable table;
  std::size_t at = 0;
  int line = 1;
  std::vector<std::string> names;
  while (at < text.size()) {
    const int here = line;
    const auto cells = csv_record(text, at, line, name);
    if (cells.size() == 1 && cells[0].empty()) continue;
    const std::string place = fmt::format("{}:{}", name, here);
    if (names.empty()) {
      names = cells;
      check_columns(names, place);
      table.columns = names;
      std::erase(table.columns, kSetAside);
      continue;
    }
    if (cells.size() != names.size()) {
      throw Error(fmt::format("{}: {} cells, but the first line names {} columns", place,
                              cells.size(), names.size()));
    }
    Row row;
    bool aside = false;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (names[i] == kSetAside) {
        aside = cells[i] == "1";
      } else {
        row.push_back(parse_cell(names[i], cells[i]));
      }
    }
    check_row(Columns(table.columns), row, place);
    (aside ? table.set_aside : table.rows).push_back(std::move(row));
  }
  if (names.empty())
    throw Error(fmt::format("{}: is empty; the first line names the columns", name));
  return table;
}

std::string costs_to_json(const CostTable& table) {
  using Json = nlohmann::ordered_json;
  const auto array = [&](const std::vector<Row>& rows) {
    Json all = Json::array();
    for (const Row& row : rows) {
      Json object;
      for (std::size_t i = 0; i < row.size(); ++i) {
        Json& to = object[table.columns[i]];
        if (const auto* s = std::get_if<std::string>(&row[i])) to = *s;
        if (const auto* whole = std::get_if<std::int64_t>(&row[i])) to = *whole;
        // JSON has no infinity, the cost of what was refused: null stands for it.
        if (const auto* d = std::get_if<double>(&row[i]); d != nullptr && std::isfinite(*d))
          to = *d;
      }
      all.push_back(std::move(object));
    }
    return all;
  };
  const Json j = {{"schema", 1},
                  {"columns", table.columns},
                  {"costs", array(table.rows)},
                  {kSetAside, array(table.set_aside)}};
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

CostTable costs_from_json(const std::string& text, const std::string& name) {
  using Json = nlohmann::json;
  const Json j = Json::parse(text, nullptr, false);
  if (j.is_discarded() || !j.is_object() || !j.contains("columns") || !j["columns"].is_array() ||
      !j.contains("costs") || !j["costs"].is_array())
    throw Error(fmt::format("{}: is no JSON object with \"columns\" and \"costs\"", name));
  if (j.value("schema", Json(0)) != 1) {
    throw Error(fmt::format("{}: \"schema\" is {}, this version of convprim reads 1", name,
                            j.value("schema", Json(0)).dump()));
  }
  CostTable table;
  for (const Json& column : j["columns"]) {
    if (!column.is_string()) throw Error(fmt::format("{}: \"columns\" holds no names", name));
    table.columns.push_back(column.get<std::string>());
  }
  check_columns(table.columns, name);
  const auto read = [&](const char* list, std::vector<Row>& rows) {
    if (!j.contains(list)) return;
    for (const Json& object : j[list]) {
      const std::string place = fmt::format("{}: entry {} of \"{}\"", name, rows.size(), list);
      if (!object.is_object()) throw Error(fmt::format("{} is no object", place));
      Row row;
      for (const std::string& column : table.columns) {
        const Json value = object.value(column, Json());
        if (value.is_string()) {
          row.emplace_back(value.get<std::string>());
        } else if (value.is_number_integer() && column != "seconds") {
          row.emplace_back(value.get<std::int64_t>());
        } else if (value.is_number()) {
          row.emplace_back(value.get<double>());
        } else if (column == "seconds" && value.is_null()) {
          row.emplace_back(HUGE_VAL);
        } else {
          row.emplace_back();
        }
      }
      check_row(Columns(table.columns), row, place);
      rows.push_back(std::move(row));
    }
  };
  read("costs", table.rows);
  read(kSetAside, table.set_aside);
  return table;
}

}  // namespace convprim
