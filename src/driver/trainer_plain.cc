// Steps that run as the plain program would: by the user's own function and autograd.
#include <algorithm>
#include <iostream>
#include <set>

#include "base/check.h"
#include "config/libtorch.h"
#include "driver/plain_run.h"
#include "driver/trainer_impl.h"
#include "runtime/merge_outputs.h"
#include "runtime/update_on_devices.h"

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
    result.gradient_norm = norm_of_plain(plain, locally);
    Span span;
    span.kind = Span::Kind::kUpdate;
    span.begin = seconds_since_begin();
    update_plainly(plain);
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

// The norm of the reduced gradients, which are clipped to it where no replica has clipped its own.
double Trainer::Impl::norm_of_plain(const PlainRun& plain, bool clipped) const {
  std::vector<at::Tensor> gradients;
  for (const auto& gradient : plain.gradients()) {
    if (gradient.defined()) gradients.push_back(gradient);
  }
  return clip_gradients(gradients, clipped ? clipping.norm_alone() : clipping);
}

namespace {

// Two parameters on one memory are updated one after the other, as LibTorch does.
bool share_memory(const std::vector<ParameterGradient>& gradients) {
  std::set<const void*> seen;
  return std::any_of(gradients.begin(), gradients.end(), [&](const ParameterGradient& each) {
    return each.parameter.has_storage() &&
           !seen.insert(each.parameter.storage().unsafeGetStorageImpl()).second;
  });
}

}  // namespace

// Each optimizer gets all its gradients at once. What had one before and has none now goes on with
// zeros where the plain loop does.
void Trainer::Impl::update_plainly(const PlainRun& plain) {
  job->watch().doing(steps, "update");
  const std::vector<at::Tensor>& gradients = plain.gradients();
  std::vector<std::vector<ParameterGradient>> by_optimizer(model.optimizers().size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto& [name, parameter] = model.parameters()[i];
    const bool had = step_cache.had_gradient(name, parameter, gradients[i].defined()) ||
                     plain.users_gradient(i).defined();
    if (!gradients[i].defined() && !(had && kZeroGradLeavesZeros)) continue;
    const at::Tensor gradient =
        gradients[i].defined() ? gradients[i] : at::zeros_like(parameter.detach());
    for (size_t optimizer : model.optimizers_of(parameter)) {
      by_optimizer[optimizer].push_back({parameter, gradient, {}, {}});
    }
  }
  for (size_t i = 0; i < by_optimizer.size(); ++i) {
    if (by_optimizer[i].empty()) continue;
    if (!share_memory(by_optimizer[i])) {
      update_on_devices(model.update(i), by_optimizer[i], job->team());
      continue;
    }
    for (const auto& each : by_optimizer[i]) {
      update_on_devices(model.update(i), {each}, job->team());
    }
  }
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
