// What the devices of a step computed, made one, as its Plan says.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "program/program.h"
#include "runtime/interpreter.h"

namespace epl {

// The tensors of all workers, in the order of workers. They may differ in shape and number.
std::vector<at::Tensor> gather_from_workers(const std::vector<at::Tensor>& mine,
                                            Communicator& workers);

// What the micro batches of this worker add to the loss of the step.
double merged_loss(const std::vector<DeviceRun>& runs, const Plan& plan);

// How many times the mean over micro batches and replicas that loss is: once, or where it is a sum
// over rows and gradients are summed as often as there are such parts.
double parts_in_loss(const Plan& plan);

// GLOBAL_ metrics over all micro batches of all replicas of all workers, in the order of devices;
// LOCAL_ ones over the micro batches of one replica. What the slices of a micro batch give is made
// whole first.
struct MetricsRequest {
  const Plan& plan;
  Communicator* workers = nullptr;  // null where there is one worker
  int replica = 0;                  // that this worker's first device belongs to
};
std::map<std::string, at::Tensor> merge_metrics(const std::vector<DeviceRun>& runs,
                                                const MetricsRequest& request);

// The same where every device is a replica of its own, and micro batches may differ in what they
// give. LOCAL_ metrics are those of this worker's first device.
std::map<std::string, at::Tensor> merge_metrics_of_replicas(const std::vector<DeviceRun>& runs,
                                                            Communicator* workers);

}  // namespace epl
