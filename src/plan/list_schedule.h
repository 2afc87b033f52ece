// Schedules made by trying: the tasks are run in thought, with what they cost, and whenever a stage
// is free it takes the best task that is ready: backward before forward before weights.
//
// Limits and patience steer it. Any of them gives a schedule that runs: the oldest micro batch
// under way is never held up by a limit, since weights, which count against it, wait for nobody
// else.
#pragma once

#include <vector>

#include "plan/schedules.h"
#include "program/schedule.h"

namespace epl {

struct ListPolicy {
  double transfer = 0;  // as in ScheduleRequest
  // By chunk, how many micro batches may have begun forward without having ended ...
  std::vector<int> most_active;     // ... backward
  std::vector<int> most_in_flight;  // ... their last task
  // Weights begin only where nothing else is known to come within this part of their length.
  double patience = 0;
};

// What a task takes. A backward that is not split computes the weights as well.
double duration_of(const Task& task, const std::vector<TaskCosts>& costs, bool splits_backward);

struct ListedSchedule {
  Schedule schedule;
  double seconds = 0;  // until the last task ends, in the unit of costs
};

// Gives the frame, whose `stages` are empty, its order of tasks.
ListedSchedule list_schedule(Schedule frame, const std::vector<TaskCosts>& costs,
                             const ListPolicy& policy);

}  // namespace epl
