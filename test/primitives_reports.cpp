// Public bug reports against other convolution libraries, replayed: what adversarial.txt, which
// holds the shapes of such reports for checkconv, cannot say. The source is named in each case.
#include <cstring>
#include <string>
#include <vector>

#include "buffer.hpp"
#include "convprim/error.hpp"
#include "convprim/primitive.hpp"
#include "noise.hpp"
#include "reference.hpp"
#include "test.hpp"

using namespace convprim;

namespace {

/// A primitive's answer in (n, c, h, w) order; the output's memory held something else before.
std::vector<float> answer(const Primitive& row, const Scenario& s, const Convolution& conv,
                          const Buffer& in) {
  Buffer stored(static_cast<std::size_t>(element_count(row.in, s.in())));
  to_layout(row.in, s.in(), in.data(), stored.data());
  Buffer out(static_cast<std::size_t>(element_count(row.out, s.out())));
  std::fill(out.begin(), out.end(), 77.0F);
  Buffer workspace((conv.workspace_bytes() + 3) / 4);
  conv.run({stored.data(), out.data(), nullptr, workspace.data()});
  std::vector<float> plain;
  const Strides at = strides(row.out, s.out(), {});
  for (Index n = 0; n < s.n; ++n)
    for (Index k = 0; k < s.m; ++k)
      for (Index y = 0; y < s.oh; ++y)
        for (Index x = 0; x < s.ow; ++x) plain.push_back(out.data()[at.at(n, k, y, x)]);
  return plain;
}

}  // namespace

TEST_CASE("ncnn 315: a dilated depthwise mean, with a bias") {
  const Scenario s = Scenario::parse("mb1g4ic4ih5oc4oh5kh3ph2dh1");
  Buffer in(static_cast<std::size_t>(s.in().count()));
  for (std::size_t i = 0; i < in.size(); ++i) in.data()[i] = static_cast<float>(i % 25 + 1);
  const std::vector<float> filter(static_cast<std::size_t>(s.filter_count()), 1.0F / 9), bias(4, 1);
  int rows = 0;
  for (const Primitive* row : primitives()) {
    if (row->reject(s) != nullptr) continue;
    ++rows;
    CAPTURE(row->name);
    const auto conv = row->prepare(s, {filter.data(), bias.data()}, {});
    const std::vector<float> out = answer(*row, s, *conv, in);
    // Taps lie two apart. A corner sees pixels (0,0) (0,2) (2,0) (2,2): 1 + 3 + 11 + 13; the centre
    // all of rows and columns 0, 2, 4, whose mean is the middle pixel, 13.
    for (int k = 0; k < 4; ++k) {
      const float* plane = out.data() + 25 * k;
      CHECK(plane[0] == doctest::Approx(28.0 / 9 + 1).epsilon(1e-5));
      CHECK(plane[12] == doctest::Approx(14).epsilon(1e-5));
    }
  }
  CHECK(rows >= 6);
}

TEST_CASE("modular 6712: a kernel row that is mostly border gives the same bits a hundred times") {
  for (const char* text :
       {"mb1ic3ih1iw16oc4oh1ow23kh1kw8ph0pw7", "mb1ic16ih1iw16oc16oh1ow23kh1kw8ph0pw7"}) {
    const Scenario s = Scenario::parse(text);
    const Buffer in = test::noise(s.in().count(), 1), filter = test::noise(s.filter_count(), 2);
    for (const Primitive* row : primitives()) {
      if (row->reject(s) != nullptr) continue;
      CAPTURE(row->name);
      const auto conv = row->prepare(s, {filter.data(), nullptr}, {});
      const std::vector<float> first = answer(*row, s, *conv, in);
      bool same = true;
      for (int i = 0; i < 100; ++i) same = same && answer(*row, s, *conv, in) == first;
      CHECK(same);
    }
  }
}

TEST_CASE("oneDNN 5942: a tall kernel over one pixel, a batch of a hundred") {
  const Scenario s = Scenario::parse("mb100ic64ih1iw1oc1oh1ow1kh125kw1sh2sw1ph63pw0");
  const Buffer in = test::noise(s.in().count(), 3), filter = test::noise(s.filter_count(), 4);
  int rows = 0;
  for (const Primitive* row : primitives()) {
    if (row->reject(s) != nullptr) continue;
    ++rows;
    CAPTURE(row->name);
    const auto conv = row->prepare(s, {filter.data(), nullptr}, {});
    const std::vector<float> out = answer(*row, s, *conv, in);
    for (Index n = 0; n < s.n; ++n) {
      const auto [value, magnitude] =
          reference_at(s, in.data(), {filter.data(), nullptr}, Epilogue{}, nullptr, n, 0, 0, 0);
      const double error = std::abs(out[static_cast<std::size_t>(n)] - value);
      // Transforms spread the rounding of other outputs: all have about the same magnitude here.
      CHECK(error <= kErrorUnit * row->error_scale * 2 * magnitude);
    }
  }
  CHECK(rows >= 6);
}

TEST_CASE("NNPACK 62: a stride of nothing is an error that says so") {
  for (const char* text : {"ic3ih8oc4kh3sh0", "ic3ih8oc4oh4kh3sh2sw0"}) {
    try {
      Scenario::parse(text);
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find("str") != std::string::npos);
    }
  }
}
