// What a schedule costs, before anything runs: a Timeline from the costs of its tasks.
//
//   SimulatedCosts costs;
//   costs.chunks.assign(2, {/*forward=*/0.010, /*backward=*/0.020});
//   std::cout << simulate(schedule, costs).str();  // of two chunks
//
// Every stage does its tasks in the schedule's order, each as soon as what it needs has arrived.
#pragma once

#include <epl/timeline.h>

#include <vector>

#include "program/schedule.h"

namespace epl {

struct SimulatedCosts {
  struct Chunk {
    double forward = 0;   // seconds
    double backward = 0;  // all of it, or where the schedule splits it the first part
    double weights = 0;
  };
  std::vector<Chunk> chunks;  // one a chunk; the lists below may be empty: no time
  // From the end of a task to the moment at which its result is there for the next chunk (forward)
  // or the one before (backward), if they lie on different stages. Of border i between chunks i and
  // i + 1. The sender is not held up by it.
  std::vector<double> forward_transfers;
  std::vector<double> backward_transfers;
  std::vector<double> reductions;  // by stage, after its last task and before its update
  std::vector<double> updates;     // by stage
  // Whether the update of all stages waits for the last task and reduction of all of them (one
  // update for the whole model, clipped or checked as one), as the trainer does it.
  bool updates_together = true;
};

// One device a stage. The schedule has passed verify_schedule(). Communication is in the Timeline
// where a device has nothing else to do than wait for a value that is on its way, or for its
// reduction.
Timeline simulate(const Schedule& schedule, const SimulatedCosts& costs);

}  // namespace epl
