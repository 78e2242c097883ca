// One check, see checkconv_check.hpp.
#include "checkconv_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "reference.hpp"
#include "threads.hpp"

namespace convprim {
namespace {

constexpr double kFullCheckMacs = 2e7;  // larger scenarios are compared at sampled outputs
constexpr Index kSamples = 400;

Buffer uniform(Index count, std::uint64_t seed) {
  std::mt19937 rng(static_cast<std::uint32_t>(seed ^ (seed >> 32)));
  std::uniform_real_distribution<float> draw(-1, 1);
  Buffer b(static_cast<std::size_t>(count));
  for (float& x : b) x = draw(rng);
  return b;
}

Fenced& in_layout(std::unique_ptr<Fenced>& made, Layout layout, const Shape& shape,
                  const Buffer& plain) {
  if (!made) {
    made = std::make_unique<Fenced>(element_count(layout, shape), 0.0F);
    to_layout(layout, shape, plain.data(), made->data());
  }
  return *made;
}

/// The slice of a wider tensor into which a row writes.
ChannelSlice slice(const Primitive& row, const Scenario& s) {
  const Index b = block(row.out);
  if (s.m % b != 0) return {s.m + 2 * b, 2 * b};  // a ragged slice must be the last one
  return {s.m + 2 * b + (b == 1 ? 3 : 0), b};
}

/// What is wrong with the compared outputs; fills in how far off they are.
std::string compare(const Primitive& row, const Problem& problem, const Variant& v,
                    const Strides& at, const float* out, Outcome& outcome) {
  for (std::size_t i = 0; i < problem.positions.size(); ++i) {
    const auto [n, k, y, x] = problem.split(problem.positions[i]);
    double want = problem.value[i], magnitude = problem.magnitude[i];
    double scale = row.transforms ? problem.largest : magnitude;
    if (v.bias) {
      const double b = problem.bias[static_cast<std::size_t>(k)];
      want += b, scale += std::abs(b);
    }
    if (v.epilogue.residual) {
      const double r = problem.residual[static_cast<std::size_t>(problem.positions[i])];
      want += r, scale += std::abs(r);
    }
    want = std::clamp(want, static_cast<double>(v.epilogue.lo), static_cast<double>(v.epilogue.hi));
    const double got = out[at.at(n, k, y, x)];
    const double error = std::abs(got - want);
    const double tolerance = kErrorUnit * row.error_scale * scale;
    // Written so that a NaN fails.
    if (!(error <= tolerance)) {
      outcome.worst = std::numeric_limits<double>::infinity();
      return fmt::format(
          "output n{} m{} y{} x{} is {:.9g}, should be {:.9g}: error {:.3g}, allowed {:.3g}", n, k,
          y, x, got, want, error, tolerance);
    }
    if (tolerance > 0) outcome.worst = std::max(outcome.worst, error / tolerance);
    if (scale > 0) outcome.relative = std::max(outcome.relative, error / scale);
  }
  return {};
}

/// What is wrong with the rest of the output: outside the slice nothing may change, padding lanes
/// must be zero, and all else, compared or not, must have been written and be no NaN.
std::string look_over(const Primitive& row, const Scenario& s, const Shape& whole,
                      const ChannelSlice& slice, const float* out) {
  const Shape stored{whole.n, stored_channels(row.out, whole.c), whole.h, whole.w};
  const Strides at = strides(row.out, stored);
  for (Index n = 0; n < s.n; ++n) {
    for (Index c = 0; c < stored.c; ++c) {
      const Index own = c - slice.begin;
      const bool result = own >= 0 && own < s.m;
      const bool lane = own >= s.m && own < stored_channels(row.out, s.m);
      const float want = lane ? 0.0F : Fenced::kPoison;
      for (Index y = 0; y < s.oh; ++y) {
        const float* line = out + at.at(n, c, y, 0);
        Index odd = 0;
        for (Index x = 0; x < s.ow; ++x) {
          const float value = line[x * at.w_stride];
          const bool bad =
              result ? !(value > Fenced::kPoison) && !(value < Fenced::kPoison) : value != want;
          odd += bad ? 1 : 0;
        }
        if (odd == 0) continue;
        if (!result) {
          return lane ? "a padding lane of the output is not zero"
                      : "wrote outside its channel slice";
        }
        return fmt::format("{} outputs of n{} m{} y{} are not written, or NaN", odd, n, own, y);
      }
    }
  }
  return {};
}

}  // namespace

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2));
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t h = 1469598103934665603ULL;
  for (char ch : text) h = (h ^ static_cast<unsigned char>(ch)) * 1099511628211ULL;
  return h;
}

Fenced::Fenced(Index count, float value) : all_(static_cast<std::size_t>(count + 2 * kFence)) {
  std::fill_n(all_.begin(), kFence, kPoison);
  std::fill_n(data(), count, value);
  std::fill_n(data() + count, kFence, kPoison);
}

bool Fenced::intact() const {
  const auto poisoned = [](float x) { return x == kPoison; };
  return std::all_of(all_.begin(), all_.begin() + kFence, poisoned) &&
         std::all_of(all_.end() - kFence, all_.end(), poisoned);
}

Problem::Problem(const Scenario& scenario, std::uint64_t seed, int threads) : s(scenario) {
  const std::uint64_t own = mix(seed, hash_text(s.str()));
  in = uniform(s.in().count(), own);
  filter = uniform(s.filter_count(), own + 1);
  bias = uniform(s.m, own + 2);
  residual = uniform(s.out().count(), own + 3);
  const Index outputs = s.out().count();
  if (s.macs() <= kFullCheckMacs || outputs <= kSamples) {
    positions.resize(static_cast<std::size_t>(outputs));
    for (Index i = 0; i < outputs; ++i) positions[static_cast<std::size_t>(i)] = i;
  } else {
    std::mt19937_64 rng(own);
    for (Index i = 0; i < kSamples; ++i) {
      positions.push_back(static_cast<Index>(rng() % static_cast<std::uint64_t>(outputs)));
    }
    for (Index corner : {Index{0}, s.ow - 1, (s.oh - 1) * s.ow, s.oh * s.ow - 1, outputs - 1}) {
      positions.push_back(corner);
    }
  }
  value.resize(positions.size());
  magnitude.resize(positions.size());
  const Weights plain{filter.data(), nullptr};
  parallel_for(threads, static_cast<Index>(positions.size()), [&](Index i) {
    const auto at = static_cast<std::size_t>(i);
    const auto [n, k, y, x] = split(positions[at]);
    std::tie(value[at], magnitude[at]) =
        reference_at(s, in.data(), plain, Epilogue{}, nullptr, n, k, y, x);
  });
  for (double m : magnitude) largest = std::max(largest, m);
}

Fenced& Problem::input(Layout layout) const {
  return in_layout(inputs_[static_cast<std::size_t>(layout)], layout, s.in(), in);
}

Fenced& Problem::added(Layout layout) const {
  return in_layout(added_[static_cast<std::size_t>(layout)], layout, s.out(), residual);
}

std::string Variant::str() const {
  return fmt::format(
      "threads {}{}{}{}{}", threads, bias ? ", bias" : "",
      epilogue.residual ? (in_place ? ", residual in place" : ", residual") : "",
      epilogue.clamps() ? fmt::format(", clamp {} to {}", epilogue.lo, epilogue.hi) : "",
      sliced ? ", slice" : "");
}

Variant variant(std::uint64_t pick, int threads) {
  Variant v;
  v.threads = threads > 0 ? threads : static_cast<int>(1 + pick % 3);
  v.bias = (pick >> 8) % 4 != 0;
  v.sliced = (pick >> 16) % 3 == 0;
  v.epilogue.residual = (pick >> 24) % 3 == 0;
  v.in_place = v.epilogue.residual && !v.sliced && (pick >> 28) % 2 == 0;
  switch ((pick >> 32) % 3) {
    case 0:
      break;
    case 1:
      v.epilogue.lo = 0;
      break;
    default:
      v.epilogue.lo = -0.5F;
      v.epilogue.hi = 0.75F;
  }
  return v;
}

Outcome check(const Primitive& row, const Problem& problem, const Variant& v) {
  const Scenario& s = problem.s;
  Options options;
  options.threads = v.threads;
  options.epilogue = v.epilogue;
  Shape whole = s.out();
  if (v.sliced) {
    options.slice = slice(row, s);
    whole.c = options.slice.channels;
  }
  const Weights weights{problem.filter.data(), v.bias ? problem.bias.data() : nullptr};
  const auto conv = row.prepare(s, weights, options);

  Fenced& in = problem.input(row.in);
  Fenced out(element_count(row.out, whole), Fenced::kPoison);
  float* residual = nullptr;
  if (v.epilogue.residual) {
    Fenced& added = problem.added(row.out);
    residual = v.in_place ? out.data() : added.data();
    if (v.in_place) std::copy_n(added.data(), added.size(), residual);
  }
  Fenced workspace(static_cast<Index>((conv->workspace_bytes() + 3) / 4),
                   std::numeric_limits<float>::quiet_NaN());
  conv->run({in.data(), out.data(), residual, workspace.data()});

  Outcome outcome;
  if (!out.intact()) outcome.failure = "wrote outside the output";
  if (!workspace.intact()) outcome.failure = "wrote outside the workspace";
  if (!in.intact()) outcome.failure = "wrote outside the input";
  if (residual != nullptr && !problem.added(row.out).intact()) {
    outcome.failure = "wrote outside the residual";
  }
  if (outcome.failure.empty()) {
    outcome.failure =
        compare(row, problem, v, strides(row.out, s.out(), options.slice), out.data(), outcome);
  }
  if (outcome.failure.empty()) {
    outcome.failure = look_over(row, s, whole, options.slice, out.data());
  }
  return outcome;
}

}  // namespace convprim
