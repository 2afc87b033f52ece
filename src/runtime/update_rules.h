// The arguments of each fused kernel: a Rule for each UpdateKernel of state/optimizer_table.h.
//
//   SgdRule::Step step;
//   rule.fill(step, options, state);  // all but the parameter, its gradient and their type
//   update_range(step, begin, end);
//
// A Rule reads the options and the arrays of the state in the order of its row. A Step is a value:
// moved() gives the one of a run of elements further on.
#pragma once

#include <cmath>

#include "runtime/update_kernels.h"
#include "runtime/update_state.h"

namespace epl {

class SgdRule {
 public:
  using Step = SgdStep;
  static constexpr bool kBumpsVersion = false;  // LibTorch writes through parameter.data()

  void fill(Step& step, const OptionValues& options, const KernelState& state) {
    step.learning_rate = options[SgdOption::kLearningRate];
    step.weight_decay = options[SgdOption::kWeightDecay];
    if (options[SgdOption::kMomentum] == 0) return;
    step.momentum_buffer = state.arrays[0];
    step.first = state.fresh;
    step.nesterov = options[SgdOption::kNesterov] != 0;
    step.momentum = options[SgdOption::kMomentum];
    step.dampening = options[SgdOption::kDampening];
  }
};

// Adam and AdamW differ in what weight decay means.
template <bool kDecoupled>
class AdamRuleOf {
 public:
  using Step = AdamStep;
  static constexpr bool kBumpsVersion = true;

  void fill(Step& step, const OptionValues& options, const KernelState& state) {
    step.mean = state.arrays[0];
    step.mean_square = state.arrays[1];
    step.max_mean_square = state.arrays[2];
    step.beta1 = options[AdamOption::kBeta1];
    step.beta2 = options[AdamOption::kBeta2];
    correct(step.beta1, step.beta2, state.step);
    step.step_size = options[AdamOption::kLearningRate] / correction1_;
    step.root_correction2 = root_correction2_;
    step.epsilon = options[AdamOption::kEpsilon];
    if (kDecoupled && options[AdamOption::kWeightDecay] != 0)
      step.shrink = 1 - options[AdamOption::kLearningRate] * options[AdamOption::kWeightDecay];
    if (!kDecoupled) step.weight_decay = options[AdamOption::kWeightDecay];
  }

 private:
  // Nearly all parameters are at the same step, so the powers are kept from one to the next.
  void correct(double beta1, double beta2, int64_t count) {
    if (count == count_ && beta1 == beta1_ && beta2 == beta2_) return;
    count_ = count;
    beta1_ = beta1;
    beta2_ = beta2;
    correction1_ = 1 - std::pow(beta1, count);
    root_correction2_ = std::sqrt(1 - std::pow(beta2, count));
  }

  int64_t count_ = -1;
  double beta1_ = 0;
  double beta2_ = 0;
  double correction1_ = 0;
  double root_correction2_ = 0;
};

using AdamRule = AdamRuleOf<false>;
using AdamWRule = AdamRuleOf<true>;

class RmspropRule {
 public:
  using Step = RmspropStep;
  static constexpr bool kBumpsVersion = true;

  void fill(Step& step, const OptionValues& options, const KernelState& state) {
    step.mean_square = state.arrays[0];
    step.momentum_buffer = state.arrays[1];
    step.mean = state.arrays[2];
    step.learning_rate = options[RmspropOption::kLearningRate];
    step.alpha = options[RmspropOption::kAlpha];
    step.epsilon = options[RmspropOption::kEpsilon];
    step.weight_decay = options[RmspropOption::kWeightDecay];
    step.momentum = options[RmspropOption::kMomentum];
  }
};

class AdagradRule {
 public:
  using Step = AdagradStep;
  static constexpr bool kBumpsVersion = true;

  void fill(Step& step, const OptionValues& options, const KernelState& state) {
    step.sum = state.arrays[0];
    step.learning_rate =
        options[AdagradOption::kLearningRate] /
        (1 + static_cast<double>(state.step - 1) * options[AdagradOption::kLearningRateDecay]);
    step.epsilon = options[AdagradOption::kEpsilon];
    step.weight_decay = options[AdagradOption::kWeightDecay];
  }
};

// Element `by` of an array; none of one that is not there.
inline void* advanced(void* array, ElementType type, int64_t by) {
  const int64_t bytes = type == ElementType::kFloat ? 4 : 8;
  return array == nullptr ? nullptr : static_cast<char*>(array) + by * bytes;
}

template <typename Step>
Step moved_base(Step step, int64_t by, const void* gradient) {
  step.parameter = advanced(step.parameter, step.type, by);
  step.gradient = gradient;
  return step;
}

// The same step for elements `by` and on, with another gradient.
inline SgdStep moved(const SgdStep& from, int64_t by, const void* gradient) {
  SgdStep step = moved_base(from, by, gradient);
  step.momentum_buffer = advanced(step.momentum_buffer, step.type, by);
  return step;
}

inline AdamStep moved(const AdamStep& from, int64_t by, const void* gradient) {
  AdamStep step = moved_base(from, by, gradient);
  for (void** array : {&step.mean, &step.mean_square, &step.max_mean_square})
    *array = advanced(*array, step.type, by);
  return step;
}

inline RmspropStep moved(const RmspropStep& from, int64_t by, const void* gradient) {
  RmspropStep step = moved_base(from, by, gradient);
  for (void** array : {&step.mean_square, &step.mean, &step.momentum_buffer})
    *array = advanced(*array, step.type, by);
  return step;
}

inline AdagradStep moved(const AdagradStep& from, int64_t by, const void* gradient) {
  AdagradStep step = moved_base(from, by, gradient);
  step.sum = advanced(step.sum, step.type, by);
  return step;
}

}  // namespace epl
