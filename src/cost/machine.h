// Machine: what some devices of a cluster work with, for whoever compares costs. All of it comes
// from the Cluster.
//
//   const Machine machine = machine_of(cluster, {0, 1, 2, 3});
//   estimated_seconds(graph, node, machine);                    // cost/node_cost.h
//   reshard_seconds(type, from, to, parts, machine);            // sharding/reshard.h
#pragma once

#include <epl/cluster.h>

#include <vector>

namespace epl {

struct Machine {
  DeviceSpeed device = {};  // of the slowest one: the others wait for it
  Link link = {};           // of the farthest two
};

// Of these devices. A device that the cluster does not have counts to its last worker: plans are
// made for more devices than there are.
Machine machine_of(const ClusterShape& cluster, const std::vector<int>& devices);
Machine machine_of(const ClusterShape& cluster);  // of all of them

}  // namespace epl
