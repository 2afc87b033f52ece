#include "driver/replication.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "config/checks.h"

namespace epl {
namespace {

std::string asked_by(const std::vector<Strategy>& taskgraphs, const Cluster& cluster) {
  std::vector<std::string> lines;
  for (const Strategy& strategy : taskgraphs) lines.push_back(strategy.asked_by());
  if (lines.empty()) {
    lines.push_back(
        concat(cluster.total_gpu_num, " devices and no strategy, so each has a replica"));
  }
  return join(lines, "\n            ");
}

// A replica lies on whole workers, or several lie on one: else a worker would hold a part of one
// replica and a part of another, and read rows of both.
void check_workers(const Replication& replication, const Cluster& cluster) {
  for (size_t worker = 0; worker < cluster.worker_devices.size(); ++worker) {
    const int devices = cluster.worker_devices[worker];
    const bool even = devices % replication.slices == 0 || replication.slices % devices == 0;
    EPL_CHECK(
        even,
        concat("a replica of ", replication.slices, " devices cannot lie on workers with ",
               join(cluster.worker_devices, ", "), " devices: worker ", worker, " has ", devices),
        replication.asked_by,
        "devices per worker that the replica's devices divide, or are a multiple of");
  }
}

}  // namespace

int Replication::slices_here(const Cluster& cluster) const {
  return std::min(slices, cluster.local_devices());
}

Replication find_replication(const std::vector<Strategy>& taskgraphs, const Cluster& cluster,
                             const Config& config) {
  check_devices(taskgraphs, cluster, config);
  Replication replication;
  if (cluster.total_gpu_num == 1) return replication;
  replication.asked_by = asked_by(taskgraphs, cluster);
  const bool colocated = config.get<bool>("cluster.colocate_split_and_replicate");
  EPL_CHECK(taskgraphs.size() <= 1 || colocated,
            concat("the step has ", taskgraphs.size(),
                   " TaskGraphs, which lie on different devices: a "
                   "pipeline is not available yet"),
            replication.asked_by,
            "one strategy for the whole step, such as "
            "epl::set_default_strategy(epl::replicate(1)) before it");
  for (const Strategy& strategy : taskgraphs) {
    EPL_CHECK(strategy.kind == Strategy::Kind::kReplicate || strategy.device_count == 1,
              "to split operators over devices is not available yet", strategy.asked_by(),
              "epl::replicate");
    replication.slices = std::max(replication.slices, strategy.device_count);
  }
  EPL_CHECK(std::all_of(taskgraphs.begin(), taskgraphs.end(),
                        [&](const Strategy& strategy) {
                          return strategy.device_count == replication.slices;
                        }),
            "TaskGraphs on the same devices have different device counts", replication.asked_by,
            concat("replicate(", replication.slices, ") for all of them"));
  replication.replicas = cluster.total_gpu_num / replication.slices;
  check_workers(replication, cluster);
  return replication;
}

}  // namespace epl
