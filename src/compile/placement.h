// How the devices are shared out over replicas and stages, from the strategies of a step.
#pragma once

#include <epl/config.h>
#include <epl/strategy.h>

#include <string>
#include <vector>

#include "program/placement.h"

namespace epl {

// Without any strategy a replica takes one device. Throws epl::Error where the devices cannot be
// shared out, and where a strategy needs what does not exist yet.
// `cut_parameters`: the step uses parameters that were made under split(). `who`: what errors name
// where no scopes of a program ask.
Placement find_placement(const std::vector<Strategy>& taskgraphs, const ClusterShape& cluster,
                         const Config& config, bool cut_parameters = false,
                         const std::string& who = "");

// What to say where the strategies want several devices and the job has one; else nothing.
std::string describe_folding(const std::vector<Strategy>& taskgraphs, const ClusterShape& cluster);

}  // namespace epl
