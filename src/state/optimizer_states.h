// The states that an optimizer keeps for its parameters, read by the table of optimizers.
//
//   for (const at::Tensor& moment : state_tensors(optimizer, number))   // exp_avg, exp_avg_sq
//     release_pages(moment, dim, begin, length);
//
// Nothing here asks for a type: a state that has no row (optimizer_table.h) belongs to an optimizer
// of the user's own, and what it holds is not known.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "state/model_optimizer.h"

namespace epl {

// The tensors of a parameter's state that lie as it does (moments, momentum), in the table's order;
// none where there is no state yet, or one that is not known.
std::vector<at::Tensor> state_tensors(ModelOptimizer& optimizer, size_t number);

// Whether a state tells that its parameter had a gradient: one that is made with the optimizer does
// so once it has counted a step.
bool has_seen_gradient(const ParameterState& state);

// For forecasts: how many tensors of a parameter's size the optimizer keeps for it, by the options
// of its first group. Options that are not known count as Adam's.
double state_per_parameter(const ModelOptimizer& optimizer);

// While it stands an optimizer has copies of its states; then its own again, with what they held,
// and none where it had none. Of an optimizer whose rule is known: one of the user's own may keep
// anything anywhere.
class LentStates {
 public:
  explicit LentStates(ModelOptimizer& optimizer);
  ~LentStates();
  LentStates(const LentStates&) = delete;
  LentStates& operator=(const LentStates&) = delete;

 private:
  struct Own {
    bool exists = false;
    std::array<at::Tensor, kMostStateTensors> tensors = {};
    int64_t step = 0;
  };

  ModelOptimizer& optimizer_;
  std::vector<Own> own_;  // by number
};

}  // namespace epl
