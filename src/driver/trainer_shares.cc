// Which rows a worker hands in, asked before the first step.
#include "batch/readers.h"
#include "driver/trainer_impl.h"
#include "runtime/device_memory.h"

namespace epl {

// The other workers learn of a failure, so that they do not wait.
WorkerShares Trainer::shares(const Batch& sample) {
  Job& job = *impl_->job;
  try {
    std::optional<DeviceMemory::Use> use;
    if (!DeviceMemory::in_use_on_this_thread()) use.emplace(job.team().memory(0));
    impl_->meet_other_workers();
    impl_->step_cache.begin_step();
    return shares_of(impl_->step_cache.placement(sample, sample, impl_->plain_seed()),
                     job.cluster());
  } catch (const std::exception& error) {
    if (job.membership() != nullptr) job.membership()->report_failure(text_of(error));
    throw;
  }
}

}  // namespace epl
