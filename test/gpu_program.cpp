// Programs: no race between streams, no two live tensors in one place. The checkers share nothing
// with the compiler.
#include <map>
#include <random>
#include <vector>

#include "convprim/import.hpp"
#include "gpu/nets.hpp"
#include "gpu/program.hpp"
#include "gpu/schedule.hpp"
#include "test.hpp"

using namespace convprim;
using namespace convprim::ios;

namespace {

OperatorGraph graph_of(Network net) {
  random_weights(net);
  simplify(net);
  return operator_graph(std::move(net));
}

using Steps = std::vector<bool>;  // a set of steps

void unite(Steps& into, const Steps& other) {
  for (std::size_t i = 0; i < other.size(); ++i) {
    if (other[i]) into[i] = true;
  }
}

/// Which steps are done for sure when each step starts: streams as sets of what happened before.
std::vector<Steps> happens_before(const Program& p) {
  const Steps none(p.steps.size());
  std::vector<Steps> streams(static_cast<std::size_t>(p.streams), none);
  std::map<int, Steps> events;
  std::vector<Steps> before(p.steps.size());
  for (const Command& c : p.commands) {
    auto& stream = streams.at(static_cast<std::size_t>(c.stream));
    if (c.kind == Command::Kind::run) {
      before.at(static_cast<std::size_t>(c.index)) = stream;
      stream[static_cast<std::size_t>(c.index)] = true;
    } else if (c.kind == Command::Kind::record) {
      events[c.index] = stream;
    } else {
      REQUIRE(events.count(c.index) == 1);  // waiting for what was never recorded waits for nothing
      unite(stream, events[c.index]);
    }
  }
  return before;
}

struct Range {
  std::size_t begin, end;
};
Range bytes_of(const Program& p, const View& v) {
  const auto b = static_cast<std::size_t>(v.buffer);
  return {p.arena.offsets[b], p.arena.offsets[b] + p.buffers[b].bytes};
}
bool overlap(const Range& a, const Range& b) { return a.begin < b.end && b.begin < a.end; }

/// Counts pairs of steps that touch the same bytes, at least one writing, without an order.
int races(const Program& p) {
  const auto before = happens_before(p);
  int found = 0;
  const auto conflict = [&](const Step& a, const Step& b) {
    for (const View& w : a.out) {
      for (const View& v : b.out)
        if (overlap(bytes_of(p, w), bytes_of(p, v))) return true;
      for (const View& v : b.in)
        if (overlap(bytes_of(p, w), bytes_of(p, v))) return true;
    }
    return false;
  };
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    for (std::size_t j = i + 1; j < p.steps.size(); ++j) {
      if (before[j][i] || before[i][j]) continue;
      found += conflict(p.steps[i], p.steps[j]) || conflict(p.steps[j], p.steps[i]) ? 1 : 0;
    }
  }
  return found;
}

/// Runs the steps with numbers for contents: every input must still hold what its maker wrote.
/// `order` is any order that respects happens_before().
int clobbered(const OperatorGraph& graph, const Program& p, const std::vector<int>& order) {
  // By 64 bytes of the arena: the buffer that lies there.
  std::vector<int> owner(p.arena.bytes / 64 + 1, -1);
  const auto write = [&](const View& v) {
    const Range r = bytes_of(p, v);
    for (std::size_t at = r.begin; at < r.end; at += 64) owner[at / 64] = v.buffer;
  };
  const auto intact = [&](const View& v) {
    const Range r = bytes_of(p, v);
    for (std::size_t at = r.begin; at < r.end; at += 64)
      if (owner[at / 64] != v.buffer) return false;
    return true;
  };
  for (TensorId t : p.inputs) write(p.tensors[static_cast<std::size_t>(t)]);
  int bad = 0;
  for (int s : order) {
    const Step& step = p.steps[static_cast<std::size_t>(s)];
    for (const View& v : step.in) bad += intact(v) ? 0 : 1;
    for (const View& v : step.out) write(v);
  }
  for (TensorId t : graph.net.outputs)
    bad += intact(p.tensors[static_cast<std::size_t>(t)]) ? 0 : 1;
  // Inputs are kept for the next run.
  for (TensorId t : p.inputs) bad += intact(p.tensors[static_cast<std::size_t>(t)]) ? 0 : 1;
  return bad;
}

/// A random order of the steps that the streams allow.
std::vector<int> some_order(const Program& p, std::mt19937& random) {
  const auto before = happens_before(p);
  std::vector<int> order;
  Steps done(p.steps.size());
  while (order.size() < p.steps.size()) {
    std::vector<int> ready;
    for (std::size_t i = 0; i < p.steps.size() && ready.size() < 12; ++i) {
      bool free = !done[i];
      for (std::size_t k = 0; k < p.steps.size() && free; ++k) free = !before[i][k] || done[k];
      if (free) ready.push_back(static_cast<int>(i));
    }
    REQUIRE(!ready.empty());
    order.push_back(ready[random() % ready.size()]);
    done[static_cast<std::size_t>(order.back())] = true;
  }
  return order;
}

void check_program(const OperatorGraph& graph, const Schedule& schedule, std::mt19937& random) {
  check(graph, schedule);
  const Program p = compile(graph, schedule.stages);
  CHECK(races(p) == 0);
  CHECK(p.arena.bytes <= 16 * peak_bytes(p.buffers));
  CHECK(clobbered(graph, p, some_order(p, random)) == 0);
  std::size_t computed = 0;
  for (const Step& s : p.steps) computed += s.kind == Step::Kind::copy ? 0 : s.layers.size();
  std::size_t layers = 0;
  for (const Operator& op : graph.operators) layers += op.layers.size();
  CHECK(computed == layers);
}

}  // namespace

TEST_CASE("all schedules of all networks: no race, no tensor overwritten before its last reader") {
  std::mt19937 random(3);
  std::vector<Network> nets;
  for (Index batch : {1, 3}) {
    ImportOptions options;
    options.batch = batch;
    for (const char* file : {"inception_v3", "googlenet", "resnet50", "squeezenet_v1.1"})
      nets.push_back(
          import_network(test::data(std::string("nets/") + file + ".prototxt"), options));
    nets.push_back(squeezenet_bypass(batch));
  }
  nets.push_back(nasnet(1, 1, 44));
  nets.push_back(randwire_stage({1, 32, 14, 14}, 64, 32, watts_strogatz(32, 4, 0.75, 5)));
  for (Network& net : nets) {
    const OperatorGraph graph = graph_of(std::move(net));
    CAPTURE(graph.net.name);
    SimulatedCosts costs;
    for (Kind kind : kKinds) {
      CAPTURE(name(kind));
      check_program(graph, make_schedule(kind, graph, {2, 6, false}, costs), random);
    }
  }
}

TEST_CASE("the race checker sees a missing wait, and the arena checker a buffer reused too soon") {
  const OperatorGraph graph = graph_of(squeezenet_bypass());
  SimulatedCosts costs;
  const Schedule greedy = make_schedule(Kind::greedy, graph, {}, costs);
  Program p = compile(graph, greedy.stages);
  REQUIRE(races(p) == 0);
  std::mt19937 random(1);
  Program shifted = p;
  // The first buffer of the second stage moves to where its input lies.
  const Step& step = shifted.steps[static_cast<std::size_t>(shifted.stages[1][0][0])];
  shifted.arena.offsets[static_cast<std::size_t>(step.out[0].buffer)] =
      shifted.arena.offsets[static_cast<std::size_t>(step.in[0].buffer)];
  CHECK(clobbered(graph, shifted, some_order(shifted, random)) + races(shifted) > 0);
  int seen = 0, waits = 0;
  for (std::size_t i = 0; i < p.commands.size(); ++i) {
    if (p.commands[i].kind != Command::Kind::wait) continue;
    Program broken = p;
    broken.commands.erase(broken.commands.begin() + static_cast<std::ptrdiff_t>(i));
    ++waits;
    seen += races(broken) > 0 ? 1 : 0;
  }
  // A few wait for what the stream knew already.
  CHECK(waits > 10);
  CHECK(seen > waits / 2);
}
