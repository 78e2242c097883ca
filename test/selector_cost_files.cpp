// Cost files of several machines: joined, exported and read back without loss.
#include "convprim/cost_files.hpp"

#include <cmath>
#include <functional>
#include <limits>

#include "convprim/error.hpp"
#include "files.hpp"
#include "test.hpp"

using namespace convprim;
using test::TemporaryFolder;

namespace {

const Machine kBoard{"Cortex-A57", "neon", "0.1.0", 4};
const Machine kHost{"Some \"big\" CPU (family 6, model 207)", "avx512", "0.1.0", 2};

CostKey key(const std::string& implementation) {
  return {CostKind::convolution, "ic3ih8oc4kh3n\"a,b\"", implementation, 16};
}

void check_equal(const CostTable& a, const CostTable& b) {
  CHECK(a.columns == b.columns);
  CHECK(a.rows == b.rows);
  CHECK(a.set_aside == b.set_aside);
}

std::string refusal(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a merged file holds both machines, each seen by itself") {
  const TemporaryFolder folder;
  const std::string board = folder.file("board.db"), host = folder.file("host.db"),
                    all = folder.file("all.db");
  CostStore(board, kBoard).put(key("x"), {0.5, 3, Cost::Stage::quick});
  CostStore(host, kHost).put(key("x"), {0.25, 3, Cost::Stage::quick});
  CHECK(merge_costs(all, read_costs(board)).added == 1);
  const MergeReport report = merge_costs(all, read_costs(host));
  CHECK(report.added == 1);
  CHECK(report.clashes.empty());
  CHECK(CostStore(all, kBoard).find(key("x"))->seconds == 0.5);
  CHECK(CostStore(all, kHost).find(key("x"))->seconds == 0.25);

  const CostTable table = read_costs(all);
  CHECK(machines_in(table).size() == 2);
  CHECK(host_id(kBoard).starts_with("cortex-a57-neon-"));
  CHECK(find_machine(table, host_id(kBoard), 0).threads == 4);
  CHECK(find_machine(table, "cortex", 4).cpu == kBoard.cpu);
  CHECK(only_machine(table, "cortex").rows.size() == 1);
  CHECK(contains(refusal([&] { find_machine(table, "cortex", 2); }), "4 threads"));
  CHECK(contains(refusal([&] { find_machine(table, "", 0); }), "more than one"));
  CHECK(contains(refusal([&] { only_machine(table, "z80"); }), "z80"));
}

TEST_CASE("a merge loses nothing: of two costs of one key the better known is used") {
  const TemporaryFolder folder;
  const std::string a = folder.file("a.db"), b = folder.file("b.db");
  {
    CostStore first(a, kBoard), second(b, kBoard);
    first.put(key("x"), {1.0, 3, Cost::Stage::quick});
    second.put(key("x"), {2.0, 9, Cost::Stage::refined});
    first.put(key("y"), {3.0, 9, Cost::Stage::refined});
    second.put(key("y"), {4.0, 1, Cost::Stage::cut});
    first.put(key("z"), {5.0, 3, Cost::Stage::quick});
    second.put(key("new"), {6.0, 3, Cost::Stage::quick});
  }
  const MergeReport report = merge_costs(a, read_costs(b));
  CHECK(report.added == 1);
  CHECK(report.same == 0);
  REQUIRE(report.clashes.size() == 2);
  for (const std::string& clash : report.clashes) {
    CHECK(contains(clash, host_id(kBoard)));
    CHECK(contains(clash, "set aside"));
  }
  const CostStore merged(a, kBoard);
  CHECK(merged.find(key("x"))->seconds == 2.0);
  CHECK(merged.find(key("x"))->stage == Cost::Stage::refined);
  CHECK(merged.find(key("y"))->seconds == 3.0);
  CHECK(merged.find(key("z"))->seconds == 5.0);
  CHECK(merged.find(key("new"))->seconds == 6.0);
  const CostTable table = read_costs(a);
  CHECK(table.rows.size() == 4);
  CHECK(table.set_aside.size() == 2);
  // Once more: all of it is there.
  const MergeReport again = merge_costs(a, read_costs(b));
  CHECK(again.added == 0);
  CHECK(again.same == 3);
  CHECK(again.clashes.empty());
  check_equal(read_costs(a), table);
}

TEST_CASE("exported as CSV or JSON and imported, a file is the same") {
  const TemporaryFolder folder;
  const std::string path = folder.file("costs.db"), other = folder.file("other.db");
  {
    CostStore store(path, kHost), clashing(other, kHost);
    store.put(key("x"), {0.1, 3, Cost::Stage::quick});
    store.put(key("refused"), {std::numeric_limits<double>::infinity(), 0, Cost::Stage::cut});
    store.put(key("whole"), {2, 1, Cost::Stage::quick});
    clashing.put(key("x"), {1.0 / 3, 3, Cost::Stage::refined});
  }
  merge_costs(path, read_costs(other));
  const CostTable table = read_costs(path);
  REQUIRE(table.set_aside.size() == 1);
  const CostTable csv = costs_from_csv(costs_to_csv(table), "t.csv");
  const CostTable json = costs_from_json(costs_to_json(table), "t.json");
  check_equal(csv, table);
  check_equal(json, table);
  const std::string imported = folder.file("imported.db");
  CHECK(merge_costs(imported, csv).added == 3);
  check_equal(read_costs(imported), table);
  CHECK(std::isinf(CostStore(imported, kHost).find(key("refused"))->seconds));
}

TEST_CASE("faulty files are refused with the place, and nothing is written") {
  const TemporaryFolder folder;
  const std::string header =
      "cpu,isa,version,threads,kind,problem,implementation,sweep,seconds,runs,stage,taken\n";
  const auto csv = [&](const std::string& text) {
    return refusal([&] { costs_from_csv(text, "t.csv"); });
  };
  CHECK(csv(header + "c,i,v,1,p,q,x,0,0.5,3,1,t\n").empty());
  CHECK(contains(csv(""), "t.csv"));
  CHECK(contains(csv("cpu,isa\n"), "version"));
  CHECK(contains(csv(header + "c,i,v\n"), "t.csv:2"));
  CHECK(contains(csv(header + "c,i,v,many,p,q,x,0,0.5,3,1,t\n"), "threads"));
  CHECK(contains(csv(header + "c,i,v,1,p,q,x,0,-1,3,1,t\n"), "seconds"));
  CHECK(contains(csv(header + "c,i,v,1,p,q,x,0,nan,3,1,t\n"), "seconds"));
  CHECK(contains(csv(header + "\"c,i,v,1\n"), "t.csv:2"));
  CHECK(contains(csv("drop table," + header), "drop table"));
  const auto json = [&](const std::string& text) {
    return refusal([&] { costs_from_json(text, "t.json"); });
  };
  for (const char* text : {"", "[]", "{}", "{\"columns\": 1, \"costs\": 2}",
                           "{\"schema\": 9, \"columns\": [], \"costs\": []}",
                           "{\"schema\": 1, \"columns\": [], \"costs\": []}"})
    CHECK(contains(json(text), "t.json"));
  CHECK(contains(refusal([&] { read_costs(folder.file("missing.db")); }), "missing.db"));
  CHECK(contains(refusal([&] { read_costs(folder.write("text.db", std::string(4096, 'x'))); }),
                 "text.db"));
}
