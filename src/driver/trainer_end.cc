#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <utility>

#include "base/check.h"
#include "driver/stage_parameters.h"
#include "driver/trainer_impl.h"
#include "runtime/merge_outputs.h"
#include "runtime/step_end.h"

namespace epl {

namespace {

// "that of micro batch 2 on device 1 is, others are finite"; empty where all are alike.
std::string parts_that_are_not_finite(const std::vector<DeviceRun>& runs, int first_device) {
  std::string first;
  bool others = false;
  for (size_t device = 0; device < runs.size(); ++device) {
    for (size_t i = 0; i < runs[device].losses.size(); ++i) {
      const bool finite = std::isfinite(runs[device].losses[i]);
      others |= finite;
      if (finite || !first.empty()) continue;
      first = concat("micro batch ", i, " on device ", first_device + static_cast<int>(device));
    }
  }
  return others && !first.empty() ? concat(" (that of ", first, "; others are finite)") : "";
}

}  // namespace

bool Trainer::Impl::check_finite(const StepResult& result,
                                 const std::vector<DeviceRun>& runs) const {
  const std::string policy = config.get<std::string>("debug.nan_loss");
  if (policy == "ignore" || std::isfinite(result.loss)) return true;
  if (policy == "skip") return false;
  check_has_rows(*step_batch);  // a mean over no rows is no number
  const std::string part = parts_that_are_not_finite(runs, replicas.first);
  throw Error(concat("the loss of step ", steps, " is ", result.loss, part,
                     "; the parameters are as before the step"),
              config.asked_by("debug.nan_loss"),
              concat(part.empty() ? ""
                                  : "rows that have something to take a mean of in every part (all "
                                    "targets of this one may be ignored or masked), ",
                     "a smaller learning rate, TrainerOptions::clip_grad_norm, or debug.nan_loss = "
                     "\"skip\" or \"ignore\""));
}

// Once: it is not what the plain loop does with the whole batch.
void Trainer::Impl::tell_of_local_clipping(int replica_count) {
  const std::string key = "communication.clip_after_allreduce";
  const bool first = !std::exchange(told_of_local_clipping, true);
  if (!first || config.origin(key) != "default" || job->cluster().worker_index != 0) return;
  std::clog << "epl: " << key << " = false (default): each of the " << replica_count
            << " replicas clips the gradients of its own rows before they are reduced; with true "
               "the reduced gradients are clipped, as the plain loop does with the whole batch\n";
}

// Every replica clips its own gradients, those of all its stages and slices together.
void Trainer::Impl::clip_locally(ReadyStep& ready) {
  tell_of_local_clipping(ready.plan().replicas);
  const Placement& placement = ready.placement();
  std::map<int, int> devices_here;  // by replica
  for (int device = 0; device < replicas.size(); ++device) {
    ++devices_here[ready.place(device).replica];
  }
  for (const auto& [replica, devices] : devices_here) {
    EPL_CHECK(devices == placement.devices_of_replica(),
              concat("cannot clip the gradients of a replica of ", placement.devices_of_replica(),
                     " devices before they are reduced: worker ", job->cluster().worker_index,
                     " has ", devices, " of them"),
              "TrainerOptions", "communication.clip_after_allreduce = true");
  }
  std::vector<int> whole;
  for (const auto& [replica, devices] : devices_here) whole.push_back(replica);
  job->team().run([&](int device) {
    const c10::AutoGradMode no_grad(false);
    for (auto i = static_cast<size_t>(device); i < whole.size();
         i += static_cast<size_t>(replicas.size())) {
      clip_gradients(ready.gradients().of_replica(whole[i]), options, local_scale(ready));
    }
  });
}

// The norm of the reduced gradients, which are clipped to it where each replica has not clipped its
// own. Where stages lie on other workers, their part of the norm comes from there.
double Trainer::Impl::norm_of_reduced(ReadyStep& ready) {
  TrainerOptions asked = options;
  if (clips_locally(ready)) {
    asked.clip_grad_norm = std::numeric_limits<double>::infinity();  // asks for the norm alone
    asked.clip_grad_value = 0;
  }
  const std::vector<at::Tensor> gradients = ready.gradients().reduced();
  if (!ready.placement().has_roles() || job->workers() == nullptr) {
    return clip_gradients(gradients, asked);
  }
  const auto stages = stages_by_leaf(ready.plan());
  std::vector<bool> counts;
  for (const auto& entry : ready.gradients().entries()) {
    // A piece counts where it is; what several have, once.
    const int stage = ready.place(static_cast<int>(entry.parts[0].device)).stage;
    const auto& holders = !entry.shard.is_cut() ? stages.at(entry.leaf) : std::vector<int>{stage};
    counts.push_back(first_holder(ready, holders, job->cluster()) == job->cluster().worker_index);
  }
  return clip_gradients_of_workers(gradients, counts, asked, *job->workers());
}

// The phases of the Plan, in the words of the trainer.
class Trainer::Impl::End final : public StepEnd {
 public:
  End(Impl& trainer, ReadyStep& ready, const std::vector<DeviceRun>& runs,
      const DeviceBatches& batches)
      : trainer_(trainer), ready_(ready), runs_(runs), batches_(batches) {}

  StepResult result;

 private:
  void report() override {
    trainer_.job->watch().doing(trainer_.steps, "merge");
    result.loss = trainer_.meet_after_run(merged_loss(runs_, ready_.plan()), batches_);
    result.metrics =
        merge_metrics(runs_, {ready_.plan(), trainer_.job->workers(), ready_.place(0).replica});
    trainer_.keep_timeline(ready_, runs_);
  }

  // The plain loop writes state in the step, before the update.
  void merge_state() override { ready_.merge_state(trainer_.job->workers()); }
  void clip_replicas() override { trainer_.clip_locally(ready_); }
  void reduce() override { ready_.start_reductions(); }
  void reduce_tied() override { epl::reduce_tied(ready_); }
  void await() override { ready_.wait_for_reductions(); }
  bool check() override { return trainer_.check_finite(result, runs_); }

  void clip_reduced() override {
    sum();
    result.gradient_norm = trainer_.norm_of_reduced(ready_);
  }

  void update() override {
    // The gradients that verify_step compares are whole ones.
    if (trainer_.verifies()) sum();
    ready_.gradients().clear_zero_gradients();
    trainer_.update(ready_, summed_);
  }

  void gather() override {
    const bool all = trainer_.config.get<bool>("pipeline.gather_parameters");
    epl::gather_parameters(*trainer_.job, ready_, all ? Gather::kAll : Gather::kRead);
    if (all) {
      trainer_.tell_what_is_fetched(ready_);
    } else {
      trainer_.release_what_others_hold(ready_);
    }
  }

  // Once, where somebody looks at gradients that the update would sum as it reads them.
  void sum() {
    if (trainer_.replicas.size() == 1 || std::exchange(summed_, true)) return;
    ready_.gradients().sum_into_first(trainer_.job->team());
  }

  Impl& trainer_;
  ReadyStep& ready_;
  const std::vector<DeviceRun>& runs_;
  const DeviceBatches& batches_;
  bool summed_ = false;
};

StepResult Trainer::Impl::end_step(ReadyStep& ready, const std::vector<DeviceRun>& runs,
                                   const DeviceBatches& batches) {
  const torch::NoGradGuard no_grad;
  End end(*this, ready, runs, batches);
  end.result.skipped = !end.run(ready.end());
  timeline.seconds = seconds_since_begin();
  return std::move(end.result);
}

void Trainer::Impl::update(ReadyStep& ready, bool summed) {
  job->watch().doing(steps, "update");
  Span span;
  span.kind = Span::Kind::kUpdate;
  span.begin = seconds_since_begin();
  ready.gradients().refresh_late();
  for (auto& parts : ready.gradients().updates()) {
    for (auto& part : parts) {
      apply(model.update(part.optimizer), summed ? part.summed : part.gradients);
    }
  }
  span.end = seconds_since_begin();
  for (auto& device : timeline.devices) device.spans.push_back(span);
}

// Every device updates its part of the parameters.
void Trainer::Impl::apply(Update& update, const std::vector<ParameterGradient>& gradients) {
  constexpr int64_t kWorthSharing =
      16384;  // elements: below it one device is done before others start
  const int64_t elements = update.prepare(gradients);
  const auto run_part = [&](int64_t begin, int64_t end) {
    at::parallel_for(begin, end, Update::kGrain,
                     [&](int64_t from, int64_t to) { update.run(from, to); });
  };
  if (replicas.size() == 1 || elements < kWorthSharing) {
    run_part(0, elements);
  } else {
    job->team().run([&](int device) {
      const int64_t size = replicas.size();
      run_part(elements * device / size, elements * (device + 1) / size);
    });
  }
  update.finish();
}

}  // namespace epl
