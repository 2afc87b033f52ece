// Trainer::Impl: what a trainer is made of. One step is: cut the batch (trainer.cc), run it on all
// devices by a recording that is right for it (trainer_run.cc), merge what they gave, reduce, clip
// and update (trainer_update.cc), and where asked compare with the plain program
// (trainer_verify.cc).
#pragma once

#include <epl/env.h>
#include <epl/trainer.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "driver/clip.h"
#include "driver/job.h"
#include "driver/micro_batches.h"
#include "driver/model.h"
#include "driver/recordings.h"
#include "driver/verify_step.h"

namespace epl {

// What a LibTorch exception says, without its stack trace.
std::string text_of(const std::exception& error);

struct Trainer::Impl {
  Impl(std::vector<NamedModule> modules, OptimizerList optimizers, StepFunction step,
       TrainerOptions trainer_options)
      : job(current_job()),
        config(Env::get().config),
        model(std::move(modules), std::move(optimizers)),
        function(std::move(step)),
        options(trainer_options),
        replicas(job->team(), model.device(), job->cluster().first_device()),
        recordings({model, function, config, *job, replicas, clips(trainer_options)}) {
    EPL_CHECK(function != nullptr, "the step function is empty", "epl::Trainer");
    check_clipping(options);
  }

  static std::shared_ptr<Job> current_job();  // throws before epl::init()
  StepResult step_with(const std::function<DeviceBatches()>& cut);
  void meet_other_workers();
  int64_t likely_parts() const;
  Shares shares(const Batch& sample, const Batch& whole);
  StepResult step(const DeviceBatches& batches);
  std::vector<DeviceRun> run(const DeviceBatches& batches);
  void run_once(ReadyStep& ready, const DeviceBatches& batches, std::vector<DeviceRun>& runs);
  void check_replay(ReadyStep& ready, const std::vector<DeviceRun>& runs);
  bool check_finite(const StepResult& result) const;
  void reduce_and_update(ReadyStep& ready, StepResult& result);
  void tell_of_local_clipping(const ReadyStep& ready);
  void clip_locally(ReadyStep& ready);
  double norm_of_reduced(ReadyStep& ready);
  void update(ReadyStep& ready, bool summed);
  void keep_timeline(const ReadyStep& ready, const std::vector<DeviceRun>& runs);
  void check_all_is_here(const std::string& who) const;
  void tell_what_is_fetched(const ReadyStep& ready);
  void release_what_others_hold(const ReadyStep& ready);
  double seconds_since_begin() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  }
  int reader_of(const ReadyStep& ready, int device) const;
  void apply(Update& update, const std::vector<ParameterGradient>& gradients);
  std::optional<PlainStep> run_plainly(const DeviceBatches& batches);
  void compare(const PlainStep& plain, ReadyStep& ready, double loss);
  double sum_over_workers(double value);

  int devices() const { return job->cluster().total_gpu_num; }
  bool takes_mean() const {
    return config.get<std::string>("communication.gradients_reduce_method") == "mean";
  }
  // The gradient of the loss of one micro batch on one device of a stage with so many.
  double seed(const ReadyStep& ready, int slices) const {
    const auto parts = static_cast<double>(config.get<int64_t>("pipeline.num_micro_batch"));
    const double of_slice = ready.sizes().loss == SliceMerge::kMean ? 1.0 / slices : 1.0;
    return takes_mean() ? of_slice / (parts * ready.plan().replicas) : of_slice;
  }
  // What a replica's own gradient is of the one that it hands in: its share of the mean.
  double local_scale(const ReadyStep& ready) const {
    return takes_mean() ? ready.plan().replicas : 1;
  }
  // With one replica the reduced gradients are the local ones.
  bool clips_locally(const ReadyStep& ready) const {
    return clips(options) && ready.plan().replicas > 1 &&
           !config.get<bool>("communication.clip_after_allreduce");
  }

  const std::shared_ptr<Job> job;  // with the process's other trainers
  const Config config;
  Model model;
  const StepFunction function;
  const TrainerOptions options;
  int64_t steps = 0;
  bool met = false;  // the other workers have the same model and plan
  bool told_of_local_clipping = false;
  LocalReplicas replicas;
  Recordings recordings;
  int64_t released = -1;  // recordings when the pieces of other workers were last released
  Timeline timeline;      // of the last step
  std::chrono::steady_clock::time_point begun;
};

}  // namespace epl
