#include <utility>

#include "driver/trainer_impl.h"
#include "model/owned_states.h"
#include "runtime/finite_gradients.h"
#include "runtime/merge_outputs.h"
#include "runtime/step_end.h"
#include "runtime/step_timeline.h"
#include "verify/finite_loss.h"

namespace epl {

bool Trainer::Impl::check_finite(const StepResult& result,
                                 const std::vector<DeviceRun>& runs) const {
  return accepts_loss({result.loss, steps, runs, replicas.first, *step_batch}, config);
}

// The end of the step as its plan has it, with what the trainer tells its user of it.
class Trainer::Impl::End final : public StepEnd {
 public:
  End(Impl& trainer, ReadyStep& ready, const std::vector<DeviceRun>& runs,
      const DeviceBatches& batches)
      : StepEnd(ready.bound(), trainer.end_request(ready)),
        trainer_(trainer),
        ready_(ready),
        runs_(runs),
        batches_(batches) {}

  StepResult result;

 private:
  void report() override {
    trainer_.job->watch().doing(trainer_.steps, "merge");
    result.loss = trainer_.meet_after_run(merged_loss(runs_, ready_.plan()), batches_);
    result.metrics =
        merge_metrics(runs_, {ready_.plan(), trainer_.job->workers(), ready_.place(0).replica});
    trainer_.timeline = timeline_of(trainer_.steps, ready_.bound(), runs_, trainer_.replicas.first);
    trainer_.timeline.seconds = trainer_.seconds_since_begin();
  }

  bool accepts_loss() override { return trainer_.check_finite(result, runs_); }

  void before(const EndPhase& phase) override {
    using Kind = Instruction::Kind;
    const bool complete = phase.kind == Kind::kCheck || phase.kind == Kind::kUpdate ||
                          (phase.kind == Kind::kClip && phase.over == Instruction::Over::kAll);
    if (complete) {
      trainer_.all_kept.compare(ready_.bound(), trainer_.replicas.first, trainer_.steps,
                                trainer_.config);
    }
    const bool clips_replicas =
        phase.kind == Instruction::Kind::kClip && phase.over == Instruction::Over::kReplica;
    if (clips_replicas) trainer_.tell_of_local_clipping(ready_.plan().replicas);
    if (phase.kind == Kind::kGather) trainer_.job->watch().doing(trainer_.steps, "gather");
    if (phase.kind != Instruction::Kind::kUpdate) return;
    // Reductions were about the same gradients on all workers.
    ready_.settle_owners(trainer_.job->gradient_history());
    keep_owned_states(trainer_.model, ready_.bound().connections(),
                      ready_.bound().gradients().held());
    trainer_.job->watch().doing(trainer_.steps, "update");
    update_.kind = Span::Kind::kUpdate;
    update_.begin = trainer_.seconds_since_begin();
  }

  void after(const EndPhase& phase) override {
    if (phase.kind == Instruction::Kind::kUpdate) {
      update_.end = trainer_.seconds_since_begin();
      for (auto& device : trainer_.timeline.devices) device.spans.push_back(update_);
    }
    if (phase.kind == Instruction::Kind::kGather && phase.over == Instruction::Over::kRoles) {
      const bool all = trainer_.config.get<bool>("pipeline.gather_parameters");
      all ? trainer_.tell_what_is_fetched(ready_) : trainer_.release_once(ready_);
    }
  }

  Impl& trainer_;
  ReadyStep& ready_;
  const std::vector<DeviceRun>& runs_;
  const DeviceBatches& batches_;
  Span update_;
};

// The gradients that verify_step compares are whole ones.
StepEndRequest Trainer::Impl::end_request(const ReadyStep& ready) {
  StepEndRequest request;
  request.update_of = [this](size_t optimizer) -> Update& { return model.update(optimizer); };
  request.clip = clipping;
  request.local_scale = local_scale(ready);
  request.keeps_sums = verifies();
  return request;
}

// All workers have skipped the step, or none.
void Trainer::Impl::loss_scale_ends_step(StepResult& result,
                                         const std::function<std::string()>& culprit) {
  if (!mixed) return;
  result.loss_scale = mixed->scale.value();
  if (result.skipped) check_skipped_step(*mixed, steps, config, culprit);
  mixed->scale.step_ended(!result.skipped);
  if (result.skipped) tell_of_skipped_step(result);
}

StepResult Trainer::Impl::end_step(ReadyStep& ready, const std::vector<DeviceRun>& runs,
                                   const DeviceBatches& batches) {
  const torch::NoGradGuard no_grad;
  End end(*this, ready, runs, batches);
  end.result.skipped = !end.run();
  loss_scale_ends_step(end.result, [&] { return infinite_gradient(ready.bound().gradients()); });
  end.result.gradient_norm = end.gradient_norm();
  timeline.seconds = seconds_since_begin();
  return std::move(end.result);
}

}  // namespace epl
