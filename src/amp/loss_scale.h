// The number that the loss is multiplied by before backward, so that small gradients do not vanish
// in a lower precision; they are divided by it again before they are used.
//
//   LossScale scale;                      // dynamic, from 2^15 on
//   seed = plan.seed * scale.value();
//   scale.step_ended(finite);             // after each step, on all workers alike
//
// A dynamic scale doubles after so many steps in a row whose gradients were finite, and halves
// after one where some were not, which is skipped. Its factors are powers of two: scaling and
// unscaling change no bit of a gradient that is in range. A fixed scale stays as it is; steps are
// skipped all the same. Where it cannot shrink, gradients that are not finite are no matter of it.
#pragma once

#include <cstdint>
#include <string>

namespace epl {

class LossScale {
 public:
  static constexpr double kFirst = 32768;
  static constexpr int64_t kGoodSteps = 2000;
  static constexpr double kLeast = 1;
  // Gradients that vanish in float32 even so are no matter of its range, and sums of squares of
  // larger ones soon leave it.
  static constexpr double kMost = 0x1p24;

  LossScale() = default;
  static LossScale fixed(double value);

  double value() const { return value_; }
  bool is_dynamic() const { return dynamic_; }
  bool can_shrink() const { return dynamic_ && value_ > kLeast; }
  int64_t good_steps() const { return good_steps_; }  // since it last changed

  void step_ended(bool finite);

  // What an earlier run has left; a fixed scale stays what was asked for.
  void go_on_from(double value, int64_t good_steps);

 private:
  bool dynamic_ = true;
  double value_ = kFirst;
  int64_t good_steps_ = 0;
};

}  // namespace epl
