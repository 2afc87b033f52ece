// debug.nan_loss: what becomes of a step whose loss is not finite.
#pragma once

#include <epl/config.h>
#include <epl/step.h>

#include <vector>

#include "runtime/interpreter.h"

namespace epl {

struct LossOfStep {
  double loss = 0;
  int64_t step = 0;
  const std::vector<DeviceRun>& runs;
  int first_device = 0;  // of this worker
  const Batch& batch;
};

// Whether parameters are to be updated with this loss; throws epl::Error where it is an error.
bool accepts_loss(const LossOfStep& result, const Config& config);

}  // namespace epl
