// StepCache, asked twice: whether what a step was recorded as is what it does.
#include <algorithm>

#include "base/check.h"
#include "batch/micro_batches.h"
#include "capture/same_step.h"
#include "driver/step_cache.h"

namespace epl {
namespace {

constexpr size_t kMostLooks = 16;  // shapes whose graphs are kept meanwhile

constexpr const char* kWaysOut =
    "numbers that change from step to step in the batch, metrics instead of item(), torch::where "
    "instead of if, operators instead of loops over data_ptr() or accessor()";

}  // namespace

bool StepCache::can_run_plainly() const {
  return placement_ && !placement_->has_roles() && placement_->role_devices[0] == 1;
}

void StepCache::refuse_to_replay(const std::string& why) const {
  throw Error(concat("the step cannot be replayed: ", why), placement_->asked_by,
              concat(kWaysOut,
                     "; without stages, split and replicate(k) of more than one device "
                     "such a step runs as the plain program would"));
}

// The first step with operators that were not seen before: its parts may each call the function
// with another number of C++'s.
bool StepCache::is_first_of_its_form(const Batch& batch) const {
  const auto late = late_.find(key_of(batch));
  return late != late_.end() && late->second.step == step_;
}

bool StepCache::calls_several_times() const {
  return subject_.replicas.size() > 1 ||
         subject_.config.get<int64_t>("pipeline.num_micro_batch") > 1;
}

// What was recorded is kept for the plain step that follows: the function has run on this batch.
void StepCache::check_replayable(const Batch& batch, Capture& captured) {
  note_reached(captured);
  const bool alone = subject_.job.workers() == nullptr;
  const bool plainly =
      alone && calls_several_times() && can_run_plainly() && is_first_of_its_form(batch);
  if (captured.unreplayable.empty() && !plainly) {
    captured.effects = RunEffects();
    return;
  }
  if (!can_run_plainly()) refuse_to_replay(captured.unreplayable);
  unreplayable_ = captured.unreplayable;
  // The plain step begins with the first micro batch of the first device.
  if (sample_ > 0) captured.effects = RunEffects();
  probe_ = Probe{key_of(batch), std::move(captured), subject_.plain_seed()};
  throw CannotReplay(unreplayable_);
}

void StepCache::expect_again(const Batch& batch, const Graph& graph, int times) {
  Key now = modes();
  if (seen_twice_.count(now) != 0) {
    // Stages and parts on several workers would have to look together.
    const bool looks = subject_.job.workers() == nullptr || can_run_plainly();
    const bool known = looked_at_.count(key_of(batch)) != 0 && forms_.count(form_of(graph)) != 0;
    if (looks && late_.size() < kMostLooks && !known) {
      late_.insert_or_assign(key_of(batch), FirstLook{graph, times, step_});
    }
    return;
  }
  if (!pending_) pending_ = Pending{now, {}};
  const bool room = pending_->looks.size() < kMostLooks;
  if (pending_->modes == now && room)
    pending_->looks.emplace(key_of(batch), FirstLook{graph, times, step_});
}

bool StepCache::wants_look_at(const Batch& batch) const {
  // The key of a batch asks all modules: only where there may be something to look at.
  const bool any = std::any_of(late_.begin(), late_.end(), [&](const auto& each) {
    return each.second.step != step_ && each.second.due <= step_;
  });
  if (!any) return false;
  const auto found = late_.find(key_of(batch));
  return found != late_.end() && found->second.step != step_ && found->second.due <= step_;
}

// A coin may have fallen alike, and a number may begin to change: what was seen twice is looked at
// again, ever more rarely, so that it costs less than a step in a hundred: a look runs plainly, its
// devices in turns. The distances have no period that a program's own could fall in with.
void StepCache::look_later(const Key& key, FirstLook look) {
  constexpr int64_t kFirst = 100;
  if (late_.size() >= kMostLooks) return;
  look.step = step_;
  look.due = std::max(kFirst, step_ + step_ / 2 + 1);
  look.unclear = 0;
  late_.insert_or_assign(key, std::move(look));
}

Difference StepCache::compare_looks(const Key& key, const FirstLook& first, const Graph& graph) {
  compared_in_ = step_;
  const std::string form = form_of(graph);
  // Where a guard took it another way nothing differs, and nothing is known of that way.
  if (form == form_of(first.graph)) {
    forms_.insert(form);
    looked_at_.insert(key);
  }
  return difference_between(first.graph, graph);
}

// Where a guard took it another way this says nothing of the first: it is looked at some times
// more.
bool StepCache::stays_unclear(FirstLook& first, const Difference& difference,
                              const Graph& graph) const {
  constexpr int kOften = 3;
  if ((difference && !difference.guarded) || form_of(graph) == form_of(first.graph)) return false;
  first.step = step_;
  return ++first.unclear < kOften;
}

std::optional<Capture> StepCache::look_late(const Batch& batch, double seed) {
  const auto found = late_.find(key_of(batch));
  if (found == late_.end()) return std::nullopt;
  Capture captured = capture(batch, seed);
  const Difference difference = compare_looks(found->first, found->second, captured.graph);
  unreplayable_ = captured.unreplayable.empty() ? difference.text : captured.unreplayable;
  if (stays_unclear(found->second, difference, captured.graph)) return captured;
  if (found->second.due > 0 && !unreplayable_.empty()) {
    unreplayable_ += concat(" (steps since step ", found->second.step - 1,
                            ", where it was last looked at, may have been replayed without that)");
  }
  auto looked_at = late_.extract(found);
  if (unreplayable_.empty()) look_later(looked_at.key(), std::move(looked_at.mapped()));
  return captured;
}

// Workers run plainly together or not at all, and know a batch only when it is there. So the look
// is a recording of this step, which is replayed in it where the first one is not right for it.
void StepCache::look_before_replay(const Batch& batch, int micro_batches) {
  std::optional<Capture> captured = look_late(batch, subject_.plain_seed());
  if (!captured || unreplayable_.empty()) return;
  EPL_CHECK(captured->unreplayable.empty() && micro_batches == 1,
            concat("the step cannot be replayed: ", unreplayable_,
                   "; that is seen too late for all workers to run it as the plain program would"),
            "epl::Trainer::step", kWaysOut);
  const auto ready = ready_.find(key_of(batch));
  if (ready != ready_.end()) forget(*ready->second);
  probe_ = Probe{key_of(batch), std::move(*captured), subject_.plain_seed()};
}

// Whether the user has since assigned another tensor to a variable that the recording reads, or
// given a parameter another shape.
bool StepCache::is_out_of_date(const Pending& pending) const {
  return std::any_of(ready_.begin(), ready_.end(), [&](const auto& entry) {
    if (pending.looks.count(entry.first) == 0) return false;
    return entry.second->out_of_date() || !entry.second->leaves_are_as_recorded();
  });
}

std::optional<Capture> StepCache::observe(const Batch& batch, double seed) {
  const bool probed = probe_ && probe_->key == key_of(batch) && seed == probe_->seed &&
                      !probe_->capture.effects.gradients.empty();
  if (probed && (!unreplayable_.empty() || is_first_of_its_form(batch))) {
    if (!unreplayable_.empty()) note_loss_of_plain(probe_->capture.graph);
    return std::exchange(probe_, std::nullopt)->capture;
  }
  if (unreplayable_.empty() && wants_look_at(batch)) return look_late(batch, seed);
  // Within one step numbers of C++ are the same: once it was compared, it waits for another step.
  const bool known = (!pending_ && seen_twice_.count(modes()) != 0) || compared_in_ == step_;
  if (known || !unreplayable_.empty()) return std::nullopt;
  const bool starts = !pending_ || pending_->modes != modes() || is_out_of_date(*pending_);
  Capture captured = !starts  ? capture(batch, seed)
                     : probed ? probe_->capture
                              : record(batch, seed);
  if (!captured.unreplayable.empty()) {
    unreplayable_ = captured.unreplayable;
    probe_.reset();
  } else if (starts) {
    constexpr int kOften = 3;
    const bool by_modes = pending_ && pending_->modes != modes();
    if (pending_ && ++started_again_ == kOften) {
      unreplayable_ = by_modes
                          ? "modes, flags or options of its modules change in every step"
                          : "a variable that it reads is assigned another tensor in every step";
    }
    pending_.reset();
    expect_again(batch, captured.graph, 1);
    if (!probed) probe_ = Probe{key_of(batch), captured, seed};
    probe_->capture.effects = RunEffects();
  } else if (const auto first = pending_->looks.find(key_of(batch));
             first == pending_->looks.end()) {
    expect_again(batch, captured.graph, 1);
  } else {
    const bool another_step = first->second.step != step_;
    const Difference difference = compare_looks(first->first, first->second, captured.graph);
    unreplayable_ = difference.text;
    if (another_step && !stays_unclear(first->second, difference, captured.graph)) {
      seen_twice_.insert(pending_->modes);
      look_later(key_of(batch), std::move(first->second));
      pending_.reset();
    }
  }
  if (!unreplayable_.empty()) note_loss_of_plain(captured.graph);
  return captured;
}

void StepCache::look_again(const Batch& batch) {
  if (wants_look_at(batch)) {
    bring_home();
    ++made_;
    auto late = late_.extract(key_of(batch));
    const Capture captured =
        capture(repeat_rows(batch, late.mapped().times), subject_.plain_seed());
    const Difference difference = compare_looks(late.key(), late.mapped(), captured.graph);
    if (!captured.unreplayable.empty()) refuse_to_replay(captured.unreplayable);
    if (difference && !difference.guarded) refuse_to_replay(difference.text);
    look_later(late.key(), std::move(late.mapped()));
    return;
  }
  if (!pending_ || pending_->modes != modes() || is_out_of_date(*pending_)) {
    pending_.reset();
    return;
  }
  const auto first = pending_->looks.find(key_of(batch));
  if (first == pending_->looks.end()) return;
  bring_home();
  ++made_;  // what was brought home may be released again
  const Capture captured = capture(repeat_rows(batch, first->second.times), subject_.plain_seed());
  const bool another_step = first->second.step != step_;
  const Difference difference = compare_looks(first->first, first->second, captured.graph);
  if (another_step && !stays_unclear(first->second, difference, captured.graph)) {
    seen_twice_.insert(pending_->modes);
    if (subject_.job.workers() == nullptr) look_later(key_of(batch), std::move(first->second));
    pending_.reset();
  }
  if (!captured.unreplayable.empty()) refuse_to_replay(captured.unreplayable);
  // Guards are looked at in every step, and where one fails the step is recorded again.
  if (difference && !difference.guarded) refuse_to_replay(difference.text);
}

bool StepCache::had_gradient(const std::string& name, const at::Tensor& parameter, bool has_one) {
  GradientHistory& history = subject_.job.gradient_history();
  const GradientHistory::Asker asker{*placement_, subject_.job.workers() == nullptr};
  const bool had = history.find(name, parameter, asker).has_value();
  if (has_one && !had) history.add(name, parameter, Home{{0}}, asker);
  return had;
}

void StepCache::guard_failed(const std::string& why, int64_t step) {
  constexpr int kOften = 3;          // failures
  constexpr int64_t kMostSteps = 4;  // between them, on an average
  ++guard_failures_;
  if (!can_run_plainly() || guard_failures_ < kOften) return warn_of_recording_again(why);
  if (step >= guard_failures_ * kMostSteps) return warn_of_recording_again(why);
  unreplayable_ = why;
}

}  // namespace epl
