// Stages chosen by EPL: where a recorded step is cut so that a pipeline of it is fastest.
//
// Objective. In a pipeline the slowest stage sets the pace: each further micro batch takes as long
// as it does. A stage takes, a micro batch, the seconds of its operators, forward and backward, and
// those in which it receives tensors: with as few micro batches in flight as 1F1B has, a stage
// waits for what it sends to come back, so transfers are not hidden. The pace is the most that any
// stage takes. Costs are not known to the last percent, so any cut will do whose pace is within
// `tolerance` of the best. Of those the one is taken with the least sum of squares of what its
// stages take: a byte that crosses counts in full there, a slight unevenness hardly, a stage with
// next to nothing to do very much. A cut that scopes could not say well, inside of a module, inside
// of a module of that, inside of one operator, pays a little (kAwkwardness in stage_cuts.cc).
//
// All contiguous cuts of the forward order are considered. Where a device has a limit, a stage must
// fit: its parameters with gradients and optimizer state, the other state that it reads, and what
// it saves for backward, times the micro batches that it has in flight.
//
// With several chunks a stage (Interleaved), chunks are what is cut and balanced; chunk c lies on
// stage c % stages.
//
//   const StageCuts chosen = choose_stage_cuts(graph, node_costs(graph), request);
//   AssignTaskGraphs(chosen.cuts).run(graph);
#pragma once

#include <string>
#include <vector>

#include "cost/node_cost.h"
#include "ir/graph.h"

namespace epl {

struct StageCutsRequest {
  int stages = 1;
  int chunks_per_stage = 1;
  int micro_batches = 1;
  // By chunk, as Schedule::in_flight. Empty: as 1F1B has them, chunk c of C has C - c.
  std::vector<int> in_flight = {};
  double bytes_per_second = Link().sent_bytes_per_second;  // from one stage to another
  int64_t device_bytes = 0;                                // memory that a device has; 0: no limit
  double optimizer_state = 2;  // bytes a byte of parameters: Adam keeps two of its size
  // Rows of a micro batch that will run, for each one of the recorded micro batch.
  double rows = 1;
  double tolerance = 0.02;
  std::string asked_by = "auto.auto_parallel";
};

struct ChosenChunk {
  int first_call = 0;           // Origin::call of its first forward operator
  int operators = 0;            // forward ones, views included
  double seconds = 0;           // of its operators, forward and backward, a micro batch
  int64_t received_bytes = 0;   // a micro batch
  int64_t parameter_bytes = 0;  // trained
  int64_t saved_bytes = 0;      // a micro batch
  int64_t device_bytes = 0;     // all that it takes of its device's memory
  double pace = 0;              // seconds and transfers
};

struct StageCuts {
  std::vector<int> cuts;  // for passes/assign_taskgraphs.h: chunks - 1 of them
  std::vector<ChosenChunk> chunks;
  double pace = 0;          // of the slowest chunk, seconds
  double step = 0;          // of all micro batches, without the update
  std::string explanation;  // lines for the user, what was chosen, why, and as scopes
};

// Throws epl::Error where the step has fewer forward operators than chunks, and where no cut fits
// into the devices.
StageCuts choose_stage_cuts(const Graph& graph, const NodeCosts& costs,
                            const StageCutsRequest& request);

}  // namespace epl
