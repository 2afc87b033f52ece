// The states of optimizers whose parameters lie in stages on several workers: each worker has those
// of its own stages.
#pragma once

#include <vector>

#include "driver/job.h"
#include "driver/model.h"
#include "driver/ready_step.h"

namespace epl {

// The states of a parameter that lie as it does: moments, momentum.
std::vector<at::Tensor> state_tensors(const Model& model, const at::Tensor& parameter);

// Brings the states of all parameters to worker 0, for a file. All workers call it. Nothing where
// one worker has all.
void gather_optimizer_states(Job& job, const ReadyStep& step, const Model& model);

}  // namespace epl
