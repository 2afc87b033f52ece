// ZeroBubble: backward in two tasks. The gradients of inputs, for which other stages wait, come
// first; those of weights, for which nobody waits, fill what would be bubbles.
#pragma once

#include <vector>

#include "plan/schedules.h"
#include "program/schedule.h"

namespace epl {

// The frame has no tasks; the request has the costs of all chunks.
Schedule zero_bubble(Schedule frame, const ScheduleRequest& request);

}  // namespace epl
