// The state of a parameter as a fused kernel takes it: arrays that lie as the parameter does.
//
//   const RuleOptions options = rule_options(row, optimizer.options(group));
//   KernelState state;
//   if (!prepare_state(optimizer, number, options, parameter, state)) ...  // by its own step()
//   step.mean = state.arrays[0];  // AdamW: exp_avg is the first tensor of its row
//
// The states are the optimizer's own, made as the rows of state/optimizer_table.h say, in
// LibTorch's order: a state is made when its parameter has the first gradient, then the step is
// counted.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "state/model_optimizer.h"

namespace epl {

struct KernelState {
  std::array<void*, kMostStateTensors> arrays =
      {};              // in the order of the row; null where steps need none
  bool fresh = false;  // made for this step
  int64_t step = 0;    // this one, counted from 1; 0 where the state counts none
};

// The options of a group with what the row makes of them: the same for all of its parameters.
struct RuleOptions {
  OptionValues values = {};
  bool keeps_state = false;
  std::array<bool, kMostStateTensors> has = {};  // which tensors of a state steps need
};
RuleOptions rule_options(const OptimizerRow& row, const OptionValues& values);

// Answers false, with nothing changed, where the state is not what the rule makes by itself (a
// sparse momentum buffer, an option switched on after the first step); the optimizer's own step()
// then does that parameter.
bool prepare_state(ModelOptimizer& optimizer, size_t number, const RuleOptions& options,
                   const at::Tensor& parameter, KernelState& prepared);

// An ordinary CPU tensor: strided, without conjugate or negative bit, nobody's subclass.
bool is_plain(const at::Tensor& tensor);

// `other` has the elements of `tensor` at the same offsets from its first one.
bool lies_like(const at::Tensor& tensor, const at::Tensor& other);

}  // namespace epl
