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
#include "driver/merge.h"
#include "driver/micro_batches.h"
#include "driver/model.h"
#include "driver/recordings.h"
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
  void sum_on_first_device(ReadyStep& ready);
  std::vector<at::Tensor> reduced_gradients(ReadyStep& ready) const;
  void update(ReadyStep& ready, bool summed);
  void apply(Update& update, const std::vector<ParameterGradient>& gradients);
  PlainStep run_plainly(const DeviceBatches& batches);
  void compare(const PlainStep& plain, ReadyStep& ready, double loss);
  double mean_over_workers(double value);

  int devices() const { return job->cluster().total_gpu_num; }
  bool takes_mean() const {
    return config.get<std::string>("communication.gradients_reduce_method") == "mean";
  }
  // The gradient of the loss of one micro batch on one device.
  double seed(const ReadyStep& ready) const {
    const auto parts = static_cast<double>(config.get<int64_t>("pipeline.num_micro_batch"));
    const double of_slice =
        ready.sizes().loss == SliceMerge::kMean ? 1.0 / ready.program().devices : 1.0;
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

Shares Trainer::Impl::shares(const Batch& sample) {
  const Replication& replication = recordings.replication(sample);
  Shares shares;
  shares.slices = replication.slices_here(job->cluster());
  shares.replicas = replicas.size() / shares.slices;
  shares.micro_batches = static_cast<int>(config.get<int64_t>("pipeline.num_micro_batch"));
  shares.asked_by = replication.asked_by;
  return shares;
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
      before.emplace(ready.compiled());
      for (const auto& replica : replicas.each) streams.push_back(replica->streams.states());
    }
    std::vector<DeviceRun> runs(batches.size());
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
      sample = where * per_device + runs[static_cast<size_t>(where)].micro_batch;
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
  ready.exchange().begin(steps);
  job->watch().doing(steps, "compute");
  const double seed_of_device = seed(ready);
  try {
    job->team().run([&](int device) {
      const auto at = static_cast<size_t>(device);
      ready.run(device, batches[at], seed_of_device, runs[at]);
    });
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
  const auto per_device = static_cast<int>(runs[0].losses.size());
  const int device = ready.sample / per_device;
  if (replicas.first + device != 0 && draws_random_numbers(ready.compiled().graph)) return;
  const double loss =
      runs[static_cast<size_t>(device)].losses[static_cast<size_t>(ready.sample % per_device)];
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

// Every replica clips its own gradients. Where it has several slices their sum counts: the first
// one gets it, the others zeros.
double Trainer::Impl::clip_locally(ReadyStep& ready) {
  const int slices = ready.program().devices;
  EPL_CHECK(replicas.size() % slices == 0,
            concat("cannot clip the gradients of a replica of ", slices,
                   " devices before they are reduced: worker ", job->cluster().worker_index,
                   " has ", replicas.size(), " of them"),
            "TrainerOptions", "communication.clip_after_allreduce = true");
  std::vector<double> norms(static_cast<size_t>(replicas.size()));
  job->team().run([&](int device) {
    const c10::AutoGradMode no_grad(false);
    if (device % slices != 0) return;
    const std::vector<at::Tensor> first = ready.gradients_of(device);
    for (int slice = 1; slice < slices; ++slice) {
      const std::vector<at::Tensor> other = ready.gradients_of(device + slice);
      for (size_t i = 0; i < first.size(); ++i) {
        at::Tensor(first[i]).add_(other[i]);
        at::Tensor(other[i]).zero_();
      }
    }
    norms[static_cast<size_t>(device)] = clip_gradients(first, options, local_scale(ready));
  });
  double largest = *std::max_element(norms.begin(), norms.end());
  if (job->workers() == nullptr) return largest;
  const at::Tensor of_all = at::full({1}, largest, at::kDouble);
  job->workers()->all_reduce({of_all}, ReduceOp::kMax);
  return of_all.item<double>();
}

// Into the gradients of device 0, each device some of them.
void Trainer::Impl::sum_on_first_device(ReadyStep& ready) {
  job->team().run([&](int device) {
    const c10::AutoGradMode no_grad(false);
    const auto count = ready.program().gradients.size();
    for (auto i = static_cast<size_t>(device); i < count;
         i += static_cast<size_t>(replicas.size())) {
      at::Tensor sum = ready.gradient(0, i);
      if (sum.layout() != c10::kStrided) continue;
      for (int other = 1; other < replicas.size(); ++other) sum.add_(ready.gradient(other, i));
    }
  });
}

std::vector<at::Tensor> Trainer::Impl::reduced_gradients(ReadyStep& ready) const {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < ready.program().gradients.size(); ++i) {
    const at::Tensor& own = ready.gradient(0, i);
    const bool elsewhere = devices() > 1 && own.layout() != c10::kStrided;
    gradients.push_back(elsewhere ? ready.exchange().sparse(static_cast<int>(i)) : own);
  }
  return gradients;
}

void Trainer::Impl::reduce_and_update(ReadyStep& ready, StepResult& result) {
  GradientExchange& exchange = ready.exchange();
  if (clips_locally()) result.gradient_norm = clip_locally(ready);
  if (!ready.plan().reduces_early) exchange.start_all();
  exchange.wait();
  bool summed = exchange.sums_into_first() || replicas.size() == 1;
  if (!check_finite(result)) {
    result.skipped = true;
    return;
  }
  const bool clips_reduced = clips(options) && !clips_locally();
  const bool verifies = steps < config.get<int64_t>("debug.verify_steps");
  if (!summed && (clips_reduced || verifies)) {
    sum_on_first_device(ready);
    summed = true;
  }
  if (clips_reduced) result.gradient_norm = clip_gradients(reduced_gradients(ready), options);
  update(ready, summed);
}

void Trainer::Impl::update(ReadyStep& ready, bool summed) {
  job->watch().doing(steps, "update");
  ready.refresh_late_gradients();
  for (auto& parts : ready.updates()) {
    for (auto& part : parts) {
      apply(model.update(part.optimizer), summed ? part.summed : part.gradients);
    }
  }
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

double Trainer::Impl::mean_over_workers(double value) {
  if (job->workers() == nullptr) return value;
  const auto& cluster = job->cluster();
  const at::Tensor weighted =
      at::full({1}, value * cluster.local_devices() / cluster.total_gpu_num, at::kDouble);
  job->workers()->all_reduce({weighted}, ReduceOp::kSum);
  return weighted.item<double>();
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
  result.loss = mean_over_workers(mean_loss(runs, ready));
  result.metrics = merge_metrics(runs, ready, job->workers(), replicas.first);
  reduce_and_update(ready, result);
  ready.average_state(job->workers());
  if (plain && !result.skipped) compare(*plain, ready, result.loss);
  ++steps;
  return result;
}

PlainStep Trainer::Impl::run_plainly(const DeviceBatches& batches) {
  const ReadyStep& ready = recordings.find(batches[0][0], 0, steps);
  const StateSnapshot before(ready.compiled());
  PlainRequest request{batches,
                       seed(ready),
                       options,
                       clips_locally(),
                       local_scale(ready),
                       std::min(ready.program().devices, replicas.size()),
                       {},
                       devices(),
                       job->workers()};
  for (const auto& replica : replicas.each) replica->streams.follow_seeds();
  request.random_state = [&](int device) {
    return replicas[device].streams.default_generator().get_state();
  };
  PlainStep plain = run_plain_step(model, function, request, before);
  if (ready.sizes().loss == SliceMerge::kSum) plain.loss *= ready.program().devices;
  plain.loss = mean_over_workers(plain.loss);
  return plain;
}

void Trainer::Impl::compare(const PlainStep& plain, ReadyStep& ready, double loss) {
  std::map<std::string, at::Tensor> gradients;
  const Program& program = ready.program();
  const std::vector<at::Tensor> reduced = reduced_gradients(ready);
  for (size_t i = 0; i < program.gradients.size(); ++i) {
    gradients[program.leaves[static_cast<size_t>(program.gradients[i].leaf)].name] = reduced[i];
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
    Shares unsliced;
    unsliced.replicas = impl_->replicas.size();
    unsliced.micro_batches =
        static_cast<int>(impl_->config.get<int64_t>("pipeline.num_micro_batch"));
    unsliced.asked_by = concat(impl_->devices(), " devices");
    // However many devices share a micro batch, one of them gets as many rows.
    const Batch sample = cut_into_micro_batches(batch, unsliced, impl_->config)[0][0];
    return cut_into_micro_batches(batch, impl_->shares(sample), impl_->config);
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
