#include <epl/env.h>
#include <epl/io.h>
#include <epl/strategy.h>

#include "base/text.h"
#include "driver/placement.h"

namespace epl {

WorkerShares pipeline_shares(const std::vector<int>& stage_devices, SourceLocation where) {
  std::vector<Strategy> stages;
  for (size_t i = 0; i < stage_devices.size(); ++i) {
    stages.push_back(replicate(stage_devices[i], concat("stage_", i), where));
  }
  const Cluster& cluster = Env::get().cluster;
  const Placement placement = find_placement(stages, cluster, Env::get().config);
  const int replica = placement.place(cluster.first_device()).replica;
  const bool reads = !placement.devices_of(0, cluster.worker_index, cluster).empty();
  const int reader =
      reads ? cluster.worker_index : worker_of(placement.device({replica, 0, 0}), cluster);
  WorkerShares shares;
  shares.replicas.clear();
  for (int worker : placement.workers_of(0, cluster)) {
    if (worker == reader) shares.worker = static_cast<int>(shares.replicas.size());
    const auto devices = placement.devices_of(0, worker, cluster).size();
    shares.replicas.push_back(static_cast<int>(devices));
  }
  return shares;
}

}  // namespace epl
