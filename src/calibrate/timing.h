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
  double seconds = 0.03;  // for each measurement, beyond the least samples
  int least_samples = 3;
  int most_samples = 100;
  // Operands that calls go through, one set after the other, so that caches do not have them.
  int64_t rotated_bytes = 64 << 20;

  // How many sets of so many bytes there are to go through.
  size_t sets_of(int64_t bytes) const;
};

Timing full_timing();
Timing quick_timing();  // for a look whether all of it works: seconds in all

double median_of(std::vector<double> values);
double typical_seconds(const std::function<void(int64_t number)>& call, const Timing& timing);

double seconds_now();

}  // namespace epl
