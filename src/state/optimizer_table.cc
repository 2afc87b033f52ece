#include "state/optimizer_table.h"

#include <algorithm>

#include "base/check.h"

namespace epl {
namespace {

bool always(const OptionValues&) { return true; }

OptimizerRow row_of_sgd() {
  const auto with_momentum = [](const OptionValues& options) {
    return options[SgdOption::kMomentum] != 0;
  };
  OptimizerRow row;
  row.name = "SGD";
  row.kernel = UpdateKernel::kSgd;
  row.tensors = {{"momentum_buffer", with_momentum}};
  row.options = {"lr", "momentum", "dampening", "weight_decay", "nesterov"};
  return row;
}

// Adam and AdamW differ in what weight decay means.
OptimizerRow row_of_adam(const char* name, UpdateKernel kernel) {
  const auto with_amsgrad = [](const OptionValues& options) {
    return options[AdamOption::kAmsgrad] != 0;
  };
  OptimizerRow row;
  row.name = name;
  row.kernel = kernel;
  row.tensors = {{"exp_avg", always}, {"exp_avg_sq", always}, {"max_exp_avg_sq", with_amsgrad}};
  row.counts_steps = true;
  row.options = {"lr", "betas", "betas", "eps", "weight_decay", "amsgrad"};
  return row;
}

OptimizerRow row_of_rmsprop() {
  const auto with_momentum = [](const OptionValues& options) {
    return options[RmspropOption::kMomentum] > 0;
  };
  const auto if_centered = [](const OptionValues& options) {
    return options[RmspropOption::kCentered] != 0;
  };
  OptimizerRow row;
  row.name = "RMSprop";
  row.kernel = UpdateKernel::kRmsprop;
  row.tensors = {
      {"square_avg", always}, {"momentum_buffer", with_momentum}, {"grad_avg", if_centered}};
  row.counts_steps = true;
  row.options = {"lr", "alpha", "eps", "weight_decay", "momentum", "centered"};
  return row;
}

// The constructor alone reads initial_accumulator_value.
OptimizerRow row_of_adagrad() {
  OptimizerRow row;
  row.name = "Adagrad";
  row.kernel = UpdateKernel::kAdagrad;
  row.begins = StateBegins::kWithOptimizer;
  row.tensors = {{"sum", always}};
  row.counts_steps = true;
  row.options = {"lr", "lr_decay", "weight_decay", "eps"};
  return row;
}

}  // namespace

const std::vector<OptimizerRow>& optimizer_table() {
  static const std::vector<OptimizerRow> rows{
      row_of_sgd(),
      row_of_adam("Adam", UpdateKernel::kAdam),
      row_of_adam("AdamW", UpdateKernel::kAdamW),
      row_of_rmsprop(),
      row_of_adagrad(),
  };
  return rows;
}

const OptimizerRow& row_of(UpdateKernel kernel) {
  for (const OptimizerRow& row : optimizer_table()) {
    if (row.kernel == kernel) return row;
  }
  EPL_ASSERT(false, "a kernel without a row");
}

size_t OptimizerRow::tensor_count(const OptionValues& of_group) const {
  return static_cast<size_t>(
      std::count_if(tensors.begin(), tensors.end(),
                    [&](const StateTensor& each) { return each.exists(of_group); }));
}

bool OptimizerRow::keeps_state(const OptionValues& of_group) const {
  return counts_steps || tensor_count(of_group) > 0;
}

}  // namespace epl
