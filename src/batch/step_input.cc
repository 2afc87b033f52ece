#include "batch/step_input.h"

#include <algorithm>
#include <utility>

namespace epl {
namespace {

// Into how many parts a batch will be cut: a guess before the strategies are known. One that is
// right saves a recording.
int64_t likely_parts(const Config& config, int64_t devices) {
  const int64_t micro_batches = config.get<int64_t>("pipeline.num_micro_batch");
  const int64_t stages =
      config.get<bool>("auto.auto_parallel") ? config.get<int64_t>("pipeline.num_stages") : 1;
  return micro_batches * std::max<int64_t>(1, devices / std::max<int64_t>(1, stages));
}

}  // namespace

Batch BatchInput::sample() { return sample_of(batch_, likely_parts(config_, devices_)); }

DeviceBatches BatchInput::cut(const Shares& shares) const {
  return cut_into_micro_batches(batch_, shares, config_);
}

bool BatchInput::is_even(const Shares& shares) const { return divides_evenly(batch_, shares); }

DeviceBatches SourceInput::cut(const Shares& shares) const {
  bool given = false;
  const BatchSource all = [&] { return std::exchange(given, true) ? source_() : first_; };
  return draw_micro_batches(all, shares, config_);
}

}  // namespace epl
