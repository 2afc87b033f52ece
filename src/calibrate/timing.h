// How long a call takes, typically.
//
//   typical_seconds([&](int64_t number) { run(operands[number % 8]); }, timing);
//
// Calls that are shorter than the clock can tell are timed several at a time. The median counts, so
// that what was interrupted does not.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace epl {

struct Timing {
  double seconds = 0.05;  // for each measurement, beyond the least samples
  int least_samples = 5;
  int most_samples = 200;
  int64_t rotated_bytes =
      128 << 20;  // operands that calls go through, so that caches do not have them
};

Timing full_timing();
Timing quick_timing();  // for a look whether all of it works: seconds in all

double median_of(std::vector<double> values);
double typical_seconds(const std::function<void(int64_t number)>& call, const Timing& timing);

double seconds_now();

}  // namespace epl
