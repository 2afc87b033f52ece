// What the devices of a step computed, made one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "driver/ready_step.h"

namespace epl {

// The tensors of all workers, in the order of workers. They may differ in shape and number.
std::vector<at::Tensor> gather_from_workers(const std::vector<at::Tensor>& mine,
                                            Communicator& workers);

// What the micro batches of this worker add to the mean over those of all workers.
double mean_loss(const std::vector<DeviceRun>& runs, const ReadyStep& step);

// GLOBAL_ metrics over all micro batches of all replicas of all workers, in the order of devices;
// LOCAL_ ones over the micro batches of the replica that this worker's first device belongs to.
// What the slices of a micro batch give is made whole first. `workers` is null where there is one
// worker; `first`: the number of this worker's first device.
std::map<std::string, at::Tensor> merge_metrics(const std::vector<DeviceRun>& runs,
                                                const ReadyStep& step, Communicator* workers,
                                                int first);

}  // namespace epl
