// How the devices are shared out over replicas and stages, from the strategies of a step.
#pragma once

#include <epl/config.h>
#include <epl/strategy.h>

#include <vector>

#include "program/placement.h"

namespace epl {

// Without any strategy a replica takes one device. Throws epl::Error where the devices cannot be
// shared out, and where a strategy needs what does not exist yet.
// `cut_parameters`: the step uses parameters that were made under split().
Placement find_placement(const std::vector<Strategy>& taskgraphs, const Cluster& cluster,
                         const Config& config, bool cut_parameters = false);

}  // namespace epl
