// Gradient clipping as torch::nn::utils does it, on the gradients of a step.
#pragma once

#include <epl/trainer.h>

#include <vector>

namespace epl {

// Clips in place, first by norm, then by value. Returns the norm before, 0 where none is asked for.
double clip_gradients(const std::vector<at::Tensor>& gradients, const TrainerOptions& options);

void check_clipping(const TrainerOptions& options);

}  // namespace epl
