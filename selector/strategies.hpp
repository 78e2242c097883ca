// The strategies that a plan is compared with.
#pragma once

#include <string>
#include <vector>

#include "selector/query.hpp"

namespace convprim {

/// A strategy as what it leaves to choose for each layer.
struct StrategyChoices {
  std::string name;
  std::vector<std::vector<Choice>> choices;
};

/// The bars of Anderson and Gregg's figures, and oneDNN's: "sum2d"; "best FAMILY", each
/// convolution by the family's fastest primitive where it beats sum2d; "onednn alone", the same
/// with oneDNN's; "local-optimal chw"; "pbqp without onednn". Other layers are as cheap as they can
/// be around the convolutions. Strategies for which the instance has no primitives are left out.
std::vector<StrategyChoices> strategy_choices(const Instance& instance, const CostFunction& costs);

}  // namespace convprim
