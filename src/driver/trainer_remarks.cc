// What a trainer tells its user, once each: when. The words are in report/remarks.h.
#include <cmath>
#include <iostream>
#include <mutex>

#include "amp/remarks.h"
#include "driver/trainer_impl.h"
#include "report/remarks.h"
#include "runtime/counted_targets.h"

namespace epl {

void Trainer::Impl::tell(const std::string& text) { std::clog << "epl: " << text << "\n"; }

void Trainer::Impl::tell_of_batch_gradient() {
  if (tells(Remark::kBatchGradient)) tell(remark_on_batch_gradient());
}

void Trainer::Impl::tell_of_whole_batch(const GivenBatch& given) {
  if (!tells(Remark::kWholeBatch)) return;
  tell(remark_on_whole_batch(describe(given, config, devices()), devices()));
}

void Trainer::Impl::tell_of_ignored_targets(int64_t parts) {
  if (parts == 1 || ignored_targets_seen() == ignored_before) return;
  if (tells(Remark::kIgnoredTargets)) tell(remark_on_ignored_targets(steps, parts));
}

void Trainer::Impl::tell_of_local_clipping(int replica_count) {
  const std::string key = "communication.clip_after_allreduce";
  const bool unasked = config.origin(key) == "default" && job->cluster().worker_index == 0;
  if (!unasked || !tells(Remark::kLocalClipping)) return;
  tell(remark_on_local_clipping(key, replica_count));
}

// Where it is much: no step needs it.
void Trainer::Impl::tell_what_is_fetched(const ReadyStep& ready) {
  constexpr int64_t kMuch = 1 << 20;
  if (steps > 0 || job->workers() == nullptr || job->cluster().worker_index != 0) return;
  const int64_t bytes =
      bytes_of_others(ready.bound().connections(), ready.bound().gradients().held());
  if (bytes >= kMuch) tell(remark_on_fetched_bytes(bytes));
}

void Trainer::Impl::tell_of_plain_steps() {
  if (step_cache.unreplayable().empty() || !tells(Remark::kPlainSteps)) return;
  if (job->cluster().worker_index != 0 && steps > 0) return;
  const int64_t parts = devices() * config.get<int64_t>("pipeline.num_micro_batch");
  tell(remark_on_plain_steps(steps, step_cache.unreplayable(), parts));
}

void Trainer::Impl::tell_of_unverified() {
  if (verifies() && tells(Remark::kUnverified)) tell(remark_on_unverified_step(steps));
}

// Once a process: it is the same for all trainers.
void Trainer::Impl::tell_of_speed() {
  if (job->cluster().worker_index != 0 || !model.device().is_cpu()) return;
  static const std::string remark =
      remark_on_speed(mixed->lower, relative_product_time(mixed->lower, model.device()));
  static std::once_flag told_of_it;
  std::call_once(told_of_it, [] {
    if (!remark.empty()) tell(remark);
  });
}

// After the scale has followed it.
void Trainer::Impl::tell_of_skipped_step(const StepResult& result) {
  if (job->cluster().worker_index != 0 || !std::isfinite(result.loss)) return;
  if (!tells(Remark::kSkippedStep)) return;
  tell(remark_on_skipped_step(steps, result.loss_scale, loss_scale()));
}

void Trainer::Impl::tell_of_casts() {
  if (!mixed || mixed->casts == nullptr || mixed->casts->counts().empty()) return;
  if (job->cluster().worker_index != 0 || !tells(Remark::kCasts)) return;
  const int64_t times = config.get<int64_t>("pipeline.num_micro_batch");
  std::clog << "epl: " << remark_on_casts(*mixed->casts, times);
}

}  // namespace epl
