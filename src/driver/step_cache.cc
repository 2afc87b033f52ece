#include "driver/step_cache.h"

#include <algorithm>
#include <iostream>
#include <set>
#include <utility>

#include "amp/mixed_precision.h"
#include "base/check.h"
#include "batch/batch_types.h"
#include "batch/micro_batches.h"
#include "batch/readers.h"
#include "capture/made_under_split.h"
#include "capture/thread_modes.h"
#include "capture/watched_inputs.h"
#include "compile/cut_operators.h"
#include "compile/loss_of_parts.h"
#include "config/checks.h"
#include "config/libtorch.h"
#include "config/settings.h"
#include "cost/node_cost.h"
#include "footprint/compile_options.h"
#include "footprint/device_share.h"
#include "footprint/kernel_memory.h"
#include "job/agreement.h"
#include "model/model_state.h"
#include "ops/facts.h"
#include "report/remarks.h"
#include "runtime/counted_targets.h"
#include "runtime/device_memory.h"
#include "runtime/device_numbers.h"
#include "state/state_snapshot.h"

namespace epl {

StepCache::Key StepCache::key_of(const Batch& batch) const {
  Key key;
  append_types(batch, key);
  subject_.model.append_modes(key);
  append_thread_modes(key);
  return key;
}

StepCache::Key StepCache::modes() const {
  Key key;
  subject_.model.append_modes(key);
  return key;
}

std::vector<at::Generator> StepCache::generators_seen_before() const {
  std::vector<at::Generator> seen;
  if (!pending_) return seen;
  for (const auto& [key, look] : pending_->looks) {
    for (const at::Generator& generator : generators_of(look.graph)) seen.push_back(generator);
  }
  return seen;
}

void StepCache::begin_step() {
  ++step_;
  if (subject_.model.refresh()) {
    forget_all();
    probe_.reset();
    pending_.reset();
  }
  look_who_holds_parameters();
  if (!probe_) return;
  probe_->capture.effects = RunEffects();
  probe_->of_this_step = false;
}

// Before EPL's own copies come and go. What somebody holds stays whole from then on.
void StepCache::look_who_holds_parameters() {
  SpreadParameters& spread = subject_.job.spread();
  if (subject_.job.workers() == nullptr || !cuts_parameters(subject_.config)) return;
  for (const std::string& name : spread.let_go_of_held()) {
    const int worker = subject_.job.cluster().worker_index;
    std::clog << "epl: " << remark_on_held_parameter(name, worker) << "\n";
  }
  if (std::exchange(spread_version_, spread.version()) != spread.version()) forget_all();
  may_be_spread_ = spread.may_be_spread(subject_.model);
}

Capture StepCache::capture(const Batch& batch, double seed) {
  EPL_ASSERT(!subject_.job.spread().any_spread(), "a recorded step reads whole parameters");
  subject_.model.check_has_parameters();
  WatchedInputs inputs(batch);
  const IgnoredTargetsWatch targets;
  const double options_before = fingerprint_of_options(subject_.model);
  KernelMemory memory;
  DeviceMemory::begin_lap_here();
  const int64_t held_before = DeviceMemory::account_here().in_use;
  Capture captured = capture_step(
      {subject_.function, inputs.batch(), subject_.model.parameters(), subject_.model.state(),
       subject_.config.get<std::string>("debug.kept_tensor") == "ignore", seed,
       generators_seen_before(), &inputs, &memory, scales_loss(mixed_precision(subject_.config))});
  recording_bytes_ = DeviceMemory::account_here().lap_peak - held_before;
  const bool changes_options = fingerprint_of_options(subject_.model) != options_before;
  if (changes_options && captured.unreplayable.empty()) {
    captured.unreplayable = "it changes options of its optimizer, as a scheduler's step() does";
  }
  note_written(batch, captured);
  return captured;
}

void StepCache::note_reached(const Capture& captured) {
  add_reached(captured.reached, subject_.model, subject_.job.gradient_history());
}

void StepCache::note_written(const Batch& batch, const Capture& captured) {
  for (const auto& [index, writer] : writers_of_inputs(captured.graph)) {
    input_writers_.emplace(index, writer);
  }
  check_apart(input_writers_, batch);
  check_apart(captured.graph, input_writers_, batch);
  written_outside_.add(captured);
}

// The first run of an operator is a cold one, and any may be interrupted. The last recording is
// kept: a table that the function makes in its first run and keeps is made in none of its steps.
Capture StepCache::measure_again(Capture captured, const Batch& batch, double seed) {
  for (int again = 0; again < 2; ++again) {
    Capture next = capture(batch, seed);
    take_shorter_times(next.graph, captured.graph);
    captured = std::move(next);
  }
  return captured;
}

// The choice stays for steps of other shapes, unless they do another number of operators.
Capture StepCache::choose_cuts(Capture captured, const Batch& batch, double seed) {
  if (chosen_ && chosen_->forward_calls == forward_calls(captured.graph)) return captured;
  captured = measure_again(std::move(captured), batch, seed);
  const Cluster& cluster = subject_.job.cluster();
  const AutoStages choice =
      choose_stages(captured.graph, cluster, subject_.config,
                    {device_share_of_memory(subject_.config, cluster),
                     most_state_per_parameter(subject_.model), rows_, cluster.local_devices()});
  // All workers take that of worker 0.
  chosen_ =
      parse_auto_stages(text_of_first_worker(subject_.job, "stages", print_auto_stages(choice)));
  if (cluster.worker_index == 0) std::clog << choice.explanation;
  return captured;
}

std::vector<int> StepCache::cuts() const { return chosen_ ? chosen_->cuts : std::vector<int>(); }

Capture StepCache::record(const Batch& batch, double seed) {
  const bool chooses =
      subject_.config.get<bool>("auto.auto_parallel") && subject_.job.cluster().total_gpu_num > 1;
  Capture captured = capture(batch, seed);
  check_auto_parallel(captured.graph.taskgraphs, subject_.config);
  if (chooses) captured = choose_cuts(std::move(captured), batch, seed);
  subject_.model.check_trained(captured.graph);
  subject_.replicas.team.memory(0).trim();  // what the recorded run needed does not stay
  if (made_ == 0) {
    std::clog << describe_folding(captured.graph.taskgraphs, subject_.job.cluster());
  }
  Placement found = place_step(captured.graph, leaves_under_split(captured.graph), cuts(),
                               subject_.job.cluster(), subject_.config);
  EPL_CHECK(!placement_ || *placement_ == found,
            concat("the strategies ask for replicas of ", join(found.role_devices, " + "),
                   " devices, in an earlier step of ",
                   placement_ ? join(placement_->role_devices, " + ") : ""),
            found.asked_by, "the same strategies in every step");
  placement_ = std::move(found);
  const auto& devices = placement_->role_devices;
  const bool copies = placement_->replicas > 1 || placement_->splits() ||
                      *std::max_element(devices.begin(), devices.end()) > 1;
  if (copies && captured.unreplayable.empty()) {
    captured.unreplayable = writes_in_shared_memory(captured.graph);
  }
  if (!averages_gradients(subject_.config) && !loss_is_sum_) {
    loss_is_sum_ = loss_of_recorded(captured.graph, 0).kind == OverRows::kSum;
  }
  return captured;
}

const Placement& StepCache::placement(const Batch& sample, const Batch& whole, double seed) {
  if (placement_) return *placement_;
  if (subject_.job.cluster().total_gpu_num == 1) return placement_.emplace();
  subject_.job.watch().doing(0, "record");
  const bool cut = !whole.empty() && whole[0].dim() > 0 && !sample[0].is_same(whole[0]);
  rows_ = cut ? whole[0].size(0) : 0;
  const auto probe = [&](const Batch& batch) {
    // What it does may become the first step of this worker's first device.
    subject_.replicas.begin_step();
    const DeviceNumbers numbers(subject_.replicas[0].streams);
    Capture captured = record(batch, seed);
    probe_ = Probe{key_of(batch), std::move(captured), seed};
  };
  // Batch norm of one row, for one, or a shape that the step writes down: with the stages of a
  // pipeline, or under split, a micro batch has more rows, as many as there are fewer replicas.
  // Some checks of LibTorch throw std::runtime_error.
  std::vector<Batch> candidates = {sample};
  const auto micro_batches = subject_.config.get<int64_t>("pipeline.num_micro_batch");
  for (int replicas = subject_.replicas.size() - 1; replicas > 0; --replicas) {
    const bool fits = subject_.replicas.size() % replicas == 0;
    if (fits) candidates.push_back(sample_of(whole, micro_batches * replicas));
  }
  candidates.push_back(whole);
  for (size_t i = 0; i + 1 < candidates.size(); ++i) {
    try {
      probe(candidates[i]);
      return *placement_;
    } catch (const Error&) {
      throw;  // what EPL refuses does not depend on the number of rows
    } catch (const std::exception&) {
    }
  }
  probe(whole);
  return *placement_;
}

// Takes the probe, where that is what it recorded.
StepCache::Recorded StepCache::record_step(const Batch& batch) {
  const int times = times_of_rows(*placement_, subject_.job.cluster());
  const bool probed = times == 1 && probe_ && probe_->key == key_of(batch);
  Recorded result;
  result.comparable = times == 1 && (!probed || probe_->of_this_step);
  const bool sees_slices = placement_->devices_of_replica() > 1 &&
                           subject_.config.get<std::string>("replicate.batch_norm") == "slice";
  result.capture = probed_or_recorded(batch, probed);
  expect_again(batch, result.capture.graph, times);
  check_replayable(batch, result.capture);
  result.step = recording_of(std::move(result.capture.graph));
  // Recorded with all rows, batch norm has other statistics than each device will have.
  result.comparable &= !sees_slices || !takes_batch_statistics(result.step.whole);
  return result;
}

Capture StepCache::probed_or_recorded(const Batch& batch, bool probed) {
  if (probed) return std::exchange(probe_, std::nullopt)->capture;
  probe_.reset();
  const int times = times_of_rows(*placement_, subject_.job.cluster());
  // Not a copy of the batch: what shares its memory is looked for.
  return record(times == 1 ? batch : repeat_rows(batch, times), subject_.plain_seed());
}

StepRecording StepCache::recording_of(Graph whole) const {
  StepRecording step;
  step.whole = std::move(whole);
  step.cuts = cuts();
  step.made_under = leaves_under_split(step.whole);
  return step;
}

StepRecording StepCache::record_once(const Batch& batch) {
  const int times = times_of_rows(*placement_, subject_.job.cluster());
  Capture captured = probed_or_recorded(batch, times == 1 && has_recorded(batch));
  EPL_CHECK(
      captured.unreplayable.empty(),
      concat("such a step runs as the plain program would, and what that needs is in no plan: ",
             captured.unreplayable),
      "epl::Trainer::forecast or what_fits", "a step that can be replayed (docs/trainer.md)");
  return recording_of(std::move(captured.graph));
}

CompiledStep StepCache::plan_once(StepRecording step, const Config& config) const {
  const CompileOptions options = compile_options(config, step.whole);
  return compile(std::move(step), subject_.job.cluster(), config, options);
}

CompileOptions StepCache::compile_options(const Config& config, const Graph& recorded) const {
  const MemorySubject subject{subject_.model, subject_.job, config, subject_.offload};
  return epl::compile_options(subject, subject_.clipping, recorded, *placement_, may_be_spread_);
}

// Another trainer may have cut them before this one has run a step.
PartsOfOwners StepCache::parts_of_owners() {
  const GradientHistory& history = subject_.job.gradient_history();
  PartsOfOwners parts(subject_.model, connections_.get(), history);
  if (parts.empty() || connections_ != nullptr) return parts;
  make_connections(parts.placement());
  return {subject_.model, connections_.get(), history};
}

void StepCache::make_connections(const Placement& placement) {
  if (connections_ != nullptr) return;
  connections_ = std::make_unique<Connections>(subject_.job.links(subject_.config), placement);
}

// A step that runs plainly has no plan that would tell. What makes it one may also be what keeps
// its graph from being read.
void StepCache::note_loss_of_plain(const Graph& recorded) {
  const int parts = subject_.job.cluster().total_gpu_num *
                    static_cast<int>(subject_.config.get<int64_t>("pipeline.num_micro_batch"));
  if (parts < 2 || told_of_loss_) return;
  const RowResult loss = loss_of_any_recorded(recorded, parts);
  tell_once(remark_on_loss(loss, parts, averages_gradients(subject_.config)), told_of_loss_);
}

void StepCache::tell_once(const std::string& remark, bool& told) const {
  if (remark.empty() || std::exchange(told, true)) return;
  if (subject_.job.cluster().worker_index == 0) std::clog << "epl: " << remark << "\n";
}

std::unique_ptr<ReadyStep> StepCache::make(const Batch& batch) {
  if (!placement_) placement(batch, batch, subject_.plain_seed());
  Recorded recorded = record_step(batch);
  const bool compares = subject_.config.get<bool>("gradient_checkpoint.check_gradients");
  StepRecording kept = compares ? recorded.step : StepRecording();
  const CompileOptions options = compile_options(subject_.config, recorded.step.whole);
  CompiledStep compiled =
      compile(std::move(recorded.step), subject_.job.cluster(), subject_.config, options);
  tell_once(compiled.loss_remark, told_of_loss_);
  tell_once(compiled.metrics_remark, told_of_metrics_);
  subject_.replicas.team.memory(0).trim();  // of what was freed since
  make_connections(*placement_);
  if (subject_.offload != nullptr) subject_.offload->add_remarks(compiled.plan);
  subject_.job.spread().take_in(compiled.plan, subject_.model);
  auto ready = std::make_unique<ReadyStep>(std::move(compiled), recorded.capture, where());
  ready->replayed = !recorded.comparable;
  if (compares && ready->compiled().run_again > 0) {
    CompileOptions all_kept = options;
    all_kept.keeps_all = true;
    ready->all_kept = std::make_unique<CompiledStep>(
        compile(std::move(kept), subject_.job.cluster(), subject_.config, all_kept));
  }
  return ready;
}

std::unique_ptr<BoundStep> StepCache::bind(const CompiledStep& step) {
  return std::make_unique<BoundStep>(step.plan, bound_leaves(step), where());
}

BoundStep::Where StepCache::where() const {
  const Offload* const offload = subject_.offload;
  return {
      subject_.replicas, *connections_, exchange_options(subject_.config),
      offload == nullptr ? nullptr : &offload->homes(),
      [&spread = subject_.job.spread()](const at::Tensor& tensor) { return spread.find(tensor); }};
}

void StepCache::make_parameters_whole() {
  SpreadParameters& spread = subject_.job.spread();
  if (!spread.any_spread()) return;
  make_connections(spread.placement());
  spread.make_whole(*connections_);
}

// Workers whose steps fetch something else would wait for each other.
void StepCache::spread_parameters(BoundStep& step) {
  SpreadParameters& spread = subject_.job.spread();
  Communicator* const workers = subject_.job.workers();
  const bool spreads = cuts_parameters(subject_.config) || spread.any_spread();
  if (workers == nullptr || !spreads) return;
  const int64_t own = fetched_by(step.plan());
  const at::Tensor most = at::tensor({own, -own}, at::kLong);
  workers->all_reduce({most}, ReduceOp::kMax);
  EPL_CHECK(most.sum().item<int64_t>() == 0,
            "workers need different parameters of others, or in another order: they have recorded "
            "different steps",
            subject_.config.asked_by("zero.level"),
            "batches of the same shape on all workers, and steps that use the same layers there");
  spread.settle(step, *connections_);
}

bool StepCache::would_record(const Batch& batch) const {
  const auto found = ready_.find(key_of(batch));
  return found == ready_.end() || found->second->out_of_date() ||
         !found->second->leaves_are_as_recorded();
}

bool StepCache::has_recorded(const Batch& batch) const {
  const Key key = key_of(batch);
  return (probe_ && probe_->key == key) || ready_.count(key) != 0;
}

Communicator* StepCache::first_of_gradients() const {
  if (connections_ == nullptr || connections_->routes(0).empty()) return nullptr;
  return connections_->routes(0)[0].communicator.get();
}

ReadyStep& StepCache::find(const Batch& batch, int sample, int64_t step) {
  forget_out_of_date();
  Key key = key_of(batch);
  const bool changed = last_ == nullptr || key != last_key_;
  agree_that_it_changes(changed, batch, step);
  if (changed) {
    auto found = ready_.find(key);
    if (found == ready_.end()) {
      drop_least_used();
      subject_.job.watch().doing(step, "record");
      sample_ = sample;
      bring_home();
      found = ready_.emplace(key, make(batch)).first;
      ++made_;
      found->second->sample = sample;
    }
    last_ = found->second.get();
    last_key_ = std::move(key);
  }
  const bool moved = last_->bound().rebind_if_moved();
  if (moved && !last_->leaves_are_as_recorded()) {
    forget_all();
    return find(batch, sample, step);
  }
  // Which parameters have zero gradients may have changed, by another trainer as well.
  GradientHistory& history = subject_.job.gradient_history();
  const bool woke = kZeroGradLeavesZeros && last_->bound().gradients().somebody_woke();
  if (changed || moved || woke || history.version() != bound_history_) {
    bound_history_ = -1;  // a step that is refused here is bound, or refused, once more
    last_->bind_updates(subject_.model, history, gathers() ? Gather::kAll : Gather::kRead);
    bound_history_ = history.version();
  }
  // Its stages may read parameters that those of the last step did not.
  if (changed && !gathers()) last_->bound().gather(Gather::kRead);
  last_->last_used = step;
  return *last_;
}

// Stages and parts of one step on several workers run the same recording. A worker that goes over
// to another one alone would wait for the others, and they for it.
void StepCache::agree_that_it_changes(bool changed, const Batch& batch, int64_t step) {
  Communicator* const workers = subject_.job.workers();
  if (workers == nullptr || made_ == 0 || !placement_ || !placement_->has_roles()) return;
  subject_.job.watch().doing(step, "agree");
  const at::Tensor said = at::tensor({changed ? 1.0 : 0.0, changed ? 0.0 : 1.0});
  workers->all_reduce({said}, ReduceOp::kMax);
  if (said.sum().item<double>() < 2) return;
  std::vector<std::string> shapes;
  for (const auto& tensor : batch) shapes.push_back(concat(tensor.sizes()));
  check_same_on_all_workers(subject_.job, "the batch",
                            changed ? concat("another shape than before: ", join(shapes, ", "))
                                    : "the shape of the step before");
}

bool StepCache::gathers() const { return subject_.config.get<bool>("pipeline.gather_parameters"); }

// A recording runs with the user's tensors, of which other workers may have changed their pieces
// and stages. The last step knows who has what, so this comes before it is forgotten.
void StepCache::bring_home() {
  if (last_ != nullptr && !gathers()) last_->bound().gather(Gather::kAll);
}

void StepCache::forget_all() {
  bring_home();
  ready_.clear();
  late_.clear();
  last_ = nullptr;
}

void StepCache::forget(const ReadyStep& step) {
  bring_home();
  for (auto entry = ready_.begin(); entry != ready_.end(); ++entry) {
    if (entry->second.get() != &step) continue;
    late_.erase(entry->first);
    ready_.erase(entry);
    break;
  }
  last_ = nullptr;
}

void StepCache::forget_out_of_date() {
  bool any = false;
  for (auto entry = ready_.begin(); entry != ready_.end();) {
    const bool old = entry->second->out_of_date();
    any |= old;
    if (old && entry->second.get() == last_) {
      bring_home();
      last_ = nullptr;
    }
    if (old) late_.erase(entry->first);
    entry = old ? ready_.erase(entry) : std::next(entry);
  }
  if (any) warn_of_recording_again("a variable that it reads was assigned another tensor");
}

// Programs whose batches come in ever new shapes must not fill memory with step_cache.
void StepCache::drop_least_used() {
  constexpr size_t kMostRecordings = 64;
  if (ready_.size() < kMostRecordings) return;
  auto oldest = ready_.begin();
  for (auto entry = ready_.begin(); entry != ready_.end(); ++entry) {
    if (entry->second->last_used < oldest->second->last_used) oldest = entry;
  }
  forget(*oldest->second);
}

void StepCache::warn_of_recording_again(const std::string& why) {
  constexpr int kOften = 3;
  if (++recorded_again_ != kOften) return;
  std::clog << "epl: " << remark_on_recording_again(kOften, why) << "\n";
}

}  // namespace epl
