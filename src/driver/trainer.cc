#include <epl/env.h>
#include <epl/trainer.h>

#include <numeric>
#include <utility>

#include "base/check.h"
#include "batch/readers.h"
#include "driver/trainer_impl.h"
#include "job/agreement.h"
#include "job/rows_are_read.h"
#include "model/state_on_workers.h"
#include "model/torch_model.h"
#include "runtime/counted_targets.h"

namespace epl {

std::string text_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
}

std::shared_ptr<Job> Trainer::Impl::current_job() {
  std::shared_ptr<Job> job = Job::current();
  if (job != nullptr) return job;
  throw Error("a trainer is made before epl::init()", "epl::Trainer",
              "call epl::init() at the beginning of main()");
}

Trainer::Impl::~Impl() {
  job->forget(model.holders());
  if (std::uncaught_exceptions() <= exceptions_at_start || job->membership() == nullptr) return;
  job->membership()->report_failure("it stopped with an exception that its own log shows");
}

// The other workers learn of a step that fails here, so that they do not wait for it. What LibTorch
// throws may speak of rows that the user has never seen, so it is told what they were cut from.
StepResult Trainer::Impl::step_with(StepInput& input) {
  const auto begin = std::chrono::steady_clock::now();
  GivenBatch given;
  try {
    const Job::StepTurn turn(*job);
    const SpreadParameters::Shown shown(job->spread());
    std::optional<DeviceMemory::Use> use;
    if (!DeviceMemory::in_use_on_this_thread()) use.emplace(job->team().memory(0));
    meet_other_workers();
    StepResult result = step(input, given);
    if (offload != nullptr) offload->rest();
    result.seconds = seconds_since(begin);
    tell_of_casts();
    return result;
  } catch (const std::exception& error) {
    if (job->membership() != nullptr) job->membership()->report_failure(text_of(error));
    if (dynamic_cast<const c10::Error*>(&error) == nullptr) throw;
    throw Error("LibTorch says: " + text_of(error),
                "epl::Trainer::step with " + describe(given, config, replicas.size()));
  }
}

void Trainer::Impl::meet_other_workers() {
  job->watch().check();
  job->watch().doing(steps, "prepare");
  if (met || job->membership() == nullptr) return;
  step_cache.make_parameters_whole();  // of another trainer
  check_same_on_all_workers(*job, "the model", describe_model(model));
  broadcast_model(*job, model);
}

bool Trainer::Impl::stays_whole(const StepInput& input, const Shares& shares) const {
  return job->workers() == nullptr && config.get<int64_t>("pipeline.num_micro_batch") == 1 &&
         !input.is_even(shares);
}

Shares Trainer::Impl::shares(const StepInput& input, const GivenBatch& given) {
  Shares likely;
  likely.replicas = replicas.size();
  const double seed = stays_whole(input, likely) ? loss_scale() : plain_seed();
  const Placement& placement = step_cache.placement(given.seen, given.whole, seed);
  check_rows_are_read(*job, placement, given.whole, steps);
  return shares_here(placement, job->cluster(), config);
}

// Before the step, which may write them: in the first steps, and now and then.
void Trainer::Impl::look_at_parameters() {
  constexpr int64_t kSometimes = 100;
  const bool looks = steps < 3 || steps % kSometimes == 0;
  const bool alike = job->workers() != nullptr && !step_cache.placement_known().has_roles();
  parameters_before = looks && alike ? checksum_of_parameters(model, job->spread()) : 0;
  if (!alike || config.get<std::string>("zero.level").empty()) return;
  // What one worker alone has changed its owners would hand to the others, and nobody would notice.
  if (!looks) parameters_before = sampled_checksum(model, job->spread());
  states_before = std::exchange(gathered_states, false) ? 0 : fingerprint_of_states(model);
}

// A worker that calls the function, for a batch of a new shape or to look again, needs whole
// parameters, and cannot bring them alone.
void Trainer::Impl::bring_parameters(const DeviceBatches& batches) {
  if (job->workers() == nullptr || !job->spread().any_spread()) return;
  Batch scratch;
  const Batch& rows = rows_of(batches, 0, 0, scratch);
  const bool needed = runs_plainly(batches) || verifies() || step_cache.would_record(rows) ||
                      step_cache.wants_second_look() || step_cache.wants_look_at(rows);
  job->watch().doing(steps, "agree");
  const double most = largest_on_workers(*job->workers(), MeetingAbout::kWholeParameters,
                                         needed ? 1 : 0, "workers make different steps");
  if (most > 0) step_cache.make_parameters_whole();
}

StepReport Trainer::Impl::report_of(double loss, const DeviceBatches& batches) const {
  const bool wants_plain = step_cache.can_run_plainly() &&
                           (step_cache.wants_second_look() || !step_cache.unreplayable().empty());
  Batch scratch;
  const bool has_recorded = step_cache.last() == nullptr && step_cache.unreplayable().empty() &&
                            step_cache.has_recorded(rows_of(batches, 0, 0, scratch));
  StepReport report;
  report.loss = loss;
  report.wants_plain = wants_plain ? 1 : 0;
  report.has_recorded = has_recorded ? 1 : 0;
  if (job->workers() == nullptr) return report;
  report.options = fingerprint_of_options(model);
  report.loads = static_cast<double>(loads);
  if (step_cache.placement_known().has_roles()) return report;  // rows and parameters lie elsewhere
  for (const auto& batch : batches[0]) {
    const bool has_rows = !batch.empty() && batch[0].dim() > 0;
    report.rows += has_rows ? static_cast<double>(batch[0].size(0)) : 0;
  }
  report.parameters = parameters_before;
  report.states = states_before;
  return report;
}

double Trainer::Impl::meet_after_run(double loss, const DeviceBatches& batches) {
  StepReport report = report_of(loss, batches);
  const std::vector<uint64_t> drawn =
      devices() > 1 ? replicas.take_drawn() : std::vector<uint64_t>{0};
  report.drawn = std::accumulate(drawn.begin(), drawn.end(), 0.0);
  const StepReport all =
      job->workers() == nullptr ? report : sum_up(exchange_reports(*job->workers(), report), steps);
  plain_next = all.wants_plain > 0;
  all_recorded = all.has_recorded > 0;
  // The program's own generator has made those of the job's first device.
  const double by_program = replicas.first == 0 ? static_cast<double>(drawn[0]) : 0;
  skip_in_program(static_cast<uint64_t>(all.drawn - by_program));
  return all.loss;
}

namespace {

void for_each(const DeviceBatches& batches, const std::function<void(const Batch& batch)>& look) {
  for (const auto& of_device : batches) {
    for (const Batch& batch : of_device) look(batch);
  }
}

// The program's own code may be asked for rows.
DeviceBatches cut(StepInput& input, const Shares& shares, SpreadParameters& spread) {
  const SpreadParameters::Aside aside(spread);
  return input.cut(shares);
}

}  // namespace

StepResult Trainer::Impl::step(StepInput& input, GivenBatch& given) {
  step_cache.begin_step();
  if (offload != nullptr) offload->settle();
  ignored_before = ignored_targets_seen();
  {
    const SpreadParameters::Aside aside(job->spread());
    given.seen = input.sample();
    given.whole = input.whole();
  }
  end_where_only_planned(config, [&] { return forecast(given.whole); });
  step_batch = &given.whole;
  job->written_batch().check(given.whole);
  check_not_trained(given.whole, model);
  if (requires_grad(given.whole)) tell_of_batch_gradient();
  const Shares all = shares(input, given);
  if (step_cache.can_run_plainly() && stays_whole(input, all)) {
    tell_of_whole_batch(given);
    return step_plainly({{given.whole}}, loss_scale());
  }
  const DeviceBatches batches = cut(input, all, job->spread());
  for_each(batches, [&](const Batch& batch) {
    job->written_batch().check(batch);
    check_not_trained(batch, model);
  });
  if (steps == 0) {
    check_same_on_all_workers(*job, "the rows of a micro batch", describe_batch(batches[0][0]));
  }
  given.seen = batches[0][0];
  bring_parameters(batches);
  look_at_parameters();
  if (runs_plainly(batches)) return step_plainly(batches, plain_seed());
  try {
    for_each(batches, [&](const Batch& batch) { check_apart(step_cache.input_writers(), batch); });
    StepResult result = step_by_recording(batches);
    for_each(batches, [&](const Batch& batch) {
      job->written_batch().note(step_cache.input_writers(), batch);
    });
    return result;
  } catch (const CannotReplay& why) {
    agree_to_run_plainly(why.what());
    return step_plainly(batches, plain_seed());
  }
}

// Workers that replay a step first meet in its gradients, where those set out during backward, or
// else in its report. What workers agree on before that they agree on there: whoever does something
// else is seen at once, and nobody waits for a call that does not come.
double Trainer::Impl::agree(MeetingAbout about, double value, const std::string& conflict) {
  const bool early = !clipping.clips() || config.get<bool>("communication.clip_after_allreduce");
  Communicator* const gradients = early ? step_cache.first_of_gradients() : nullptr;
  Communicator& workers = gradients == nullptr ? *job->workers() : *gradients;
  job->watch().doing(steps, "agree");
  return largest_on_workers(workers, about, value, conflict);
}

void Trainer::Impl::agree_to_run_plainly(const std::string& why) {
  if (job->workers() == nullptr) return;
  agree(MeetingAbout::kRunsPlainly, 0,
        concat("the step cannot be replayed: ", why,
               "; other workers replay theirs, and all run plainly together or not at all"));
}

StepResult Trainer::Impl::step_by_recording(const DeviceBatches& batches) {
  std::optional<PlainStep> plain;
  if (verifies()) {
    Batch scratch;
    const ReadyStep& first = step_cache.find(rows_of(batches, 0, 0, scratch), 0, steps);
    step_cache.gather_owned_states(StatesTo::kAll);  // the plain program updates all
    plain = run_beside(replayed(first), batches, first.snapshot());
  }
  run_all_kept(batches);
  if (offload != nullptr) offload->rest();  // of what was read as a whole
  const std::vector<DeviceRun> runs = run(batches);
  ReadyStep& ready = *step_cache.last();
  StepResult result = end_step(ready, runs, batches);
  laps.keep(job->team(), offload.get(), job->spread().account());
  const torch::NoGradGuard no_grad;
  if (plain && !result.skipped) step_cache.make_parameters_whole();
  if (plain && !result.skipped) compare(replayed(ready), *plain, result.loss);
  if (verifies()) ++verified;
  ++steps;
  ++replicas.step;
  return result;
}

void Trainer::Impl::run_all_kept(const DeviceBatches& batches) {
  all_kept.forget();
  if (!config.get<bool>("gradient_checkpoint.check_gradients")) return;
  Batch scratch;
  ReadyStep& ready = step_cache.find(rows_of(batches, 0, 0, scratch), 0, steps);
  const std::unique_ptr<CompiledStep> compiled = std::move(ready.all_kept);
  if (compiled == nullptr) return;
  const auto bind = [&] { return step_cache.bind(*compiled); };
  const auto run_bound = [&](BoundStep& bound) {
    std::vector<DeviceRun> runs(static_cast<size_t>(replicas.size()));
    step_cache.spread_parameters(bound);
    run_devices(bound, ready.draws_random_numbers(), batches, runs);
  };
  all_kept.run({bind, run_bound, replicas, devices(), ready.snapshot(), end_request(ready)});
}

ReplayedStep Trainer::Impl::replayed(const ReadyStep& ready) {
  return {model,          function,         config,        clipping, replicas,
          job->workers(), ready.compiled(), ready.bound(), steps,    loss_scale()};
}

// Once after whatever made them whole here: a recording, or somebody who asked for them.
void Trainer::Impl::release_once(const ReadyStep& ready) {
  if (job->workers() == nullptr || released == step_cache.made()) return;
  released = step_cache.made();
  release_what_others_hold(model, ready.bound());
}

Trainer::Trainer(std::vector<NamedModule> modules, OptimizerList optimizers, StepFunction step,
                 TrainerOptions options)
    : impl_(std::make_unique<Impl>(std::make_unique<TorchModel>(std::move(modules), optimizers),
                                   std::move(step), options)) {}
Trainer Trainer::of(std::unique_ptr<Impl> impl) {
  Trainer trainer;
  trainer.impl_ = std::move(impl);
  return trainer;
}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

StepResult Trainer::step(const Batch& batch) {
  BatchInput input(batch, impl_->config, impl_->replicas.size());
  return impl_->step_with(input);
}

StepResult Trainer::step(const BatchSource& source) {
  SourceInput input(source, impl_->config);
  return impl_->step_with(input);
}

}  // namespace epl
