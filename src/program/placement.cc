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

template <typename Matches>
std::vector<int> Placement::devices_with(int worker, const ClusterShape& cluster,
                                         const Matches& matches) const {
  const auto& devices = cluster.worker_devices;
  const int first = std::accumulate(devices.begin(), devices.begin() + worker, 0);
  std::vector<int> found;
  for (int i = 0; i < devices[static_cast<size_t>(worker)]; ++i) {
    if (matches(place(first + i))) found.push_back(first + i);
  }
  return found;
}

std::vector<int> Placement::devices_of(int stage, int worker, const ClusterShape& cluster) const {
  return devices_with(worker, cluster, [&](const Place& place) { return place.stage == stage; });
}

std::vector<int> Placement::devices_of_group(int group, int worker,
                                             const ClusterShape& cluster) const {
  return devices_with(worker, cluster,
                      [&](const Place& place) { return this->group(place.stage) == group; });
}

// Looks at each device once: with thousands of them more would show.
std::vector<int> Placement::workers_of(int stage, const ClusterShape& cluster) const {
  std::vector<int> found;
  int device = 0;
  for (int worker = 0; worker < cluster.worker_num; ++worker) {
    const int end = device + cluster.worker_devices[static_cast<size_t>(worker)];
    bool any = false;
    for (; device < end; ++device) any |= place(device).stage == stage;
    if (any) found.push_back(worker);
  }
  return found;
}

bool Placement::operator==(const Placement& other) const {
  return replicas == other.replicas && stage_devices == other.stage_devices &&
         stage_groups == other.stage_groups && chunks_per_stage == other.chunks_per_stage &&
         by_replica == other.by_replica;
}

}  // namespace epl
