// Rules that hold between configuration, strategies and cluster. Each throws epl::Error.
#pragma once

#include <epl/cluster.h>
#include <epl/config.h>
#include <epl/strategy.h>

#include <string>
#include <vector>

namespace epl {

// No feature is switched on that does not exist yet (config_keys.h: `available`). Called by init().
void check_available(const Config& config);
// The same of what depends on the number of workers.
void check_available_on(int worker_num, const Config& config);

// Nothing that was set is ignored: a key that acts only together with another one which nobody has
// set is a mistake, and so are two keys that contradict each other. Where the other key was set so
// that this one has no effect, the program knows what it does. Called by init().
void check_has_effect(const Config& config);

// auto.auto_parallel chooses the strategies itself, so the program must not bring its own.
void check_auto_parallel(const std::vector<Strategy>& taskgraphs, const Config& config);

// The devices are shared out evenly over model replicas. One replica takes the sum of the
// TaskGraphs' device counts, with cluster.colocate_split_and_replicate the largest of them. No
// TaskGraphs are fine. `who`: whom an error names in place of the scopes.
void check_devices(const std::vector<Strategy>& taskgraphs, const ClusterShape& cluster,
                   const Config& config, const std::string& who = "");

}  // namespace epl
