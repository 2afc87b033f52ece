#include "driver/recordings.h"

#include <iostream>

#include "base/check.h"

namespace epl {
namespace {

// Each input in memory of its own: recorded places start at 0, and no two inputs share.
Batch own_copies(const Batch& batch) {
  Batch copies;
  for (const auto& tensor : batch) copies.push_back(tensor.detach().clone());
  return copies;
}

ExchangeOptions exchange_options(const Config& config) {
  ExchangeOptions options;
  options.half = config.get<bool>("communication.fp16");
  options.half_scale = static_cast<double>(config.get<int64_t>("communication.fp16_scale"));
  return options;
}

}  // namespace

Recordings::Key Recordings::key_of(const Batch& batch) const {
  Key key;
  for (const auto& tensor : batch) {
    key.push_back(static_cast<int64_t>(tensor.scalar_type()));
    key.push_back(tensor.dim());
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  subject_.model.append_modes(key);
  return key;
}

Capture Recordings::record(const Batch& batch) {
  const Batch inputs = own_copies(batch);
  const Config& config = subject_.config;
  Capture capture =
      capture_step({subject_.function, inputs, subject_.model.parameters(), subject_.model.state(),
                    config.get<std::string>("debug.kept_tensor") == "ignore"});
  Replication found =
      find_replication(capture.graph.taskgraphs, subject_.job.cluster(), subject_.config);
  EPL_CHECK(!replication_ || replication_->slices == found.slices,
            concat("the strategies ask for replicas of ", found.slices,
                   " devices, in an earlier step of ", replication_->slices),
            found.asked_by, "the same strategies in every step");
  replication_ = std::move(found);
  return capture;
}

const Replication& Recordings::replication(const Batch& batch) {
  if (!replication_ && subject_.job.cluster().total_gpu_num == 1) {
    replication_.emplace();
  } else if (!replication_) {
    find(batch, 0, 0);
  }
  return *replication_;
}

TwoSizes Recordings::sizes_of(const Capture& capture, const Batch& batch) {
  const int times = replication_->slices;
  return compare_sizes(capture, record(repeat_rows(batch, times)), times, replication_->asked_by);
}

std::unique_ptr<ReadyStep> Recordings::make(const Batch& batch) {
  Capture capture = record(batch);
  CompileOptions options;
  options.device = subject_.model.device();
  options.replicas = replication_->replicas;
  options.slices = replication_->slices;
  options.clips_locally =
      subject_.clips && !subject_.config.get<bool>("communication.clip_after_allreduce");
  TwoSizes sizes;
  if (replication_->slices > 1) sizes = sizes_of(capture, batch);
  CompiledStep compiled = compile(std::move(capture.graph), subject_.config, options);
  LocalReplicas& replicas = subject_.replicas;
  replicas.team.memory(0).trim();  // what the recorded run needed does not stay
  return std::make_unique<ReadyStep>(std::move(compiled), replicas, capture, std::move(sizes),
                                     subject_.job.channels(), exchange_options(subject_.config));
}

ReadyStep& Recordings::find(const Batch& batch, int sample, int64_t step) {
  if (subject_.model.refresh()) forget_all();
  forget_out_of_date();
  Key key = key_of(batch);
  const bool changed = last_ == nullptr || key != last_key_;
  if (changed) {
    auto found = ready_.find(key);
    if (found == ready_.end()) {
      drop_least_used();
      subject_.job.watch().doing(step, "record");
      found = ready_.emplace(key, make(batch)).first;
      found->second->sample = sample;
    }
    last_ = found->second.get();
    last_key_ = std::move(key);
  }
  const bool moved = last_->rebind_if_moved();
  if (moved && !last_->leaves_are_as_recorded()) {
    forget_all();
    return find(batch, sample, step);
  }
  // Which parameters coast may have changed.
  if (changed || moved) last_->bind_updates(subject_.model, had_gradient_);
  last_->last_used = step;
  return *last_;
}

void Recordings::forget_all() {
  ready_.clear();
  last_ = nullptr;
}

void Recordings::forget(const ReadyStep& step) {
  for (auto entry = ready_.begin(); entry != ready_.end(); ++entry) {
    if (entry->second.get() != &step) continue;
    ready_.erase(entry);
    break;
  }
  last_ = nullptr;
}

void Recordings::forget_out_of_date() {
  bool any = false;
  for (auto entry = ready_.begin(); entry != ready_.end();) {
    const bool old = entry->second->out_of_date();
    any |= old;
    if (old && entry->second.get() == last_) last_ = nullptr;
    entry = old ? ready_.erase(entry) : std::next(entry);
  }
  if (any) warn_of_recording_again("a variable that it reads was assigned another tensor");
}

// Programs whose batches come in ever new shapes must not fill memory with recordings.
void Recordings::drop_least_used() {
  constexpr size_t kMostRecordings = 64;
  if (ready_.size() < kMostRecordings) return;
  auto oldest = ready_.begin();
  for (auto entry = ready_.begin(); entry != ready_.end(); ++entry) {
    if (entry->second->last_used < oldest->second->last_used) oldest = entry;
  }
  forget(*oldest->second);
}

void Recordings::warn_of_recording_again(const std::string& why) {
  constexpr int kOften = 3;
  if (++recorded_again_ != kOften) return;
  std::clog << "epl: warning: the step was recorded again " << kOften
            << " times, the last time since " << why
            << ". Each time costs about two plain steps. To avoid it, return the value as a "
            << "metric instead of reading it by item(), choose by torch::where instead of if, mask "
            << "instead of selecting, and hand tensors in with the batch or copy_() into them.\n";
}

}  // namespace epl
