// Lower a pipeline: a Graph whose nodes have chunks, and a Schedule, become a Plan with one Program
// a stage.
//
// Each chunk is built as a forward and a backward segment (and one for weights, where the schedule
// splits backward). Values that live from one of them to the next lie in an activation slot of
// their micro batch; there are as many activation slots as the schedule has micro batches in
// flight, one after another in the arena of the stage. All else lies in memory that the segments
// share, since one of them runs at a time.
//
//   arena of a stage:   kept gradients | activations 0 | activations 1 | ... | shared
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
  // Its stage in the schedule. Where operators are cut over devices several have the same one: then
  // each has a graph with nodes of its own for the chunks of the stage.
  int group = 0;
  // By value of the whole step: how it lies on the devices, where there are several.
  std::vector<Layout> layouts = {};
};

// `whole`: the step with nodes that are not cut. The graphs of all stages have its values under the
// same ids, with other sizes where they see other rows; what crosses between stages is whole. All
// of them went through AssignChunks. Of `options` slices does not count.
Plan lower_pipeline(const Graph& whole, const std::vector<Stage>& stages, const Schedule& schedule,
                    const LowerOptions& options);

}  // namespace epl
