// When the devices of this worker did what in a step that ran.
#pragma once

#include <epl/timeline.h>

#include <cstdint>
#include <vector>

#include "runtime/bound_step.h"
#include "runtime/interpreter.h"

namespace epl {

// Of step `number`, up to the end of the Programs: what comes after is added by whoever does it,
// and so is how long all of it took.
Timeline timeline_of(int64_t number, const BoundStep& bound, const std::vector<DeviceRun>& runs,
                     int first_device);

}  // namespace epl
