#include "base/check.h"
#include "batch/readers.h"
#include "driver/trainer_impl.h"
#include "job/agreement.h"
#include "ops/facts.h"
#include "program/text.h"
#include "verify/recorded_loss.h"

namespace epl {
namespace {

// The operator whose result the recording depends on.
std::string first_guard(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    const bool guard = node.expects || !values_that_decide_shape(graph, node).empty();
    if (guard) return op_name(node);
  }
  return "none";
}

}  // namespace

// Runs the micro batches by a recording that is right for them: where its guards fail, a new one.
std::vector<DeviceRun> Trainer::Impl::run(const DeviceBatches& batches) {
  const auto per_device = static_cast<int>(batches[0].size());
  Batch first;
  const Batch& rows = rows_of(batches, 0, 0, first);
  if (step_cache.can_run_plainly() && step_cache.wants_look_at(rows)) {
    step_cache.look_before_replay(rows, per_device * static_cast<int>(batches.size()));
  }
  int sample = 0;
  std::string first_failure;
  for (;;) {
    Batch scratch;
    const Batch& sampled = rows_of(batches, static_cast<size_t>(sample / per_device),
                                   static_cast<size_t>(sample % per_device), scratch);
    ReadyStep& ready = step_cache.find(sampled, sample, steps);
    const bool looks = step_cache.wants_second_look() || step_cache.wants_look_at(rows);
    if (!step_cache.can_run_plainly() && looks) look_again(batches);
    std::vector<DeviceRun> runs(static_cast<size_t>(replicas.size()));
    const std::string failure = run_guarded(ready, batches, runs);
    if (failure.empty()) return runs;
    const int where = job->team().failed_device();
    const size_t batch = batch_of(where, ready.placement(), job->cluster()).value_or(0);
    sample = static_cast<int>(batch) * per_device + runs[static_cast<size_t>(where)].micro_batch;
    step_cache.forget(ready);
    step_cache.guard_failed(failure, steps);
    check_records_again(failure, first_failure);
    first_failure = failure;
  }
}

// Why a guard failed, with all as it was before the run; empty where none did.
std::string Trainer::Impl::run_guarded(ReadyStep& ready, const DeviceBatches& batches,
                                       std::vector<DeviceRun>& runs) {
  if (!ready.plan().has_guards()) {
    run_once(ready, batches, runs);
    return "";
  }
  check_follows_guards(ready);
  const StateSnapshot before = ready.snapshot();
  std::vector<std::vector<at::Tensor>> streams;
  for (const auto& replica : replicas.each) streams.push_back(replica->streams.states());
  std::string failure;
  try {
    run_once(ready, batches, runs);
  } catch (const GuardFailed& failed) {
    failure = failed.what();
  }
  if (guards_hold_on_all_workers(failure.empty(), ready)) return "";
  before.restore();
  for (size_t i = 0; i < streams.size(); ++i) replicas.each[i]->streams.restore(streams[i]);
  return failure.empty() ? "a guard of another worker's recording failed" : failure;
}

void Trainer::Impl::check_follows_guards(const ReadyStep& ready) const {
  EPL_CHECK(!ready.placement().has_roles() || job->workers() == nullptr,
            concat("the step reads values back into C++ (", first_guard(ready.compiled().graph),
                   "), which stages and parts on several workers cannot follow: they would "
                   "have to record again together"),
            ready.placement().asked_by,
            "a step without item() and selections by mask (label smoothing of cross_entropy "
            "has one), or all devices on one worker");
}

// Where the function itself can run, workers do so together, and one alone the second time.
void Trainer::Impl::check_records_again(const std::string& failure,
                                        const std::string& first_failure) const {
  const bool plainly = step_cache.can_run_plainly();
  if (plainly && (job->workers() != nullptr || !first_failure.empty())) throw CannotReplay(failure);
  EPL_CHECK(first_failure.empty(),
            concat("the micro batches of step ", steps,
                   " need different recordings: ", first_failure, "; ", failure),
            config.asked_by("pipeline.num_micro_batch"),
            "micro batches that do not differ in this, or a step that does not read it back");
}

// By another micro batch of the first step, or by the next step; on several workers by the next
// step of all, since they bring their parameters together for it.
void Trainer::Impl::look_again(const DeviceBatches& batches) {
  const bool alone = job->workers() == nullptr;
  const size_t slices = slices_of(batches, step_cache.placement_known());
  Batch scratch;
  if (steps > 0) {
    step_cache.look_again(rows_of(batches, 0, 0, scratch));
  } else if (alone && batches[0].size() > 1) {
    step_cache.look_again(rows_of(batches, 0, 1, scratch));
  } else if (alone && batches.size() > slices) {
    step_cache.look_again(rows_of(batches, slices, 0, scratch));
  }
}

// Workers that go over to another recording alone might reduce other gradients than the rest.
bool Trainer::Impl::guards_hold_on_all_workers(bool here, const ReadyStep& ready) {
  if (job->workers() == nullptr || ready.placement().has_roles()) return here;
  const std::string conflict =
      concat("workers have recorded different steps: in this one C++ reads values back (",
             first_guard(ready.compiled().graph), ")");
  return agree(MeetingAbout::kGuards, here ? 0 : 1, conflict) == 0;
}

// Recordings that depend on data may differ from worker to worker: then none of them is used.
void Trainer::Impl::agree_on_plan(const ReadyStep& ready) {
  if (met || job->membership() == nullptr) return;
  const std::string text = config.str() + print_plan(ready.plan());
  if (ready.plan().has_guards() && step_cache.can_run_plainly() &&
      !same_on_all_workers(*job, "the recorded step", text)) {
    step_cache.give_up(
        concat("workers recorded different steps, since it reads values back into "
               "C++ (",
               first_guard(ready.compiled().graph), ")"));
    met = true;
    throw CannotReplay(step_cache.unreplayable());
  }
  check_same_on_all_workers(*job, "the plan", text);
  met = true;
}

void Trainer::Impl::run_once(ReadyStep& ready, const DeviceBatches& batches,
                             std::vector<DeviceRun>& runs) {
  agree_on_plan(ready);
  step_cache.spread_parameters(ready.bound());
  DeviceLaps::begin(job->team(), offload.get(), job->spread().account());
  run_devices(ready.bound(), ready.draws_random_numbers(), batches, runs);
  tell_of_ignored_targets(ready.plan().replicas * ready.plan().micro_batches);
  if (!ready.replayed) check_replay(ready, batches, runs);
}

void Trainer::Impl::run_devices(BoundStep& bound, bool draws, const DeviceBatches& batches,
                                std::vector<DeviceRun>& runs) {
  bound.hand_out_state();
  if (draws) replicas.begin_step();
  const bool compares = verifies() || config.get<bool>("gradient_checkpoint.check_gradients");
  bound.begin({steps, loss_scale(), /*sums_to_all=*/compares,
               [this](size_t optimizer) -> Update& { return model.update(optimizer); }});
  job->watch().doing(steps, "compute");
  begun = std::chrono::steady_clock::now();
  for (auto& run : runs) run.begin = begun;
  try {
    job->team().run([&](int device) {
      const bool reads = bound.placement().stage_of(bound.place(device).role) == 0;
      const size_t batch = batch_of(device, bound.placement(), job->cluster()).value_or(0);
      bound.run(device, reads ? &batches[batch] : nullptr, runs[static_cast<size_t>(device)]);
    });
    bound.finish();
  } catch (const GuardFailed&) {
    bound.give_up();
    throw;
  } catch (const Error&) {
    bound.give_up();
    throw;
  } catch (const std::exception& error) {
    bound.give_up();
    if (devices() == 1) throw;
    const int device = job->team().failed_device();
    throw Error(concat("device ", replicas.first + device, ", micro batch ",
                       runs[static_cast<size_t>(device)].micro_batch, ": ", text_of(error)),
                "epl::Trainer::step");
  }
}

void Trainer::Impl::check_replay(ReadyStep& ready, const DeviceBatches& batches,
                                 const std::vector<DeviceRun>& runs) {
  ready.replayed = true;
  const std::optional<Error> fault = unlike_recorded(
      {ready.recorded_loss(), ready.sample, ready.compiled(), ready.bound(), job->cluster()},
      batches, runs);
  if (!fault) return;
  step_cache.forget(ready);
  throw Error(*fault);
}

}  // namespace epl
