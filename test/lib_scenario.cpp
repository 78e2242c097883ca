// Scenario: problem strings and their completion.
#include "convprim/error.hpp"
#include "convprim/scenario.hpp"
#include "test.hpp"

using convprim::Error;
using convprim::Scenario;

TEST_CASE("a full problem string is read field by field") {
  const auto s =
      Scenario::parse("mb2g2ic96ih27iw28oc256oh14ow28kh5kw3sh2sw1ph2pw1dh1dw0n\"conv2\"");
  CHECK(s.n == 2);
  CHECK(s.g == 2);
  CHECK(s.c == 96);
  CHECK(s.h == 27);
  CHECK(s.w == 28);
  CHECK(s.m == 256);
  CHECK(s.oh == 14);
  CHECK(s.ow == 28);
  CHECK(s.kh == 5);
  CHECK(s.kw == 3);
  CHECK(s.sh == 2);
  CHECK(s.sw == 1);
  CHECK(s.pt == 2);
  CHECK(s.pl == 1);
  CHECK(s.dh == 2);
  CHECK(s.dw == 1);
}

TEST_CASE("absent fields follow benchdnn's rules") {
  const auto s = Scenario::parse("ic64ih56oc64kh3ph1");
  CHECK(s.n == 1);
  CHECK(s.w == 56);
  CHECK(s.oh == 56);
  CHECK(s.ow == 56);
  CHECK(s.kw == 3);
  const auto p = Scenario::parse("ic3ih224oc64oh112kh7sh2");
  CHECK(p.pt == 2);  // (111 * 2 + 7 - 224) / 2
  CHECK(p.pb() == 3);
  const auto q = Scenario::parse("ic3ih224oc64oh112kh7sh2ph3");
  CHECK(q.pt == 3);
  CHECK(q.pb() == 2);
}

TEST_CASE("a string with widths only is one-dimensional") {
  const auto s = Scenario::parse("mb1ic8iw16oc8ow16kw3pw1");
  CHECK(s.h == 1);
  CHECK(s.oh == 1);
  CHECK(s.kh == 1);
  CHECK(s.pt == 0);
  CHECK(s.ow == 16);
}

TEST_CASE("printing and parsing are inverse") {
  for (const char* text :
       {"mb1g2ic96ih27oc256oh27kh5ph2", "mb1ic3ih17iw40oc8oh9ow40kh3kw5sh2sw1ph1pw2",
        "mb1ic4ih15oc8oh13ow15kh3ph1pw4dh1dw3", "mb1ic4ih7oc4oh7kh2ph0", "mb7ic1ih1oc1oh1kh1ph0",
        "mb1ic3ih5iw1oc4oh5ow1kh1sh2sw3ph0pw2"}) {
    CAPTURE(text);
    const auto s = Scenario::parse(text);
    CHECK(Scenario::parse(s.str()) == s);
    CHECK(Scenario::parse(s.str()).str() == s.str());
  }
  CHECK(Scenario::parse("oc256_ic96kh5ph2ih27g2mb1").str() == "mb1g2ic96ih27oc256oh27kh5ph2");
}

TEST_CASE("padding on four sides gives the canonical problem") {
  // Caffe's pad 3 on a 7x7 stride-2 kernel: the last row of padding below is never read.
  const auto s = Scenario::padded({1, 3, 224, 224}, 64, 7, 7, 2, 2, 3, 3, 3, 3);
  CHECK(s.oh == 112);
  CHECK(s.pb() == 2);
  CHECK(s == Scenario::parse("ic3ih224oc64oh112kh7sh2ph3"));
}

TEST_CASE("bad problem strings are refused with the place") {
  for (const char* text :
       {"", "garbage", "ic3ih8oc4kh3x", "ic3ih8oc4kh", "ic3ih8ic4oc4kh3", "ic3oc4kh3", "ic3ih8oc4",
        "g3ic4ih8oc6kh3ph1", "ic3ih8oc4kh3sh0", "ic3ih2oc4kh5", "ic-3ih8oc4kh3", "ic3id4ih8oc4kh3",
        "ic3ih8oc4kh3n\"open", "ic99999999999999999999ih8oc4kh3", "ic0ih8oc4kh1"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(Scenario::parse(text), Error);
  }
  try {
    Scenario::parse("ic3ih8oc4kh3x");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(std::string(e.what()).find("position 13") != std::string::npos);
  }
}
