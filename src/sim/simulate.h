// What a schedule costs, before anything runs: a Timeline from the costs of its tasks.
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
  std::vector<Chunk> chunks;
  // From the end of a task to the moment at which its result is there for the next chunk (forward)
  // or the one before (backward), if they lie on different stages. Of border i between chunks i and
  // i + 1. The sender is not held up by it.
  std::vector<double> forward_transfers;
  std::vector<double> backward_transfers;
  std::vector<double> reductions;  // by stage, after its last task and before its update
  std::vector<double> updates;     // by stage
  // Whether the update of all stages waits for the last task of all of them (one update for the whole
  // model, clipped or checked as one), as the trainer does it.
  bool updates_together = true;
};

// One device a stage. The schedule has passed verify_schedule().
Timeline simulate(const Schedule& schedule, const SimulatedCosts& costs);

}  // namespace epl
