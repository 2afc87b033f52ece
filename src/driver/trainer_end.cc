#include <cmath>
#include <utility>

#include "base/check.h"
#include "driver/trainer_impl.h"
#include "runtime/finite_gradients.h"
#include "runtime/merge_outputs.h"
#include "runtime/step_end.h"

namespace epl {

namespace {

// "that of micro batch 2 on device 1 is, others are finite"; empty where all are alike.
std::string parts_that_are_not_finite(const std::vector<DeviceRun>& runs, int first_device) {
  std::string first;
  bool others = false;
  for (size_t device = 0; device < runs.size(); ++device) {
    for (size_t i = 0; i < runs[device].losses.size(); ++i) {
      const bool finite = std::isfinite(runs[device].losses[i]);
      others |= finite;
      if (finite || !first.empty()) continue;
      first = concat("micro batch ", i, " on device ", first_device + static_cast<int>(device));
    }
  }
  return others && !first.empty() ? concat(" (that of ", first, "; others are finite)") : "";
}

std::string infinite_gradient(const StepGradients& gradients) {
  const std::vector<at::Tensor> all = gradients.of_devices();
  size_t next = 0;
  for (const auto& entry : gradients.entries()) {
    for (size_t part = 0; part < entry.parts.size(); ++part, ++next) {
      if (!are_finite({all[next]})) return entry.name;
    }
  }
  return "";  // it is that of another worker
}

}  // namespace

bool Trainer::Impl::check_finite(const StepResult& result,
                                 const std::vector<DeviceRun>& runs) const {
  const std::string policy = config.get<std::string>("debug.nan_loss");
  if (policy == "ignore" || std::isfinite(result.loss)) return true;
  if (policy == "skip") return false;
  check_has_rows(*step_batch);  // a mean over no rows is no number
  const std::string part = parts_that_are_not_finite(runs, replicas.first);
  throw Error(concat("the loss of step ", steps, " is ", result.loss, part,
                     "; the parameters are as before the step"),
              config.asked_by("debug.nan_loss"),
              concat(part.empty() ? ""
                                  : "rows that have something to take a mean of in every part (all "
                                    "targets of this one may be ignored or masked), ",
                     "a smaller learning rate, TrainerOptions::clip_grad_norm, or debug.nan_loss = "
                     "\"skip\" or \"ignore\""));
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
    trainer_.keep_timeline(ready_, runs_);
  }

  bool accepts_loss() override { return trainer_.check_finite(result, runs_); }

  void before(const EndPhase& phase) override {
    using Kind = Instruction::Kind;
    const bool complete = phase.kind == Kind::kCheck || phase.kind == Kind::kUpdate ||
                          (phase.kind == Kind::kClip && phase.over == Instruction::Over::kAll);
    if (complete) trainer_.compare_with_all_kept(ready_.bound());
    const bool clips_replicas =
        phase.kind == Instruction::Kind::kClip && phase.over == Instruction::Over::kReplica;
    if (clips_replicas) trainer_.tell_of_local_clipping(ready_.plan().replicas);
    if (phase.kind != Instruction::Kind::kUpdate) return;
    trainer_.job->watch().doing(trainer_.steps, "update");
    update_.kind = Span::Kind::kUpdate;
    update_.begin = trainer_.seconds_since_begin();
  }

  void after(const EndPhase& phase) override {
    if (phase.kind == Instruction::Kind::kUpdate) {
      update_.end = trainer_.seconds_since_begin();
      for (auto& device : trainer_.timeline.devices) device.spans.push_back(update_);
    }
    if (phase.kind == Instruction::Kind::kGather) {
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

// All workers have skipped the step, or none. A scale that cannot shrink is not to blame: the next
// step would be skipped as well.
void Trainer::Impl::loss_scale_ends_step(StepResult& result,
                                         const std::function<std::string()>& culprit) {
  if (!mixed) return;
  result.loss_scale = mixed->scale.value();
  const bool may_throw = config.get<std::string>("debug.nan_loss") == "error";
  if (result.skipped && may_throw && !mixed->scale.can_shrink()) {
    const std::string name = culprit();
    throw Error(
        concat("in step ", steps, name.empty() ? " a gradient" : " the gradient of `", name,
               name.empty() ? "" : "`", " is not finite, and the loss scale of ", result.loss_scale,
               " gets no smaller; the parameters are as before the step"),
        config.asked_by("debug.nan_loss"),
        "a smaller learning rate, operators that have a derivative everywhere, "
        "amp.loss_scale = \"dynamic\" where it is a number, or debug.nan_loss = \"skip\"");
  }
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
