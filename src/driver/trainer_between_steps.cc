// What a trainer is asked before its first step, and between steps.
#include "base/check.h"
#include "base/text.h"
#include "batch/readers.h"
#include "driver/trainer_impl.h"
#include "ir/text.h"
#include "model/state_on_workers.h"
#include "program/text.h"
#include "runtime/device_memory.h"
#include "sim/measured_costs.h"
#include "state/checkpoint_file.h"

namespace epl {

StateMap Trainer::Impl::state_map() const {
  const ReadyStep* last = step_cache.last();
  const Placement placement = last == nullptr ? Placement() : last->placement();
  StateMap map = state_of(model, job->gradient_history(), placement);
  if (last != nullptr) map.place(last->plan());
  if (offload != nullptr) offload->mark(map, last == nullptr ? nullptr : &last->plan());
  return map;
}

// Whoever runs the network by itself would compute with zeros, or with what was lost.
void Trainer::Impl::check_all_is_here(const std::string& who) const {
  if (offload != nullptr) offload->homes().check_written();
  for (const auto& [name, parameter] : model.parameters()) {
    EPL_CHECK(!job->spread().is_spread(parameter),
              concat("workers keep parts of `", name, "` and of other parameters between steps"),
              who, "trainer.gather_parameters() on all workers before, or zero.level = \"v0\"");
  }
  const ReadyStep* last = step_cache.last();
  if (last == nullptr || job->workers() == nullptr || released < 0) return;
  const int64_t bytes =
      bytes_of_others(last->bound().connections(), last->bound().gradients().held());
  EPL_CHECK(
      bytes == 0,
      concat(human_bytes(bytes), " of the parameters lie on other workers since the last step"),
      who,
      "trainer.gather_parameters() on all workers before, or "
      "pipeline.gather_parameters = true");
}

// The other workers learn of a failure, so that they do not wait.
WorkerShares Trainer::shares(const Batch& sample) {
  Job& job = *impl_->job;
  try {
    std::optional<DeviceMemory::Use> use;
    if (!DeviceMemory::in_use_on_this_thread()) use.emplace(job.team().memory(0));
    const SpreadParameters::Shown shown(job.spread());
    impl_->meet_other_workers();
    impl_->step_cache.begin_step();
    return shares_of(impl_->step_cache.placement(sample, sample, impl_->plain_seed()),
                     job.cluster());
  } catch (const std::exception& error) {
    if (job.membership() != nullptr) job.membership()->report_failure(text_of(error));
    throw;
  }
}

StepOutput Trainer::evaluate(const StepFunction& fn, const Batch& batch) {
  impl_->check_all_is_here("epl::Trainer::evaluate");
  const Model::EvalMode eval(impl_->model);
  const torch::NoGradGuard no_grad;
  return fn(batch);
}

Timeline Trainer::timeline() const {
  EPL_CHECK(!impl_->timeline.devices.empty(), "there is no timeline before the first step",
            "epl::Trainer::timeline", "call it after step()");
  return impl_->timeline;
}

Timeline Trainer::simulated() const {
  const ReadyStep* ready = impl_->step_cache.last();
  EPL_CHECK(ready != nullptr, "there is no plan to be simulated before the first step",
            "epl::Trainer::simulated", "call it after step()");
  const Placement& placement = ready->placement();
  const bool measured = placement.is_pipeline() && !impl_->timeline.devices.empty() &&
                        impl_->replicas.size() >= placement.devices_of_replica();
  const Plan& plan = ready->plan();
  if (!measured) return simulate(plan);
  Timeline simulation = simulate(plan, measured_costs(impl_->timeline, plan));
  simulation.title = "simulated " + impl_->timeline.title;
  return simulation;
}

void Trainer::gather_parameters() {
  const ReadyStep* last = impl_->step_cache.last();
  impl_->released = -1;
  impl_->step_cache.make_parameters_whole();
  if (last != nullptr) last->bound().gather(Gather::kAll);
}

void Trainer::gather_optimizer_states() { impl_->bring_states_to_first_worker(); }

// Those of owners come together first, then those of stages.
void Trainer::Impl::bring_states_to_first_worker() {
  gathered_states = true;
  step_cache.gather_owned_states(StatesTo::kFirst);
  const ReadyStep* const last = step_cache.last();
  if (last != nullptr) epl::bring_states_to_first_worker(model, last->bound(), state_map());
}

std::string Trainer::plan() const {
  EPL_CHECK(impl_->step_cache.last() != nullptr, "there is no plan before the first step",
            "epl::Trainer::plan", "call it after step()");
  return print_plan(impl_->step_cache.last()->plan());
}

std::string Trainer::graph() const {
  EPL_CHECK(impl_->step_cache.last() != nullptr, "there is no graph before the first step",
            "epl::Trainer::graph", "call it after step()");
  return print_graph(impl_->step_cache.last()->compiled().graph);
}

std::string Trainer::state() const {
  const ReadyStep* last = impl_->step_cache.last();
  EPL_CHECK(last != nullptr, "nothing has a place before the first step", "epl::Trainer::state",
            "call it after step()");
  const SpreadParameters::Shown shown(impl_->job->spread());
  return print_state_map(impl_->state_map(), last->placement(), impl_->job->cluster());
}

SavedProgress Trainer::Impl::progress() const {
  SavedProgress now;
  now.random_step = replicas.step;
  if (mixed) {
    now.loss_scale = mixed->scale.value();
    now.good_steps = mixed->scale.good_steps();
  }
  return now;
}

void Trainer::Impl::go_on_from(const SavedProgress& saved) {
  replicas.step = saved.random_step;
  if (mixed && saved.loss_scale != 0) mixed->scale.go_on_from(saved.loss_scale, saved.good_steps);
}

// All workers have the same to write, so one does. Nobody waits for it: programs that save only on
// worker 0 and programs that save on all of them both work. But where stages lie on several
// workers, each has optimizer states of its own to hand in.
void Trainer::save(const std::string& path) const {
  Job& job = *impl_->job;
  job.watch().doing(impl_->steps, "save");
  if (impl_->offload != nullptr) impl_->offload->homes().check_written();
  impl_->released = -1;
  impl_->step_cache.make_parameters_whole();
  if (const ReadyStep* last = impl_->step_cache.last()) last->bound().gather(Gather::kAll);
  impl_->bring_states_to_first_worker();
  if (job.cluster().worker_index != 0) return;
  save_checkpoint(path, impl_->progress(),
                  [&](torch::serialize::OutputArchive& archive) { impl_->model.save(archive); });
}

void Trainer::load(const std::string& path) {
  impl_->released = -1;
  impl_->step_cache.make_parameters_whole();
  impl_->go_on_from(load_checkpoint(
      path, [&](torch::serialize::InputArchive& archive) { impl_->model.load(archive); }));
  ++impl_->loads;
}

}  // namespace epl
