// What the devices of a step computed, made one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "driver/ready_step.h"

namespace epl {

// Over the devices and micro batches of this worker.
double mean_loss(const std::vector<DeviceRun>& runs);

// GLOBAL_ metrics over all micro batches of all devices of all workers, in the order of devices;
// LOCAL_ ones over the micro batches of this worker's first device. `workers` is null where there
// is one worker.
std::map<std::string, at::Tensor> merge_metrics(const std::vector<DeviceRun>& runs,
                                                Communicator* workers);

}  // namespace epl
