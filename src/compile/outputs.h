// What the micro batches, slices and replicas of a step each have in its loss and metrics.
#pragma once

#include "compile/compile.h"
#include "compile/cut_operators.h"
#include "compile/cut_rows.h"

namespace epl {

// The gradient of the loss of one micro batch. `averages`: gradients are reduced by their mean.
double seed_for(const Plan& plan, bool averages);

// How a device of a role has a result of the step.
struct OutputLayouts {
  Layout loss;
  std::vector<Layout> metrics;
};
using LayoutsOfRoles = std::vector<OutputLayouts>;
LayoutsOfRoles output_layouts(const Placement& placement, const SlicedSteps& sliced,
                              const CutStep& cut, size_t metrics);

// Puts them into the plan.
void settle_outputs(const LayoutsOfRoles& layouts, const Config& config, CompiledStep& step);

}  // namespace epl
