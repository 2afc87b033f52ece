#include "amp/loss_scale.h"

#include <algorithm>

namespace epl {

LossScale LossScale::fixed(double value) {
  LossScale scale;
  scale.dynamic_ = false;
  scale.value_ = value;
  return scale;
}

void LossScale::step_ended(bool finite) {
  if (!dynamic_) return;
  good_steps_ = finite ? good_steps_ + 1 : 0;
  if (!finite) {
    value_ = std::max(value_ / 2, kLeast);
  } else if (good_steps_ == kGoodSteps) {
    value_ = std::min(value_ * 2, kMost);
    good_steps_ = 0;
  }
}

void LossScale::go_on_from(double value, int64_t good_steps) {
  if (!dynamic_) return;
  value_ = std::clamp(value, kLeast, kMost);
  good_steps_ = good_steps;
}

}  // namespace epl
