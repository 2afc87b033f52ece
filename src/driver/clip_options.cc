#include "driver/clip_options.h"

#include <cmath>

#include "base/check.h"

namespace epl {

ClipOptions clip_options(const TrainerOptions& options) {
  EPL_CHECK(options.clip_grad_norm >= 0 && std::isfinite(options.clip_grad_norm),
            concat("cannot clip gradients to a norm of ", options.clip_grad_norm),
            "TrainerOptions::clip_grad_norm", "a positive number, or 0 for no clipping");
  EPL_CHECK(options.clip_grad_value >= 0 && std::isfinite(options.clip_grad_value),
            concat("cannot clip gradients to a value of ", options.clip_grad_value),
            "TrainerOptions::clip_grad_value", "a positive number, or 0 for no clipping");
  EPL_CHECK(options.clip_norm_type > 0, concat("there is no norm of type ", options.clip_norm_type),
            "TrainerOptions::clip_norm_type", "2, 1 or infinity");
  return {options.clip_grad_norm, options.clip_norm_type, options.clip_grad_value};
}

}  // namespace epl
