#include <ATen/CPUGeneratorImpl.h>
#include <epl/env.h>
#include <epl/trainer.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <list>

#include "base/check.h"
#include "capture/capture.h"
#include "config/checks.h"
#include "driver/checkpoint_file.h"
#include "driver/clip.h"
#include "driver/compile.h"
#include "driver/metrics.h"
#include "driver/micro_batches.h"
#include "driver/model.h"
#include "driver/state_snapshot.h"
#include "driver/verify_step.h"
#include "ir/text.h"
#include "program/text.h"
#include "runtime/device_memory.h"
#include "runtime/executor.h"

namespace epl {
namespace {

// What a recording depends on: shapes and types of the inputs, modes of the modules.
using RecordingKey = std::vector<int64_t>;

RecordingKey key_of(const Batch& batch, const Model& model) {
  RecordingKey key;
  for (const auto& tensor : batch) {
    key.push_back(static_cast<int64_t>(tensor.scalar_type()));
    key.push_back(tensor.dim());
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  model.append_modes(key);
  return key;
}

// Each input in memory of its own: recorded places start at 0, and no two inputs share.
Batch own_copies(const Batch& batch) {
  Batch copies;
  for (const auto& tensor : batch) copies.push_back(tensor.detach().clone());
  return copies;
}

const Env& env_of_trainer() {
  try {
    return Env::get();
  } catch (const Error&) {
    throw Error("a trainer is made before epl::init()", "epl::Trainer",
                "call epl::init() at the beginning of main()");
  }
}

std::vector<at::Tensor> leaf_tensors(const Graph& graph) {
  std::vector<at::Tensor> tensors;
  for (const auto& leaf : graph.leaves) tensors.push_back(leaf.tensor);
  return tensors;
}

// Whether the user's tensors still have the types of the recording: not after net->to(kDouble), or
// where a parameter was replaced by one of another shape.
bool leaves_are_as_recorded(const Graph& graph) {
  return std::all_of(graph.leaves.begin(), graph.leaves.end(), [&](const Leaf& leaf) {
    if (!leaf.tensor.defined() || leaf.tensor.layout() != c10::kStrided) return true;
    TensorType now = type_of(leaf.tensor);
    const TensorType& recorded = graph.value(leaf.value).type;
    now.offset = recorded.offset;  // the executor follows it
    return now.same_place(recorded);
  });
}

}  // namespace

// A step that was recorded and compiled for one shape of batch.
struct ReadyStep {
  ReadyStep(CompiledStep step, const Arena& arena, const Capture& capture)
      : compiled(std::move(step)),
        executor(compiled.plan, arena, leaf_tensors(compiled.graph),
                 at::detail::getDefaultCPUGenerator()),
        recorded_loss(capture.loss),
        closed_over(capture.closed_over) {}

  // A variable that the step function reads holds another tensor than when it was recorded.
  bool out_of_date() const {
    return std::any_of(closed_over.begin(), closed_over.end(),
                       [](const WeakTensor& tensor) { return tensor.expired(); });
  }

  CompiledStep compiled;
  Executor executor;
  double recorded_loss;
  std::vector<WeakTensor> closed_over;
  bool replayed = false;  // and compared with the recorded loss
  int sample = 0;         // the micro batch that was recorded
  int64_t last_used = 0;  // in which step
  // For each update instruction: the optimizer and its part of the gradients.
  struct Part {
    size_t optimizer;
    std::vector<ParameterGradient> gradients;
    std::vector<SlotId> slots;
  };
  std::vector<std::vector<Part>> updates;
};

struct Trainer::Impl {
  Impl(std::vector<NamedModule> modules, OptimizerList optimizers, StepFunction function,
       TrainerOptions options)
      : config(env_of_trainer().config),
        cluster(env_of_trainer().cluster),
        model(std::move(modules), std::move(optimizers)),
        function(std::move(function)),
        options(options) {
    EPL_CHECK(this->function != nullptr, "the step function is empty", "epl::Trainer");
    check_clipping(options);
    const std::string method = config.get<std::string>("communication.gradients_reduce_method");
    const auto parts = static_cast<double>(config.get<int64_t>("pipeline.num_micro_batch"));
    seed = method == "mean" ? 1.0 / parts : 1.0;
  }

  StepResult step(const std::vector<Batch>& micro_batches);
  ReadyStep& ready_for(const std::vector<Batch>& micro_batches, int sample);
  void forget(const ReadyStep& step);
  void forget_out_of_date();
  void drop_least_used();
  void warn_of_recording_again(const std::string& why);
  StepResult run_as_recorded(const std::vector<Batch>& micro_batches);
  std::unique_ptr<ReadyStep> make_ready(const Batch& batch);
  void bind_updates(ReadyStep& ready);
  void bind_coasting(ReadyStep& ready);
  StepResult run_micro_batches(ReadyStep& ready, const std::vector<Batch>& micro_batches);
  void check_replay(ReadyStep& ready, double loss);
  bool check_finite(const StepResult& result) const;
  void update(ReadyStep& ready, StepResult& result);
  std::vector<at::Tensor> gradients_of(const ReadyStep& ready) const;

  const Config config;
  const Cluster cluster;
  Model model;
  const StepFunction function;
  const TrainerOptions options;
  double seed = 1;
  int64_t steps = 0;
  int recorded_again = 0;
  int running_micro_batch = 0;
  std::set<c10::TensorImpl*> had_gradient;  // parameters that some step gave a gradient

  DeviceMemory memory;
  Arena arena{model.device()};
  std::map<RecordingKey, std::unique_ptr<ReadyStep>> ready;
  RecordingKey last_key;
  ReadyStep* last = nullptr;
};

std::unique_ptr<ReadyStep> Trainer::Impl::make_ready(const Batch& batch) {
  const Batch inputs = own_copies(batch);
  Capture capture = capture_step({function, inputs, model.parameters(), model.state(),
                                  config.get<std::string>("debug.kept_tensor") == "ignore"});
  check_devices(capture.graph.taskgraphs, cluster, config);
  CompiledStep compiled = compile(std::move(capture.graph), config, arena.device());
  memory.trim();  // what the recorded run needed does not stay
  arena.ensure(compiled.plan.arena_bytes);
  auto made = std::make_unique<ReadyStep>(std::move(compiled), arena, capture);
  return made;
}

ReadyStep& Trainer::Impl::ready_for(const std::vector<Batch>& micro_batches, int sample) {
  const Batch& batch = micro_batches[static_cast<size_t>(sample)];
  if (model.refresh()) {
    ready.clear();
    last = nullptr;
  }
  forget_out_of_date();
  RecordingKey key = key_of(batch, model);
  const bool changed = last == nullptr || key != last_key;
  if (changed) {
    auto found = ready.find(key);
    if (found == ready.end()) {
      drop_least_used();
      found = ready.emplace(key, make_ready(batch)).first;
      found->second->sample = sample;
    }
    last = found->second.get();
    last_key = std::move(key);
  }
  arena.ensure(last->compiled.plan.arena_bytes);  // it was lost where a larger plan found no room
  const bool moved = last->executor.rebind_if_moved();
  if (moved && !leaves_are_as_recorded(last->compiled.graph)) {
    ready.clear();
    last = nullptr;
    return ready_for(micro_batches, sample);
  }
  if (changed || moved) bind_updates(*last);  // which parameters coast may have changed
  last->last_used = steps;
  return *last;
}

void Trainer::Impl::forget_out_of_date() {
  bool any = false;
  for (auto entry = ready.begin(); entry != ready.end();) {
    const bool old = entry->second->out_of_date();
    any |= old;
    if (old && entry->second.get() == last) last = nullptr;
    entry = old ? ready.erase(entry) : std::next(entry);
  }
  if (any) warn_of_recording_again("a variable that it reads was assigned another tensor");
}

// Programs whose batches come in ever new shapes must not fill memory with recordings.
void Trainer::Impl::drop_least_used() {
  constexpr size_t kMostRecordings = 64;
  if (ready.size() < kMostRecordings) return;
  auto oldest = ready.begin();
  for (auto entry = ready.begin(); entry != ready.end(); ++entry) {
    if (entry->second->last_used < oldest->second->last_used) oldest = entry;
  }
  forget(*oldest->second);
}

void Trainer::Impl::bind_updates(ReadyStep& ready) {
  const Plan& plan = ready.compiled.plan;
  ready.updates.clear();
  for (const auto& instruction : plan.programs[0].instructions) {
    if (instruction.kind != Instruction::Kind::kUpdate) continue;
    std::map<size_t, ReadyStep::Part> parts;
    for (int index : instruction.gradients) {
      const PlanGradient& gradient = plan.gradients[static_cast<size_t>(index)];
      const at::Tensor& parameter =
          ready.compiled.graph.leaves[static_cast<size_t>(gradient.leaf)].tensor;
      for (size_t optimizer : model.optimizers_of(parameter)) {
        ReadyStep::Part& part = parts[optimizer];
        part.optimizer = optimizer;
        part.gradients.push_back({parameter, ready.executor.tensor(gradient.slot)});
        part.slots.push_back(gradient.slot);
      }
    }
    auto& list = ready.updates.emplace_back();
    for (auto& [optimizer, part] : parts) list.push_back(std::move(part));
  }
  bind_coasting(ready);
}

// In the plain loop zero_grad() leaves zeros where a gradient once was, and the optimizer goes on
// with them: a layer that is frozen in mid-training coasts on its momentum.
void Trainer::Impl::bind_coasting(ReadyStep& ready) {
  std::set<c10::TensorImpl*> has_gradient;
  for (const auto& gradient : ready.compiled.plan.gradients) {
    const at::Tensor& parameter =
        ready.compiled.graph.leaves[static_cast<size_t>(gradient.leaf)].tensor;
    has_gradient.insert(parameter.unsafeGetTensorImpl());
  }
  std::map<size_t, ReadyStep::Part> parts;
  for (const auto& [name, parameter] : model.parameters()) {
    c10::TensorImpl* impl = parameter.unsafeGetTensorImpl();
    if (has_gradient.count(impl) != 0 || had_gradient.count(impl) == 0) continue;
    for (size_t optimizer : model.optimizers_of(parameter)) {
      parts[optimizer].optimizer = optimizer;
      parts[optimizer].gradients.push_back({parameter, at::zeros_like(parameter.detach())});
    }
  }
  had_gradient.insert(has_gradient.begin(), has_gradient.end());
  if (parts.empty()) return;
  auto& list = ready.updates.emplace_back();
  for (auto& [optimizer, part] : parts) list.push_back(std::move(part));
}

StepResult Trainer::Impl::run_micro_batches(ReadyStep& ready,
                                            const std::vector<Batch>& micro_batches) {
  const torch::NoGradGuard no_grad;
  const Plan& plan = ready.compiled.plan;
  StepResult result;
  std::map<std::string, std::pair<std::string, std::vector<at::Tensor>>> metrics;
  for (const auto& instruction : plan.programs[0].instructions) {
    running_micro_batch = instruction.micro_batch;
    if (instruction.kind == Instruction::Kind::kLoad) {
      ready.executor.load(micro_batches[static_cast<size_t>(instruction.micro_batch)], seed);
    } else if (instruction.kind == Instruction::Kind::kRun) {
      ready.executor.run(instruction.segment);
      const auto& outputs = plan.outputs[static_cast<size_t>(instruction.segment)];
      const auto loss = ready.executor.tensor(outputs.loss).item<double>();
      if (instruction.micro_batch == ready.sample && !ready.replayed) check_replay(ready, loss);
      result.loss += loss / static_cast<double>(micro_batches.size());
      for (const auto& metric : outputs.metrics) {
        auto& [collection, parts] = metrics[metric.name];
        collection = metric.collection;
        parts.push_back(ready.executor.tensor(metric.slot).clone());
      }
    }
  }
  for (const auto& [name, entry] : metrics) {
    result.metrics[name] = merge_metric(entry.first, entry.second);
  }
  return result;
}

void Trainer::Impl::forget(const ReadyStep& step) {
  for (auto entry = ready.begin(); entry != ready.end(); ++entry) {
    if (entry->second.get() != &step) continue;
    ready.erase(entry);
    break;
  }
  last = nullptr;
}

// A step that reads its data back into C++, or a variable that is assigned between steps, is
// recorded again where it finds something else there. That is right but slow, so whoever does it in
// many steps should hear of it.
void Trainer::Impl::warn_of_recording_again(const std::string& why) {
  constexpr int kOften = 3;
  if (++recorded_again != kOften) return;
  std::clog << "epl: warning: the step was recorded again " << kOften
            << " times, the last time since " << why
            << ". Each time costs about two plain steps. To avoid it, return the value as a "
            << "metric instead of reading it by item(), choose by torch::where instead of if, mask "
            << "instead of selecting, and hand tensors in with the batch or copy_() into them.\n";
}

// Runs the micro batches by a recording that is right for them: where its guards fail, a new one.
StepResult Trainer::Impl::run_as_recorded(const std::vector<Batch>& micro_batches) {
  int sample = 0;
  std::string first_failure;
  for (;;) {
    ReadyStep& ready = ready_for(micro_batches, sample);
    std::optional<StateSnapshot> before;
    if (ready.compiled.plan.has_guards) before.emplace(ready.compiled);
    running_micro_batch = 0;
    try {
      return run_micro_batches(ready, micro_batches);
    } catch (const GuardFailed& failed) {
      before->restore();
      forget(ready);
      EPL_CHECK(first_failure.empty(),
                concat("the micro batches of step ", steps,
                       " need different recordings: ", first_failure, "; ", failed.what()),
                config.asked_by("pipeline.num_micro_batch"),
                "micro batches that do not differ in this, or a step that does not read it back");
      first_failure = failed.what();
      sample = running_micro_batch;
      warn_of_recording_again(failed.what());
    }
  }
}

// The recorded run and its replay read the same batch and draw the same numbers.
void Trainer::Impl::check_replay(ReadyStep& ready, double loss) {
  ready.replayed = true;
  const double recorded = ready.recorded_loss;
  const bool equal = std::abs(loss - recorded) <= 1e-3 * std::max(1.0, std::abs(recorded)) ||
                     (std::isnan(loss) && std::isnan(recorded)) || loss == recorded;
  if (equal) return;
  forget(ready);
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

std::vector<at::Tensor> Trainer::Impl::gradients_of(const ReadyStep& ready) const {
  std::vector<at::Tensor> gradients;
  for (const auto& gradient : ready.compiled.plan.gradients) {
    gradients.push_back(ready.executor.tensor(gradient.slot));
  }
  return gradients;
}

void Trainer::Impl::update(ReadyStep& ready, StepResult& result) {
  if (options.clip_grad_norm > 0 || options.clip_grad_value > 0) {
    result.gradient_norm = clip_gradients(gradients_of(ready), options);
  }
  for (auto& parts : ready.updates) {
    for (auto& part : parts) {
      for (size_t i = 0; i < part.slots.size(); ++i) {
        const Slot& slot = ready.compiled.plan.slots[static_cast<size_t>(part.slots[i])];
        if (slot.where == Slot::Where::kMadeByOperator) {
          part.gradients[i].gradient = ready.executor.tensor(part.slots[i]);
        }
      }
      model.update(part.optimizer).apply(part.gradients);
    }
  }
}

StepResult Trainer::Impl::step(const std::vector<Batch>& micro_batches) {
  std::optional<DeviceMemory::Use> use;
  if (!DeviceMemory::in_use_on_this_thread()) use.emplace(memory);
  const bool verifies = steps < config.get<int64_t>("debug.verify_steps");
  std::optional<PlainStep> plain;
  if (verifies) {
    const StateSnapshot before(ready_for(micro_batches, 0).compiled);
    plain = run_plain_step(model, function, micro_batches, seed, options, before);
  }

  StepResult result = run_as_recorded(micro_batches);
  ReadyStep& ready = *last;
  const torch::NoGradGuard no_grad;
  if (check_finite(result)) {
    update(ready, result);
  } else {
    result.skipped = true;
  }
  if (verifies && !result.skipped) {
    std::map<std::string, at::Tensor> gradients;
    const auto& compiled = ready.compiled;
    for (const auto& gradient : compiled.plan.gradients) {
      gradients[compiled.plan.leaves[static_cast<size_t>(gradient.leaf)].name] =
          ready.executor.tensor(gradient.slot);
    }
    std::clog << "epl: " << compare_with_plain(*plain, model, gradients, result.loss, steps, config)
              << "\n";
  }
  ++steps;
  return result;
}

Trainer::Trainer(std::vector<NamedModule> modules, OptimizerList optimizers, StepFunction step,
                 TrainerOptions options)
    : impl_(std::make_unique<Impl>(std::move(modules), std::move(optimizers), std::move(step),
                                   options)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

StepResult Trainer::step(const Batch& batch) {
  return impl_->step(cut_into_micro_batches(batch, impl_->config));
}

StepResult Trainer::step(const BatchSource& source) {
  return impl_->step(draw_micro_batches(source, impl_->config));
}

StepOutput Trainer::evaluate(const StepFunction& fn, const Batch& batch) {
  const Model::EvalMode eval(impl_->model);
  const torch::NoGradGuard no_grad;
  return fn(batch);
}

std::string Trainer::plan() const {
  EPL_CHECK(impl_->last != nullptr, "there is no plan before the first step", "epl::Trainer::plan",
            "call it after step()");
  return print_plan(impl_->last->compiled.plan);
}

std::string Trainer::graph() const {
  EPL_CHECK(impl_->last != nullptr, "there is no graph before the first step",
            "epl::Trainer::graph", "call it after step()");
  return print_graph(impl_->last->compiled.graph);
}

void Trainer::save(const std::string& path) const { save_checkpoint(path, impl_->model); }

void Trainer::load(const std::string& path) { load_checkpoint(path, impl_->model); }

}  // namespace epl
