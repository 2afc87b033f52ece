// Stages that EPL chooses (auto.auto_parallel): how many, and where the step is cut.
#pragma once

#include <epl/cluster.h>
#include <epl/config.h>

#include <string>
#include <vector>

#include "ir/graph.h"

namespace epl {

struct AutoStages {
  int stages = 1;
  int forward_calls = 0;  // of the step that was looked at: another number needs another choice
  std::vector<int> cuts;  // for AssignTaskGraphs; none where there is one stage
  std::string explanation = {};  // lines for the user, of what was chosen and why
};

struct AutoStagesRequest {
  int64_t device_bytes = 0;    // memory that a device has
  double optimizer_state = 2;  // bytes a byte of parameters
  // Rows of the whole batch of a worker, by which the micro batches of each number of stages are
  // judged, and how many devices it has; 0 where the recorded rows are those of a micro batch.
  int64_t rows = 0;
  int local_devices = 1;
};

// How many forward operators a recording has.
int forward_calls(const Graph& graph);

// From a recording of the step without strategies, with the times of its operators.
// pipeline.num_stages says how many stages; without it there are as few as fit into the devices'
// memory, mostly one: data parallelism. Throws epl::Error where no cut fits. Times differ from
// worker to worker, and so may the choice: workers have to agree on one.
AutoStages choose_stages(const Graph& graph, const ClusterShape& cluster, const Config& config,
                         const AutoStagesRequest& request);

// For a way to other workers: all but the explanation, in one line.
std::string print_auto_stages(const AutoStages& choice);
AutoStages parse_auto_stages(const std::string& text);

}  // namespace epl
