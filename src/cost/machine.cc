#include "cost/machine.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

namespace epl {
namespace {

size_t worker_with(const ClusterShape& cluster, int device) {
  size_t worker = 0;
  int end = cluster.worker_devices[0];
  while (device >= end && worker + 1 < cluster.worker_devices.size()) {
    end += cluster.worker_devices[++worker];
  }
  return worker;
}

DeviceSpeed slowest_of(const DeviceSpeed& a, const DeviceSpeed& b) {
  return {std::min(a.flops_per_second, b.flops_per_second),
          std::min(a.bytes_per_second, b.bytes_per_second),
          std::max(a.seconds_per_call, b.seconds_per_call)};
}

}  // namespace

Machine machine_of(const ClusterShape& cluster, const std::vector<int>& devices) {
  std::set<size_t> workers;
  for (int device : devices) workers.insert(worker_with(cluster, device));
  std::set<std::string> hosts;
  for (size_t worker : workers) {
    if (worker < cluster.worker_hosts.size()) hosts.insert(cluster.worker_hosts[worker]);
  }
  Machine machine;
  machine.link = cluster.link_in_worker;
  if (workers.size() > 1) machine.link = cluster.link_in_host;
  if (hosts.size() > 1) machine.link = cluster.link_between_hosts;
  bool first = true;
  for (size_t worker : workers) {
    const size_t row = std::min(worker, cluster.worker_speeds.size() - 1);
    const DeviceSpeed& speed = cluster.worker_speeds[row];
    machine.device = first ? speed : slowest_of(machine.device, speed);
    first = false;
  }
  return machine;
}

Machine machine_of(const ClusterShape& cluster) {
  std::vector<int> all(static_cast<size_t>(cluster.total_gpu_num));
  std::iota(all.begin(), all.end(), 0);
  return machine_of(cluster, all);
}

}  // namespace epl
