// What a training step changes in the user's objects: parameters, buffers, gradients and the states
// of optimizers. For a plain step that must leave no trace.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <vector>

#include "driver/model.h"
#include "state/optimizer_states.h"

namespace epl {

// All tensors of a model: those that are updated, then the rest.
NamedTensors all_tensors(const Model& model);

// Whether EPL knows what an optimizer keeps, so that it can be set back after a step: those of
// LibTorch. One of the user's own may keep anything anywhere, whatever its save() writes.
bool can_be_set_back(const torch::optim::Optimizer& optimizer);

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
  std::vector<at::Tensor> contents_;
  std::vector<at::Tensor> gradients_;
  std::vector<OptimizerStates> states_;  // by optimizer; empty for those that cannot be set back
};

}  // namespace epl
