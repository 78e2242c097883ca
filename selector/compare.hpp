// The comparison of strategies, measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "convprim/select.hpp"

namespace convprim {

/// One bar.
struct Bar {
  std::string name;
  double predicted = 0;                 ///< seconds
  double median = 0, min = 0, max = 0;  ///< seconds of whole forward passes
  int runs = 0;
};

/// The bars, and how they were taken.
struct Comparison {
  std::vector<Bar> bars;
  double predicted_base = 0, base = 0;  ///< of the first bar, sum2d; 0 if there is none
  int rounds = 0;
  int disturbed = 0;  ///< runs taken again because other programs took part of their time
  int moved = 0;      ///< rounds taken again because the threads lay elsewhere than for the costs
  bool in_place = true;  ///< whether the last round was taken where they lay for the costs
};

/// Runs each strategy of strategy_choices() and the plan itself in turns: in each of `rounds`
/// rounds one pass of each to warm up and two timed ones. Passes that take seconds are not warmed
/// up, and end after the first round that brings them to kSlowSeconds. `progress` may be empty.
Comparison compare(const Network& net, const Filter& filter, const CostFunction& costs,
                   const SizeFunction& sizes, const Plan& plan, int rounds,
                   const std::function<void(const Progress&)>& progress);

}  // namespace convprim
