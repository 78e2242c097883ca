// Owned float memory for tensors, packed weights and workspaces.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>

namespace convprim {

/// Uninitialised floats, aligned to a cache line (64 bytes), on huge pages where the system has
/// them: the layers of a network stream their weights, and a prefetcher stops at the end of a page.
/// Buffers of less than 4 MB share pages with others.
class Buffer {
 public:
  Buffer() = default;
  /// Throws std::bad_alloc.
  explicit Buffer(std::size_t count) : data_(take(count)), count_(count) {}
  /// Zeroed floats.
  static Buffer zeros(std::size_t count) {
    Buffer b(count);
    if (count > 0) std::memset(b.data(), 0, count * sizeof(float));
    return b;
  }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::size_t size() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(float); }
  float& operator[](std::size_t i) { return data_.get()[i]; }
  float operator[](std::size_t i) const { return data_.get()[i]; }
  float* begin() { return data(); }
  float* end() { return data() + count_; }
  const float* begin() const { return data(); }
  const float* end() const { return data() + count_; }

 private:
  struct Slab;
  struct SlabStore;
  struct Release {
    Release() noexcept : slab(nullptr) {}
    explicit Release(Slab* s) noexcept : slab(s) {}
    void operator()(float* p) const;
    Slab* slab;  // that the memory is a part of; null: it has been allocated for itself
  };
  using Memory = std::unique_ptr<float, Release>;
  static Memory take(std::size_t count);
  static Memory take_from_slab(std::size_t bytes);

  Memory data_;
  std::size_t count_ = 0;
};

}  // namespace convprim
