// Stages that EPL chooses (auto.auto_parallel): how many, and where the step is cut.
#pragma once

#include <epl/config.h>

#include <string>
#include <vector>

#include "ir/graph.h"
#include "job/job.h"
#include "model/model.h"

namespace epl {

struct AutoStages {
  int stages = 1;
  int forward_calls = 0;  // of the step that was looked at: another number needs another choice
  std::vector<int> cuts;  // for AssignTaskGraphs; none where there is one stage
};

// How many forward operators a recording has.
int forward_calls(const Graph& graph);

// From a recording of the step without strategies, with the times of its operators.
// pipeline.num_stages says how many stages; without it there are as few as fit into the devices'
// memory, mostly one: data parallelism. All workers take the choice of worker 0, which prints what
// it chose and why. Throws epl::Error where no cut fits.
// `rows`: those of this worker's whole batch, by which the micro batches of each number of stages
// are judged; 0 where the recorded rows are those of a micro batch.
AutoStages choose_stages(const Graph& graph, const Model& model, const Config& config, Job& job,
                         int64_t rows = 0);

}  // namespace epl
