// What the micro batches, slices and replicas of a step each have in its loss and metrics.
#pragma once

#include "capture/two_sizes.h"
#include "compile/compile.h"

namespace epl {

// The gradient of the loss of one micro batch on one of so many devices that share its rows.
// `averages`: gradients are reduced by their mean.
double seed_for(const Plan& plan, bool averages, int slices);

// Puts them into the plan. `sizes`: how what slices have is merged.
void settle_outputs(const TwoSizes& sizes, const Placement& placement, bool averages,
                    CompiledStep& step);

}  // namespace epl
