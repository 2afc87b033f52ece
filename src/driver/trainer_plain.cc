// Steps that run as the plain program would: by the user's own function and autograd.
#include "base/check.h"
#include "driver/trainer_impl.h"
#include "plain/plain_update.h"
#include "runtime/finite_gradients.h"
#include "runtime/merge_outputs.h"

namespace epl {

// Where there are several micro batches in a step, or several workers, the first step runs plainly:
// what is recorded of its first micro batches is compared before any replay is trusted. A single
// one is replayed at once, being the one that was recorded, and the second step is looked at.
bool Trainer::Impl::runs_plainly(const DeviceBatches& batches) const {
  if (!step_cache.can_run_plainly()) return false;
  if (plain_next || !step_cache.unreplayable().empty()) return true;
  const bool alone = job->workers() == nullptr;
  if (alone && step_cache.wants_look_at(batches[0][0])) return true;
  return steps == 0 && (devices() > 1 || config.get<int64_t>("pipeline.num_micro_batch") > 1);
}

// `observed` gets the batches of which copies are written; of others the user's own tensors are.
PlainRunRequest Trainer::Impl::plain_request(const DeviceBatches& batches, double seed,
                                             std::vector<Batch>& observed) {
  PlainRunRequest request{batches, seed};
  request.scales_loss = scales_loss(mixed);
  request.workers = job->workers();
  request.devices = batches.size() == 1 && request.workers == nullptr ? 1 : devices();
  request.observe = [this, &observed](const Batch& batch, double of_seed) {
    std::optional<Capture> captured = step_cache.observe(batch, of_seed);
    if (captured) {
      observed.push_back(batch);
      step_cache.note_reached(*captured);
    }
    return captured;
  };
  request.written_outside = [this] { return step_cache.written_outside(); };
  const bool locally = clipping.clips() && request.devices > 1 &&
                       !config.get<bool>("communication.clip_after_allreduce");
  if (!locally) return request;
  tell_of_local_clipping(request.devices);
  const double scale = averages_gradients(config) ? request.devices : 1;
  request.clip_replica = [this, scale](const std::vector<at::Tensor>& gradients) {
    // Clipping by value would hide that they are not finite.
    if (!mixed || are_finite(gradients)) clip_gradients(gradients, clipping, scale, loss_scale());
  };
  return request;
}

// What this worker adds to the loss of the step.
double Trainer::Impl::loss_of(const PlainRun& plain, int plain_devices) const {
  const auto micro_batches = static_cast<double>(config.get<int64_t>("pipeline.num_micro_batch"));
  const double parts = plain_devices > 1 ? micro_batches * devices() : micro_batches;
  double loss = 0;
  for (const DeviceRun& run : plain.runs()) {
    for (double each : run.losses) loss += each / parts;
  }
  const bool divided = plain_devices > 1 || devices() == 1;
  const bool is_sum = divided && !averages_gradients(config) && step_cache.loss_is_sum();
  return is_sum ? loss * (micro_batches * devices()) : loss;
}

StepResult Trainer::Impl::step_plainly(const DeviceBatches& batches, double seed) {
  step_cache.make_parameters_whole();
  job->watch().doing(steps, "compute");
  begun = std::chrono::steady_clock::now();
  replicas.release_arenas();
  std::vector<Batch> observed;
  const PlainRunRequest request = plain_request(batches, seed, observed);
  PlainRun plain(model, function, replicas);
  plain.run(request);
  for (const Batch& batch : observed) job->written_batch().note(step_cache.input_writers(), batch);

  StepResult result;
  result.loss = meet_after_run(loss_of(plain, request.devices), batches);
  make_plan(batches);
  tell_of_plain_steps();
  const int64_t parts = request.devices * config.get<int64_t>("pipeline.num_micro_batch");
  if (parts > 1) tell_of_unverified();
  tell_of_ignored_targets(parts);
  const torch::NoGradGuard no_grad;
  result.metrics = merge_metrics_of_replicas(plain.runs(), job->workers());
  timeline = Timeline();
  timeline.title = concat("step ", steps, ", run as the plain program would");
  for (size_t i = 0; i < plain.runs().size(); ++i) {
    timeline.devices.push_back(
        {concat("device ", replicas.first + static_cast<int>(i)), plain.runs()[i].spans});
  }
  plain.merge_state(request);
  result.skipped = !check_finite(result, plain.runs());
  result.skipped = result.skipped || !update_by(plain, request, result);
  loss_scale_ends_step(result, [&] { return infinite_gradient(model, plain); });
  timeline.seconds = seconds_since_begin();
  ++steps;
  ++replicas.step;
  return result;
}

// Returns whether it did: not where the loss is scaled and a gradient is not finite. Where each
// replica has clipped its own gradients they are not clipped again.
bool Trainer::Impl::update_by(PlainRun& plain, const PlainRunRequest& request, StepResult& result) {
  plain.reduce_gradients(request.workers);
  if (mixed && !unscale_gradients(plain, loss_scale(), job->team())) return false;
  result.gradient_norm =
      clip_gradients(plain, request.clip_replica ? clipping.norm_alone() : clipping);
  Span span;
  span.kind = Span::Kind::kUpdate;
  span.begin = seconds_since_begin();
  job->watch().doing(steps, "update");
  PlainUpdate update;
  update.had_gradient = [&](const auto& name, const auto& parameter, bool has_one) {
    return step_cache.had_gradient(name, parameter, has_one);
  };
  const PartsOfOwners parts = step_cache.parts_of_owners();
  update.owned_here = [&](const at::Tensor& parameter) { return parts.owned(parameter); };
  parts.keep_states();
  update_plainly(model, plain, update, job->team());
  parts.gather_parameters();
  span.end = seconds_since_begin();
  for (auto& device : timeline.devices) device.spans.push_back(span);
  return true;
}

// So that plan() and graph() have something to show, and workers see that they have planned alike.
// The function is not called for it: it may do something else each time.
void Trainer::Impl::make_plan(const DeviceBatches& batches) {
  const bool alone = job->workers() == nullptr;
  const bool whole = alone && batches.size() == 1 && devices() > 1;  // not what a plan is for
  if (!all_recorded || whole) return;
  try {
    ReadyStep& ready = step_cache.find(batches[0][0], 0, steps);
    ready.replayed = true;  // its batch has been trained on
    const bool agrees = !met;
    agree_on_plan(ready);
    if (agrees) ready.settle_owners(job->gradient_history());
  } catch (const CannotReplay&) {
  }
}

}  // namespace epl
