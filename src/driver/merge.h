// What the devices of a step computed, made one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "driver/ready_step.h"

namespace epl {

// What the micro batches of this worker add to the mean over those of all workers; to their sum
// where `sums` (gradients are summed as well) and the loss is a sum over rows.
double merged_loss(const std::vector<DeviceRun>& runs, const ReadyStep& step, bool sums);

// How many times the mean over micro batches and replicas that loss is.
double parts_in_loss(const ReadyStep& step, bool sums);

// GLOBAL_ metrics over all micro batches of all replicas of all workers, in the order of devices;
// LOCAL_ ones over the micro batches of the replica that this worker's first device belongs to.
// What the slices of a micro batch give is made whole first. `workers` is null where there is one
// worker; `first`: the number of this worker's first device.
std::map<std::string, at::Tensor> merge_metrics(const std::vector<DeviceRun>& runs,
                                                const ReadyStep& step, Communicator* workers,
                                                int first);

}  // namespace epl
