// How often the model stands in the cluster, and on how many devices each time.
#pragma once

#include <epl/cluster.h>
#include <epl/config.h>
#include <epl/strategy.h>

#include <string>
#include <vector>

namespace epl {

struct Replication {
  int replicas = 1;      // model replicas in the whole cluster
  int slices = 1;        // devices of one replica; each takes its part of a micro batch
  std::string asked_by;  // whoever wants several devices; empty where there is one

  int devices() const { return replicas * slices; }
  // Devices of this worker that share one micro batch: all of them where a replica spans workers.
  int slices_here(const Cluster& cluster) const;
};

// From the strategies of the recorded TaskGraphs; without any a replica takes one device. Throws
// epl::Error where the devices cannot be shared out, and where a strategy needs what does not exist
// yet.
Replication find_replication(const std::vector<Strategy>& taskgraphs, const Cluster& cluster,
                             const Config& config);

}  // namespace epl
