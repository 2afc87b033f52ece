// Which device does what: how often the model stands in the cluster, and where its parts lie.
//
//   2 stages of 1 device on 4 devices        device:   0        1        2        3
//     cluster.device_place_prefer_intra_node           0, s0    0, s1    1, s0    1, s1
//     else                                             0, s0    1, s0    0, s1    1, s1
//                                                      (replica, stage)
//
// Without a pipeline there is one stage. Where operators are cut over devices (split), each of
// those devices has a program of its own: it counts as a stage of one device here, and stages that
// work on the same part of the model are a group.
//
//   replicate(1), split(2) on 3 devices      stages 0, 1, 2 of one device; groups 0, 1, 1
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
  std::vector<int> stage_groups = {0};   // by stage, ascending
  int chunks_per_stage = 1;              // TaskGraphs that share the devices of a stage
  bool by_replica = true;                // the devices of a replica lie side by side
  std::vector<std::string> stage_asked_by = {""};
  std::string asked_by;  // whoever wants several devices; empty where there is one

  int stages() const { return static_cast<int>(stage_devices.size()); }
  int groups() const { return stage_groups.back() + 1; }
  int group(int stage) const { return stage_groups[static_cast<size_t>(stage)]; }
  std::vector<int> stages_of(int group) const;
  // One device of each stage in the group: those that operators are cut over. 1: none is.
  int parts(int group) const { return static_cast<int>(stages_of(group).size()); }
  int devices_of_group(int group) const;
  bool is_pipeline() const { return groups() > 1; }
  bool splits() const { return groups() < stages(); }
  bool has_roles() const { return stages() > 1; }  // devices run different programs
  int devices_of_replica() const;
  int devices() const { return replicas * devices_of_replica(); }

  Place place(int device) const;
  int device(const Place& place) const;

  // Devices of a worker that belong to the stage, in the order of replicas and slices.
  std::vector<int> devices_of(int stage, int worker, const ClusterShape& cluster) const;
  // The same for all stages of a group.
  std::vector<int> devices_of_group(int group, int worker, const ClusterShape& cluster) const;
  // The workers that have a device of the stage, in order.
  std::vector<int> workers_of(int stage, const ClusterShape& cluster) const;

  bool operator==(const Placement& other) const;

 private:
  template <typename Matches>
  std::vector<int> devices_with(int worker, const ClusterShape& cluster,
                                const Matches& matches) const;
};

int worker_of(int device, const ClusterShape& cluster);

}  // namespace epl
