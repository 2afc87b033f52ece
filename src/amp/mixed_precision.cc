#include "amp/mixed_precision.h"

#include <utility>

#include "base/check.h"
#include "config/settings.h"

namespace epl {
namespace {

// "auto" is what CPUs have instructions and kernels for.
c10::ScalarType lower_type(const std::string& asked) {
  return asked == "float16" ? c10::ScalarType::Half : c10::ScalarType::BFloat16;
}

LossScale loss_scale(const std::string& asked) {
  return asked == "dynamic" ? LossScale() : LossScale::fixed(std::stod(asked));
}

}  // namespace

std::optional<MixedPrecision> mixed_precision(const Config& config) {
  if (!mixes_precisions(config)) return std::nullopt;
  MixedPrecision mixed;
  mixed.lower = lower_type(config.get<std::string>("amp.dtype"));
  mixed.scale = loss_scale(config.get<std::string>("amp.loss_scale"));
  if (config.get<bool>("amp.debug_log")) mixed.casts = std::make_shared<CastLog>();
  return mixed;
}

bool scales_loss(const std::optional<MixedPrecision>& mixed) {
  return mixed && (mixed->scale.is_dynamic() || mixed->scale.value() != 1);
}

StepFunction in_mixed_precision(StepFunction step, const std::optional<MixedPrecision>& mixed) {
  if (!mixed || step == nullptr) return step;
  return [step = std::move(step), lower = mixed->lower, casts = mixed->casts](const Batch& batch) {
    if (casts != nullptr) casts->clear();
    const AmpScope scope(lower, casts.get());
    return step(batch);
  };
}

void check_skipped_step(const MixedPrecision& mixed, int64_t step, const Config& config,
                        const std::function<std::string()>& culprit) {
  const bool may_throw = config.get<std::string>("debug.nan_loss") == "error";
  if (!may_throw || mixed.scale.can_shrink()) return;
  const std::string name = culprit();
  throw Error(
      concat("in step ", step, name.empty() ? " a gradient" : " the gradient of `", name,
             name.empty() ? "" : "`", " is not finite, and the loss scale of ", mixed.scale.value(),
             " gets no smaller; the parameters are as before the step"),
      config.asked_by("debug.nan_loss"),
      "a smaller learning rate, operators that have a derivative everywhere, "
      "amp.loss_scale = \"dynamic\" where it is a number, or debug.nan_loss = \"skip\"");
}

}  // namespace epl
