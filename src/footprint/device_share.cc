#include "footprint/device_share.h"

#include <unistd.h>

#include <algorithm>

namespace epl {

int64_t device_share_of_memory(const Config& config, const Cluster& cluster) {
  const int64_t asked = config.get<int64_t>("auto.device_memory");
  if (asked > 0) return asked << 20;
  int devices = 0;
  const auto& hosts = cluster.worker_hosts;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const bool here = hosts[i] == hosts[static_cast<size_t>(cluster.worker_index)];
    if (here) devices += cluster.worker_devices[i];
  }
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return machine / std::max(1, devices);
}

}  // namespace epl
