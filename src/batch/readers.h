// Whose rows a step reads: those of a worker, where workers have different stages of the step, and
// those of a device.
#pragma once

#include <epl/cluster.h>
#include <epl/config.h>
#include <epl/io.h>

#include <optional>

#include "batch/micro_batches.h"
#include "program/placement.h"

namespace epl {

// Whether it has a device of the first stage.
bool reads_rows(int worker, const Placement& placement, const Cluster& cluster);

// The worker whose rows the devices of `worker` compute with: itself where it has a device of the
// first stage, else the one that has the first stage of its first device's replica.
int reader_for(int worker, const Placement& placement, const Cluster& cluster);

// What each reading worker reads, by its devices of the first stage.
WorkerShares shares_of(const Placement& placement, const Cluster& cluster);

// How the rows of this worker are shared out over the first-stage devices that it has. One that has
// none takes a batch of the shape that those get which it works with, to record by.
Shares shares_here(const Placement& placement, const Cluster& cluster, const Config& config);

// How often the rows that this worker is handed go into a micro batch. Devices of other workers
// have rows of their own: to record by, those of this one stand for them.
int times_of_rows(const Placement& placement, const Cluster& cluster);

// This worker's rows of the micro batch number `index` that a reader (as in `batches`) works on:
// those of all that share it. `scratch` holds them where they are put together.
const Batch& micro_batch_of(const DeviceBatches& batches, const Placement& placement, size_t reader,
                            size_t index, Batch& scratch);
// Devices of this worker that share a micro batch, each with rows of its own.
size_t slices_of(const DeviceBatches& batches, const Placement& placement);

// Which of this worker's batches its device number `device` works on: that of its replica. None
// where another worker reads it.
std::optional<size_t> batch_of(int device, const Placement& placement, const Cluster& cluster);

}  // namespace epl
