// The state of a parameter as a fused kernel takes it: arrays that lie as the parameter does.
//
//   const RuleOptions options = rule_options(row, optimizer.options(group));
//   KernelState state;
//   if (!prepare_state(optimizer, {number}, options, parameter, state)) ...  // by its own step()
//   step.mean = state.arrays[0];  // AdamW: exp_avg is the first tensor of its row
//
// The states are the optimizer's own, made as the rows of state/optimizer_table.h say, in
// LibTorch's order: a state is made when its parameter has the first gradient, then the step is
// counted.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>

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

// Where the rest of a state lies: kShared where other workers keep theirs of it (zero.level), so
// that it takes no memory here but what this one writes, and is no state to be saved.
enum class StateHome : uint8_t { kHere, kShared };
struct StateOf {
  size_t number = 0;  // of its parameter in the optimizer's list
  StateHome home = StateHome::kHere;
};

// Answers false, with nothing changed, where the state is not what the rule makes by itself (a
// sparse momentum buffer, an option switched on after the first step); the optimizer's own step()
// then does that parameter. A state that is made is zeros by `make_zeros`, or by zeros_by_page()
// where that is empty; where it throws there is no state.
using MakeStateZeros = std::function<at::Tensor(const at::Tensor& parameter)>;
bool prepare_state(ModelOptimizer& optimizer, const StateOf& which, const RuleOptions& options,
                   const at::Tensor& parameter, KernelState& prepared,
                   const MakeStateZeros& make_zeros = {});

// An ordinary CPU tensor: strided, without conjugate or negative bit, nobody's subclass.
bool is_plain(const at::Tensor& tensor);

// `other` has the elements of `tensor` at the same offsets from its first one.
bool lies_like(const at::Tensor& tensor, const at::Tensor& other);

}  // namespace epl
