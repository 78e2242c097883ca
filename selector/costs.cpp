#include "convprim/costs.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>
#include <vector>

#include "convprim/cpu.hpp"
#include "convprim/error.hpp"
#include "selector/placement.hpp"

namespace convprim {
namespace {

constexpr int kApplicationId = 0x43505243;  // "CPRC", in the file's header
constexpr int kBusySeconds = 3;             // others hold the lock for milliseconds only
constexpr int kFormat = 1;                  // PRAGMA user_version

constexpr const char* kSchema = R"(
CREATE TABLE IF NOT EXISTS costs(
  kind TEXT NOT NULL,            -- p: convolution primitive, l: other layer, c: conversion, s: stage
  problem TEXT NOT NULL,
  implementation TEXT NOT NULL,
  sweep INTEGER NOT NULL,        -- MB read before each run; 0: no weights
  threads INTEGER NOT NULL,
  cpu TEXT NOT NULL,
  isa TEXT NOT NULL,
  version TEXT NOT NULL,
  seconds REAL NOT NULL,
  runs INTEGER NOT NULL,
  stage INTEGER NOT NULL,        -- 0: cut short, 1: quick, 2: refined
  taken TEXT NOT NULL DEFAULT (datetime('now')),
  workspace INTEGER,             -- bytes of scratch memory and of packed weights; null: not known
  packed INTEGER,
  PRIMARY KEY(cpu, isa, version, threads, kind, problem, implementation, sweep)
) WITHOUT ROWID;
)";

struct CloseDb {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Db = std::unique_ptr<sqlite3, CloseDb>;
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

constexpr std::string_view kPlaceBegin = ", threads ", kPlaceEnd = " ns apart";

/// How many times as long the longer of two distances is.
double ratio(double a, double b) { return std::max(a, b) / std::min(a, b); }

}  // namespace

Machine Machine::here(int threads) {
  return {cpu_name(), std::string(name(convprim::isa())), std::string(convprim::version()),
          threads};
}

std::string Machine::cpu_and_place() const {
  return apart_ns > 0 ? fmt::format("{}{}{}{}", cpu, kPlaceBegin, apart_ns, kPlaceEnd) : cpu;
}

void Machine::set_cpu_and_place(const std::string& text) {
  cpu = text;
  apart_ns = 0;
  const std::size_t begin = text.rfind(kPlaceBegin);
  if (begin == std::string::npos || !text.ends_with(kPlaceEnd)) return;
  const char* const first = text.data() + begin + kPlaceBegin.size();
  const char* const last = text.data() + text.size() - kPlaceEnd.size();
  int ns = 0;
  if (const auto r = std::from_chars(first, last, ns); r.ptr != last || ns <= 0) return;
  cpu.resize(begin);
  apart_ns = ns;
}

struct CostStore::Impl {
  std::string path;
  Machine machine;
  Db db;
  Statement insert;
  std::map<CostKey, Cost> costs;

  /// Another program holds a lock that this one needs.
  struct Busy : Error {
    using Error::Error;
  };

  [[noreturn]] void fail(std::string_view what) const {
    if (db && (sqlite3_errcode(db.get()) & 0xff) == SQLITE_BUSY) {
      throw Busy(fmt::format(
          "cost file {}: another program has locked it for over {} s; wait for that, or choose "
          "another file with --costs",
          path, kBusySeconds));
    }
    throw Error(fmt::format("cost file {}: {} ({}); choose another file with --costs", path, what,
                            db ? sqlite3_errmsg(db.get()) : "out of memory"));
  }

  void run(const char* sql, std::string_view what) const {
    if (sqlite3_exec(db.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail(what);
  }

  int pragma(const char* sql) const {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(db.get(), sql, -1, &raw, nullptr) != SQLITE_OK) fail("cannot be read");
    const Statement statement(raw);
    if (sqlite3_step(raw) != SQLITE_ROW) fail("cannot be read");
    return sqlite3_column_int(raw, 0);
  }

  /// SQLite's own waiting leaves out some steps, the first change to a write-ahead log among them:
  /// they say at once that the file is busy. So the whole of it is tried again.
  void open() {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::seconds(kBusySeconds);
    for (;;) {
      try {
        return open_once();
      } catch (const Busy&) {
        if (Clock::now() >= end) throw;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  void open_once() {
    insert.reset();
    costs.clear();
    sqlite3* raw = nullptr;
    const int status =
        sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
    db.reset(raw);
    if (status != SQLITE_OK) fail("cannot be opened");
    if (sqlite3_db_readonly(raw, "main") == 1) {
      throw Error(
          fmt::format("cost file {}: is read-only; choose another file with --costs", path));
    }
    sqlite3_busy_timeout(raw, kBusySeconds * 1000);
    // Nothing is written before the file is known to be ours or empty.
    const int tables = pragma("SELECT count(*) FROM sqlite_master");
    const int application = pragma("PRAGMA application_id"), format = pragma("PRAGMA user_version");
    if (tables > 0 && application != kApplicationId) {
      throw Error(fmt::format(
          "cost file {}: is a data base of other software; choose another file with --costs",
          path));
    }
    if (tables > 0 && format > kFormat) {
      throw Error(
          fmt::format("cost file {}: has format {}, this version of convprim knows formats up to "
                      "{}; choose another file with --costs",
                      path, format, kFormat));
    }
    if (tables == 0) {
      run("BEGIN IMMEDIATE", "cannot be written");
      run(fmt::format("PRAGMA application_id={}; PRAGMA user_version={};", kApplicationId, kFormat)
              .c_str(),
          "cannot be written");
      run(kSchema, "cannot be written");
      run("COMMIT", "cannot be written");
    }
    add_size_columns();
    // With a write-ahead log a commit is one append, and a killed process leaves a file that the
    // next one repairs.
    run("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;", "cannot be written");
    load();
    sqlite3_stmt* prepared = nullptr;
    if (sqlite3_prepare_v2(
            raw,
            "INSERT OR REPLACE INTO costs(kind, problem, implementation, sweep, threads, "
            "cpu, isa, version, seconds, runs, stage, workspace, packed) "
            "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)",
            -1, &prepared, nullptr) != SQLITE_OK) {
      fail("cannot be written");
    }
    insert.reset(prepared);
  }

  /// Files of earlier versions lack these columns; those versions go on reading what has them.
  void add_size_columns() const {
    constexpr const char* kColumns = "SELECT count(*) FROM pragma_table_info('costs')";
    const std::string packed = std::string(kColumns) + " WHERE name='packed'";
    if (pragma(kColumns) == 0) fail("has not the tables of a cost file");
    if (pragma(packed.c_str()) > 0) return;
    run("BEGIN IMMEDIATE", "cannot be written");
    if (pragma(packed.c_str()) == 0) {  // no other process was faster
      run("ALTER TABLE costs ADD COLUMN workspace INTEGER;"
          "ALTER TABLE costs ADD COLUMN packed INTEGER;",
          "cannot be written");
    }
    run("COMMIT", "cannot be written");
  }

  /// Distances at which costs in the file were taken.
  std::vector<int> places() const {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(db.get(),
                           "SELECT DISTINCT cpu FROM costs WHERE isa=? AND version=? AND threads=?",
                           -1, &raw, nullptr) != SQLITE_OK) {
      fail("cannot be read");
    }
    const Statement statement(raw);
    sqlite3_bind_text(raw, 1, machine.isa.c_str(), -1, SQLITE_STATIC);
    sqlite3_bind_text(raw, 2, machine.version.c_str(), -1, SQLITE_STATIC);
    sqlite3_bind_int(raw, 3, machine.threads);
    std::vector<int> all;
    int status = 0;
    while ((status = sqlite3_step(raw)) == SQLITE_ROW) {
      Machine m;
      m.set_cpu_and_place(reinterpret_cast<const char*>(sqlite3_column_text(raw, 0)));
      if (m.cpu == machine.cpu && m.apart_ns > 0) all.push_back(m.apart_ns);
    }
    if (status != SQLITE_DONE) fail("cannot be read");
    return all;
  }

  void load() {
    costs.clear();
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(db.get(),
                           "SELECT kind, problem, implementation, sweep, seconds, runs, stage, "
                           "workspace, packed FROM "
                           "costs "
                           "WHERE cpu=? AND isa=? AND "
                           "version=? AND threads=?",
                           -1, &raw, nullptr) != SQLITE_OK) {
      fail("has not the tables of a cost file");
    }
    const Statement statement(raw);
    const std::string cpu = machine.cpu_and_place();
    sqlite3_bind_text(raw, 1, cpu.c_str(), -1, SQLITE_STATIC);
    sqlite3_bind_text(raw, 2, machine.isa.c_str(), -1, SQLITE_STATIC);
    sqlite3_bind_text(raw, 3, machine.version.c_str(), -1, SQLITE_STATIC);
    sqlite3_bind_int(raw, 4, machine.threads);
    int status = 0;
    const auto text = [&](int column) {
      const auto* value = reinterpret_cast<const char*>(sqlite3_column_text(raw, column));
      return std::string(value != nullptr ? value : "");
    };
    while ((status = sqlite3_step(raw)) == SQLITE_ROW) {
      const std::string kind = text(0);
      CostKey key{static_cast<CostKind>(kind.empty() ? '?' : kind[0]), text(1), text(2),
                  sqlite3_column_int(raw, 3)};
      Cost cost{sqlite3_column_double(raw, 4), sqlite3_column_int(raw, 5),
                static_cast<Cost::Stage>(sqlite3_column_int(raw, 6))};
      if (sqlite3_column_type(raw, 7) != SQLITE_NULL) {
        cost.sizes = Sizes{static_cast<std::size_t>(sqlite3_column_int64(raw, 7)),
                           static_cast<std::size_t>(sqlite3_column_int64(raw, 8))};
      }
      costs[std::move(key)] = cost;
    }
    if (status != SQLITE_DONE) fail("cannot be read");
  }
};

CostStore::CostStore(const std::string& path, Machine machine) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->machine = std::move(machine);
  impl_->open();
}

CostStore::~CostStore() = default;

std::optional<Cost> CostStore::find(const CostKey& key) const {
  const auto it = impl_->costs.find(key);
  if (it == impl_->costs.end()) return std::nullopt;
  return it->second;
}

void CostStore::put(const CostKey& key, const Cost& cost) {
  sqlite3_stmt* s = impl_->insert.get();
  const char kind = static_cast<char>(key.kind);
  const Machine& m = impl_->machine;
  sqlite3_bind_text(s, 1, &kind, 1, SQLITE_STATIC);
  sqlite3_bind_text(s, 2, key.problem.c_str(), -1, SQLITE_STATIC);
  sqlite3_bind_text(s, 3, key.implementation.c_str(), -1, SQLITE_STATIC);
  sqlite3_bind_int(s, 4, key.sweep);
  sqlite3_bind_int(s, 5, m.threads);
  const std::string cpu = m.cpu_and_place();
  sqlite3_bind_text(s, 6, cpu.c_str(), -1, SQLITE_STATIC);
  sqlite3_bind_text(s, 7, m.isa.c_str(), -1, SQLITE_STATIC);
  sqlite3_bind_text(s, 8, m.version.c_str(), -1, SQLITE_STATIC);
  sqlite3_bind_double(s, 9, cost.seconds);
  sqlite3_bind_int(s, 10, cost.runs);
  sqlite3_bind_int(s, 11, static_cast<int>(cost.stage));
  if (cost.sizes) {
    sqlite3_bind_int64(s, 12, static_cast<sqlite3_int64>(cost.sizes->workspace));
    sqlite3_bind_int64(s, 13, static_cast<sqlite3_int64>(cost.sizes->packed));
  } else {
    sqlite3_bind_null(s, 12);
    sqlite3_bind_null(s, 13);
  }
  const int status = sqlite3_step(s);
  sqlite3_reset(s);
  if (status != SQLITE_DONE) impl_->fail("cannot be written");
  impl_->costs[key] = cost;
}

bool CostStore::place(double handoff) {
  const double ns = handoff * 1e9;
  Machine& m = impl_->machine;
  if (m.threads <= 1 || !(ns > 0)) return false;
  int nearest = m.apart_ns;
  for (int known : impl_->places()) {
    if (nearest == 0 || ratio(known, ns) < ratio(nearest, ns)) nearest = known;
  }
  if (!same_place(nearest, ns)) nearest = std::max(1, static_cast<int>(std::lround(ns)));
  if (nearest == m.apart_ns) return false;
  m.apart_ns = nearest;
  impl_->load();
  return true;
}

void CostStore::refresh() { impl_->load(); }

const Machine& CostStore::machine() const { return impl_->machine; }

const std::string& CostStore::path() const { return impl_->path; }

std::string CostStore::default_path() {
  namespace fs = std::filesystem;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  fs::path folder;
  if (cache != nullptr && *cache != '\0') {
    folder = cache;
  } else if (home != nullptr && *home != '\0') {
    folder = fs::path(home) / ".cache";
  } else {
    throw Error(
        "no folder for the cost file: neither XDG_CACHE_HOME nor HOME is set; name a file with "
        "--costs");
  }
  folder /= "convprim";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw Error(fmt::format("cost folder {}: cannot be made ({}); name a file with --costs",
                            folder.string(), error.message()));
  }
  return (folder / "costs.db").string();
}

}  // namespace convprim
