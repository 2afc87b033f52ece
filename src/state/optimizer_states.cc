#include "state/optimizer_states.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace epl {

std::vector<at::Tensor> state_tensors(ModelOptimizer& optimizer, size_t number) {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor* tensor : optimizer.state(number).tensors) {
    if (tensor != nullptr && tensor->defined()) tensors.push_back(*tensor);
  }
  return tensors;
}

bool has_seen_gradient(const ParameterState& state) {
  if (!state.exists) return false;
  return state.row == nullptr || state.row->begins == StateBegins::kWithGradient || *state.step > 0;
}

double state_per_parameter(const ModelOptimizer& optimizer) {
  if (optimizer.groups() == 0) return 0;
  const OptimizerRow* const row = optimizer.options_row(0);
  return row == nullptr ? 2 : static_cast<double>(row->tensor_count(optimizer.options(0)));
}

LentStates::LentStates(ModelOptimizer& optimizer) : optimizer_(optimizer) {
  EPL_ASSERT(optimizer.row() != nullptr, "states that are not known are lent");
  optimizer.look();
  for (size_t number = 0; number < optimizer.listed().size(); ++number) {
    const ParameterState state = optimizer.state(number);
    Own& own = own_.emplace_back();
    own.exists = state.exists;
    if (state.step != nullptr) own.step = *state.step;
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      at::Tensor* const tensor = state.tensors[i];
      if (tensor == nullptr || !tensor->defined()) continue;
      own.tensors[i] = *tensor;
      *tensor = tensor->detach().clone();
    }
  }
}

// Backwards, so that a parameter that is listed twice gets what it had at first.
LentStates::~LentStates() {
  for (size_t number = own_.size(); number-- > 0;) {
    const Own& own = own_[number];
    if (!own.exists) {
      optimizer_.drop_state(number);
      continue;
    }
    ParameterState state = optimizer_.state(number);
    if (!state.exists) state = optimizer_.make_state(number);
    if (state.step != nullptr) *state.step = own.step;
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      if (state.tensors[i] != nullptr) *state.tensors[i] = own.tensors[i];
    }
  }
}

}  // namespace epl
