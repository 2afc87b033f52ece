// What EPL knows of LibTorch's optimizers and what they keep for a parameter: one row each.
//
//   SGD          momentum_buffer (momentum != 0)
//   Adam, AdamW  step, exp_avg, exp_avg_sq, max_exp_avg_sq (amsgrad)
//   RMSprop      step, square_avg, momentum_buffer (momentum > 0), grad_avg (centered)
//   Adagrad      step, sum: made with the optimizer, the others with a first gradient
//
// Whoever updates, forecasts, gathers, copies or compares states reads the row and asks for no
// type:
//
//   if (const OptimizerRow* row = row_of(*state))
//     for (const StateTensor& each : row->tensors) bytes += each.in(*state).nbytes();
//
// Guaranteed, and compared by optimizer_table_test.cc with what each optimizer makes and saves: a
// row names every member of a state as torch::save writes it, and all members but the count of
// steps are tensors that lie as their parameter does. Rows exist for LibTorch's own classes alone:
// a subclass or an optimizer of the user's own has none, and runs its own step().
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace epl {

// A tensor of a state: of its parameter's sizes and type, and cut as that one is.
struct StateTensor {
  const char* name;                                               // as torch::save writes it
  bool (*exists)(const torch::optim::OptimizerOptions& options);  // whether steps need it
  at::Tensor& (*in)(torch::optim::OptimizerParamState& state);    // undefined where it was not made
};

// A number that every step reads. Both of a pair have its name; a switch is 0 or 1.
struct OptimizerOption {
  const char* name;  // as torch::save writes it
  double (*in)(const torch::optim::OptimizerOptions& options);
};

// The arithmetic of a step, see runtime/update_kernels.h.
enum class UpdateKernel : uint8_t { kSgd, kAdam, kAdamW, kRmsprop, kAdagrad };

// When a parameter's state is made.
enum class StateBegins : uint8_t { kWithGradient, kWithOptimizer };

struct OptimizerRow {
  std::string name;  // of the class in torch::optim
  UpdateKernel kernel;
  StateBegins begins = StateBegins::kWithGradient;
  std::vector<StateTensor> tensors;
  // The steps that a state has counted, which torch::save writes as "step"; null where it counts
  // none.
  int64_t& (*step)(torch::optim::OptimizerParamState& state) = nullptr;
  std::vector<OptimizerOption> options;

  // A state in which nothing is defined yet.
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();

  // Whether an optimizer is just this one, and whether options and states are of its classes.
  bool (*is_row_of)(const torch::optim::Optimizer& optimizer);
  bool (*has_options)(const torch::optim::OptimizerOptions& options);
  bool (*has_state)(const torch::optim::OptimizerParamState& state);

  // Whether a parameter has a state at all under these options.
  bool keeps_state(const torch::optim::OptimizerOptions& options) const;
};

const std::vector<OptimizerRow>& optimizer_table();

// Null where there is none. An optimizer of the user's own may have LibTorch's options or states:
// those have a row, and it has not.
const OptimizerRow* row_of(const torch::optim::Optimizer& optimizer);
const OptimizerRow* row_of(const torch::optim::OptimizerOptions& options);
const OptimizerRow* row_of(const torch::optim::OptimizerParamState& state);

}  // namespace epl
