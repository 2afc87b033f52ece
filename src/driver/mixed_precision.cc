#include "driver/mixed_precision.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>
#include <utility>

#include "base/check.h"

namespace epl {
namespace {

// "auto" is what CPUs have instructions and kernels for.
c10::ScalarType lower_type(const std::string& asked) {
  return asked == "float16" ? c10::ScalarType::Half : c10::ScalarType::BFloat16;
}

LossScale loss_scale(const std::string& asked) {
  return asked == "dynamic" ? LossScale() : LossScale::fixed(std::stod(asked));
}

// The best of some: others may compute on this machine, too.
double product_seconds(const at::Tensor& left, const at::Tensor& right) {
  using Clock = std::chrono::steady_clock;
  constexpr int kTimes = 4;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimes; ++i) {
    const auto begin = Clock::now();
    at::mm(left, right);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

}  // namespace

std::optional<MixedPrecision> mixed_precision(const Config& config) {
  if (config.get<std::string>("amp.level") != "O1") return std::nullopt;
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

std::optional<double> relative_product_time(c10::ScalarType lower, c10::Device device) {
  constexpr int64_t kSize = 256;
  const c10::AutoGradMode no_grad(false);
  const at::Tensor wide = at::ones({kSize, kSize}, at::TensorOptions(at::kFloat).device(device));
  const at::Tensor narrow = wide.to(lower);
  try {
    const double lower_seconds = product_seconds(narrow, narrow);
    return lower_seconds / product_seconds(wide, wide);
  } catch (const c10::Error&) {
    return std::nullopt;  // the step itself names the operator
  }
}

std::string remark_on_speed(c10::ScalarType lower, std::optional<double> relative_time) {
  if (!relative_time || *relative_time < 1) return "";
  const char* name = lower == c10::ScalarType::Half ? "float16" : "bfloat16";
  std::ostringstream times;
  times << std::setprecision(2) << *relative_time;
  return concat("a product of matrices in ", name, " is about ", times.str(),
                " times slower on this CPU than in float32: amp.level = \"O1\" saves memory here, "
                "not time");
}

}  // namespace epl
