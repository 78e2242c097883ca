// run() allocates nothing: every allocation of this process passes through the functions below,
// which count while they are told to.
//
// Two libraries are left out, which take memory inside their calls and give it back before they
// return: oneDNN (argument tables of dnnl_primitive_execute) and OpenBLAS (packed operands of small
// products). No option of theirs keeps them from it.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "buffer.hpp"
#include "convprim/executable.hpp"
#include "convprim/import.hpp"
#include "convprim/primitive.hpp"
#include "small_net.hpp"
#include "test.hpp"

namespace {

std::atomic<bool> counting = false;
std::atomic<long> counted = 0;

void note(const void* caller) {
  if (!counting.load(std::memory_order_relaxed)) return;
  Dl_info module;
  if (dladdr(caller, &module) != 0 && std::strstr(module.dli_fname, "libopenblas") != nullptr)
    return;
  ++counted;
}

}  // namespace

// glibc's own, under names that cannot be replaced.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

// operator new comes here too.
void* malloc(std::size_t n) {
  note(__builtin_return_address(0));
  return __libc_malloc(n);
}
void* calloc(std::size_t n, std::size_t size) {
  note(__builtin_return_address(0));
  return __libc_calloc(n, size);
}
void* realloc(void* p, std::size_t n) {
  note(__builtin_return_address(0));
  return __libc_realloc(p, n);
}
void* memalign(std::size_t align, std::size_t n) {
  note(__builtin_return_address(0));
  return __libc_memalign(align, n);
}
void* aligned_alloc(std::size_t align, std::size_t n) {
  note(__builtin_return_address(0));
  return __libc_memalign(align, n);
}
int posix_memalign(void** p, std::size_t align, std::size_t n) {
  note(__builtin_return_address(0));
  *p = __libc_memalign(align, n);
  return *p != nullptr ? 0 : ENOMEM;
}
void* mmap(void* at, std::size_t n, int protection, int flags, int file, off_t offset) noexcept {
  note(__builtin_return_address(0));
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, n, protection, flags, file, offset));
}
}

using namespace convprim;

namespace {

template <class Body>
long allocations_in(const Body& body) {
  counted = 0;
  counting = true;
  body();
  counting = false;
  return counted;
}

}  // namespace

TEST_CASE("the counter counts") {
  CHECK(allocations_in([] { std::vector<int>(100).at(3) = 1; }) == 1);
  CHECK(allocations_in([] { std::free(std::aligned_alloc(64, 640)); }) == 1);
  CHECK(allocations_in([] {}) == 0);
}

TEST_CASE("running a convolution allocates nothing") {
  for (const char* text :
       {"mb2ic16ih13oc24oh13kh3ph1", "mb1ic32ih9oc32oh9kh1ph0", "mb1g16ic16ih12oc16oh12kh5ph2",
        "mb1g2ic8ih11iw15oc12kh5sh2ph2", "mb1ic3ih23oc16kh7sh2ph3"}) {
    const Scenario s = Scenario::parse(text);
    const std::vector<float> filter(static_cast<std::size_t>(s.filter_count()), 0.5F);
    for (const Primitive* row : primitives()) {
      if (row->family == Family::onednn || row->reject(s) != nullptr) continue;
      CAPTURE(row->name);
      CAPTURE(text);
      for (const int threads : {1, 2}) {
        Options options;
        options.threads = threads;
        options.epilogue.lo = 0;
        const auto conv = row->prepare(s, {filter.data(), nullptr}, options);
        const Buffer in = Buffer::zeros(static_cast<std::size_t>(element_count(row->in, s.in())));
        Buffer out(static_cast<std::size_t>(element_count(row->out, s.out())));
        Buffer workspace((conv->workspace_bytes() + 3) / 4);
        const RunArgs args{in.data(), out.data(), nullptr, workspace.data()};
        conv->run(args);  // OpenMP makes its team
        CHECK(allocations_in([&] { conv->run(args); }) == 0);
      }
    }
  }
}

TEST_CASE("running an executable allocates nothing") {
  Network net = import_network_text(test::kSmallNet, "test");
  random_weights(net);
  optimise(net);
  Filter filter;
  filter.exclude_families = {Family::onednn};
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    const Plan plan = select(net, filter, test::random_costs(seed),
                             Machine::here(1 + static_cast<int>(seed % 3)), false);
    const Executable executable(net, plan);
    auto context = executable.make_context();
    executable.run(context);
    CHECK(allocations_in([&] { executable.run(context); }) == 0);
  }
}
