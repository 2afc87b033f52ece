#include "calibrate/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.h"

namespace epl {
namespace {

constexpr double kLeastTimed = 20e-6;  // a thousand times what reading the clock takes
constexpr double kMostAtOnce = 10'000;

}  // namespace

size_t Timing::sets_of(int64_t bytes) const {
  constexpr int64_t kMostSets = 4096;
  return static_cast<size_t>(
      std::clamp<int64_t>(rotated_bytes / std::max<int64_t>(1, bytes), 2, kMostSets));
}

Timing full_timing() { return {}; }

Timing quick_timing() {
  Timing timing;
  timing.seconds = 0.002;
  timing.least_samples = 3;
  timing.most_samples = 20;
  timing.rotated_bytes = 8 << 20;
  return timing;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median_of(std::vector<double> values) {
  EPL_ASSERT(!values.empty(), "a median is of something");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double typical_seconds(const std::function<void(int64_t)>& call, const Timing& timing) {
  int64_t number = 0;
  call(number++);  // memory is touched and kernels are chosen
  double begin = seconds_now();
  call(number++);
  const double once = std::max(seconds_now() - begin, 1e-9);
  const auto batch =
      static_cast<int64_t>(std::clamp(std::ceil(kLeastTimed / once), 1.0, kMostAtOnce));
  std::vector<double> samples;
  const double end = seconds_now() + timing.seconds;
  while (static_cast<int>(samples.size()) < timing.most_samples &&
         (static_cast<int>(samples.size()) < timing.least_samples || seconds_now() < end)) {
    begin = seconds_now();
    for (int64_t i = 0; i < batch; ++i) call(number++);
    samples.push_back(std::max((seconds_now() - begin) / static_cast<double>(batch), 1e-9));
  }
  return median_of(std::move(samples));
}

}  // namespace epl
