// Owned float memory for tensors, packed weights and workspaces.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace convprim {

/// Uninitialised floats, aligned to a cache line (64 bytes); large ones ask for huge pages.
class Buffer {
 public:
  Buffer() = default;
  /// Throws std::bad_alloc.
  explicit Buffer(std::size_t count) : count_(count) {
    constexpr std::size_t kHuge = std::size_t{2} << 20;
    const std::size_t bytes = count * sizeof(float);
    const std::size_t align = bytes >= 2 * kHuge ? kHuge : 64;
    const std::size_t rounded = (bytes + align - 1) / align * align;
    data_.reset(static_cast<float*>(std::aligned_alloc(align, rounded > 0 ? rounded : align)));
    if (!data_) throw std::bad_alloc();
    if (align == kHuge) madvise(data_.get(), rounded, MADV_HUGEPAGE);
  }
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
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
  std::size_t count_ = 0;
};

}  // namespace convprim
