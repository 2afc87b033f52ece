#include "program/placement.h"

#include <numeric>

#include "base/check.h"

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

Mesh Placement::mesh(int stage) const { return mesh_of_stage(replicas, devices_of_stage(stage)); }

int Placement::part_of(const Place& place) const {
  int part = place.slice;
  for (int role = place.role; role > 0 && stage_of(role - 1) == stage_of(place.role); --role) {
    part += role_devices[static_cast<size_t>(role - 1)];
  }
  return part;
}

int Placement::device_of_part(int stage, int replica, int part) const {
  int role = 0;
  while (stage_of(role) < stage) ++role;
  while (part >= role_devices[static_cast<size_t>(role)]) {
    part -= role_devices[static_cast<size_t>(role++)];
  }
  return device({replica, role, part});
}

std::vector<int> Placement::group_along(std::string_view axis, int device) const {
  const Place own = place(device);
  const int stage = stage_of(own.role);
  const int part = part_of(own);
  std::vector<int> devices;
  if (axis == kReplicaAxis) {
    for (int i = 0; i < replicas; ++i) devices.push_back(device_of_part(stage, i, part));
    return devices;
  }
  EPL_ASSERT(axis == kPartAxis, concat("the devices of a stage have no axis \"", axis, "\""));
  const int parts = devices_of_stage(stage);
  for (int i = 0; i < parts; ++i) devices.push_back(device_of_part(stage, own.replica, i));
  return devices;
}

std::vector<std::vector<int>> Placement::groups_along(std::string_view axis) const {
  std::vector<std::vector<int>> groups;
  std::vector<bool> seen(static_cast<size_t>(devices()), false);
  for (int device = 0; device < devices(); ++device) {
    if (seen[static_cast<size_t>(device)]) continue;
    groups.push_back(group_along(axis, device));
    for (int member : groups.back()) seen[static_cast<size_t>(member)] = true;
  }
  return groups;
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
