// What EPL knows of optimizers and what they keep for a parameter: one row for each rule.
//
//   SGD          momentum_buffer (momentum != 0)
//   Adam, AdamW  step, exp_avg, exp_avg_sq, max_exp_avg_sq (amsgrad)
//   RMSprop      step, square_avg, momentum_buffer (momentum > 0), grad_avg (centered)
//   Adagrad      step, sum: made with the optimizer, the others with a first gradient
//
// A row knows no class: names are LibTorch's, options are numbers in the row's order. Whoever
// updates, forecasts, gathers, copies or compares states reads the row, and a ModelOptimizer
// (model_optimizer.h) gives the numbers and tensors:
//
//   const OptionValues options = optimizer.options(group);
//   if (row.tensors[0].exists(options)) ...                // a momentum buffer
//   step.momentum = options[SgdOption::kMomentum];
//
// Guaranteed for LibTorch's own classes, and compared with what each of them makes and saves by
// model/torch_optimizer_rows_test.cc: a row names every member of a state as torch::save writes it,
// and all members but the count of steps are tensors that lie as their parameter does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace epl {

// The options of a group in the order of its row; those behind the last one are 0.
constexpr size_t kMostOptions = 6;
using OptionValues = std::array<double, kMostOptions>;

// Their places. Both of a pair have one; a switch is 0 or 1.
struct SgdOption {
  enum : size_t { kLearningRate, kMomentum, kDampening, kWeightDecay, kNesterov };
};
struct AdamOption {  // and AdamW
  enum : size_t { kLearningRate, kBeta1, kBeta2, kEpsilon, kWeightDecay, kAmsgrad };
};
struct RmspropOption {
  enum : size_t { kLearningRate, kAlpha, kEpsilon, kWeightDecay, kMomentum, kCentered };
};
struct AdagradOption {
  enum : size_t { kLearningRate, kLearningRateDecay, kWeightDecay, kEpsilon };
};

// A tensor of a state: of its parameter's sizes and type, and cut as that one is.
constexpr size_t kMostStateTensors = 3;
struct StateTensor {
  const char* name;                             // as torch::save writes it
  bool (*exists)(const OptionValues& options);  // whether steps need it
};

// The arithmetic of a step, see runtime/update_kernels.h.
enum class UpdateKernel : uint8_t { kSgd, kAdam, kAdamW, kRmsprop, kAdagrad };

// When a parameter's state is made.
enum class StateBegins : uint8_t { kWithGradient, kWithOptimizer };

struct OptimizerRow {
  std::string name;  // of LibTorch's class
  UpdateKernel kernel;
  StateBegins begins = StateBegins::kWithGradient;
  std::vector<StateTensor> tensors;
  bool counts_steps = false;         // which torch::save writes as "step"
  std::vector<const char*> options;  // that every step reads, as torch::save writes them

  // Whether a parameter has a state at all under these options, and how many tensors it has.
  bool keeps_state(const OptionValues& options) const;
  size_t tensor_count(const OptionValues& options) const;
};

const std::vector<OptimizerRow>& optimizer_table();
const OptimizerRow& row_of(UpdateKernel kernel);

}  // namespace epl
