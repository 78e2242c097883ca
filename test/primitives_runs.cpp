// What every primitive promises of run(): the same bits each time, and from several threads at
// once.
#include <cstring>
#include <thread>
#include <vector>

#include "buffer.hpp"
#include "convprim/primitive.hpp"
#include "noise.hpp"
#include "test.hpp"
#ifdef CONVPRIM_HAVE_ONEDNN
#include "primitives/onednn/onednn.hpp"
#endif

using namespace convprim;

namespace {

/// One run with memory of its own.
Buffer output_of(const Primitive& row, const Scenario& s, const Convolution& conv,
                 const Buffer& in) {
  Buffer out(static_cast<std::size_t>(element_count(row.out, s.out())));
  Buffer workspace((conv.workspace_bytes() + 3) / 4);
  conv.run({in.data(), out.data(), nullptr, workspace.data()});
  return out;
}

bool equal(const Buffer& a, const Buffer& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

}  // namespace

TEST_CASE("a convolution runs from several threads at once, to the same bits each time") {
  for (const char* text :
       {"mb2ic16ih13oc24oh13kh3ph1", "mb1ic32ih9oc32oh9kh1ph0", "mb1g16ic16ih12oc16oh12kh5ph2"}) {
    const Scenario s = Scenario::parse(text);
    const Buffer filter = test::noise(s.filter_count(), 1);
    for (const Primitive* row : primitives()) {
      if (row->reject(s) != nullptr) continue;
      CAPTURE(row->name);
      CAPTURE(text);
      // Inputs of blocked layouts keep zeros in their padding lanes: none of these has any.
      const Buffer in = test::noise(element_count(row->in, s.in()), 2);
      Options options;
      options.threads = 2;
      const auto conv = row->prepare(s, {filter.data(), nullptr}, options);
      const Buffer first = output_of(*row, s, *conv, in);
      CHECK(equal(first, output_of(*row, s, *conv, in)));
      std::vector<Buffer> outs(3);
      std::vector<std::thread> callers;
      for (Buffer& out : outs) {
        callers.emplace_back([&] { out = output_of(*row, s, *conv, in); });
      }
      for (std::thread& caller : callers) caller.join();
      for (const Buffer& out : outs) CHECK(equal(first, out));
    }
  }
}

#ifdef CONVPRIM_HAVE_ONEDNN
TEST_CASE("oneDNN tells its version and its instruction set") {
  const std::string version = onednn_version();
  CHECK(version.find('.') != std::string::npos);
  CHECK(version.find('(') != std::string::npos);
}
#endif
