// Which device does what: how often the model stands in the cluster, and where its parts lie.
//
//   2 stages of 1 device on 4 devices        device:   0        1        2        3
//     cluster.device_place_prefer_intra_node           0, s0    0, s1    1, s0    1, s1
//     else                                             0, s0    1, s0    0, s1    1, s1
//                                                      (replica, stage)
//
// Without a pipeline there is one stage.
#pragma once

#include <epl/cluster.h>

#include <string>
#include <vector>

namespace epl {

struct Place {
  int replica = 0;
  int stage = 0;
  int slice = 0;  // which part of a micro batch it takes
};

struct Placement {
  int replicas = 1;                      // model replicas in the whole cluster
  std::vector<int> stage_devices = {1};  // of one replica; each takes its part of a micro batch
  int chunks_per_stage = 1;              // TaskGraphs that share the devices of a stage
  bool by_replica = true;                // the devices of a replica lie side by side
  std::vector<std::string> stage_asked_by = {""};
  std::string asked_by;  // whoever wants several devices; empty where there is one

  int stages() const { return static_cast<int>(stage_devices.size()); }
  bool is_pipeline() const { return stages() > 1; }
  int devices_of_replica() const;
  int devices() const { return replicas * devices_of_replica(); }

  Place place(int device) const;
  int device(const Place& place) const;

  // Devices of a worker that belong to the stage, in the order of replicas and slices.
  std::vector<int> devices_of(int stage, int worker, const Cluster& cluster) const;
  // The workers that have a device of the stage, in order.
  std::vector<int> workers_of(int stage, const Cluster& cluster) const;

  bool operator==(const Placement& other) const;
};

int worker_of(int device, const Cluster& cluster);

}  // namespace epl
