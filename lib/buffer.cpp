// See buffer.hpp.
//
// Memory for buffers of middle size comes from slabs of many huge pages: a buffer takes the next
// bytes of the open slab, and a slab is given back as a whole, with the last of its buffers. While
// the open slab has none it starts anew, so that what is prepared, run and dropped over and over
// finds the same pages again.
#include "buffer.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>

namespace convprim {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSlabBytes = std::size_t{32} << 20;
constexpr std::size_t kLeastShared = 4096;             // less: left to the C library
constexpr std::size_t kLeastOfItsOwn = 2 * kHugePage;  // from here on no memory is wasted on pages

// AddressSanitizer can only see the limits of what was allocated for itself.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kShare = false;
#else
constexpr bool kShare = true;
#endif

std::size_t round_up(std::size_t bytes, std::size_t grain) {
  return (bytes + grain - 1) / grain * grain;
}

float* allocate(std::size_t bytes, std::size_t align) {
  const std::size_t rounded = round_up(bytes > 0 ? bytes : 1, align);
  if (rounded < bytes) throw std::bad_alloc();
  void* const p = std::aligned_alloc(align, rounded);
  if (p == nullptr) throw std::bad_alloc();
  if (align == kHugePage) madvise(p, rounded, MADV_HUGEPAGE);
  return static_cast<float*>(p);
}

/// As for the C library's memory: with this variable, what nobody has written is not zero.
bool perturbed() {
  static const bool set = std::getenv("MALLOC_PERTURB_") != nullptr;
  return set;
}

}  // namespace

struct Buffer::Slab {
  std::byte* memory = reinterpret_cast<std::byte*>(allocate(kSlabBytes, kHugePage));
  std::size_t used = 0;       // guarded by the store's mutex
  std::atomic<int> users{1};  // buffers, and the store while the slab is open

  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() { std::free(memory); }

  static void leave(Slab* slab) {
    if (slab != nullptr && slab->users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete slab;
  }
};

struct Buffer::SlabStore {
  std::mutex mutex;
  Slab* open = nullptr;

  SlabStore() = default;
  SlabStore(const SlabStore&) = delete;
  SlabStore& operator=(const SlabStore&) = delete;
  ~SlabStore() { Slab::leave(open); }
};

Buffer::Memory Buffer::take_from_slab(std::size_t bytes) {
  static SlabStore store;
  const std::lock_guard lock(store.mutex);
  const std::size_t rounded = round_up(bytes, kLine);
  if (store.open != nullptr && store.open->users.load(std::memory_order_acquire) == 1)
    store.open->used = 0;
  if (store.open == nullptr || kSlabBytes - store.open->used < rounded) {
    auto next = std::make_unique<Slab>();
    Slab::leave(store.open);
    store.open = next.release();
  }
  Slab* const slab = store.open;
  auto* const p = reinterpret_cast<float*>(slab->memory + slab->used);
  slab->used += rounded;
  slab->users.fetch_add(1, std::memory_order_relaxed);
  if (perturbed()) std::memset(p, 0xff, bytes);  // floats that are not a number
  return Memory(p, Release(slab));
}

Buffer::Memory Buffer::take(std::size_t count) {
  if (count > std::numeric_limits<std::size_t>::max() / sizeof(float)) throw std::bad_alloc();
  const std::size_t bytes = count * sizeof(float);
  if (bytes >= kLeastOfItsOwn) return Memory(allocate(bytes, kHugePage), Release());
  if (!kShare || bytes < kLeastShared) return Memory(allocate(bytes, kLine), Release());
  return take_from_slab(bytes);
}

void Buffer::Release::operator()(float* p) const {
  if (slab != nullptr) {
    Slab::leave(slab);
  } else {
    std::free(p);
  }
}

}  // namespace convprim
