// Runs autograd under a Recorder so that every backward operator gets the TaskGraph of its forward,
// and the number of the forward operator that it belongs to.
//
// Autograd nodes carry the sequence number at which they were made; the scopes' borders and the
// forward operators are kept in the same numbers. A hook before each autograd node tells the
// recorder whose operators come next.
// What autograd does between two nodes, the sums of gradients of a value with several users,
// belongs where the last part of the sum is made.
#pragma once

#include <vector>

#include "capture/recorder.h"

namespace epl {

// The TaskGraph that ended at a sequence number.
struct TaskGraphBorder {
  uint64_t sequence;
  int taskgraph;
};

// d loss / d parameter, undefined for a parameter that the loss does not depend on.
std::vector<at::Tensor> record_backward(Recorder& recorder, const at::Tensor& loss,
                                        const at::Tensor& seed,
                                        const std::vector<at::Tensor>& parameters,
                                        const std::vector<TaskGraphBorder>& borders);

}  // namespace epl
