// Rules that hold between configuration, strategies and cluster. Each throws epl::Error.
#pragma once

#include <epl/cluster.h>
#include <epl/config.h>
#include <epl/strategy.h>

#include <vector>

namespace epl {

// No feature is switched on that does not exist yet (config_keys.h: `available`). Called by init().
void check_available(const Config& config);

// auto.auto_parallel chooses the strategies itself, so the program must not bring its own.
void check_auto_parallel(const std::vector<Strategy>& taskgraphs, const Config& config);

// The devices are shared out evenly over model replicas. One replica takes the sum of the
// TaskGraphs' device counts, with cluster.colocate_split_and_replicate the largest of them. No
// TaskGraphs are fine.
void check_devices(const std::vector<Strategy>& taskgraphs, const Cluster& cluster,
                   const Config& config);

}  // namespace epl
