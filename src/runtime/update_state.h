// The state of a parameter as a fused kernel takes it: arrays that lie as the parameter does.
//
//   KernelState state;
//   if (!prepare_state(row, options, optimizer.state(), key, parameter, state)) ...  // LibTorch's
//   step.mean = state.arrays[0];  // AdamW: exp_avg is the first tensor of its row
//
// The states are the optimizer's own, found and made by the rows of state/optimizer_table.h, in
// LibTorch's order: a state is made when its parameter has the first gradient, then the step is
// counted.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "config/libtorch.h"
#include "state/optimizer_states.h"
#include "state/optimizer_table.h"

namespace epl {

struct KernelState {
  std::array<void*, 3> arrays = {};  // in the order of the row; null where steps need none
  bool fresh = false;                // made for this step
  int64_t step = 0;                  // this one, counted from 1; 0 where the state counts none
};

// Answers false, with nothing changed, where the state is not what LibTorch makes by itself (a
// sparse momentum buffer, an option switched on after the first step); LibTorch then does that
// parameter.
bool prepare_state(const OptimizerRow& row, const torch::optim::OptimizerOptions& options,
                   OptimizerStates& states, const StateKey& key, const at::Tensor& parameter,
                   KernelState& prepared);

// An ordinary CPU tensor: strided, without conjugate or negative bit, nobody's subclass.
bool is_plain(const at::Tensor& tensor);

// `other` has the elements of `tensor` at the same offsets from its first one.
bool lies_like(const at::Tensor& tensor, const at::Tensor& other);

}  // namespace epl
