// Trainer::Impl: what a trainer is made of. One step is: cut the batch (trainer.cc), run it on all
// devices by a recording that is right for it (trainer_run.cc) and end it as its plan says
// (trainer_end.cc), or run it as the plain program does (trainer_plain.cc); where asked, compare
// the two (verify/replayed_step.h), or one that computes again with one that keeps all
// (verify/all_kept.h). What a user hears of it stands in trainer_remarks.cc.
#pragma once

#include <epl/env.h>
#include <epl/trainer.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "amp/mixed_precision.h"
#include "base/check.h"
#include "batch/given_batch.h"
#include "batch/readers.h"
#include "batch/step_input.h"
#include "config/settings.h"
#include "driver/step_cache.h"
#include "footprint/step_memory.h"
#include "job/agreement.h"
#include "job/job.h"
#include "model/model.h"
#include "model/model_state.h"
#include "offload/offload.h"
#include "plain/plain_run.h"
#include "runtime/step_end.h"
#include "state/checkpoint_file.h"
#include "verify/all_kept.h"
#include "verify/replayed_step.h"

namespace epl {

// What a LibTorch exception says, without its stack trace.
std::string text_of(const std::exception& error);

struct Trainer::Impl {
  Impl(std::unique_ptr<Model> trained, StepFunction step, TrainerOptions trainer_options)
      : job(current_job()),
        config(Env::get().config),
        owned_model(std::move(trained)),
        model(*owned_model),
        mixed(mixed_precision(config)),
        function(in_mixed_precision(std::move(step), mixed)),
        clipping(checked({trainer_options.clip_grad_norm, trainer_options.clip_norm_type,
                          trainer_options.clip_grad_value})),
        offload(Offload::make(config, *job, model)),
        replicas(job->team(), model.device(), job->cluster().first_device()),
        step_cache({model, function, config, *job, replicas, clipping,
                    [this] { return plain_seed(); }, offload.get()}) {
    EPL_CHECK(function != nullptr, "the step function is empty", "epl::Trainer");
    EPL_CHECK(!clipping.clips() || !config.get<bool>("optimizer.update_early"),
              "gradients are clipped, and parameters are updated before all of them are there",
              concat(config.asked_by("optimizer.update_early"), " and TrainerOptions"),
              "one of the two");
    job->count(model.holders());
    if (mixed) tell_of_speed();
  }

  // Where an exception destroys the trainer, this worker has failed, and the others hear of it.
  ~Impl();

  static std::shared_ptr<Job> current_job();  // throws before epl::init()
  StepResult step_with(StepInput& input);
  void meet_other_workers();
  // One device of one worker can take a batch that cannot be cut evenly over all.
  bool stays_whole(const StepInput& input, const Shares& shares) const;
  Shares shares(const StepInput& input, const GivenBatch& given);
  StepResult step(StepInput& input, GivenBatch& given);
  StepResult step_by_recording(const DeviceBatches& batches);
  std::vector<DeviceRun> run(const DeviceBatches& batches);
  std::string run_guarded(ReadyStep& ready, const DeviceBatches& batches,
                          std::vector<DeviceRun>& runs);
  void check_follows_guards(const ReadyStep& ready) const;
  void check_records_again(const std::string& failure, const std::string& first_failure) const;
  void look_again(const DeviceBatches& batches);
  // The largest value of all workers; where others do not meet about this, an Error.
  double agree(MeetingAbout about, double value, const std::string& conflict);
  void agree_to_run_plainly(const std::string& why);
  bool guards_hold_on_all_workers(bool here, const ReadyStep& ready);
  void agree_on_plan(const ReadyStep& ready);

  // --- a step by the user's own code: trainer_plain.cc
  bool runs_plainly(const DeviceBatches& batches) const;
  StepResult step_plainly(const DeviceBatches& batches, double seed);
  PlainRunRequest plain_request(const DeviceBatches& batches, double seed,
                                std::vector<Batch>& observed);
  double loss_of(const PlainRun& plain, int plain_devices) const;
  bool update_by(PlainRun& plain, const PlainRunRequest& request, StepResult& result);
  // `culprit`: the name of a parameter whose gradient is not finite, where this worker knows one.
  void loss_scale_ends_step(StepResult& result, const std::function<std::string()>& culprit);
  void make_plan(const DeviceBatches& batches);
  void run_once(ReadyStep& ready, const DeviceBatches& batches, std::vector<DeviceRun>& runs);
  void run_devices(BoundStep& bound, bool draws, const DeviceBatches& batches,
                   std::vector<DeviceRun>& runs);
  // gradient_checkpoint.check_gradients: runs the step without recomputation, where that is due.
  void run_all_kept(const DeviceBatches& batches);
  void check_replay(ReadyStep& ready, const DeviceBatches& batches,
                    const std::vector<DeviceRun>& runs);
  bool check_finite(const StepResult& result, const std::vector<DeviceRun>& runs) const;
  class End;  // what happens once the devices have run: trainer_end.cc
  StepEndRequest end_request(const ReadyStep& ready);
  StepResult end_step(ReadyStep& ready, const std::vector<DeviceRun>& runs,
                      const DeviceBatches& batches);
  bool verifies() const { return verified < config.get<int64_t>("debug.verify_steps"); }
  // Where parameters, buffers and optimizers' states lie, after the last step.
  StateMap state_map() const;

  // --- a step that is planned and not run: trainer_memory.cc
  class PlannedBatch;
  MemorySubject memory_subject() const { return {model, *job, config, offload.get()}; }
  MemoryReport forecast(const Batch& batch);
  FittingReport what_fits(const Batch& batch, int64_t limit);

  void check_all_is_here(const std::string& who) const;
  void bring_states_to_first_worker();
  SavedProgress progress() const;  // what a file has besides the model
  void go_on_from(const SavedProgress& saved);
  void release_once(const ReadyStep& ready);  // what only other workers hold
  static double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  double seconds_since_begin() const { return seconds_since(begun); }
  ReplayedStep replayed(const ReadyStep& ready);  // as it is verified
  // This worker's rows of a micro batch: those of all devices that share it (micro_batch_of).
  const Batch& rows_of(const DeviceBatches& batches, size_t reader, size_t index,
                       Batch& scratch) const {
    return micro_batch_of(batches, step_cache.placement_known(), reader, index, scratch);
  }
  // Where somebody's function runs, all workers bring their parts of parameters together.
  void bring_parameters(const DeviceBatches& batches);
  // What workers tell each other in each step, before the update: gives the loss of all.
  void look_at_parameters();
  StepReport report_of(double loss, const DeviceBatches& batches) const;
  double meet_after_run(double loss, const DeviceBatches& batches);

  // --- what a user hears once: trainer_remarks.cc
  enum class Remark {
    kBatchGradient,
    kCasts,
    kIgnoredTargets,
    kLocalClipping,
    kPlainSteps,
    kSkippedStep,
    kUnverified,
    kWholeBatch
  };
  bool tells(Remark remark) { return told.insert(remark).second; }
  static void tell(const std::string& text);
  void tell_of_batch_gradient();
  void tell_of_whole_batch(const GivenBatch& given);
  void tell_of_ignored_targets(int64_t parts);  // micro batches x replicas
  void tell_of_local_clipping(int replica_count);
  void tell_what_is_fetched(const ReadyStep& ready);
  void tell_of_plain_steps();
  void tell_of_unverified();
  void tell_of_speed();
  void tell_of_casts();
  void tell_of_skipped_step(const StepResult& result);

  int devices() const { return job->cluster().total_gpu_num; }
  // The gradient of the loss of one micro batch where every device is a replica of its own.
  double plain_seed() const { return plain_seed(config, loss_scale()); }
  double plain_seed(const Config& of, double scale) const {
    const auto parts = static_cast<double>(of.get<int64_t>("pipeline.num_micro_batch"));
    return averages_gradients(of) ? scale / (parts * devices()) : scale;
  }
  double loss_scale() const { return mixed ? mixed->scale.value() : 1; }
  // What a replica's own gradient is of the one that it hands in: its share of the mean.
  double local_scale(const ReadyStep& ready) const {
    return averages_gradients(config) ? ready.plan().replicas : 1;
  }

  const std::shared_ptr<Job> job;  // with the process's other trainers
  const Config config;
  const std::unique_ptr<Model> owned_model;
  Model& model;
  std::optional<MixedPrecision> mixed;
  const StepFunction function;  // in mixed precision, where there is one
  const ClipOptions clipping;
  const std::unique_ptr<Offload> offload;  // null where nothing is offloaded
  int64_t steps = 0;
  bool met = false;  // the other workers have the same model and plan
  LocalReplicas replicas;
  StepCache step_cache;
  AllKeptGradients all_kept;
  int64_t verified = 0;               // steps that were compared with the plain program
  const Batch* step_batch = nullptr;  // while a step runs: what was handed in
  double parameters_before = 0;       // their checksum before this step, where it is looked at
  double states_before = 0;           // of optimizers, likewise
  bool gathered_states = false;       // since the last step: worker 0 has others than the rest
  bool plain_next = false;            // some worker wants the next step to run plainly
  bool all_recorded = false;          // before there is a plan: all workers can make it
  std::set<Remark> told;
  int64_t ignored_before = 0;  // targets that were, before this step
  int64_t loads = 0;           // calls of load()
  int64_t released = -1;       // recordings when the pieces of other workers were last released
  Timeline timeline;           // of the last step
  DeviceLaps laps;             // of the last step that was replayed
  std::chrono::steady_clock::time_point begun;
  const int exceptions_at_start = std::uncaught_exceptions();
};

}  // namespace epl
