// Steps that run as the plain program would: by the user's own function and autograd.
#include <iostream>

#include "base/check.h"
#include "driver/trainer_impl.h"
#include "plain/plain_update.h"
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

StepResult Trainer::Impl::step_plainly(const DeviceBatches& batches, double seed) {
  job->watch().doing(steps, "compute");
  begun = std::chrono::steady_clock::now();
  replicas.release_arenas();
  PlainRun plain(model, function, replicas);
  PlainRunRequest request{batches, seed};
  std::vector<Batch> observed;  // of which copies are written; of the others the user's own tensors
  request.devices = batches.size() == 1 ? 1 : devices();
  request.workers = job->workers();
  if (job->workers() != nullptr) request.devices = devices();
  request.observe = [&](const Batch& batch, double of_seed) {
    std::optional<Capture> captured = step_cache.observe(batch, of_seed);
    if (captured) {
      observed.push_back(batch);
      step_cache.note_reached(*captured);
    }
    return captured;
  };
  request.written_outside = [&] { return step_cache.written_outside(); };
  const bool locally = clipping.clips() && request.devices > 1 &&
                       !config.get<bool>("communication.clip_after_allreduce");
  if (locally) {
    tell_of_local_clipping(request.devices);
    request.clip_replica = [&](const std::vector<at::Tensor>& gradients) {
      clip_gradients(gradients, clipping, takes_mean() ? request.devices : 1);
    };
  }
  plain.run(request);
  for (const Batch& batch : observed) job->written_batch().note(step_cache.input_writers(), batch);

  StepResult result;
  double loss = 0;
  const auto parts = static_cast<double>(config.get<int64_t>("pipeline.num_micro_batch"));
  for (const auto& run : plain.runs()) {
    for (double each : run.losses) loss += each / (request.devices > 1 ? parts * devices() : parts);
  }
  const bool divided = request.devices > 1 || devices() == 1;
  if (divided && !takes_mean() && step_cache.loss_is_sum()) loss *= parts * devices();
  result.loss = meet_after_run(loss, batches);
  make_plan(batches);
  tell_of_plain_steps();
  if (request.devices * parts > 1) tell_of_unverified();
  tell_of_ignored_targets(request.devices * config.get<int64_t>("pipeline.num_micro_batch"));
  const torch::NoGradGuard no_grad;
  result.metrics = merge_metrics_of_replicas(plain.runs(), job->workers());
  timeline = Timeline();
  timeline.title = concat("step ", steps, ", run as the plain program would");
  for (size_t i = 0; i < plain.runs().size(); ++i) {
    timeline.devices.push_back(
        {concat("device ", replicas.first + static_cast<int>(i)), plain.runs()[i].spans});
  }
  plain.merge_state(request);
  if (check_finite(result, plain.runs())) {
    plain.reduce_gradients(request.workers);
    result.gradient_norm = clip_gradients(plain, locally ? clipping.norm_alone() : clipping);
    const HadGradient had_gradient = [&](const auto& name, const auto& parameter, bool has_one) {
      return step_cache.had_gradient(name, parameter, has_one);
    };
    Span span;
    span.kind = Span::Kind::kUpdate;
    span.begin = seconds_since_begin();
    job->watch().doing(steps, "update");
    update_plainly(model, plain, had_gradient, job->team());
    span.end = seconds_since_begin();
    for (auto& device : timeline.devices) device.spans.push_back(span);
  } else {
    result.skipped = true;
  }
  timeline.seconds = seconds_since_begin();
  ++steps;
  ++replicas.step;
  return result;
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
    agree_on_plan(ready);
  } catch (const CannotReplay&) {
  }
}

void Trainer::Impl::tell_of_plain_steps() {
  if (told_of_plain || step_cache.unreplayable().empty()) return;
  told_of_plain = true;
  if (job->cluster().worker_index != 0 && steps > 0) return;
  std::clog << "epl: from step " << steps
            << " on the step runs as the plain program would, since it cannot be replayed: "
            << step_cache.unreplayable() << ". ";
  const int64_t parts = devices() * config.get<int64_t>("pipeline.num_micro_batch");
  if (parts == 1) {
    std::clog << "Its numbers are right from here on; memory is that of the plain program. ";
  } else {
    std::clog << "Each of its " << parts
              << " parts (micro batches x replicas) calls the function for itself, with its rows: "
                 "what C++ counts, draws or reads there is that of a part, not of all rows. A "
                 "worker's devices take turns, and memory is that of the plain program. ";
  }
  std::clog << "To have it replayed: numbers that change in the batch, metrics instead of item(), "
               "torch::where instead of if.\n";
}

void Trainer::Impl::tell_of_unverified() {
  const bool verifies = verified < config.get<int64_t>("debug.verify_steps");
  if (!verifies || std::exchange(told_of_unverified, true)) return;
  std::clog << "epl: step " << steps
            << " is not verified, nor are others that run as the plain program would on each of "
               "their parts\n";
}

}  // namespace epl
