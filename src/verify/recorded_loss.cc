#include "verify/recorded_loss.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "batch/readers.h"
#include "ops/facts.h"

namespace epl {
namespace {

// Of the recorded micro batch. Devices that share the rows have each an addend of it. None where
// some of them are not here, or draw numbers that the recorded run did not draw.
std::optional<double> loss_of_replay(const RecordedLoss& recorded, const DeviceBatches& batches,
                                     const std::vector<DeviceRun>& runs) {
  const BoundStep& bound = recorded.bound;
  const int per_device = bound.plan().micro_batches;
  const PlanOutput& output = bound.plan().loss;
  const int wanted = output.merge == SliceMerge::kSum ? output.devices : 1;
  const size_t slices = slices_of(batches, bound.placement());
  const size_t replica = static_cast<size_t>(recorded.sample / per_device) / slices;
  bool random = draws_random_numbers(recorded.compiled.graph);
  double loss = 0;
  int found = 0;
  for (int device = 0; device < static_cast<int>(runs.size()) && found < wanted; ++device) {
    const auto batch = batch_of(device, bound.placement(), recorded.cluster);
    const bool computes = bound.place(device).role == output.role;
    if (!computes || !batch || *batch / slices != replica) continue;
    loss +=
        runs[static_cast<size_t>(device)].losses[static_cast<size_t>(recorded.sample % per_device)];
    random &= wanted > 1 || recorded.cluster.first_device() + device != 0;
    ++found;
  }
  if (found < wanted || random) return std::nullopt;
  return loss;
}

}  // namespace

// The recorded run and its replay read the same batch and draw the same numbers.
std::optional<Error> unlike_recorded(const RecordedLoss& recorded, const DeviceBatches& batches,
                                     const std::vector<DeviceRun>& runs) {
  const std::optional<double> loss = loss_of_replay(recorded, batches, runs);
  if (!loss) return std::nullopt;
  // Parts of a sum are rounded to the lower precision.
  const Placement& placement = recorded.bound.placement();
  const bool rounds = recorded.bound.plan().scales_loss() &&
                      (placement.splits() || slices_of(batches, placement) > 1);
  const double tolerance = rounds ? 5e-2 : 1e-3;
  const bool equal =
      std::abs(*loss - recorded.loss) <= tolerance * std::max(1.0, std::abs(recorded.loss)) ||
      (std::isnan(*loss) && std::isnan(recorded.loss)) || *loss == recorded.loss;
  if (equal) return std::nullopt;
  return Error(
      concat("the recorded step gives a loss of ", *loss, " when it is replayed, but gave ",
             recorded.loss, " when it was recorded"),
      "epl::Trainer::step",
      "tensors that the step fills through data_ptr() or accessor() belong into the batch");
}

}  // namespace epl
