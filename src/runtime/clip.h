// Gradient clipping as torch::nn::utils does it, on the gradients of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.h"

namespace epl {

struct ClipOptions {
  double norm = 0;  // 0: not by norm. Infinite: nothing is clipped, it asks for the norm alone
  double norm_type = 2;
  double value = 0;  // 0: not by value

  bool clips() const { return norm > 0 || value > 0; }
  // The norm, where there is one to be clipped to; nothing changes.
  ClipOptions norm_alone() const;
};

// What a user asks for by TrainerOptions, checked: throws epl::Error where it cannot be.
ClipOptions checked(const ClipOptions& asked);

// Clips in place, first by norm, then by value. Returns the norm before, 0 where none is asked for.
// The gradients are 1 / scale of those that are meant: before they are reduced, those of a device
// carry its share in the mean over all. Those of a scaled loss are its multiples besides; where
// their norm is not finite they become NaN, and whoever looks then skips the step.
double clip_gradients(const std::vector<at::Tensor>& gradients, const ClipOptions& options,
                      double scale = 1, double loss_scale = 1);

// The same where other workers have other gradients: the norm is that of all. `counts`: which of
// them this worker answers for, so that each counts once.
double clip_gradients_of_workers(const std::vector<at::Tensor>& gradients,
                                 const std::vector<bool>& counts, const ClipOptions& options,
                                 Communicator& workers);

}  // namespace epl
