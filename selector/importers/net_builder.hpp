// What importers share: tensors by name, layers added with their shapes, messages with their place.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "convprim/import.hpp"
#include "selector/network_infer.hpp"

namespace convprim {

/// Extents of a tensor as its file counts them: 1 to 4 axes.
using Dims = std::vector<Index>;

/// Dims as a Shape, missing axes being 1.
Shape to_shape(const Dims& dims);

/// An index for containers.
inline std::size_t at(Index i) { return static_cast<std::size_t>(i); }

class NetBuilder {
 protected:
  NetBuilder(const std::string& file, const ImportOptions& options);

  /// Names the layer at hand, for messages and for the layers that add() makes.
  struct Current {
    std::string name, type;
    int line = 0;
  };

  TensorId new_tensor(const std::string& name, const Shape& shape, int rank);

  /// Adds a layer that makes `outputs`, infers its shapes, and gives each output the rank `rank`
  /// (0: that of its first input).
  LayerId add(Op op, std::vector<TensorId> inputs, const std::vector<std::string>& outputs,
              int rank = 0, std::vector<Blob> blobs = {});

  /// An opaque layer; `dims` are those of its outputs where known.
  void add_opaque(const std::string& why, std::vector<TensorId> inputs,
                  const std::vector<std::string>& outputs, const std::vector<Dims>& dims = {});

  /// An input of the network under its own name; the options' shape and batch go before `dims`.
  void feed(const std::string& name, Dims dims, const std::string& type, int line);

  /// The last layer's first output.
  TensorId last() const { return net_.layers.back().outputs.at(0); }

  /// `from` under another shape, a layer of its own.
  TensorId reshaped(TensorId from, const Dims& dims, const std::string& name);

  /// `count` equal values, 0 or 1; blobs of one size share memory.
  Blob constant(Index count, float value);

  [[noreturn]] void fail(const std::string& clause) const;
  void remark(const std::string& clause);
  /// A remark that counts `names` and lists the first of them, if there are any.
  void remark_list(const char* what, const std::vector<std::string>& names);

  Shape shape(TensorId t) const { return net_.tensors[at(t)].shape; }
  int rank(TensorId t) const { return net_.tensors[at(t)].rank; }
  Dims dims(TensorId t) const;
  /// A possibly negative axis as 0 to rank-1; `what` names the field in the message.
  int axis_of(Index axis, int rank, const char* what) const;

  /// Last checks: all given shapes were used, something is computed; order and shapes.
  void finish();

  const ImportOptions& options_;
  Network net_;
  Current current_;
  std::map<std::string, TensorId> tensors_;  // what a name stands for now

 private:
  std::map<Index, Blob> constants_[2];
  Index constant_total_ = 0;
  std::set<std::string> fed_;  // inputs that options_.shapes were used for
  Index first_batch_ = 0;      // the batch of the first input in the file
};

}  // namespace convprim
