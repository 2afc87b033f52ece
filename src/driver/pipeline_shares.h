// Whose rows a step reads, where workers have different stages of it.
#pragma once

#include <epl/cluster.h>
#include <epl/io.h>
#include <epl/step.h>

#include <cstdint>

#include "driver/job.h"
#include "program/placement.h"

namespace epl {

// The worker whose rows the devices of `worker` compute with: itself where it has a device of the
// first stage, else the one that has the first stage of its first device's replica.
int reader_for(int worker, const Placement& placement, const Cluster& cluster);

// What each reading worker reads, by its devices of the first stage.
WorkerShares shares_of(const Placement& placement, const Cluster& cluster);

// A worker without a first stage hands in the batch of the worker that reads for it. Other rows are
// rows that the program believes to be trained on and nobody reads: an Error on all workers. A
// batch of one number throughout, such as zeros, is no data and passes. On all workers together;
// looks at few steps, the first ones and then ever fewer.
void check_rows_are_read(Job& job, const Placement& placement, const Batch& batch, int64_t step);

}  // namespace epl
