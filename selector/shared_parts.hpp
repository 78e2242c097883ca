// Parts of concatenations that others read as well, and that need no copy nevertheless.
//
// In a batch of one image the channels begin .. begin + c of a tensor in chw, chw8c or chw16c lie
// next to each other, as a tensor of their own would. So a part may lie inside the whole and be
// read there by all its readers (DenseNet: each concatenation is a part of the next).
#pragma once

#include <map>
#include <utility>

#include "selector/candidates.hpp"

namespace convprim {

/// Which parts these are, in a network with shapes.
class SharedParts {
 public:
  explicit SharedParts(const Network& net);

  /// Whether input i of concatenation `id`, which has more readers, lies inside the whole if that
  /// is written in place in this layout, and the part is made in it or converted to it. Whatever
  /// makes the part in this layout can write it there.
  bool inside(LayerId id, std::size_t i, Layout layout) const {
    const auto it = layouts_.find({id, i});
    return it != layouts_.end() && (it->second >> static_cast<unsigned>(layout) & 1U) != 0;
  }

  /// The concatenation inside of which a tensor may lie, or -1.
  LayerId host(TensorId t) const {
    const auto it = hosts_.find(t);
    return it == hosts_.end() ? -1 : it->second;
  }

 private:
  std::map<std::pair<LayerId, std::size_t>, unsigned> layouts_;  // bit masks, none empty
  std::map<TensorId, LayerId> hosts_;
};

}  // namespace convprim
