#include <algorithm>
#include <iostream>

#include "base/check.h"
#include "driver/state_snapshot.h"
#include "driver/trainer_impl.h"

namespace epl {

// None where the two draw random numbers that cannot be the same: in a pipeline, and where
// operators are cut, each device draws its own.
std::optional<PlainStep> Trainer::Impl::run_plainly(const DeviceBatches& batches) {
  const ReadyStep& ready = recordings.find(batches[0][0], 0, steps);
  const Placement& placement = ready.placement();
  EPL_CHECK(!placement.has_roles() || job->workers() == nullptr,
            "the plain program cannot run beside stages or parts on several workers",
            config.asked_by("debug.verify_steps"), "all of them on one worker: EPL_DEVICES");
  if (placement.has_roles() && draws_random_numbers(ready.compiled().graph)) {
    std::clog << "epl: step " << steps
              << " is not verified: its devices draw random numbers of their own\n";
    return std::nullopt;
  }
  const StateSnapshot before(ready.compiled());
  const int slices = placement.stage_devices[0];
  PlainRequest request{batches,
                       seed(ready, slices),
                       options,
                       clips_locally(ready),
                       local_scale(ready),
                       std::min(slices, static_cast<int>(batches.size())),
                       {},
                       placement.replicas * slices,
                       job->workers()};
  replicas.begin_step();
  request.random_state = [&](int device) {
    return replicas[placement.has_roles() ? 0 : device].streams.default_generator().get_state();
  };
  PlainStep plain = run_plain_step(model, function, request, before);
  if (ready.sizes().loss == SliceMerge::kSum) plain.loss *= slices;
  plain.loss *= static_cast<double>(batches.size()) / (placement.replicas * slices);
  plain.loss = sum_over_workers(plain.loss);
  return plain;
}

void Trainer::Impl::compare(const PlainStep& plain, ReadyStep& ready, double loss) {
  std::map<std::string, at::Tensor> gradients;
  const std::vector<at::Tensor> reduced = ready.gradients().reduced();
  for (size_t i = 0; i < reduced.size(); ++i) {
    const StepGradients::Entry& entry = ready.gradients().entries()[i];
    at::Tensor& gradient = gradients[entry.name];
    if (entry.cut_dim < 0) {
      gradient = reduced[i];
      continue;
    }
    if (!gradient.defined()) gradient = at::zeros_like(entry.parameter.detach());
    gradient.narrow(entry.cut_dim, entry.begin, reduced[i].size(entry.cut_dim)).copy_(reduced[i]);
  }
  const std::string report = compare_with_plain(plain, model, gradients, loss, steps, config);
  std::clog << "epl: " << report << "\n";
}

}  // namespace epl
