// The DT graph: costs against a search of all paths, chains run there and back, published costs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <vector>

#include "buffer.hpp"
#include "convprim/error.hpp"
#include "layouts/dt_graph.hpp"
#include "reference.hpp"
#include "test.hpp"

using namespace convprim;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void nothing(const Shape&, const float*, float*, const ChannelSlice&, int) noexcept {}

/// Cheapest simple path by trying them all.
double search(const Shape& s, std::span<const Conversion> routines, std::span<const double> costs,
              Layout from, Layout to, unsigned visited) {
  if (from == to) return 0;
  visited |= 1U << static_cast<unsigned>(from);
  double best = kInfinity;
  for (Layout via : kLayouts) {
    if ((visited >> static_cast<unsigned>(via) & 1U) != 0) continue;
    double step = same_memory(from, via, s) ? 0 : kInfinity;
    for (std::size_t i = 0; i < routines.size(); ++i)
      if (routines[i].from == from && routines[i].to == via) step = std::min(step, costs[i]);
    best = std::min(best, step + search(s, routines, costs, via, to, visited));
  }
  return best;
}

/// Sum of a chain's costs, after a check that it leads from one layout to the other: each routine
/// starts where the last ended, or in a layout of the same memory.
double walk(const DtGraph& graph, const Shape& s, std::span<const Conversion> routines,
            std::span<const double> costs, Layout from, Layout to) {
  double sum = 0;
  Layout at = from;
  for (const Conversion* step : graph.chain(from, to)) {
    CHECK(same_memory(at, step->from, s));
    const auto i = static_cast<std::size_t>(step - routines.data());
    REQUIRE(i < costs.size());
    sum += costs[i];
    at = step->to;
  }
  CHECK(same_memory(at, to, s));
  return sum;
}

}  // namespace

TEST_CASE("DT graph: costs and chains are those of a search over all paths") {
  std::mt19937 rng(7);
  const auto routines = conversions();
  for (int round = 0; round < 300; ++round) {
    const Shape s = round % 3 == 0   ? Shape{1, 16, 1, 1}
                    : round % 3 == 1 ? Shape{1, 8, 5, 1}
                                     : Shape{2, 20, 7, 9};
    std::vector<double> costs;
    for (std::size_t i = 0; i < routines.size(); ++i) {
      // Small whole numbers make ties, zeros make free routines, and some routines are left out.
      const auto draw = rng() % 10;
      costs.push_back(draw < 3 ? kInfinity : static_cast<double>(rng() % 6));
    }
    const DtGraph graph(s, routines, costs);
    for (Layout from : kLayouts)
      for (Layout to : kLayouts) {
        const double want = search(s, routines, costs, from, to, 0);
        CHECK(graph.cost(from, to) == want);
        if (want == kInfinity) {
          CHECK_THROWS_AS(graph.chain(from, to), Error);
        } else {
          CHECK(walk(graph, s, routines, costs, from, to) == want);
        }
      }
  }
}

TEST_CASE("DT graph: there and back along every chain") {
  const auto routines = conversions();
  std::mt19937 rng(11);
  std::uniform_real_distribution<double> uniform(0.5, 4);
  for (int round = 0; round < 12; ++round)
    for (const Shape& s : {Shape{1, 3, 7, 5}, Shape{2, 20, 6, 9}, Shape{1, 16, 1, 1},
                           Shape{1, 1, 9, 4}, Shape{1, 32, 1, 13}}) {
      // Costs that differ from round to round lead over different chains.
      std::vector<double> costs;
      for (std::size_t i = 0; i < routines.size(); ++i) costs.push_back(uniform(rng));
      const DtGraph graph(s, routines, costs);
      std::vector<float> image(static_cast<std::size_t>(s.count()));
      for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i + 1);
      const auto follow = [&](Layout from, Layout to, const Buffer& start) {
        Buffer tensor(start.size());
        std::copy(start.begin(), start.end(), tensor.begin());
        for (const Conversion* step : graph.chain(from, to)) {
          Buffer next(static_cast<std::size_t>(element_count(step->to, s)));
          step->run(s, tensor.data(), next.data(), {}, 1 + round % 3);
          tensor = std::move(next);
        }
        return tensor;
      };
      for (Layout from : kLayouts)
        for (Layout to : kLayouts) {
          Buffer start(static_cast<std::size_t>(element_count(from, s)));
          Buffer want(static_cast<std::size_t>(element_count(to, s)));
          to_layout(from, s, image.data(), start.data());
          to_layout(to, s, image.data(), want.data());
          const Buffer there = follow(from, to, start);
          CAPTURE(name(from));
          CAPTURE(name(to));
          REQUIRE(there.size() == want.size());
          CHECK(std::equal(there.begin(), there.end(), want.begin()));
          const Buffer back = follow(to, from, there);
          REQUIRE(back.size() == start.size());
          CHECK(std::equal(back.begin(), back.end(), start.begin()));
        }
    }
}

TEST_CASE("DT graph: every layout leads to every other") {
  const std::vector<double> costs(conversions().size(), 1.0);
  const DtGraph graph({1, 20, 5, 5}, conversions(), costs);
  for (Layout from : kLayouts)
    for (Layout to : kLayouts) {
      CHECK(graph.cost(from, to) <= 2);
      CHECK(graph.cost(from, from) == 0);
      CHECK(graph.chain(from, from).empty());
    }
}

TEST_CASE("DT graph: infinite where no path exists") {
  const Conversion rows[] = {{"chw-to-hcw", Layout::chw, Layout::hcw, nothing},
                             {"hcw-to-hwc", Layout::hcw, Layout::hwc, nothing}};
  const double costs[] = {1, 2};
  const DtGraph graph({1, 20, 5, 5}, rows, costs);
  CHECK(graph.cost(Layout::chw, Layout::hwc) == 3);
  CHECK(graph.cost(Layout::hwc, Layout::chw) == kInfinity);
  CHECK(graph.cost(Layout::chw, Layout::chw8c) == kInfinity);
  CHECK_THROWS_WITH_AS(graph.chain(Layout::hwc, Layout::chw),
                       "no chain of conversions leads from hwc to chw", Error);
  const DtGraph none({1, 20, 5, 5}, {}, {});
  for (Layout from : kLayouts)
    for (Layout to : kLayouts) CHECK(none.cost(from, to) == (from == to ? 0 : kInfinity));
}

TEST_CASE("DT graph: layouts of the same memory are joined at no cost") {
  const DtGraph vector({3, 16, 1, 1}, {}, {});
  for (Layout from : kLayouts)
    for (Layout to : kLayouts) {
      CHECK(vector.cost(from, to) == 0);
      CHECK(vector.chain(from, to).empty());
    }
  // One channel: the three plain layouts are one, the blocked ones are not.
  const DtGraph grey({1, 1, 9, 9}, {}, {});
  CHECK(grey.cost(Layout::chw, Layout::hwc) == 0);
  CHECK(grey.cost(Layout::chw, Layout::chw8c) == kInfinity);
  // A chain may pass through them: hcw and hwc agree where w is 1.
  const Conversion rows[] = {{"hwc-to-chw8c", Layout::hwc, Layout::chw8c, nothing}};
  const double costs[] = {5};
  const DtGraph column({1, 20, 9, 1}, rows, costs);
  CHECK(column.cost(Layout::hcw, Layout::chw8c) == 5);
  REQUIRE(column.chain(Layout::hcw, Layout::chw8c).size() == 1);
  CHECK(column.chain(Layout::hcw, Layout::chw8c)[0] == &rows[0]);
}

TEST_CASE("DT graph: the cheaper of two routines for a pair") {
  const Conversion rows[] = {{"slow", Layout::chw, Layout::hwc, nothing},
                             {"fast", Layout::chw, Layout::hwc, nothing},
                             {"slower", Layout::chw, Layout::hwc, nothing}};
  const double costs[] = {3, 2, 4};
  const DtGraph graph({1, 20, 5, 5}, rows, costs);
  CHECK(graph.cost(Layout::chw, Layout::hwc) == 2);
  CHECK(graph.chain(Layout::chw, Layout::hwc) == std::vector<const Conversion*>{&rows[1]});
}

TEST_CASE("DT graph: bad costs are refused") {
  const Conversion rows[] = {{"chw-to-hcw", Layout::chw, Layout::hcw, nothing}};
  const double negative[] = {-1.0}, nan[] = {std::nan("")}, two[] = {1.0, 1.0};
  CHECK_THROWS_WITH_AS(DtGraph({}, rows, negative),
                       "DT graph: the cost of chw-to-hcw is -1; it must be 0 or more", Error);
  CHECK_THROWS_AS(DtGraph({}, rows, nan), Error);
  CHECK_THROWS_WITH_AS(DtGraph({}, rows, two),
                       "DT graph: 2 costs for 1 conversion routines; give one for each", Error);
}

// Costs published by Anderson and Gregg for AlexNet on an i5-2500K: nine conversions over the three
// plain layouts, a column for each layer. In six cases a chain of two beats the direct routine.
TEST_CASE("DT graph: the six published chains that beat direct routines") {
  const std::string path = test::shared("fixtures/alexnet-i5-2500K-conversions.tsv");
  if (path.empty()) return test::skip("fixtures/alexnet-i5-2500K-conversions.tsv is not here");
  std::vector<Conversion> rows;
  std::vector<std::vector<double>> columns(5);
  std::vector<std::string> names;
  names.reserve(16);
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#") || line.starts_with("name")) continue;
    std::istringstream fields(line);
    std::string text;
    fields >> text;
    const auto middle = text.find("-to-");
    REQUIRE(middle != std::string::npos);
    const auto from = layout_of(text.substr(0, middle)), to = layout_of(text.substr(middle + 4));
    REQUIRE((from.has_value() && to.has_value()));
    names.push_back(text);
    rows.push_back({names.back(), *from, *to, nothing});
    for (auto& column : columns) {
      double ns = -1;
      fields >> ns;
      column.push_back(ns);
    }
  }
  REQUIRE(rows.size() == 9);
  const Shape shapes[] = {
      {1, 3, 227, 227}, {1, 96, 27, 27}, {1, 256, 13, 13}, {1, 384, 13, 13}, {1, 384, 13, 13}};
  std::vector<std::string> found;
  for (std::size_t column = 0; column < 5; ++column) {
    const DtGraph graph(shapes[column], rows, columns[column]);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].from == rows[i].to) {
        CHECK(graph.cost(rows[i].from, rows[i].to) == 0);
        continue;
      }
      const auto chain = graph.chain(rows[i].from, rows[i].to);
      if (chain.size() == 1) {
        CHECK(graph.cost(rows[i].from, rows[i].to) == columns[column][i]);
        continue;
      }
      REQUIRE(chain.size() == 2);
      found.push_back(fmt::format("conv{} {} via {}: {:.1f} -> {:.1f} us", column + 1, rows[i].name,
                                  name(chain[0]->to), 1e-3 * columns[column][i],
                                  1e-3 * graph.cost(rows[i].from, rows[i].to)));
    }
  }
  std::sort(found.begin(), found.end());
  CHECK(found == std::vector<std::string>{"conv1 chw-to-hwc via hcw: 103.3 -> 88.9 us",
                                          "conv2 hcw-to-hwc via chw: 123.5 -> 113.6 us",
                                          "conv2 hwc-to-chw via hcw: 39.9 -> 36.2 us",
                                          "conv4 hwc-to-chw via hcw: 44.2 -> 31.4 us",
                                          "conv5 chw-to-hwc via hcw: 128.6 -> 122.6 us",
                                          "conv5 hwc-to-chw via hcw: 45.4 -> 31.9 us"});
}
