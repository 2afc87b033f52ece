// When each task of a schedule runs, if every stage does its tasks in order and each as soon as
// what it needs is there. Checker, printer, planner and simulator ask this one function.
#pragma once

#include <functional>
#include <vector>

#include "program/schedule.h"

namespace epl {

struct TaskTime {
  double begin = 0;
  double end = 0;
  // When that was made which arrived last of all it needs. If the task began when it arrived, it
  // was on its way from `made` to `begin`.
  double made = 0;
};

struct TaskDurations {
  std::function<double(const Task&)> task;
  // From the end of a task on one stage to the arrival of its result on another; empty: no time.
  // Does not hold up the sender.
  std::function<double(const Task& from, const Task& to)> transfer;
};

// By stage, in the order of its tasks. Throws InternalError where stages wait for each other for
// ever.
std::vector<std::vector<TaskTime>> task_times(const Schedule& schedule,
                                              const TaskDurations& durations);

// The end of the last task.
double last_end(const std::vector<std::vector<TaskTime>>& times);

}  // namespace epl
