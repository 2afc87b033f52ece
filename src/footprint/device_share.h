// How much memory a device may take.
#pragma once

#include <epl/cluster.h>
#include <epl/config.h>

#include <cstdint>

namespace epl {

// auto.device_memory; without it what this machine has, shared out over the devices of the workers
// on it. In bytes.
int64_t device_share_of_memory(const Config& config, const Cluster& cluster);

}  // namespace epl
