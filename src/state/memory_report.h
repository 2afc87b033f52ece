// The forecast of memory: what each worker and device of a job holds while a Plan runs.
//
//   StateMap state = state_of(model, history, placement);
//   state.place(plan);
//   std::cout << forecast_memory({plan, placement, cluster, state}).str();
//
// From the Plan and the state alone: nothing has to run, and what other workers need is forecast as
// well. The arena of a device has one size (program/memory_profile.h). What its workers share
// counts once, and so do states of an optimizer, which lie where the parameter is updated.
#pragma once

#include <epl/cluster.h>
#include <epl/memory.h>

#include <set>
#include <string>

#include "program/placement.h"
#include "program/program.h"
#include "state/state_map.h"

namespace epl {

struct MemorySources {
  const Plan& plan;
  const Placement& placement;
  const ClusterShape& cluster;
  const StateMap& state;  // with the places that the plan gives
  // States that are there whether a step has changed them or not, on all workers.
  std::set<std::string> made = {};
  // What only other workers update and read takes no memory here: pipeline.gather_parameters is
  // off.
  bool releases_others = false;
  int64_t communicators = 0;  // of a worker: buffers of its ways to others
  // How many groups of gradients are on their way at once as copies of half precision; 0 where they
  // travel as they are.
  int halves = 0;
};

MemoryReport forecast_memory(const MemorySources& sources);

}  // namespace epl
