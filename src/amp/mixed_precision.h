// amp.level = "O1", as a trainer has it: the step function computes under an AmpScope, wherever it
// runs (recorded, plainly, or beside a step that is verified), and its loss is scaled.
#pragma once

#include <epl/config.h>
#include <epl/step.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "amp/loss_scale.h"
#include "capture/amp_scope.h"

namespace epl {

struct MixedPrecision {
  c10::ScalarType lower = c10::ScalarType::BFloat16;
  LossScale scale;
  // Of the last call of the function, which holds it as well; null unless amp.debug_log is set.
  std::shared_ptr<CastLog> casts;
};

// None where amp.level is "".
std::optional<MixedPrecision> mixed_precision(const Config& config);

// Whether gradients are those of the loss times a number other than 1, now or later.
bool scales_loss(const std::optional<MixedPrecision>& mixed);

// The function itself where there is none.
StepFunction in_mixed_precision(StepFunction step, const std::optional<MixedPrecision>& mixed);

// After a step that was skipped, on all workers alike, and before the scale follows it: throws
// epl::Error where debug.nan_loss asks for one and the scale is not to blame, since it cannot
// shrink: the next step would be skipped as well. `culprit` gives the name of a parameter whose
// gradient is not finite, where this worker knows one.
void check_skipped_step(const MixedPrecision& mixed, int64_t step, const Config& config,
                        const std::function<std::string()>& culprit);

}  // namespace epl
