// Which device does what: how often the model stands in the cluster, and where its parts lie.
//
//   2 stages of 1 device on 4 devices        device:   0        1        2        3
//     cluster.device_place_prefer_intra_node           0, s0    0, s1    1, s0    1, s1
//     else                                             0, s0    1, s0    0, s1    1, s1
//                                                      (replica, stage)
//
// A role is whoever runs a Program: a stage of the pipeline with all of its devices or, where
// operators are cut over devices (split), one of its devices, a part. Without a pipeline there is
// one stage.
//
//   replicate(1), split(2) on 3 devices      roles 0, 1, 2 of one device; their stages 0, 1, 1
#pragma once

#include <epl/cluster.h>

#include <string>
#include <string_view>
#include <vector>

#include "layout/mesh.h"

namespace epl {

struct Place {
  int replica = 0;
  int role = 0;
  int slice = 0;  // which part of a micro batch it takes
};

struct Placement {
  int replicas = 1;                     // model replicas in the whole cluster
  std::vector<int> role_devices = {1};  // of one replica; each takes its part of a micro batch
  std::vector<int> role_stages = {0};   // by role, ascending
  int chunks_per_stage = 1;             // TaskGraphs that share the devices of a stage
  bool by_replica = true;               // the devices of a replica lie side by side
  std::vector<std::string> role_asked_by = {""};
  std::string asked_by;  // whoever wants several devices; empty where there is one

  int roles() const { return static_cast<int>(role_devices.size()); }
  int stages() const { return role_stages.back() + 1; }
  int stage_of(int role) const { return role_stages[static_cast<size_t>(role)]; }
  std::vector<int> roles_of(int stage) const;
  // Devices of the stage that operators are cut over, with a role each. 1: none is.
  int parts(int stage) const { return static_cast<int>(roles_of(stage).size()); }
  int devices_of_stage(int stage) const;
  bool is_pipeline() const { return stages() > 1; }
  bool splits() const { return stages() < roles(); }
  bool has_roles() const { return roles() > 1; }  // devices run different programs
  int devices_of_replica() const;
  int devices() const { return replicas * devices_of_replica(); }

  Place place(int device) const;
  int device(const Place& place) const;

  // The devices of a stage: replicas, and the parts of each, which are counted role by role.
  Mesh mesh(int stage) const;
  // The devices that differ from this one in their coordinate on that axis alone, and itself, in
  // the order of the axis.
  std::vector<int> group_along(std::string_view axis, int device) const;
  // All groups along an axis, in the order of their first devices. Each device is in one of them.
  std::vector<std::vector<int>> groups_along(std::string_view axis) const;

  // Devices of a worker that belong to the role, in the order of replicas and slices.
  std::vector<int> devices_of(int role, int worker, const ClusterShape& cluster) const;
  // The same for all roles of a stage.
  std::vector<int> devices_of_stage(int stage, int worker, const ClusterShape& cluster) const;
  // The workers that have a device of the role, in order.
  std::vector<int> workers_of(int role, const ClusterShape& cluster) const;

  bool operator==(const Placement& other) const;

 private:
  int part_of(const Place& place) const;  // among the devices of its stage
  int device_of_part(int stage, int replica, int part) const;
  template <typename Matches>
  std::vector<int> devices_with(int worker, const ClusterShape& cluster,
                                const Matches& matches) const;
};

int worker_of(int device, const ClusterShape& cluster);

}  // namespace epl
