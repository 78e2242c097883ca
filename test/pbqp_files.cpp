// The file formats of the PBQP solver: round trips, and refusals that name the place.
#include <cstdio>
#include <filesystem>
#include <string>

#include "pbqp/generate.hpp"
#include "pbqp/io.hpp"
#include "pbqp_util.hpp"
#include "test.hpp"

using pbqp::kInfinity;
using pbqp::Problem;
using pbqp_test::Costs;
using pbqp_test::Random;

namespace {

void check_equal(const Problem& a, const Problem& b) {
  REQUIRE(a.node_count() == b.node_count());
  REQUIRE(a.edge_count() == b.edge_count());
  for (std::size_t v = 0; v < a.node_count(); ++v) {
    CHECK(a.costs(v) == b.costs(v));
    CHECK(a.weights(v) == b.weights(v));
    CHECK(a.name(v) == b.name(v));
    CHECK(a.option_names(v) == b.option_names(v));
  }
  for (std::size_t i = 0; i < a.edge_count(); ++i) {
    CHECK(a.edge(i).u == b.edge(i).u);
    CHECK(a.edge(i).v == b.edge(i).v);
    CHECK(a.edge(i).matrix.rows == b.edge(i).matrix.rows);
    CHECK(a.edge(i).matrix.data == b.edge(i).matrix.data);
    REQUIRE((a.edge(i).row_class == nullptr) == (b.edge(i).row_class == nullptr));
    if (a.edge(i).row_class) {
      CHECK(*a.edge(i).row_class == *b.edge(i).row_class);
      CHECK(*a.edge(i).col_class == *b.edge(i).col_class);
    }
  }
}

Problem named() {
  Problem p;
  p.add_node({1.5, kInfinity, -0.1}, {"im2row a", "", "sum\"2d\\"}, "conv 1 \t#x");
  p.add_node({1e-300, 3.0}, {}, "pool \xc3\xa9");
  p.set_weights(0, {0.0, 1.0, 2.5});
  p.add_class_edge(0, {0, 1, 0}, 1, {1, 0},
                   pbqp::Matrix(2, 2, std::vector<double>{0.0, 0.25, kInfinity, 1e22}));
  p.add_edge(1, 0, std::vector<double>{0, 1, 2, 3, 4, 5});
  p.add_edge(1, 1, std::vector<double>{0, 1, 2, 3});
  return p;
}

// The message for a text that must be refused.
std::string refusal(const std::string& text, pbqp::Format format) {
  try {
    switch (format) {
      case pbqp::Format::kText:
        pbqp::read_text(text, "f");
        break;
      case pbqp::Format::kJson:
        pbqp::read_json(text, "f");
        break;
      case pbqp::Format::kWcsp:
        pbqp::read_wcsp(text, "f");
        break;
    }
  } catch (const pbqp::FormatError& e) {
    return e.what();
  }
  return "nothing was refused";
}

void check_refused(const std::string& text, pbqp::Format format, const std::string& start,
                   const std::string& part) {
  const std::string message = refusal(text, format);
  INFO(message);
  CHECK(message.rfind(start, 0) == 0);
  CHECK(message.find(part) != std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
}

}  // namespace

TEST_CASE("pbqp: text and JSON read back what was written") {
  const Problem n = named();
  check_equal(n, pbqp::read_text(pbqp::write_text(n), "t"));
  check_equal(n, pbqp::read_json(pbqp::write_json(n), "j"));
  check_equal(Problem(), pbqp::read_text(pbqp::write_text(Problem()), "t"));
  check_equal(Problem(), pbqp::read_json(pbqp::write_json(Problem()), "j"));
  const Costs kinds[] = {Costs::kTiny, Costs::kReals, Costs::kMixed, Costs::kNegative};
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random r(seed);
    const Problem p = pbqp_test::random_problem(r, 6, 5, kinds[seed % 4], 0.7, 0.2);
    check_equal(p, pbqp::read_text(pbqp::write_text(p), "t"));
    check_equal(p, pbqp::read_json(pbqp::write_json(p), "j"));
  }
}

TEST_CASE("pbqp: wcsp keeps status and optimum") {
  const Costs kinds[] = {Costs::kTiny, Costs::kIntegers, Costs::kReals, Costs::kNegative};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random r(seed + 77);
    const Costs kind = kinds[seed % 4];
    const Problem p = pbqp_test::random_problem(r, 6, 4, kind, 0.6, 0.3);
    // Reals have more than 56 bits from the least to the largest.
    const double quantum = kind == Costs::kReals || kind == Costs::kNegative ? 0x1p-20 : 0.0;
    const Problem q = pbqp::read_wcsp(pbqp::write_wcsp(p, quantum), "w");
    const auto a = pbqp::solve(p);
    const auto b = pbqp::solve(q);
    INFO("seed " << seed);
    CHECK(a.status == b.status);
    if (!a.optimal()) continue;
    if (quantum == 0) {
      CHECK(a.upper == b.upper);
    } else {
      CHECK(std::abs(a.upper - b.upper) <=
            quantum * static_cast<double>(p.node_count() + p.edge_count()));
    }
  }
  Problem far;
  far.add_node({1e-12, 1e12});
  CHECK_THROWS_AS((void)pbqp::write_wcsp(far), std::invalid_argument);
}

TEST_CASE("pbqp: wcsp files of others are read") {
  // Three variables; unary, binary with a default cost, a constant, a forbidden tuple.
  const std::string text =
      "queens 3 2 4 100\n2 2 2\n1 0 0 1\n1 7\n2 0 1 5 2\n0 0 100\n1 1 1\n2 1 2 0 1\n1 1 150\n0 3 "
      "0\n";
  const Problem p = pbqp::read_wcsp(text, "w");
  const auto truth = pbqp_test::brute_force(p);
  const auto r = pbqp::solve(p);
  REQUIRE(r.optimal());
  CHECK(r.upper == 8.0);  // x0 = 0, x1 = 1: 5, the constant 3, x2 = 0
  CHECK(truth.cost == 8.0);
}

TEST_CASE("pbqp: bad files are refused in one sentence with the place") {
  using F = pbqp::Format;
  check_refused("", F::kText, "f:1: ", "pbqp 1");
  check_refused("hello\n", F::kText, "f:1: ", "pbqp 1");
  check_refused("pbqp 2\n", F::kText, "f:1: ", "version");
  check_refused("pbqp 1\n\nnode 1 x\n", F::kText, "f:3: ", "\"x\"");
  check_refused("pbqp 1\nnode 1 nan\n", F::kText, "f:2: ", "no cost");
  check_refused("pbqp 1\nnode 1 -inf\n", F::kText, "f:2: ", "no cost");
  check_refused("pbqp 1\nnode 1e999\n", F::kText, "f:2: ", "range");
  check_refused("pbqp 1\nnode\n", F::kText, "f:2: ", "at least one");
  check_refused("pbqp 1\nname x\n", F::kText, "f:2: ", "must follow the node");
  check_refused("pbqp 1\nnode 1\nedge 0 1 5\n", F::kText, "f:3: ", "node 1 does not exist");
  check_refused("pbqp 1\nnode 1\nnode 1 2\nedge 0 1 5\n", F::kText, "f:4: ", "1 x 2");
  check_refused("pbqp 1\nnode 1\nnode 1\nedge 0:a 1:a 1x1 5\n", F::kText, "f:4: ", "\"a\"");
  check_refused("pbqp 1\nclasses a 0\nnode 1\nnode 1\nedge 0:a 1:a 9999999999x1 5\n", F::kText,
                "f:5: ", "matrix");
  check_refused("pbqp 1\nnode 1 2\nweights 1\n", F::kText, "f:3: ", "weight");
  check_refused("pbqp 1\nnode 1 2\nweights inf 1\n", F::kText, "f:3: ", "weight");
  check_refused("pbqp 1\nfoo\n", F::kText, "f:2: ", "\"foo\"");
  check_refused("{", F::kJson, "f:1: ", "member name");
  check_refused("{}", F::kJson, "f:1: ", "\"format\"");
  check_refused("{\"format\":\"pbqp\",\"version\":1,\"nodes\":[],\n\"edges\":[],\"x\":1}", F::kJson,
                "f:2: ", "\"x\"");
  check_refused("{\"format\":\"pbqp\",\"version\":1,\"nodes\":[\n{\"costs\":[]}],\"edges\":[]}",
                F::kJson, "f:2: ", "no options");
  check_refused("{\"format\":\"pbqp\",\"version\":1,\"nodes\":[{\"costs\":[1e999]}],\"edges\":[]}",
                F::kJson, "f:1: ", "range");
  check_refused("{\"format\":\"pbqp\",\"version\":1,\"nodes\":[{\"costs\":[NaN]}],\"edges\":[]}",
                F::kJson, "f:1: ", "value");
  check_refused("{\"format\":\"pbqp\",\"format\":\"pbqp\"}", F::kJson, "f:1: ", "twice");
  check_refused(std::string(100, '['), F::kJson, "f:1: ", "deeply");
  check_refused("{\"a\":\"\\ud800\"}", F::kJson, "f:1: ", "surrogate");
  check_refused("{} x", F::kJson, "f:1: ", "follows the end");
  check_refused("name 1 1\n", F::kWcsp, "f:2: ", "ends before");
  check_refused("name 1 2 1 10\n2\n3 0 0 0 0 0\n", F::kWcsp, "f:3: ", "3 variables");
  check_refused("name 1 2 1 10\n2\n-1 0 0\n", F::kWcsp, "f:3: ", "\"-1\"");
  check_refused("name 1 2 1 10\n2\n1 1 0 0\n", F::kWcsp, "f:3: ", "does not exist");
  check_refused("name 99999999 2 1 10\n2\n", F::kWcsp, "f:1: ", "too short");
  check_refused("name 2 2 1 10\n4000000000 4000000000\n", F::kWcsp, "f:2: ", "too large");
}

TEST_CASE("pbqp: files are told apart by content and written whole or not at all") {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("pbqp_files_" + std::to_string(std::hash<std::string>()(__FILE__)));
  std::filesystem::create_directories(folder);
  const Problem p = named();
  for (const char* name : {"a.json", "a.pbqp"}) {
    const std::string path = (folder / name).string();
    pbqp::save(path, p, pbqp::format_of(path));
    check_equal(p, pbqp::load(path));
  }
  const std::string wcsp = (folder / "a.wcsp").string();
  const Problem small = pbqp::generate({.kind = "resnet", .nodes = 6, .options = 4, .layouts = 2});
  pbqp::save(wcsp, small, pbqp::format_of(wcsp));
  CHECK(pbqp::solve(pbqp::load(wcsp)).upper == pbqp::solve(small).upper);
  CHECK_THROWS_AS((void)pbqp::load((folder / "missing").string()), pbqp::FormatError);
  CHECK_THROWS_AS((void)pbqp::load(folder.string()), pbqp::FormatError);
  CHECK_THROWS_AS(pbqp::save((folder / "no" / "x.json").string(), p, pbqp::Format::kJson),
                  pbqp::FormatError);
  pbqp::write_file((folder / "empty").string(), "");
  CHECK_THROWS_AS((void)pbqp::load((folder / "empty").string()), pbqp::FormatError);
  pbqp::write_file((folder / "binary").string(), std::string("\x7f"
                                                             "ELF\0\0\0",
                                                             7));
  CHECK_THROWS_AS((void)pbqp::load((folder / "binary").string()), pbqp::FormatError);
  std::filesystem::remove_all(folder);
}

TEST_CASE("pbqp: generated problems are the same everywhere") {
  // What other machines and versions must produce as well: an optimum each, of small instances.
  for (const std::string& kind : pbqp::generator_kinds()) {
    pbqp::GenerateOptions o;
    o.kind = kind;
    o.nodes = 12;
    o.options = 10;
    o.layouts = 3;
    o.weights = true;
    const Problem p = pbqp::generate(o);
    CHECK(p.node_count() == 12);
    CHECK(p.edge_count() >= 11);
    CHECK(pbqp::write_text(p) == pbqp::write_text(pbqp::generate(o)));
    o.seed = 2;
    CHECK(pbqp::write_text(p) != pbqp::write_text(pbqp::generate(o)));
  }
  pbqp::GenerateOptions o;
  o.kind = "foo";
  CHECK_THROWS_AS((void)pbqp::generate(o), std::invalid_argument);
}
