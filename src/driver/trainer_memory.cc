// What a trainer says of memory: of the step that ran last, and of one that is to come.
#include "base/check.h"
#include "batch/readers.h"
#include "driver/trainer_impl.h"
#include "footprint/step_memory.h"
#include "footprint/what_fits.h"
#include "job/beside_steps.h"
#include "ops/facts.h"
#include "runtime/tile_products.h"
#include "sim/simulate_plan.h"

namespace epl {

MemoryReport Trainer::memory() const {
  const ReadyStep* last = impl_->step_cache.last();
  EPL_CHECK(last != nullptr, "there is no plan before the first step", "epl::Trainer::memory",
            "call it after step(), or forecast(batch) before");
  Job& job = *impl_->job;
  const SpreadParameters::Shown shown(job.spread());
  MemoryReport report = forecast_step(last->plan(), last->placement(), impl_->memory_subject());
  report.recording = impl_->step_cache.recording_bytes();
  const auto here = static_cast<size_t>(job.cluster().worker_index);
  impl_->laps.add_to(report.workers[here], last->plan(), impl_->memory_subject());
  return report;
}

// A step that is recorded for a batch, and planned with any configuration in which it is recorded
// alike. By a StepCache of its own, so that the trainer knows nothing of it: what is recorded now
// need not be what the step does when it comes.
class Trainer::Impl::PlannedBatch {
 public:
  PlannedBatch(const Impl& trainer, const Config& asked, const Batch& batch)
      : config_(asked),
        mixed_(trainer.mixed ? trainer.mixed : mixed_precision(config_)),
        function_(trainer.mixed ? trainer.function : in_mixed_precision(trainer.function, mixed_)),
        seed_(trainer.plain_seed(config_, mixed_ ? mixed_->scale.value() : 1)),
        job_(*trainer.job),
        replicas_(job_.team(), trainer.model.device(), job_.cluster().first_device()),
        cache_({trainer.model, function_, config_, job_, replicas_, trainer.clipping,
                [this] { return seed_; }, trainer.offload.get()}) {
    BatchInput input(batch, config_, replicas_.size());
    const Batch sample = input.sample();
    cache_.placement(sample, batch, seed_);
    const DeviceBatches batches = input.cut(shares());
    Batch scratch;
    step_ = cache_.record_once(micro_batch_of(batches, placement(), 0, 0, scratch));
    job_.team().memory(0).trim();
  }

  const Placement& placement() const { return cache_.placement_known(); }
  Shares shares() const { return shares_here(placement(), job_.cluster(), config_); }
  const Graph& graph() const { return step_.whole; }
  int64_t recording_bytes() const { return cache_.recording_bytes(); }
  CompiledStep plan(const Config& config) const { return cache_.plan_once(step_, config); }

 private:
  const Config config_;
  const std::optional<MixedPrecision> mixed_;
  const StepFunction function_;
  const double seed_;
  Job& job_;
  LocalReplicas replicas_;
  StepCache cache_;
  StepRecording step_;
};

MemoryReport Trainer::Impl::forecast(const Batch& batch) {
  step_cache.begin_step();  // looks whether the program has changed its modules
  if (offload != nullptr) offload->settle();
  const PlannedBatch planned(*this, config, batch);
  const CompiledStep compiled = planned.plan(config);
  MemoryReport report = forecast_step(compiled.plan, planned.placement(), memory_subject());
  report.recording = planned.recording_bytes();
  if (offload != nullptr) offload->rest();
  return report;
}

// Micro batches have other rows, and in mixed precision the function calls other operators: all
// else is planned from what was recorded once.
FittingReport Trainer::Impl::what_fits(const Batch& batch, int64_t limit) {
  step_cache.begin_step();
  if (offload != nullptr) offload->settle();
  std::map<std::pair<int64_t, bool>, std::unique_ptr<PlannedBatch>> recorded;
  const auto recorded_for = [&](const Config& asked) -> const PlannedBatch& {
    if (mixes_precisions(asked)) avoid_tile_products();  // as epl::init() does
    auto& found =
        recorded[{asked.get<int64_t>("pipeline.num_micro_batch"), mixes_precisions(asked)}];
    if (found == nullptr) found = std::make_unique<PlannedBatch>(*this, asked, batch);
    return *found;
  };
  FittingRequest request{config, limit};
  request.plan = [&](const Config& asked) {
    const PlannedBatch& planned = recorded_for(asked);
    const CompiledStep compiled = planned.plan(asked);
    PlannedNeed need{compiled.device_bytes, simulate(compiled.plan).seconds};
    if (takes_batch_statistics(planned.graph())) need.by_rows = "batch norm of fewer rows";
    const bool mean = averages_gradients(asked);
    if (compiled.loss.kind != (mean ? OverRows::kMean : OverRows::kSum)) {
      need.by_rows = concat("the loss is not known to be a ", mean ? "mean" : "sum", " over rows");
    }
    return need;
  };
  request.several_workers = job->workers() != nullptr;
  Shares halves = recorded_for(config).shares();
  halves.micro_batches *= 2;
  request.rows_can_be_halved = !batch.empty() && divides_evenly(batch, halves);
  FittingReport report = epl::what_fits(request);
  if (offload != nullptr) offload->rest();
  return report;
}

MemoryReport Trainer::forecast(const Batch& batch) {
  impl_->step_cache.make_parameters_whole();
  return beside_steps(*impl_->job, impl_->model, [&] { return impl_->forecast(batch); });
}

FittingReport Trainer::what_fits(const Batch& batch, int64_t limit) {
  impl_->step_cache.make_parameters_whole();
  return beside_steps(*impl_->job, impl_->model, [&] { return impl_->what_fits(batch, limit); });
}

}  // namespace epl
