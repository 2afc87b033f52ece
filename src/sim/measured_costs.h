// What the instructions of a pipeline cost in a step that was measured; what a timeline does not
// tell (sends, reductions) costs as stamped.
#pragma once

#include <epl/timeline.h>

#include "program/program.h"
#include "sim/simulate_plan.h"

namespace epl {

// Means over micro batches and devices. All stages must be in the timeline. The plan outlives what
// is returned.
PlanCosts measured_costs(const Timeline& timeline, const Plan& plan);

}  // namespace epl
