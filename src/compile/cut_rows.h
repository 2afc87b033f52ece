// A micro batch whose rows are cut over devices: what each device of replicate(k), k > 1, runs.
//
// The step was recorded with all rows. sharding/slices.h says how its values lie where rows are cut
// over k devices, and the graph that follows from it is the one for all of them.
#pragma once

#include <epl/cluster.h>
#include <epl/config.h>

#include <map>
#include <vector>

#include "program/placement.h"
#include "sharding/sharding.h"

namespace epl {

struct SlicedStep {
  Sharding sharding;
  Graph graph;  // its values have the ids that they have in the whole step
};

// By the number of devices that share the rows: one for each number that a role has. `whole` went
// through the passes for the whole step.
using SlicedSteps = std::map<int, SlicedStep>;
SlicedSteps cut_rows(const Graph& whole, const Placement& placement, const ClusterShape& cluster,
                     const Config& config);

// How nodes under replicate run on the devices that others, under split, are cut over; none for
// those. The graph has chunks.
std::vector<std::optional<Cut>> cuts_under_replicate(const Graph& graph, int parts,
                                                     const Machine& machine, const Config& config,
                                                     const std::string& asked_by);

// A loss that divides by the number of targets that count (not ignore_index) does so for each micro
// batch and replica: it notes whether one of its targets does not (runtime/counted_targets.h).
void look_at_targets(Graph& graph);

}  // namespace epl
