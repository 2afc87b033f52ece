// Gradients of a loss that is scaled: whether they are finite, which a step asks before it updates
// anything, and what they are without the scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "runtime/device_team.h"
#include "runtime/step_gradients.h"

namespace epl {

// One pass over memory; with a team its devices share it. Gradients may be addends of one that is
// still to be summed: so what is within 2^16 of the largest number that there is counts as
// infinite.
bool are_finite(const std::vector<at::Tensor>& gradients);
bool are_finite(const std::vector<at::Tensor>& gradients, DeviceTeam& team);

// The name of a parameter of which a device here has a gradient that is not finite; empty where it
// is that of another worker.
std::string infinite_gradient(const StepGradients& gradients);

// Divides them by the scale, in place; memory that several of them show once.
void unscale_gradients(const std::vector<at::Tensor>& gradients, double scale);

}  // namespace epl
