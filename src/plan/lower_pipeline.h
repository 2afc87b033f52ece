// Lower a pipeline: a Graph whose nodes have chunks, and a Schedule, become a Plan with one Program
// a stage.
//
// Each chunk is built as a forward and a backward segment (and one for weights, where the schedule
// splits backward). Values that live from one of them to the next lie in a room of their micro
// batch; there are as many rooms as the schedule has micro batches in flight, one after another in
// the arena of the stage. All else lies in memory that the segments share, since one of them runs
// at a time.
//
//   arena of a stage:   kept gradients | room 0 | room 1 | ... | shared
#pragma once

#include <vector>

#include "ir/graph.h"
#include "plan/lower.h"
#include "program/program.h"

namespace epl {

struct Stage {
  const Graph* graph = nullptr;  // recorded with the rows that one of its devices sees
  int devices = 1;               // of one replica
  std::string asked_by;          // its scope, for messages
};

// The graphs of all stages have the same nodes and values and differ in sizes alone. They went
// through AssignChunks. Of `options` slices does not count.
Plan lower_pipeline(const std::vector<Stage>& stages, const Schedule& schedule,
                    const LowerOptions& options);

}  // namespace epl
