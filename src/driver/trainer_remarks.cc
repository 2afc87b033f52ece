// What a trainer tells its user, once each.
#include <cmath>
#include <iostream>
#include <mutex>

#include "base/check.h"
#include "base/text.h"
#include "driver/trainer_impl.h"
#include "runtime/counted_targets.h"

namespace epl {

void Trainer::Impl::tell_of_batch_gradient() {
  if (!tells(Remark::kBatchGradient)) return;
  std::clog << "epl: a tensor of the batch requires a gradient: none comes to it, nor to what it "
               "was computed from, where the plain loop's backward() would bring one. Compute it "
               "inside of the step, or detach() it.\n";
}

void Trainer::Impl::tell_of_whole_batch(const GivenBatch& given) {
  if (!tells(Remark::kWholeBatch)) return;
  std::clog << "epl: " << describe(given, config, devices()) << " cannot be cut evenly over the "
            << devices()
            << " devices: one of them takes all of it, as the plain loop does, while the others "
               "wait\n";
}

// PyTorch's DistributedDataParallel does the same, without a word.
void Trainer::Impl::tell_of_ignored_targets(int64_t parts) {
  if (parts == 1 || ignored_targets_seen() == ignored_before) return;
  if (!tells(Remark::kIgnoredTargets)) return;
  std::clog
      << "epl: in step " << steps
      << " a loss of reduction \"mean\" ignores targets (ignore_index): each of the " << parts
      << " parts (micro batches x replicas) divides by the targets that count in it, so that "
         "their mean may differ from the loss of all rows at once. Reduction kSum, divided by "
         "a number that is the same for all parts, does not\n";
}

// It is not what the plain loop does with the whole batch.
void Trainer::Impl::tell_of_local_clipping(int replica_count) {
  const std::string key = "communication.clip_after_allreduce";
  const bool unasked = config.origin(key) == "default" && job->cluster().worker_index == 0;
  if (!unasked || !tells(Remark::kLocalClipping)) return;
  std::clog << "epl: " << key << " = false (default): each of the " << replica_count
            << " replicas clips the gradients of its own rows before they are reduced; with true "
               "the reduced gradients are clipped, as the plain loop does with the whole batch\n";
}

// Where it is much: no step needs it.
void Trainer::Impl::tell_what_is_fetched(const ReadyStep& ready) {
  constexpr int64_t kMuch = 1 << 20;
  if (steps > 0 || job->workers() == nullptr || job->cluster().worker_index != 0) return;
  const int64_t bytes =
      bytes_of_others(ready.bound().connections(), ready.bound().gradients().held());
  if (bytes < kMuch) return;
  std::clog << "epl: after each step worker 0 fetches " << human_bytes(bytes)
            << " of parameters that other workers update, so that all can be read at "
               "any time; with pipeline.gather_parameters = false it takes neither time nor memory "
               "for them before trainer.gather_parameters() or trainer.save()\n";
}

void Trainer::Impl::tell_of_plain_steps() {
  if (step_cache.unreplayable().empty() || !tells(Remark::kPlainSteps)) return;
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
  if (!verifies() || !tells(Remark::kUnverified)) return;
  std::clog << "epl: step " << steps
            << " is not verified, nor are others that run as the plain program would on each of "
               "their parts\n";
}

// Once a process: it is the same for all trainers.
void Trainer::Impl::tell_of_speed() {
  if (job->cluster().worker_index != 0 || !model.device().is_cpu()) return;
  static const std::string remark =
      remark_on_speed(mixed->lower, relative_product_time(mixed->lower, model.device()));
  static std::once_flag told_of_it;
  std::call_once(told_of_it, [] {
    if (!remark.empty()) std::clog << "epl: " << remark << "\n";
  });
}

// After the scale has followed it.
void Trainer::Impl::tell_of_skipped_step(const StepResult& result) {
  if (job->cluster().worker_index != 0 || !std::isfinite(result.loss)) return;
  if (!tells(Remark::kSkippedStep)) return;
  std::clog << "epl: step " << steps << " is skipped, since a gradient is not finite with a loss "
            << "scale of " << result.loss_scale << "; the next step has " << loss_scale()
            << ". StepResult::skipped tells of others\n";
}

void Trainer::Impl::tell_of_casts() {
  if (!mixed || mixed->casts == nullptr || mixed->casts->counts().empty()) return;
  if (job->cluster().worker_index != 0 || !tells(Remark::kCasts)) return;
  const int64_t times = config.get<int64_t>("pipeline.num_micro_batch");
  std::clog << "epl: amp.debug_log: casts of a step of one device, forward, before equal ones are "
               "joined\n"
            << mixed->casts->str(times);
}

}  // namespace epl
