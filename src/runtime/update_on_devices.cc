#include "runtime/update_on_devices.h"

#include <ATen/Parallel.h>

namespace epl {

void update_on_devices(Update& update, const std::vector<ParameterGradient>& gradients,
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

}  // namespace epl
