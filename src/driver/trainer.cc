#include <ATen/Parallel.h>
#include <epl/env.h>
#include <epl/trainer.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "base/check.h"
#include "driver/agreement.h"
#include "driver/checkpoint_file.h"
#include "driver/clip.h"
#include "driver/job.h"
#include "driver/measured_costs.h"
#include "driver/merge.h"
#include "driver/micro_batches.h"
#include "driver/model.h"
#include "driver/recordings.h"
#include "driver/stage_parameters.h"
#include "driver/state_snapshot.h"
#include "driver/verify_step.h"
#include "ir/text.h"
#include "ops/facts.h"
#include "program/text.h"

namespace epl {
namespace {

std::shared_ptr<Job> job_of_trainer() {
  std::shared_ptr<Job> job = Job::current();
  if (job != nullptr) return job;
  throw Error("a trainer is made before epl::init()", "epl::Trainer",
              "call epl::init() at the beginning of main()");
}

bool draws_random_numbers(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node& node) { return is_random(node.op); });
}

// What a LibTorch exception says, without its stack trace.
std::string text_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
}

}  // namespace

struct Trainer::Impl {
  Impl(std::vector<NamedModule> modules, OptimizerList optimizers, StepFunction step,
       TrainerOptions trainer_options)
      : job(job_of_trainer()),
        config(Env::get().config),
        model(std::move(modules), std::move(optimizers)),
        function(std::move(step)),
        options(trainer_options),
        replicas(job->team(), model.device(), job->cluster().first_device()),
        recordings({model, function, config, *job, replicas, clips(trainer_options)}) {
    EPL_CHECK(function != nullptr, "the step function is empty", "epl::Trainer");
    check_clipping(options);
  }

  template <typename Cut>
  StepResult step_with(const Cut& cut);
  void meet_other_workers();
  Shares shares(const Batch& sample);
  StepResult step(const DeviceBatches& batches);
  std::vector<DeviceRun> run(const DeviceBatches& batches);
  void run_once(ReadyStep& ready, const DeviceBatches& batches, std::vector<DeviceRun>& runs);
  void check_replay(ReadyStep& ready, const std::vector<DeviceRun>& runs);
  bool check_finite(const StepResult& result) const;
  void reduce_and_update(ReadyStep& ready, StepResult& result);
  double clip_locally(ReadyStep& ready);
  double clip_reduced(ReadyStep& ready);
  void update(ReadyStep& ready, bool summed);
  void keep_timeline(const ReadyStep& ready, const std::vector<DeviceRun>& runs);
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
  bool clips_locally() const {
    return clips(options) && devices() > 1 &&
           !config.get<bool>("communication.clip_after_allreduce");
  }

  const std::shared_ptr<Job> job;  // with the process's other trainers
  const Config config;
  Model model;
  const StepFunction function;
  const TrainerOptions options;
  int64_t steps = 0;
  bool met = false;  // the other workers have the same model and plan
  LocalReplicas replicas;
  Recordings recordings;
  Timeline timeline;  // of the last step
  std::chrono::steady_clock::time_point begun;
};

// The other workers learn of a step that fails here, so that they do not wait for it.
template <typename Cut>
StepResult Trainer::Impl::step_with(const Cut& cut) {
  try {
    std::optional<DeviceMemory::Use> use;
    if (!DeviceMemory::in_use_on_this_thread()) use.emplace(job->team().memory(0));
    meet_other_workers();
    return step(cut());
  } catch (const std::exception& error) {
    if (job->membership() != nullptr) job->membership()->report_failure(text_of(error));
    throw;
  }
}

void Trainer::Impl::meet_other_workers() {
  job->watch().check();
  job->watch().doing(steps, "prepare");
  if (met || job->membership() == nullptr) return;
  check_same_on_all_workers(*job, "the model", describe_model(model));
  broadcast_model(*job, model);
}

// The rows of a worker are those of the first-stage devices that it has. One that has none takes a
// batch of the shape that those get which it works with, to record by.
Shares Trainer::Impl::shares(const Batch& sample) {
  const Placement& placement = recordings.placement(sample);
  const Cluster& cluster = job->cluster();
  std::vector<int> readers = placement.devices_of(0, cluster.worker_index, cluster);
  if (readers.empty()) {
    const int replica = placement.place(cluster.first_device()).replica;
    const int worker = worker_of(placement.device({replica, 0, 0}), cluster);
    readers = placement.devices_of(0, worker, cluster);
  }
  Shares shares;
  shares.slices = std::min(placement.stage_devices[0], static_cast<int>(readers.size()));
  shares.replicas = static_cast<int>(readers.size()) / shares.slices;
  shares.micro_batches = static_cast<int>(config.get<int64_t>("pipeline.num_micro_batch"));
  shares.asked_by = placement.asked_by;
  return shares;
}

// Which of the worker's batches a device works on: that of its replica. -1 where another worker
// reads it.
int Trainer::Impl::reader_of(const ReadyStep& ready, int device) const {
  const Place place = ready.place(device);
  int reader = 0;
  for (int each = 0; each < replicas.size(); ++each) {
    const Place other = ready.place(each);
    if (other.stage != 0) continue;
    const bool same_slice = place.stage != 0 || other.slice == place.slice;
    if (other.replica == place.replica && same_slice) return reader;
    ++reader;
  }
  return -1;
}

// Runs the micro batches by a recording that is right for them: where its guards fail, a new one.
std::vector<DeviceRun> Trainer::Impl::run(const DeviceBatches& batches) {
  const auto per_device = static_cast<int>(batches[0].size());
  int sample = 0;
  std::string first_failure;
  for (;;) {
    const auto device = static_cast<size_t>(sample / per_device);
    ReadyStep& ready =
        recordings.find(batches[device][static_cast<size_t>(sample % per_device)], sample, steps);
    std::optional<StateSnapshot> before;
    std::vector<std::vector<at::Tensor>> streams;
    if (ready.plan().has_guards()) {
      EPL_CHECK(!ready.placement().is_pipeline() || job->workers() == nullptr,
                "the step reads values back into C++, which a pipeline over several workers cannot "
                "follow: they would have to record again together",
                ready.placement().asked_by, "a step without item(), or all stages on one worker");
      before.emplace(ready.compiled());
      for (const auto& replica : replicas.each) streams.push_back(replica->streams.states());
    }
    std::vector<DeviceRun> runs(static_cast<size_t>(replicas.size()));
    try {
      run_once(ready, batches, runs);
      return runs;
    } catch (const GuardFailed& failed) {
      before->restore();
      for (size_t i = 0; i < streams.size(); ++i) replicas.each[i]->streams.restore(streams[i]);
      recordings.forget(ready);
      EPL_CHECK(first_failure.empty(),
                concat("the micro batches of step ", steps,
                       " need different recordings: ", first_failure, "; ", failed.what()),
                config.asked_by("pipeline.num_micro_batch"),
                "micro batches that do not differ in this, or a step that does not read it back");
      first_failure = failed.what();
      const int where = job->team().failed_device();
      sample = std::max(0, reader_of(ready, where)) * per_device +
               runs[static_cast<size_t>(where)].micro_batch;
      recordings.warn_of_recording_again(failed.what());
    }
  }
}

void Trainer::Impl::run_once(ReadyStep& ready, const DeviceBatches& batches,
                             std::vector<DeviceRun>& runs) {
  if (!met && job->membership() != nullptr) {
    check_same_on_all_workers(*job, "the plan", config.str() + print_plan(ready.plan()));
    met = true;
  }
  ready.hand_out_state();
  for (const auto& replica : replicas.each) replica->streams.follow_seeds();
  ready.begin(steps);
  job->watch().doing(steps, "compute");
  const auto loss_stage = static_cast<size_t>(ready.loss_stage());
  const double seed_of_device = seed(ready, ready.placement().stage_devices[loss_stage]);
  begun = std::chrono::steady_clock::now();
  for (auto& run : runs) run.begin = begun;
  try {
    job->team().run([&](int device) {
      const bool reads = ready.place(device).stage == 0;
      const auto reader = static_cast<size_t>(std::max(0, reader_of(ready, device)));
      ready.run(device, reads ? &batches[reader] : nullptr, seed_of_device,
                runs[static_cast<size_t>(device)]);
    });
    ready.finish();
  } catch (const GuardFailed&) {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (devices() == 1) throw;
    const int device = job->team().failed_device();
    throw Error(concat("device ", replicas.first + device, ", micro batch ",
                       runs[static_cast<size_t>(device)].micro_batch, ": ", text_of(error)),
                "epl::Trainer::step");
  }
  if (!ready.replayed) check_replay(ready, runs);
}

// The recorded run and its replay read the same batch and draw the same numbers; devices other than
// the first draw their own.
void Trainer::Impl::check_replay(ReadyStep& ready, const std::vector<DeviceRun>& runs) {
  ready.replayed = true;
  const int per_device = ready.plan().micro_batches;
  const int reader = ready.sample / per_device;
  const DeviceRun* found = nullptr;
  bool random = draws_random_numbers(ready.compiled().graph);
  for (int device = 0; device < replicas.size(); ++device) {
    const bool same_rows =
        ready.placement().stage_devices[static_cast<size_t>(ready.loss_stage())] ==
        ready.placement().stage_devices[0];
    const bool computes = ready.place(device).stage == ready.loss_stage() && same_rows;
    if (!computes || reader_of(ready, device) != reader) continue;
    found = &runs[static_cast<size_t>(device)];
    random &= replicas.first + device != 0;
    break;
  }
  if (found == nullptr || random) return;
  const double loss = found->losses[static_cast<size_t>(ready.sample % per_device)];
  const double recorded = ready.recorded_loss();
  const bool equal = std::abs(loss - recorded) <= 1e-3 * std::max(1.0, std::abs(recorded)) ||
                     (std::isnan(loss) && std::isnan(recorded)) || loss == recorded;
  if (equal) return;
  recordings.forget(ready);
  throw Error(concat("the recorded step gives a loss of ", loss, " when it is replayed, but gave ",
                     recorded, " when it was recorded"),
              "epl::Trainer::step",
              "tensors that the step fills through data_ptr() or accessor() belong into the batch");
}

bool Trainer::Impl::check_finite(const StepResult& result) const {
  const std::string policy = config.get<std::string>("debug.nan_loss");
  if (policy == "ignore" || std::isfinite(result.loss)) return true;
  if (policy == "skip") return false;
  throw Error(
      concat("the loss of step ", steps, " is ", result.loss,
             "; the parameters are as before the step"),
      config.asked_by("debug.nan_loss"),
      "a smaller learning rate, TrainerOptions::clip_grad_norm, or debug.nan_loss = \"skip\" "
      "or \"ignore\"");
}

// Every replica clips its own gradients, those of all its stages and slices together.
double Trainer::Impl::clip_locally(ReadyStep& ready) {
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
  std::vector<double> norms(whole.size());
  job->team().run([&](int device) {
    const c10::AutoGradMode no_grad(false);
    for (auto i = static_cast<size_t>(device); i < whole.size();
         i += static_cast<size_t>(replicas.size())) {
      norms[i] =
          clip_gradients(ready.gradients().of_replica(whole[i]), options, local_scale(ready));
    }
  });
  const double largest = *std::max_element(norms.begin(), norms.end());
  if (job->workers() == nullptr) return largest;
  const at::Tensor of_all = at::full({1}, largest, at::kDouble);
  job->workers()->all_reduce({of_all}, ReduceOp::kMax);
  return of_all.item<double>();
}

// Where stages lie on other workers, their part of the norm comes from there.
double Trainer::Impl::clip_reduced(ReadyStep& ready) {
  const std::vector<at::Tensor> gradients = ready.gradients().reduced();
  if (!ready.placement().is_pipeline() || job->workers() == nullptr) {
    return clip_gradients(gradients, options);
  }
  std::vector<bool> counts;
  for (const auto& entry : ready.gradients().entries()) {
    counts.push_back(first_holder(ready, entry.leaf, job->cluster()) ==
                     job->cluster().worker_index);
  }
  return clip_gradients_of_workers(gradients, counts, options, *job->workers());
}

void Trainer::Impl::reduce_and_update(ReadyStep& ready, StepResult& result) {
  if (clips_locally()) result.gradient_norm = clip_locally(ready);
  ready.start_reductions();
  ready.wait_for_reductions();
  reduce_tied(ready);
  if (!check_finite(result)) {
    result.skipped = true;
    return;
  }
  const bool clips_reduced = clips(options) && !clips_locally();
  const bool verifies = steps < config.get<int64_t>("debug.verify_steps");
  const bool summed = replicas.size() > 1 && (clips_reduced || verifies);
  if (summed) ready.gradients().sum_into_first(job->team());
  if (clips_reduced) result.gradient_norm = clip_reduced(ready);
  update(ready, summed);
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

double Trainer::Impl::sum_over_workers(double value) {
  if (job->workers() == nullptr) return value;
  const at::Tensor sum = at::full({1}, value, at::kDouble);
  job->workers()->all_reduce({sum}, ReduceOp::kSum);
  return sum.item<double>();
}

StepResult Trainer::Impl::step(const DeviceBatches& batches) {
  const bool verifies = steps < config.get<int64_t>("debug.verify_steps");
  std::optional<PlainStep> plain;
  if (verifies) plain = run_plainly(batches);

  const std::vector<DeviceRun> runs = run(batches);
  ReadyStep& ready = *recordings.last();
  const torch::NoGradGuard no_grad;
  job->watch().doing(steps, "merge");
  StepResult result;
  result.loss = sum_over_workers(mean_loss(runs, ready));
  result.metrics = merge_metrics(runs, ready, job->workers(), replicas.first);
  keep_timeline(ready, runs);
  reduce_and_update(ready, result);
  ready.average_state(job->workers());
  if (config.get<bool>("pipeline.gather_parameters")) epl::gather_parameters(*job, ready);
  timeline.seconds = seconds_since_begin();
  if (plain && !result.skipped) compare(*plain, ready, result.loss);
  ++steps;
  return result;
}

void Trainer::Impl::keep_timeline(const ReadyStep& ready, const std::vector<DeviceRun>& runs) {
  const Placement& placement = ready.placement();
  timeline = Timeline();
  timeline.title = concat("step ", steps);
  if (placement.is_pipeline()) {
    timeline.title += concat(", ", ready.plan().schedule.strategy, ", ", placement.stages(),
                             " stages, ", ready.plan().micro_batches, " micro batches");
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    std::string name = concat("device ", replicas.first + static_cast<int>(i));
    if (placement.is_pipeline()) {
      name += concat(", stage ", ready.place(static_cast<int>(i)).stage);
    }
    timeline.devices.push_back({std::move(name), runs[i].spans});
  }
  timeline.seconds = seconds_since_begin();
}

// None where the two draw random numbers that cannot be the same: in a pipeline each device draws
// its own.
std::optional<PlainStep> Trainer::Impl::run_plainly(const DeviceBatches& batches) {
  const ReadyStep& ready = recordings.find(batches[0][0], 0, steps);
  const Placement& placement = ready.placement();
  EPL_CHECK(!placement.is_pipeline() || job->workers() == nullptr,
            "the plain program cannot run beside a pipeline over several workers",
            config.asked_by("debug.verify_steps"), "all stages on one worker: EPL_DEVICES");
  if (placement.is_pipeline() && draws_random_numbers(ready.compiled().graph)) {
    std::clog << "epl: step " << steps
              << " is not verified: the stages of the pipeline draw random "
              << "numbers of their own\n";
    return std::nullopt;
  }
  const StateSnapshot before(ready.compiled());
  const int slices = placement.stage_devices[0];
  PlainRequest request{batches,
                       seed(ready, slices),
                       options,
                       clips_locally(),
                       local_scale(ready),
                       std::min(slices, static_cast<int>(batches.size())),
                       {},
                       placement.replicas * slices,
                       job->workers()};
  for (const auto& replica : replicas.each) replica->streams.follow_seeds();
  request.random_state = [&](int device) {
    return replicas[placement.is_pipeline() ? 0 : device].streams.default_generator().get_state();
  };
  PlainStep plain = run_plain_step(model, function, request, before);
  if (ready.sizes().loss == SliceMerge::kSum) plain.loss *= slices;
  plain.loss *= static_cast<double>(batches.size()) / (placement.replicas * slices);
  plain.loss = sum_over_workers(plain.loss);
  return plain;
}

void Trainer::Impl::compare(const PlainStep& plain, ReadyStep& ready, double loss) {
  std::map<std::string, at::Tensor> gradients;
  const std::vector<at::Tensor> reduced = ready.gradients().reduced();
  for (size_t i = 0; i < reduced.size(); ++i) {
    gradients[ready.gradients().entries()[i].name] = reduced[i];
  }
  std::clog << "epl: " << compare_with_plain(plain, model, gradients, loss, steps, config) << "\n";
}

Trainer::Trainer(std::vector<NamedModule> modules, OptimizerList optimizers, StepFunction step,
                 TrainerOptions options)
    : impl_(std::make_unique<Impl>(std::move(modules), std::move(optimizers), std::move(step),
                                   options)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

StepResult Trainer::step(const Batch& batch) {
  return impl_->step_with([&] {
    const auto parts =
        impl_->config.get<int64_t>("pipeline.num_micro_batch") * int64_t{impl_->replicas.size()};
    return cut_into_micro_batches(batch, impl_->shares(sample_of(batch, parts)), impl_->config);
  });
}

StepResult Trainer::step(const BatchSource& source) {
  return impl_->step_with([&] {
    Batch first = source();
    bool given = false;
    const BatchSource all = [&] { return std::exchange(given, true) ? source() : first; };
    return draw_micro_batches(all, impl_->shares(first), impl_->config);
  });
}

StepOutput Trainer::evaluate(const StepFunction& fn, const Batch& batch) {
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
  const ReadyStep* ready = impl_->recordings.last();
  EPL_CHECK(ready != nullptr && ready->placement().is_pipeline(),
            "there is no pipeline to be simulated", "epl::Trainer::simulated",
            "call it after a step with two or more stages");
  const int stages = ready->placement().devices_of_replica();
  EPL_CHECK(impl_->replicas.size() >= stages,
            concat("a replica has ", stages, " devices, but this worker measured ",
                   impl_->replicas.size()),
            "epl::Trainer::simulated", "all stages on one worker: EPL_DEVICES");
  const Plan& plan = ready->plan();
  Timeline simulation = simulate(plan.schedule, measured_costs(impl_->timeline, plan));
  simulation.title = "simulated " + impl_->timeline.title;
  return simulation;
}

void Trainer::gather_parameters() {
  const ReadyStep* last = impl_->recordings.last();
  if (last != nullptr) epl::gather_parameters(*impl_->job, *last);
}

std::string Trainer::plan() const {
  EPL_CHECK(impl_->recordings.last() != nullptr, "there is no plan before the first step",
            "epl::Trainer::plan", "call it after step()");
  return print_plan(impl_->recordings.last()->plan());
}

std::string Trainer::graph() const {
  EPL_CHECK(impl_->recordings.last() != nullptr, "there is no graph before the first step",
            "epl::Trainer::graph", "call it after step()");
  return print_graph(impl_->recordings.last()->compiled().graph);
}

// All workers have the same to write, so one does. Nobody waits for it: programs that save only on
// worker 0 and programs that save on all of them both work.
void Trainer::save(const std::string& path) const {
  Job& job = *impl_->job;
  job.watch().doing(impl_->steps, "save");
  if (job.cluster().worker_index == 0) save_checkpoint(path, impl_->model);
}

void Trainer::load(const std::string& path) { load_checkpoint(path, impl_->model); }

}  // namespace epl
