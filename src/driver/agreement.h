// What all workers of a job must have alike: the model, the configuration, the plan.
#pragma once

#include <epl/step.h>

#include <string>

#include "driver/job.h"
#include "driver/model.h"

namespace epl {

// Hands `text` to all workers and compares. Where one differs from worker 0 every worker throws,
// and names it with the first line that differs. `what`: "the plan".
void check_same_on_all_workers(Job& job, const std::string& what, const std::string& text);

// Names and types of all parameters and buffers, one a line.
std::string describe_model(const Model& model);

// Types and shapes of its tensors, one a line.
std::string describe_batch(const Batch& batch);

// The parameters and buffers of worker 0 on all workers.
void broadcast_model(Job& job, const Model& model);

}  // namespace epl
