#include "state/optimizer_states.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"
#include "config/libtorch.h"
#include "state/optimizer_table.h"

namespace epl {

std::vector<at::Tensor> state_tensors(torch::optim::Optimizer& optimizer,
                                      const at::Tensor& parameter) {
  const auto found = optimizer.state().find(state_key(parameter));
  if (found == optimizer.state().end()) return {};
  const OptimizerRow* const row = row_of(*found->second);
  if (row == nullptr) return {};
  std::vector<at::Tensor> tensors;
  for (const StateTensor& each : row->tensors) {
    const at::Tensor& tensor = each.in(*found->second);
    if (tensor.defined()) tensors.push_back(tensor);
  }
  return tensors;
}

std::unique_ptr<torch::optim::OptimizerParamState> copy_of_state(
    const torch::optim::OptimizerParamState& state) {
  const OptimizerRow* const row = row_of(state);
  EPL_ASSERT(row != nullptr, "a state of LibTorch's optimizers that is not known");
  auto copy = state.clone();
  for (const StateTensor& each : row->tensors) {
    at::Tensor& tensor = each.in(*copy);
    if (tensor.defined()) tensor = tensor.detach().clone();
  }
  return copy;
}

bool has_seen_gradient(torch::optim::OptimizerParamState& state) {
  const OptimizerRow* const row = row_of(state);
  return row == nullptr || row->begins == StateBegins::kWithGradient || row->step(state) > 0;
}

double state_per_parameter(const torch::optim::Optimizer& optimizer) {
  if (optimizer.param_groups().empty()) return 0;
  const torch::optim::OptimizerOptions& options = optimizer.param_groups()[0].options();
  const OptimizerRow* const row = row_of(options);
  if (row == nullptr) return 2;
  return static_cast<double>(
      std::count_if(row->tensors.begin(), row->tensors.end(),
                    [&](const StateTensor& each) { return each.exists(options); }));
}

}  // namespace epl
