// The first replay of a recording gives the loss that the recorded run gave: what C++ filled in
// through a pointer, without an operator, is not in a recording, and would be seen here.
#pragma once

#include <epl/cluster.h>
#include <epl/error.h>

#include <optional>
#include <vector>

#include "batch/micro_batches.h"
#include "compile/compile.h"
#include "runtime/bound_step.h"

namespace epl {

struct RecordedLoss {
  double loss = 0;
  int sample = 0;  // the micro batch of this worker that was recorded
  const CompiledStep& compiled;
  const BoundStep& bound;
  const Cluster& cluster;
};

// Why the replay that gave `runs` is not what was recorded; none where it is, and where nothing can
// be said: devices other than the first draw their own random numbers, and other workers may have
// addends of the loss.
std::optional<Error> unlike_recorded(const RecordedLoss& recorded, const DeviceBatches& batches,
                                     const std::vector<DeviceRun>& runs);

}  // namespace epl
