// A hash map from sets of operators to values: open addressing, linear probing, no erasure.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "gpu/search.hpp"

namespace convprim::ios {

/// Pointers to values are good until the next insertion.
template <class Value>
class SetMap {
 public:
  explicit SetMap(std::size_t expected = 8) {
    std::size_t slots = 16;
    while (slots < 2 * expected) slots *= 2;
    slots_.resize(slots);
  }

  const Value* find(Set key) const {
    const Slot& slot = slots_[place(key)];
    return slot.used ? &slot.value : nullptr;
  }

  /// The value of the key, and whether it was put there now; an older one stays.
  std::pair<Value*, bool> insert(Set key, const Value& value) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place(key)];
    const bool fresh = !slot.used;
    if (fresh) {
      slot = {key, value, true};
      ++size_;
    }
    return {&slot.value, fresh};
  }

  std::size_t size() const { return size_; }

 private:
  struct Slot {
    Set key = 0;
    Value value = {};
    bool used = false;
  };

  /// The key's slot, or the empty one where it belongs.
  std::size_t place(Set key) const {
    // Fibonacci hashing: the high bits of the product depend on all bits of the key.
    const Set mixed = (key ^ key >> 32) * 0x9E3779B97F4A7C15U;
    std::size_t i = static_cast<std::size_t>(mixed >> 20) & (slots_.size() - 1);
    while (slots_[i].used && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    return i;
  }

  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (Slot& slot : old) {
      if (slot.used) slots_[place(slot.key)] = std::move(slot);
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace convprim::ios
