// Text for terminals, and the lock of those who measure.
#include "files.hpp"
#include "selector/measure_lock.hpp"
#include "selector/printable.hpp"
#include "test.hpp"

using namespace convprim;

TEST_CASE("control characters and broken UTF-8 are spelt out") {
  CHECK(printable("conv1_1/7x7 s2") == "conv1_1/7x7 s2");
  CHECK(printable("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(printable("a\x1b[31mb\n\x7f") == "a\\x1b[31mb\\x0a\\x7f");
  CHECK(printable("caf\xe9") == "caf\\xe9");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");           // a control of the second set
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");           // longer than need be
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // half of a pair
  CHECK(printable("\xe2\x82") == "\\xe2\\x82");           // cut short
  CHECK(printable("") == "");
}

TEST_CASE("one at a time measures into a file") {
  const test::TemporaryFolder folder;
  const std::string a = folder.write("a", "a"), b = folder.write("b", "b");
  MeasureLock second(a), other(b);
  {
    MeasureLock first(a);
    CHECK(first.try_take());
    CHECK(first.try_take());
    CHECK_FALSE(second.try_take());
    CHECK(other.try_take());
  }
  CHECK(second.try_take());
}
