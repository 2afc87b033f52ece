// What a training step changes in the user's objects: parameters, buffers, gradients and the states
// of optimizers. For a plain step that must leave no trace.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "model/model.h"
#include "state/optimizer_states.h"
#include "state/state_snapshot.h"

namespace epl {

// Whether EPL knows what an optimizer keeps, so that it can be set back after a step. One of the
// user's own may keep anything anywhere, whatever its save() writes.
inline bool can_be_set_back(const ModelOptimizer& optimizer) { return optimizer.row() != nullptr; }

class ModelSnapshot {
 public:
  // Leaves copies of their states to the optimizers while it stands, and keeps their own.
  explicit ModelSnapshot(const Model& model);

  // What zero_grad() and backward() of the plain loop leave where a step gives no gradient: zeros
  // for parameters that had one once, in whatever trainer, so that momentum and decay go on; from
  // LibTorch 2.0 on nothing. To be called after backward().
  void give_zeros_where_gradients_were();

  void restore();

 private:
  bool had_gradient(size_t parameter) const;

  const Model& model_;
  const StateSnapshot tensors_;
  std::vector<at::Tensor> gradients_;
  std::vector<bool> states_tell_;  // by parameter: a state of it has seen a gradient
  std::vector<std::unique_ptr<LentStates>> states_;  // of the optimizers that can be set back
};

}  // namespace epl
