#include "amp/remarks.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <limits>
#include <sstream>

#include "base/check.h"

namespace epl {
namespace {

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

std::string remark_on_skipped_step(int64_t step, double scale, double next_scale) {
  return concat("step ", step, " is skipped, since a gradient is not finite with a loss scale of ",
                scale, "; the next step has ", next_scale, ". StepResult::skipped tells of others");
}

std::string remark_on_casts(const CastLog& casts, int64_t times) {
  return concat(
      "amp.debug_log: casts of a step of one device, forward, before equal ones are joined\n",
      casts.str(times));
}

}  // namespace epl
