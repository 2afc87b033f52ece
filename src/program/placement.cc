#include "program/placement.h"

#include <numeric>

namespace epl {

int worker_of(int device, const ClusterShape& cluster) {
  int worker = 0;
  for (int first = 0; first + cluster.worker_devices[static_cast<size_t>(worker)] <= device;
       ++worker) {
    first += cluster.worker_devices[static_cast<size_t>(worker)];
  }
  return worker;
}

int Placement::devices_of_replica() const {
  return std::accumulate(stage_devices.begin(), stage_devices.end(), 0);
}

std::vector<int> Placement::stages_of(int group) const {
  std::vector<int> found;
  for (int stage = 0; stage < stages(); ++stage) {
    if (this->group(stage) == group) found.push_back(stage);
  }
  return found;
}

int Placement::devices_of_group(int group) const {
  int devices = 0;
  for (int stage : stages_of(group)) devices += stage_devices[static_cast<size_t>(stage)];
  return devices;
}

Place Placement::place(int device) const {
  Place found;
  int rest = device;
  if (by_replica) {
    found.replica = rest / devices_of_replica();
    rest %= devices_of_replica();
    while (rest >= stage_devices[static_cast<size_t>(found.stage)]) {
      rest -= stage_devices[static_cast<size_t>(found.stage++)];
    }
    found.slice = rest;
    return found;
  }
  while (rest >= stage_devices[static_cast<size_t>(found.stage)] * replicas) {
    rest -= stage_devices[static_cast<size_t>(found.stage++)] * replicas;
  }
  found.replica = rest / stage_devices[static_cast<size_t>(found.stage)];
  found.slice = rest % stage_devices[static_cast<size_t>(found.stage)];
  return found;
}

int Placement::device(const Place& place) const {
  const int before = std::accumulate(stage_devices.begin(), stage_devices.begin() + place.stage, 0);
  if (by_replica) return place.replica * devices_of_replica() + before + place.slice;
  const int own = stage_devices[static_cast<size_t>(place.stage)];
  return before * replicas + place.replica * own + place.slice;
}

std::vector<int> Placement::devices_of(int stage, int worker, const ClusterShape& cluster) const {
  std::vector<int> found;
  for (int device = 0; device < cluster.total_gpu_num; ++device) {
    const bool here = worker_of(device, cluster) == worker;
    if (here && place(device).stage == stage) found.push_back(device);
  }
  return found;
}

std::vector<int> Placement::devices_of_group(int group, int worker,
                                             const ClusterShape& cluster) const {
  std::vector<int> found;
  for (int device = 0; device < cluster.total_gpu_num; ++device) {
    const bool here = worker_of(device, cluster) == worker;
    if (here && this->group(place(device).stage) == group) found.push_back(device);
  }
  return found;
}

std::vector<int> Placement::workers_of(int stage, const ClusterShape& cluster) const {
  std::vector<int> found;
  for (int worker = 0; worker < cluster.worker_num; ++worker) {
    if (!devices_of(stage, worker, cluster).empty()) found.push_back(worker);
  }
  return found;
}

bool Placement::operator==(const Placement& other) const {
  return replicas == other.replicas && stage_devices == other.stage_devices &&
         stage_groups == other.stage_groups && chunks_per_stage == other.chunks_per_stage &&
         by_replica == other.by_replica;
}

}  // namespace epl
