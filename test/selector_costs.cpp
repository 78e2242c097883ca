// The cost data base: what is kept, for whom, and which files are refused.
#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "convprim/cost_files.hpp"
#include "convprim/costs.hpp"
#include "convprim/error.hpp"
#include "files.hpp"
#include "test.hpp"

using namespace convprim;
using convprim::test::slurp;
using convprim::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

std::string refusal(const std::string& path) {
  try {
    const CostStore store(path, Machine::here(1));
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

const CostKey kKey{CostKind::convolution, "mb1ic3ih8oc4oh6kh3ph0", "direct-sum2d"};

}  // namespace

TEST_CASE("costs survive the store, each machine and thread count seeing its own") {
  const TemporaryFolder folder;
  const std::string path = folder.file("costs.db");
  Machine other = Machine::here(2);
  other.cpu = "another";
  {
    CostStore store(path, Machine::here(2));
    CHECK_FALSE(store.find(kKey).has_value());
    store.put(kKey, {0.25, 5, Cost::Stage::quick});
    store.put(kKey, {0.125, 7, Cost::Stage::refined});
    CostKey conversion = kKey;
    conversion.kind = CostKind::conversion;
    store.put(conversion, {std::numeric_limits<double>::infinity(), 0, Cost::Stage::cut});
    CostStore second(path, other);
    CHECK_FALSE(second.find(kKey).has_value());
    second.put(kKey, {3, 1, Cost::Stage::cut});
  }
  CostStore store(path, Machine::here(2));
  REQUIRE(store.find(kKey).has_value());
  CHECK(store.find(kKey)->seconds == 0.125);
  CHECK(store.find(kKey)->runs == 7);
  CHECK(store.find(kKey)->stage == Cost::Stage::refined);
  CostKey conversion = kKey;
  conversion.kind = CostKind::conversion;
  CHECK(store.find(conversion)->seconds == std::numeric_limits<double>::infinity());
  CHECK_FALSE(CostStore(path, Machine::here(1)).find(kKey).has_value());
  CHECK(CostStore(path, other).find(kKey)->seconds == 3);
}

TEST_CASE("files that are no cost files are refused and left as they were") {
  const TemporaryFolder folder;
  const std::string text = folder.file("notes.txt");
  std::ofstream(text) << std::string(5000, 'x');
  CHECK(refusal(text).find("--costs") != std::string::npos);
  CHECK(slurp(text) == std::string(5000, 'x'));

  const std::string foreign = folder.file("other.db");
  sqlite3* db = nullptr;
  sqlite3_open(foreign.c_str(), &db);
  sqlite3_exec(db, "CREATE TABLE t(x); INSERT INTO t VALUES(1);", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  const std::string before = slurp(foreign);
  CHECK(refusal(foreign).find("other software") != std::string::npos);
  CHECK(slurp(foreign) == before);

  const std::string newer = folder.file("newer.db");
  { const CostStore store(newer, Machine::here(1)); }
  sqlite3_open(newer.c_str(), &db);
  sqlite3_exec(db, "PRAGMA user_version=99", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  CHECK(refusal(newer).find("format 99") != std::string::npos);

  CHECK(refusal(folder.file("no/such/folder/costs.db")).find("cannot be opened") !=
        std::string::npos);
  CHECK(refusal(folder.path.string()).find("--costs") != std::string::npos);
}

TEST_CASE("costs in memory end with their store") {
  {
    CostStore store(":memory:", Machine::here(1));
    store.put(kKey, {1, 1, Cost::Stage::quick});
    CHECK(store.find(kKey).has_value());
  }
  CHECK(!CostStore(":memory:", Machine::here(1)).find(kKey));
  CHECK(!std::filesystem::exists(":memory:"));
}

TEST_CASE("two stores on one file at once lose nothing") {
  const TemporaryFolder folder;
  const std::string path = folder.file("costs.db");
  CostStore a(path, Machine::here(1)), b(path, Machine::here(1));
  for (int i = 0; i < 50; ++i) {
    CostKey key = kKey;
    key.implementation = "a" + std::to_string(i);
    a.put(key, {1, 1, Cost::Stage::quick});
    key.implementation = "b" + std::to_string(i);
    b.put(key, {2, 1, Cost::Stage::quick});
  }
  const CostStore all(path, Machine::here(1));
  int found = 0;
  for (int i = 0; i < 50; ++i) {
    for (const char* who : {"a", "b"}) {
      CostKey key = kKey;
      key.implementation = who + std::to_string(i);
      found += all.find(key).has_value() ? 1 : 0;
    }
  }
  CHECK(found == 100);
}

TEST_CASE("sizes are kept, and a file of an earlier version gets the room for them") {
  const TemporaryFolder folder;
  const std::string path = folder.file("costs.db");
  const Machine here = Machine::here(1);
  { const CostStore store(path, here); }
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  const std::string old =
      "ALTER TABLE costs DROP COLUMN workspace; ALTER TABLE costs DROP COLUMN packed;"
      "INSERT INTO costs(kind, problem, implementation, sweep, threads, cpu, isa, version, "
      "seconds, "
      "runs, stage) VALUES('p','" +
      kKey.problem + "','" + kKey.implementation + "',0,1,'" + here.cpu + "','" + here.isa + "','" +
      here.version + "',0.5,3,1)";
  CHECK(sqlite3_exec(db, old.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(db);
  {
    CostStore store(path, here);
    REQUIRE(store.find(kKey).has_value());
    CHECK(store.find(kKey)->seconds == 0.5);
    CHECK_FALSE(store.find(kKey)->sizes.has_value());
    Cost cost = *store.find(kKey);
    cost.sizes = Sizes{std::size_t{5} << 32, 12};
    store.put(kKey, cost);
  }
  const CostStore store(path, here);
  CHECK(store.find(kKey)->sizes == Sizes{std::size_t{5} << 32, 12});
}

TEST_CASE("costs are kept by how far apart the threads lie") {
  const TemporaryFolder folder;
  const std::string path = folder.file("costs.db");
  const auto cost = [](double seconds) { return Cost{seconds, 3, Cost::Stage::quick}; };
  {
    CostStore store(path, Machine::here(2));
    CHECK_FALSE(store.place(0));  // not known
    CHECK(store.machine().apart_ns == 0);
    CHECK(store.place(90.4e-9));
    CHECK(store.machine().apart_ns == 90);
    store.put(kKey, cost(1));
    CHECK_FALSE(store.place(170e-9));
    CHECK_FALSE(store.place(50e-9));
    CHECK(store.find(kKey)->seconds == 1);
    CHECK(store.place(400e-9));
    CHECK(store.machine().apart_ns == 400);
    CHECK_FALSE(store.find(kKey).has_value());
    store.put(kKey, cost(4));
    CHECK_FALSE(store.place(330e-9));
    CHECK(store.place(150e-9));  // nearer to 90 than to 400
    CHECK(store.machine().apart_ns == 90);
    CHECK(store.find(kKey)->seconds == 1);
  }
  CostStore store(path, Machine::here(2));
  CHECK_FALSE(store.find(kKey).has_value());
  CHECK(store.place(600e-9));
  CHECK(store.machine().apart_ns == 400);
  CHECK(store.find(kKey)->seconds == 4);
  CHECK(store.place(2000e-9));
  CHECK_FALSE(store.find(kKey).has_value());

  // Other threads, other machines: nothing of that is theirs.
  CostStore three(path, Machine::here(3));
  CHECK(three.place(95e-9));
  CHECK(three.machine().apart_ns == 95);
  CostStore one(path, Machine::here(1));
  CHECK_FALSE(one.place(95e-9));
  CHECK(one.machine().apart_ns == 0);

  const auto machines = machines_in(read_costs(path));
  REQUIRE(machines.size() == 2);
  for (const MachineCosts& m : machines) {
    CHECK(m.machine.cpu == Machine::here(2).cpu);
    CHECK((m.machine.apart_ns == 90 || m.machine.apart_ns == 400));
    const double seconds = CostStore(path, m.machine).find(kKey)->seconds;
    CHECK(seconds == (m.machine.apart_ns == 90 ? 1 : 4));
    CHECK(find_machine(read_costs(path), host_id(m.machine), 2).apart_ns == m.machine.apart_ns);
  }
  // A name that both begin with stands for that of more costs.
  CostKey more = kKey;
  more.implementation = "another";
  CostStore(path, machines[1].machine).put(more, cost(2));
  const std::string start = host_id(machines[0].machine).substr(0, 10);
  CHECK(find_machine(read_costs(path), start, 2).apart_ns == machines[1].machine.apart_ns);
}

TEST_CASE("a distance behind the name of a CPU is read back") {
  for (const char* name : {"AMD EPYC (family 26, model 2)", "x, threads y", ", threads 0 ns apart",
                           "z, threads -3 ns apart", "z, threads 3x ns apart", "", " ns apart"}) {
    CAPTURE(std::string(name));
    Machine m, back;
    m.cpu = name;
    for (int ns : {0, 1, 105}) {
      m.apart_ns = ns;
      back.set_cpu_and_place(m.cpu_and_place());
      CHECK(back.cpu == m.cpu);
      CHECK(back.apart_ns == m.apart_ns);
    }
  }
}
