#include "runtime/step_timeline.h"

#include <utility>

#include "base/text.h"

namespace epl {

Timeline timeline_of(int64_t number, const BoundStep& bound, const std::vector<DeviceRun>& runs,
                     int first_device) {
  const Placement& placement = bound.placement();
  Timeline timeline;
  timeline.title = concat("step ", number);
  if (placement.is_pipeline()) {
    timeline.title += concat(", ", bound.plan().schedule.strategy, ", ", placement.stages(),
                             " stages, ", bound.plan().micro_batches, " micro batches");
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    std::string name = concat("device ", first_device + static_cast<int>(i));
    if (placement.is_pipeline()) {
      name += concat(", stage ", placement.stage_of(bound.place(static_cast<int>(i)).role));
    }
    timeline.devices.push_back({std::move(name), runs[i].spans});
  }
  return timeline;
}

}  // namespace epl
