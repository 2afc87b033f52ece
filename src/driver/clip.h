// Gradient clipping as torch::nn::utils does it, on the gradients of a step.
#pragma once

#include <epl/trainer.h>

#include <vector>

namespace epl {

// Clips in place, first by norm, then by value. Returns the norm before, 0 where none is asked for.
double clip_gradients(const std::vector<at::Tensor>& gradients, const TrainerOptions& options);

// The same where the gradients are 1 / scale of those that are meant: local ones carry the share of
// their device in the mean over all.
double clip_scaled_gradients(const std::vector<at::Tensor>& gradients, TrainerOptions options,
                             double scale);

bool clips(const TrainerOptions& options);

void check_clipping(const TrainerOptions& options);

}  // namespace epl
