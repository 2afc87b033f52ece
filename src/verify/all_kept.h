// gradient_checkpoint.check_gradients: before the first step of a recording in which something runs
// again, the same step runs with all kept, from the same state and with the same random numbers.
// Same kernels on the same numbers: every gradient of every device must have the same bits. It
// takes the memory of a step that keeps all, once.
//
//   AllKeptGradients kept;
//   kept.run({bind, run_devices, replicas, devices, before, end});
//   ... EPL runs the step, until the gradients of all workers are there
//   kept.compare(bound, first_device, number, config);
#pragma once

#include <ATen/core/Tensor.h>
#include <epl/config.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/bound_step.h"
#include "runtime/local_replicas.h"
#include "runtime/step_end.h"
#include "state/state_snapshot.h"

namespace epl {

struct AllKeptStep {
  // The step that was compiled to keep all, on the devices of this worker.
  std::function<std::unique_ptr<BoundStep>()> bind;
  std::function<void(BoundStep& bound)> run_devices;  // up to the end of the step
  LocalReplicas& replicas;
  int devices = 1;       // of the whole job
  StateSnapshot before;  // what a run of the step changes
  StepEndRequest end;
};

class AllKeptGradients {
 public:
  // Runs it until the gradients of all workers are there and sets all back that it changed; nothing
  // is updated. Where a guard fails there is nothing to compare: the step will be recorded anew,
  // and the new recording compared.
  void run(AllKeptStep step);

  void forget() { gradients_.clear(); }

  // Once after run(): throws epl::Error where a gradient of the step has other bits. Where the step
  // has been recorded anew meanwhile, a line in the log says that nothing is compared. `number`:
  // of the step.
  void compare(const BoundStep& bound, int first_device, int64_t number, const Config& config);

 private:
  std::vector<at::Tensor> gradients_;  // of devices
};

}  // namespace epl
