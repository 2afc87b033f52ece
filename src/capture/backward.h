// Runs autograd under a Recorder so that every backward operator gets the TaskGraph of its forward,
// and the number of the forward operator that it belongs to.
//
// Autograd nodes carry the sequence number at which they were made; the scopes' borders and the
// forward operators are kept in the same numbers. A hook before each autograd node tells the
// recorder whose operators come next.
// What autograd does between two nodes, the sums of gradients of a value with several users,
// belongs where the last part of the sum is made.
//
// Leaves. Where backward runs the user's own code, a torch::autograd::Function or a hook, the whole
// of it runs as the user's backward() would, into grad(): hooks of parameters change what arrives
// there, and a backward() inside of a Function adds to it. Elsewhere the gradients are asked for by
// themselves, which computes those of trained parameters alone and copies none.
#pragma once

#include <vector>

#include "capture/recorder.h"

namespace epl {

// The TaskGraph that ended at a sequence number.
struct TaskGraphBorder {
  uint64_t sequence;
  int taskgraph;
};

// What tensors have in grad() is put aside while this stands.
class EmptiedGradients {
 public:
  explicit EmptiedGradients(std::vector<at::Tensor> tensors);
  ~EmptiedGradients();
  EmptiedGradients(const EmptiedGradients&) = delete;
  EmptiedGradients& operator=(const EmptiedGradients&) = delete;

 private:
  const std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> before_;
};

// Those that autograd may reach: grad() of the trained ones is empty, and nothing stays in that of
// the others.
struct AutogradLeaves {
  const std::vector<at::Tensor>& trained;
  const std::vector<at::Tensor>& others;
};

struct Gradients {
  std::vector<at::Tensor> trained;  // d loss / d parameter, undefined where there is none
  std::vector<at::Tensor> reached;  // all leaves that the loss depends on
};

// Whether hooks, retain_grad() or a torch::autograd::Function of the user's see gradients on the
// way.
bool backward_runs_users_code(const at::Tensor& loss);

Gradients record_backward(Recorder& recorder, const at::Tensor& loss, const at::Tensor& seed,
                          const AutogradLeaves& leaves,
                          const std::vector<TaskGraphBorder>& borders);

}  // namespace epl
