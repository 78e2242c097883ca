// The cheapest plan within a limit of memory.
#pragma once

#include "selector/query.hpp"

namespace convprim {

/// The cheapest plan found whose memory, arena and packed weights together, is no more than
/// `filter.max_memory`; its `memory` says how good it is. `unlimited` is the plan without the
/// limit. Throws Error if no plan is found, with the least memory found.
Plan select_within(const Network& net, const Filter& filter, const Instance& instance,
                   const CostFunction& costs, const SizeFunction& sizes, const Plan& unlimited);

}  // namespace convprim
