// debug.verify_steps: the plain LibTorch program beside a step, and how far the two are apart.
#pragma once

#include <epl/config.h>
#include <epl/trainer.h>

#include <map>
#include <string>
#include <vector>

#include "driver/model.h"
#include "driver/state_snapshot.h"

namespace epl {

// What one plain step gives. Made with the user's own objects, which are then set back: parameters,
// buffers, optimizer state, gradients, and what `state` holds. An optimizer of the user's own is
// set back only if it can be saved and loaded.
struct PlainStep {
  double loss = 0;
  std::map<std::string, at::Tensor> tensors;    // parameters and state after the update
  std::map<std::string, at::Tensor> gradients;  // after clipping
};

PlainStep run_plain_step(const Model& model, const StepFunction& step,
                         const std::vector<Batch>& micro_batches, double seed,
                         const TrainerOptions& options, const StateSnapshot& state);

// Compares with what EPL gave. Returns a line for the log that names the worst parameter and
// gradient; throws epl::Error where one is further off than debug.verify_tolerance.
std::string compare_with_plain(const PlainStep& plain, const Model& model,
                               const std::map<std::string, at::Tensor>& gradients, double loss,
                               int64_t step, const Config& config);

}  // namespace epl
