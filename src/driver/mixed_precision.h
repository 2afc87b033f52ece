// amp.level = "O1", as a trainer has it: the step function computes under an AmpScope, wherever it
// runs (recorded, plainly, or beside a step that is verified), and its loss is scaled.
#pragma once

#include <epl/config.h>
#include <epl/step.h>

#include <memory>
#include <optional>

#include "capture/amp_scope.h"
#include "runtime/loss_scale.h"

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

// How many times the time of a product in float32 one in `lower` takes, measured in a few
// milliseconds on this thread; none where there is no kernel for it.
std::optional<double> relative_product_time(c10::ScalarType lower, c10::Device device);

// A line for the log where it is not faster; else empty.
std::string remark_on_speed(c10::ScalarType lower, std::optional<double> relative_time);

}  // namespace epl
