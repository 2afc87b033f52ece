// The states of optimizers whose parameters lie in programs on several workers: each worker has
// those of its own.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "state/model_optimizer.h"
#include "state/state_map.h"

namespace epl {

struct StatesOnWorkers {
  const StateMap& map;
  const Placement& placement;
  const Cluster& cluster;
  Communicator& workers;
};

// An optimizer and the names that its parameters have in the map, by their numbers; empty for one
// that is listed once more.
struct OptimizerOfNames {
  ModelOptimizer& optimizer;
  std::vector<std::string> names;
};

// Brings the states of all parameters to worker 0, for a file. All workers call it. Pieces of a
// state that is cut must have been brought to whoever has another piece.
void gather_optimizer_states(const StatesOnWorkers& where,
                             const std::vector<OptimizerOfNames>& optimizers);

}  // namespace epl
