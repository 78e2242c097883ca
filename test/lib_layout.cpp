// Layouts: offsets, strides, shapes that lie the same in two layouts.
#include <algorithm>
#include <vector>

#include "convprim/layout.hpp"
#include "reference.hpp"
#include "test.hpp"

using namespace convprim;

TEST_CASE("offsets cover each layout exactly once and agree with strides") {
  for (Layout layout : kLayouts) {
    for (const Shape& s :
         {Shape{2, 3, 4, 5}, Shape{1, 8, 2, 3}, Shape{1, 17, 3, 1}, Shape{3, 1, 1, 1}}) {
      CAPTURE(name(layout));
      const Strides st = strides(layout, s);
      std::vector<int> hits(static_cast<std::size_t>(element_count(layout, s)));
      for (Index n = 0; n < s.n; ++n)
        for (Index c = 0; c < s.c; ++c)
          for (Index h = 0; h < s.h; ++h)
            for (Index w = 0; w < s.w; ++w) {
              const Index at = offset(layout, s, n, c, h, w);
              CHECK(at == st.at(n, c, h, w));
              ++hits[static_cast<std::size_t>(at)];
            }
      CHECK(std::count(hits.begin(), hits.end(), 1) == s.count());
      CHECK(*std::max_element(hits.begin(), hits.end()) == 1);
    }
  }
}

TEST_CASE("a channel slice lies inside the whole tensor") {
  for (Layout layout : kLayouts) {
    const Index begin = 16;
    const Shape whole{2, 48, 3, 4}, part{2, 16, 3, 4};
    const Strides st = strides(layout, part, {whole.c, begin});
    for (Index n = 0; n < 2; ++n)
      for (Index c = 0; c < part.c; ++c)
        for (Index h = 0; h < 3; ++h)
          for (Index w = 0; w < 4; ++w)
            CHECK(st.at(n, c, h, w) == offset(layout, whole, n, begin + c, h, w));
  }
}

TEST_CASE("same_memory is exactly 'all offsets are equal'") {
  for (Layout a : kLayouts) {
    for (Layout b : kLayouts) {
      for (Index n : {1, 2})
        for (Index c : {1, 2, 5, 8, 16, 24, 32})
          for (Index h : {1, 2, 3})
            for (Index w : {1, 2, 3}) {
              const Shape s{n, c, h, w};
              bool same = element_count(a, s) == element_count(b, s);
              for (Index i = 0; same && i < s.count(); ++i) {
                const Index in = i / (c * h * w), ic = i / (h * w) % c, ih = i / w % h, iw = i % w;
                same = offset(a, s, in, ic, ih, iw) == offset(b, s, in, ic, ih, iw);
              }
              CAPTURE(name(a));
              CAPTURE(name(b));
              CAPTURE(c);
              CAPTURE(h);
              CAPTURE(w);
              CHECK(same_memory(a, b, s) == same);
            }
    }
  }
}

TEST_CASE("layout names are read back") {
  for (Layout layout : kLayouts) CHECK(layout_of(name(layout)) == layout);
  CHECK_FALSE(layout_of("nchw").has_value());
}

TEST_CASE("there and back through every layout") {
  const Shape s{2, 11, 3, 5};
  std::vector<float> image(static_cast<std::size_t>(s.count()));
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i);
  for (Layout layout : kLayouts) {
    std::vector<float> there(static_cast<std::size_t>(element_count(layout, s)), -1),
        back(image.size());
    to_layout(layout, s, image.data(), there.data());
    CHECK(std::count(there.begin(), there.end(), -1.0F) == 0);
    from_layout(layout, s, there.data(), back.data());
    CHECK(back == image);
  }
}
