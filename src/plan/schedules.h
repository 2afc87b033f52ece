// The schedules of pipeline.strategy, each a function that gives the order of tasks as data.
//
//   PreferBackward            1F1B: backward as soon as there is one. Stage s of S holds at most
//                             S - s micro batches.
//   PreferForward             GPipe: all forwards, then all backwards. Holds all of them.
//   PreferBackwardOptimizer   PreferBackward with one more in flight on all stages but the last.
//   Interleaved               several chunks a stage: chunk c lies on stage c % S; the bubble
//                             shrinks by the number of chunks a stage.
//   ZeroBubble                backward in two tasks; weights fill what would be bubbles.
#pragma once

#include <string>
#include <vector>

#include "program/schedule.h"

namespace epl {

// What the tasks of one chunk cost, in any unit. For schedules that are made by trying.
struct TaskCosts {
  double forward = 1;
  double backward = 1;
  double weights = 1;
};

struct ScheduleRequest {
  std::string strategy = "PreferBackward";
  int stages = 1;
  int chunks_per_stage = 1;  // more than one for Interleaved, or where the model goes round twice
  int micro_batches = 1;
  std::vector<TaskCosts> costs;  // one a chunk; empty: all alike
  // ZeroBubble: from the end of a task to the arrival of its result on another stage, in the same
  // unit. It reckons with a little more than nothing in any case, so that a short delay does not
  // stop the stages.
  double transfer = 0;
  // ZeroBubble: no chunk has more micro batches in flight, which is its memory; 0: twice the chunks
  // less one, with which no bubble is left but the ramp where all tasks cost the same.
  int most_in_flight = 0;
};

// Has passed verify_schedule(). Any number of stages and micro batches, also fewer micro batches
// than stages.
Schedule make_schedule(const ScheduleRequest& request);

}  // namespace epl
