// What a minimum cut says of which operations run again in backward.
//
//   for (const Again& again : cut_frontier(model)) ...   // from all kept to least kept
//
// For a price of a second in bytes the cut is the exact optimum of bytes that are kept and seconds
// that are spent, for the whole step at once. It minimises a sum over the step and not its peak: it
// is where a search begins (cost/recompute_choice.h).
#pragma once

#include <vector>

#include "cost/recompute_model.h"

namespace epl {

// The optima for some prices: prices at which the optimum changes are found where the lines of two
// optima meet.
std::vector<Again> cut_frontier(const RecomputeModel& model);

}  // namespace epl
