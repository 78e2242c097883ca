#include "gpu/nets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <random>

#include "convprim/error.hpp"

namespace convprim::ios {
namespace {

/// Appends layers to a network; each function returns the new tensor. Layers are numbered within
/// the current scope.
class Builder {
 public:
  explicit Builder(std::string name) { net_.name = std::move(name); }

  void scope(std::string name) {
    scope_ = std::move(name);
    number_ = 0;
  }

  TensorId input(const Shape& shape) { return add("data", InputOp{shape}, {}); }

  TensorId conv(TensorId in, Index m, Index k, Index stride, Index pad, bool relu, Index g = 1) {
    ConvOp op;
    op.m = m;
    op.g = g;
    op.kh = op.kw = k;
    op.sh = op.sw = stride;
    op.pt = op.pl = op.pb = op.pr = pad;
    if (relu) op.epilogue.lo = 0;
    return add(g > 1 ? "depthwise" : "conv", op, {in});
  }

  /// ReLU, then a depthwise convolution and a 1x1 one; "same" padding.
  TensorId separable(TensorId in, Index m, Index k, Index stride) {
    const TensorId deep = conv(relu(in), channels(in), k, stride, k / 2, false, channels(in));
    return conv(deep, m, 1, 1, 0, false);
  }

  TensorId relu(TensorId in) { return add("relu", ActivationOp{}, {in}); }

  TensorId pool(TensorId in, PoolOp::Method method, Index k, Index stride, Index pad) {
    PoolOp op;
    op.method = method;
    op.kh = op.kw = k;
    op.sh = op.sw = stride;
    op.pt = op.pl = op.pb = op.pr = pad;
    op.ceil = false;
    op.count_padding = false;
    return add("pool", op, {in});
  }

  TensorId global_average(TensorId in) {
    PoolOp op;
    op.method = PoolOp::Method::avg;
    op.global = true;
    return add("average", op, {in});
  }

  /// Sum; of one tensor that tensor itself.
  TensorId sum(std::vector<TensorId> in, bool relu = false) {
    if (in.size() == 1) return relu ? this->relu(in[0]) : in[0];
    EltwiseOp op;
    if (relu) op.lo = 0;
    return add("sum", op, std::move(in));
  }

  TensorId concat(std::vector<TensorId> in) { return add("concat", ConcatOp{}, std::move(in)); }

  /// Global average, fully connected for 1000 classes, softmax.
  void classify(TensorId in) {
    scope("classifier");
    InnerProductOp fc;
    fc.m = 1000;
    add("prob", SoftmaxOp{}, {add("fc", fc, {global_average(in)})});
  }

  /// The same where the channels are the classes already.
  void softmax_of_average(TensorId in) { add("prob", SoftmaxOp{}, {global_average(in)}); }

  Network finish() {
    net_.outputs = {static_cast<TensorId>(net_.tensors.size()) - 1};
    infer_shapes(net_);
    return std::move(net_);
  }

 private:
  Index channels(TensorId t) const {
    const Layer& maker = net_.layers[static_cast<std::size_t>(t)];  // layers and tensors go along
    if (const auto* conv = std::get_if<ConvOp>(&maker.op)) return conv->m;
    if (const auto* input = std::get_if<InputOp>(&maker.op)) return input->shape.c;
    Index sum = 0;
    for (TensorId in : maker.inputs) {
      if (sum == 0 || std::holds_alternative<ConcatOp>(maker.op)) sum += channels(in);
    }
    return sum;
  }

  TensorId add(const char* type, Op op, std::vector<TensorId> in) {
    const auto t = static_cast<TensorId>(net_.tensors.size());
    Layer layer;
    layer.name =
        scope_.empty() ? std::string(type) : fmt::format("{}/{}{}", scope_, type, ++number_);
    layer.type = type;
    layer.op = std::move(op);
    layer.inputs = std::move(in);
    layer.outputs = {t};
    net_.tensors.push_back({layer.name, {}});
    net_.layers.push_back(std::move(layer));
    return t;
  }

  Network net_;
  std::string scope_;
  int number_ = 0;
};

constexpr auto kMax = PoolOp::Method::max;
constexpr auto kAvg = PoolOp::Method::avg;

TensorId random_stage(Builder& b, TensorId in, Index channels, int nodes, const Wiring& wiring) {
  std::vector<std::vector<TensorId>> inputs(static_cast<std::size_t>(nodes));
  std::vector<TensorId> made(inputs.size());
  std::vector<bool> read(inputs.size(), false);
  std::size_t next = 0;  // edge: they are sorted by their source
  for (std::size_t node = 0; node < inputs.size(); ++node) {
    const bool first = inputs[node].empty();
    made[node] = first ? b.separable(in, channels, 3, 2) : TensorId{};
    if (!first) {
      // The sum's own ReLU stands for the separable convolution's.
      const TensorId sum = b.sum(inputs[node], true);
      const TensorId deep = b.conv(sum, channels, 3, 1, 1, false, channels);
      made[node] = b.conv(deep, channels, 1, 1, 0, false);
    }
    for (; next < wiring.size() && wiring[next].first == static_cast<int>(node); ++next) {
      inputs[static_cast<std::size_t>(wiring[next].second)].push_back(made[node]);
      read[node] = true;
    }
  }
  std::vector<TensorId> ends;
  for (std::size_t node = 0; node < made.size(); ++node) {
    if (!read[node]) ends.push_back(made[node]);
  }
  return b.sum(ends);
}

}  // namespace

Wiring watts_strogatz(int nodes, int k, double probability, std::uint64_t seed) {
  if (k % 2 != 0 || k <= 0 || k >= nodes) {
    throw Error(
        fmt::format("no Watts-Strogatz graph of {} nodes with {} neighbours: their number "
                    "must be even, above 0 and below that of the nodes",
                    nodes, k));
  }
  std::mt19937_64 random(seed);  // the distributions of the standard library differ by vendor
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<std::vector<bool>> linked(static_cast<std::size_t>(nodes),
                                        std::vector<bool>(static_cast<std::size_t>(nodes), false));
  const auto link = [&](int a, int b, bool on) {
    linked[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] = on;
    linked[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] = on;
  };
  for (int i = 0; i < nodes; ++i) {
    for (int step = 1; step <= k / 2; ++step) link(i, (i + step) % nodes, true);
  }
  for (int step = 1; step <= k / 2; ++step) {
    for (int i = 0; i < nodes; ++i) {
      if (uniform() >= probability) continue;
      std::vector<int> free;
      for (int j = 0; j < nodes; ++j) {
        if (j != i && !linked[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)])
          free.push_back(j);
      }
      if (free.empty()) continue;
      const auto drawn = static_cast<std::size_t>(uniform() * static_cast<double>(free.size()));
      link(i, (i + step) % nodes, false);
      link(i, free[drawn], true);
    }
  }
  Wiring wiring;
  for (int i = 0; i < nodes; ++i) {
    for (int j = i + 1; j < nodes; ++j) {
      if (linked[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)])
        wiring.push_back({i, j});
    }
  }
  return wiring;
}

// Graph ws-32-4-0.75-4 of github.com/mit-han-lab/inter-operator-scheduler: for each node, the
// higher nodes that it feeds.
Wiring published_stage() {
  const std::vector<std::vector<int>> feeds = {{9, 11, 14, 17, 31},
                                               {2, 3, 31},
                                               {4, 11, 12, 14, 30},
                                               {4, 25},
                                               {9, 20, 29},
                                               {6, 27},
                                               {7, 21, 27},
                                               {30, 31},
                                               {10, 25},
                                               {10, 14},
                                               {11, 16, 22, 28},
                                               {16, 24},
                                               {13, 14, 15, 16},
                                               {14, 22, 26},
                                               {23},
                                               {29},
                                               {21},
                                               {26},
                                               {19, 20},
                                               {22, 27},
                                               {22},
                                               {},
                                               {25, 30},
                                               {27},
                                               {25, 26},
                                               {28},
                                               {28},
                                               {28, 29},
                                               {29},
                                               {30, 31},
                                               {31},
                                               {}};
  Wiring wiring;
  for (std::size_t from = 0; from < feeds.size(); ++from) {
    for (int to : feeds[from]) wiring.emplace_back(static_cast<int>(from), to);
  }
  return wiring;
}

Network randwire_stage(const Shape& in, Index channels, int nodes, const Wiring& wiring) {
  Builder b("randwire-stage");
  const TensorId data = b.input(in);
  b.scope("stage");
  random_stage(b, data, channels, nodes, wiring);
  return b.finish();
}

Network randwire(Index batch, std::uint64_t seed, Index channels) {
  Builder b("randwire");
  TensorId x = b.input({batch, 3, 224, 224});
  b.scope("conv1");
  x = b.conv(x, channels / 2, 3, 2, 1, false);
  for (int stage = 2; stage <= 5; ++stage) {
    const int nodes = stage == 2 ? 16 : 32;
    b.scope(fmt::format("conv{}", stage));
    // A seed of its own for each stage.
    x = random_stage(b, x, channels << (stage - 2), nodes,
                     watts_strogatz(nodes, 4, 0.75, 4 * seed + static_cast<std::uint64_t>(stage)));
  }
  b.scope("tail");
  b.classify(b.conv(b.relu(x), 1280, 1, 1, 0, true));
  return b.finish();
}

namespace {

/// Two separable convolutions, the first of that stride.
TensorId twice(Builder& b, TensorId in, Index m, Index k, Index stride) {
  return b.separable(b.separable(in, m, k, stride), m, k, 1);
}

TensorId relu_conv(Builder& b, TensorId in, Index m, Index stride = 1) {
  return b.conv(b.relu(in), m, 1, stride, 0, false);
}

/// The strided shortcut: half of the channels from each of two convolutions.
TensorId halves(Builder& b, TensorId in, Index m) {
  const TensorId one = relu_conv(b, in, m / 2, 2);
  return b.concat({one, relu_conv(b, in, m / 2, 2)});
}

/// `second` is what the second half of the first sum reads: see nasnet().
TensorId normal_cell(Builder& b, TensorId left, TensorId right, TensorId second, Index m) {
  const TensorId c0 = b.sum({twice(b, right, m, 5, 1), twice(b, second, m, 3, 1)});
  const TensorId c1 = b.sum({twice(b, left, m, 5, 1), twice(b, left, m, 3, 1)});
  const TensorId c2 = b.sum({b.pool(right, kAvg, 3, 1, 1), left});
  const TensorId c3 = b.sum({b.pool(left, kAvg, 3, 1, 1), b.pool(left, kAvg, 3, 1, 1)});
  const TensorId c4 = b.sum({twice(b, right, m, 3, 1), right});
  return b.concat({left, c0, c1, c2, c3, c4});
}

TensorId reduction_cell(Builder& b, TensorId left, TensorId right, Index m) {
  const TensorId c0 = b.sum({twice(b, right, m, 5, 2), twice(b, left, m, 7, 2)});
  const TensorId c1 = b.sum({b.pool(right, kMax, 3, 2, 1), twice(b, left, m, 7, 2)});
  const TensorId c2 = b.sum({b.pool(right, kAvg, 3, 2, 1), twice(b, left, m, 5, 2)});
  const TensorId c3 = b.sum({b.pool(c0, kAvg, 3, 1, 1), c1});
  const TensorId c4 = b.sum({twice(b, c0, m, 3, 1), b.pool(right, kMax, 3, 2, 1)});
  return b.concat({c1, c2, c3, c4});
}

}  // namespace

Network nasnet(Index batch, int repeats, Index filters) {
  Builder b("nasnet-a");
  const bool large = filters >= 96;
  TensorId x = b.input({batch, 3, large ? 331 : 224, large ? 331 : 224});
  b.scope("conv0");
  TensorId previous = b.conv(x, large ? 96 : 32, 3, 2, 0, false);
  b.scope("stem0");
  x = reduction_cell(b, previous, relu_conv(b, previous, filters / 4), filters / 4);
  b.scope("stem1");
  const TensorId stem = x;
  const TensorId shortcut = halves(b, previous, filters / 2);
  x = reduction_cell(b, shortcut, relu_conv(b, x, filters / 2), filters / 2);
  previous = stem;
  bool reduced = true;  // x is smaller than `previous`
  for (int part = 0; part < 3; ++part, filters *= 2) {
    if (part > 0) {
      b.scope(fmt::format("reduction{}", part));
      const TensorId left = relu_conv(b, previous, filters), right = relu_conv(b, x, filters);
      previous = std::exchange(x, reduction_cell(b, left, right, filters));
      reduced = true;
    }
    for (int i = 0; i < repeats; ++i) {
      b.scope(fmt::format("cell{}_{}", part + 1, i + 1));
      const TensorId left =
          reduced ? halves(b, previous, filters) : relu_conv(b, previous, filters);
      const TensorId right = relu_conv(b, x, filters);
      const TensorId second = reduced ? right : left;
      previous = std::exchange(x, normal_cell(b, left, right, second, filters));
      reduced = false;
    }
  }
  b.scope("tail");
  b.classify(b.relu(x));
  return b.finish();
}

Network squeezenet_bypass(Index batch) {
  Builder b("squeezenet-bypass");
  TensorId x = b.input({batch, 3, 227, 227});
  b.scope("conv1");
  x = b.pool(b.conv(x, 96, 7, 2, 0, true), kMax, 3, 2, 0);
  Index before = 96;
  for (int i = 2; i <= 9; ++i) {
    const Index squeeze = 16 * (i / 2), expand = 4 * squeeze;
    b.scope(fmt::format("fire{}", i));
    const TensorId s = b.conv(x, squeeze, 1, 1, 0, true);
    const TensorId one = b.conv(s, expand, 1, 1, 0, true);
    const TensorId fire = b.concat({one, b.conv(s, expand, 3, 1, 1, true)});
    const TensorId bypass = before == 2 * expand ? x : b.conv(x, 2 * expand, 1, 1, 0, false);
    x = b.sum({fire, bypass});
    before = 2 * expand;
    if (i == 4 || i == 8) x = b.pool(x, kMax, 3, 2, 0);
  }
  b.scope("conv10");
  b.softmax_of_average(b.conv(x, 1000, 1, 1, 0, true));
  return b.finish();
}

Network built_in(std::string_view name, Index batch) {
  if (name == "nasnet") return nasnet(batch);
  if (name == "nasnet-mobile") return nasnet(batch, 4, 44);
  if (name == "squeezenet-bypass") return squeezenet_bypass(batch);
  if (name == "randwire") return randwire(batch);
  if (name.substr(0, 9) == "randwire:") {
    std::uint64_t seed = 0;
    const auto digits = name.substr(9);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
    if (error == std::errc() && end == digits.data() + digits.size()) return randwire(batch, seed);
  }
  throw Error(
      fmt::format("'{}' is no built-in network: use nasnet, nasnet-mobile, randwire, "
                  "randwire:SEED or squeezenet-bypass",
                  name));
}

}  // namespace convprim::ios
