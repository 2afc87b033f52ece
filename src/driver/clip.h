// Gradient clipping as torch::nn::utils does it, on the gradients of a step.
#pragma once

#include <epl/trainer.h>

#include <vector>

#include "comm/communicator.h"

namespace epl {

// Clips in place, first by norm, then by value. Returns the norm before, 0 where none is asked for.
// To an infinite norm nothing is clipped: it asks for the norm alone.
// The gradients are 1 / scale of those that are meant: before they are reduced, those of a device
// carry its share in the mean over all.
double clip_gradients(const std::vector<at::Tensor>& gradients, const TrainerOptions& options,
                      double scale = 1);

// The same where other workers have other gradients: the norm is that of all. `counts`: which of
// them this worker answers for, so that each counts once.
double clip_gradients_of_workers(const std::vector<at::Tensor>& gradients,
                                 const std::vector<bool>& counts, const TrainerOptions& options,
                                 Communicator& workers);

bool clips(const TrainerOptions& options);

void check_clipping(const TrainerOptions& options);

}  // namespace epl
