// LibTorch's optimizers by the table of optimizers: how the numbers and tensors that a row names
// are read from the classes of torch::optim.
//
//   if (const TorchOptimizerRow* known = torch_row_of(*state))
//     for (auto tensor_in : known->tensors) bytes += tensor_in(*state).nbytes();
//
// There is one for each row of state/optimizer_table.h and for LibTorch's own classes alone: a
// subclass or an optimizer of the user's own has none, and runs its own step().
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "state/optimizer_table.h"

namespace epl {

struct TorchOptimizerRow {
  const OptimizerRow* row;

  // In the order of the row.
  std::vector<at::Tensor& (*)(torch::optim::OptimizerParamState& state)> tensors;
  std::vector<double (*)(const torch::optim::OptimizerOptions& options)> options;
  int64_t& (*step)(torch::optim::OptimizerParamState& state) = nullptr;  // null: counts none

  // A state in which nothing is defined yet.
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();

  // A state with the same tensors, which is all there is of it, or of which other workers keep the
  // rest. The latter hides its tensors, in the order of the row, from the program: LibTorch's own
  // step() throws where it would go on with numbers of which others have newer ones, and saving it
  // throws.
  std::unique_ptr<torch::optim::OptimizerParamState> (*whole)(
      const torch::optim::OptimizerParamState& state);
  std::unique_ptr<torch::optim::OptimizerParamState> (*partial)(
      const torch::optim::OptimizerParamState& state);
  bool (*is_partial)(const torch::optim::OptimizerParamState& state);
  at::Tensor& (*hidden)(torch::optim::OptimizerParamState& partial, size_t tensor);

  // Whether an optimizer is just this one, and whether options and states are of its classes.
  bool (*is_row_of)(const torch::optim::Optimizer& optimizer);
  bool (*has_options)(const torch::optim::OptimizerOptions& options);
  bool (*has_state)(const torch::optim::OptimizerParamState& state);

  OptionValues values_of(const torch::optim::OptimizerOptions& of_group) const;
};

const std::vector<TorchOptimizerRow>& torch_optimizer_rows();

// Null where there is none. An optimizer of the user's own may have LibTorch's options or states:
// those have a row, and it has not.
const TorchOptimizerRow* torch_row_of(const torch::optim::Optimizer& optimizer);
const TorchOptimizerRow* torch_row_of(const torch::optim::OptimizerOptions& options);
const TorchOptimizerRow* torch_row_of(const torch::optim::OptimizerParamState& state);

}  // namespace epl
