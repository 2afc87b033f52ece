// What the tasks of a pipeline cost in a step that was measured.
#pragma once

#include <epl/timeline.h>

#include "program/program.h"
#include "sim/simulate.h"

namespace epl {

// Means over micro batches and devices. All stages must be in the timeline.
SimulatedCosts measured_costs(const Timeline& timeline, const Plan& plan);

}  // namespace epl
