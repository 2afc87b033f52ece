// Whose rows a step reads, where workers have different stages of it.
#pragma once

#include <epl/cluster.h>
#include <epl/io.h>

#include "program/placement.h"

namespace epl {

// Whether it has a device of the first stage.
bool reads_rows(int worker, const Placement& placement, const Cluster& cluster);

// The worker whose rows the devices of `worker` compute with: itself where it has a device of the
// first stage, else the one that has the first stage of its first device's replica.
int reader_for(int worker, const Placement& placement, const Cluster& cluster);

// What each reading worker reads, by its devices of the first stage.
WorkerShares shares_of(const Placement& placement, const Cluster& cluster);

}  // namespace epl
