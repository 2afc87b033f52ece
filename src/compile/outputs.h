// What the micro batches, slices and replicas of a step each have in its loss and metrics.
#pragma once

#include "capture/two_sizes.h"
#include "compile/compile.h"
#include "compile/cut_operators.h"

namespace epl {

// The gradient of the loss of one micro batch on one of so many devices that share its rows.
// `averages`: gradients are reduced by their mean.
double seed_for(const Plan& plan, bool averages, int slices);

// Puts them into the plan, and what a user should hear of them into the step. `sizes`: how what
// slices have is merged; `cut`: where operators are cut over devices.
void settle_outputs(TwoSizes sizes, const CutStep& cut, const Config& config, CompiledStep& step);

}  // namespace epl
