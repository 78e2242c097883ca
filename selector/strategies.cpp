#include "selector/strategies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

namespace convprim {
namespace {

bool is_convolution(const std::vector<Choice>& all) {
  return !all.empty() && all[0].primitive != nullptr;
}

/// The index of the cheapest choice that `wanted` admits.
template <class Predicate>
std::optional<std::size_t> cheapest(const std::vector<Choice>& all, const CostFunction& costs,
                                    Predicate wanted) {
  std::optional<std::size_t> best;
  double least = kInfinity;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double cost = all[i].free() ? 0 : costs(all[i].key);
    if (wanted(all[i]) && cost < least) least = cost, best = i;
  }
  return best;
}

bool is_sum2d(const Choice& c) { return c.primitive->name == "direct-sum2d"; }

bool has_family(const Instance& instance, Family family) {
  return std::any_of(instance.choices.begin(), instance.choices.end(), [&](const auto& all) {
    return is_convolution(all) && std::any_of(all.begin(), all.end(), [&](const Choice& c) {
             return c.primitive->family == family;
           });
  });
}

/// What picks a convolution's primitive.
using Pick = std::function<std::optional<std::size_t>(const std::vector<Choice>&)>;

/// The choices with one primitive for each convolution, if the pick finds one for all.
std::optional<std::vector<std::vector<Choice>>> picked(const Instance& instance, const Pick& pick) {
  auto choices = instance.choices;
  for (auto& all : choices) {
    if (!is_convolution(all)) continue;
    const auto best = pick(all);
    if (!best) return std::nullopt;
    all = {all[*best]};
  }
  return choices;
}

/// Leaves layers other than convolutions the choices that read and write CHW, where there are some.
void keep_chw(std::vector<std::vector<Choice>>& choices) {
  for (auto& all : choices) {
    std::vector<Choice> plain;
    for (const Choice& c : all) {
      if (c.in == Layout::chw && c.out == Layout::chw) plain.push_back(c);
    }
    if (!plain.empty()) all = std::move(plain);
  }
}

}  // namespace

std::vector<StrategyChoices> strategy_choices(const Instance& instance, const CostFunction& costs) {
  std::vector<StrategyChoices> strategies;
  const auto add = [&](std::string name, const Pick& pick) {
    if (auto choices = picked(instance, pick))
      strategies.push_back({std::move(name), std::move(*choices)});
  };
  const auto add_family = [&](Family family, std::string name) {
    if (!has_family(instance, family)) return;
    add(std::move(name), [&](const auto& all) {
      return cheapest(all, costs, [&](const Choice& c) {
        return c.primitive->family == family || is_sum2d(c);
      });
    });
  };
  add("sum2d", [&](const auto& all) { return cheapest(all, costs, is_sum2d); });
  for (int f = 0; f < kFamilyCount; ++f) {
    const auto family = static_cast<Family>(f);
    if (family != Family::onednn) add_family(family, fmt::format("best {}", name(family)));
  }
  add_family(Family::onednn, "onednn alone");
  const auto is_chw = [](const Choice& c) { return c.in == Layout::chw && c.out == Layout::chw; };
  if (auto choices =
          picked(instance, [&](const auto& all) { return cheapest(all, costs, is_chw); })) {
    keep_chw(*choices);
    strategies.push_back({"local-optimal chw", std::move(*choices)});
  }
  if (has_family(instance, Family::onednn)) {
    auto choices = instance.choices;
    bool complete = true;
    for (auto& all : choices) {
      if (!is_convolution(all)) continue;
      std::erase_if(all, [](const Choice& c) { return c.primitive->family == Family::onednn; });
      complete = complete && !all.empty();
    }
    if (complete) strategies.push_back({"pbqp without onednn", std::move(choices)});
  }
  return strategies;
}

}  // namespace convprim
