#include "runtime/update_on_devices.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

namespace epl {
namespace {

// Whether some of the memory of one parameter is that of another. A program may give a parameter
// the memory of another between any two steps.
bool share_memory(const std::vector<ParameterGradient>& gradients) {
  std::vector<std::pair<const char*, const char*>> ranges;
  for (const ParameterGradient& each : gradients) {
    const at::Tensor& parameter = each.parameter;
    if (!parameter.has_storage() || parameter.numel() == 0) continue;
    int64_t last = 0;  // element
    for (int64_t dim = 0; dim < parameter.dim(); ++dim) {
      last += (parameter.size(dim) - 1) * parameter.stride(dim);
    }
    const auto item = static_cast<int64_t>(parameter.element_size());
    const auto* const begin =
        static_cast<const char*>(parameter.storage().data()) + parameter.storage_offset() * item;
    ranges.emplace_back(begin, begin + (last + 1) * item);
  }
  std::sort(ranges.begin(), ranges.end());
  const auto overlaps = [](const auto& a, const auto& b) { return b.first < a.second; };
  return std::adjacent_find(ranges.begin(), ranges.end(), overlaps) != ranges.end();
}

void update_all_at_once(Update& update, const std::vector<ParameterGradient>& gradients,
                        DeviceTeam& team) {
  constexpr int64_t kWorthSharing =
      16384;  // elements: below it one device is done before others start
  const int64_t elements = update.prepare(gradients);
  const auto run_part = [&](int64_t begin, int64_t end) {
    at::parallel_for(begin, end, Update::kGrain,
                     [&](int64_t from, int64_t to) { update.run(from, to); });
  };
  if (team.size() == 1 || elements < kWorthSharing) {
    run_part(0, elements);
  } else {
    team.run([&](int device) {
      const int64_t size = team.size();
      run_part(elements * device / size, elements * (device + 1) / size);
    });
  }
  update.finish();
}

}  // namespace

void update_on_devices(Update& update, const std::vector<ParameterGradient>& gradients,
                       DeviceTeam& team) {
  // A step() of the user's own does one parameter after the other by itself, and counts its calls.
  const bool at_once = !update.fused() || !share_memory(gradients);
  if (at_once) return update_all_at_once(update, gradients, team);
  for (const auto& each : gradients) update_all_at_once(update, {each}, team);
}

}  // namespace epl
