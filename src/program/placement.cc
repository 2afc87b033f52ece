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
  return std::accumulate(role_devices.begin(), role_devices.end(), 0);
}

std::vector<int> Placement::roles_of(int stage) const {
  std::vector<int> found;
  for (int role = 0; role < roles(); ++role) {
    if (stage_of(role) == stage) found.push_back(role);
  }
  return found;
}

int Placement::devices_of_stage(int stage) const {
  int devices = 0;
  for (int role : roles_of(stage)) devices += role_devices[static_cast<size_t>(role)];
  return devices;
}

Place Placement::place(int device) const {
  Place found;
  int rest = device;
  if (by_replica) {
    found.replica = rest / devices_of_replica();
    rest %= devices_of_replica();
    while (rest >= role_devices[static_cast<size_t>(found.role)]) {
      rest -= role_devices[static_cast<size_t>(found.role++)];
    }
    found.slice = rest;
    return found;
  }
  while (rest >= role_devices[static_cast<size_t>(found.role)] * replicas) {
    rest -= role_devices[static_cast<size_t>(found.role++)] * replicas;
  }
  found.replica = rest / role_devices[static_cast<size_t>(found.role)];
  found.slice = rest % role_devices[static_cast<size_t>(found.role)];
  return found;
}

int Placement::device(const Place& place) const {
  const int before = std::accumulate(role_devices.begin(), role_devices.begin() + place.role, 0);
  if (by_replica) return place.replica * devices_of_replica() + before + place.slice;
  const int own = role_devices[static_cast<size_t>(place.role)];
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

std::vector<int> Placement::devices_of(int role, int worker, const ClusterShape& cluster) const {
  return devices_with(worker, cluster, [&](const Place& place) { return place.role == role; });
}

std::vector<int> Placement::devices_of_stage(int stage, int worker,
                                             const ClusterShape& cluster) const {
  return devices_with(worker, cluster,
                      [&](const Place& place) { return stage_of(place.role) == stage; });
}

// Looks at each device once: with thousands of them more would show.
std::vector<int> Placement::workers_of(int role, const ClusterShape& cluster) const {
  std::vector<int> found;
  int device = 0;
  for (int worker = 0; worker < cluster.worker_num; ++worker) {
    const int end = device + cluster.worker_devices[static_cast<size_t>(worker)];
    bool any = false;
    for (; device < end; ++device) any |= place(device).role == role;
    if (any) found.push_back(worker);
  }
  return found;
}

bool Placement::operator==(const Placement& other) const {
  return replicas == other.replicas && role_devices == other.role_devices &&
         role_stages == other.role_stages && chunks_per_stage == other.chunks_per_stage &&
         by_replica == other.by_replica;
}

}  // namespace epl
