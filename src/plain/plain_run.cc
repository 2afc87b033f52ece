#include "plain/plain_run.h"

#include <ATen/Functions.h>
#include <epl/collection.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "config/collected.h"
#include "config/scopes.h"
#include "runtime/counted_targets.h"
#include "runtime/device_numbers.h"
#include "runtime/written_state.h"

namespace epl {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

at::Tensor dense_and_contiguous(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided ? tensor.contiguous() : tensor.to_dense();
}

void add_metric(DeviceRun& run, const std::string& collection, const std::string& name,
                const at::Tensor& value) {
  DeviceRun::Metric& metric = run.metrics[name];
  metric.collection = collection;
  metric.parts.push_back(value.detach().clone());
}

void add_metrics(DeviceRun& run, const StepOutput& output,
                 const std::vector<CollectionEntry>& collected) {
  for (const auto& [name, tensor] : output.metrics) {
    EPL_CHECK(tensor.defined(), concat("the metric \"", name, "\" is undefined"), "epl::Trainer");
    add_metric(run, collection_of_returned(tensor), name, tensor);
  }
  for (const auto& entry : collected) {
    if (entry.collection == collections::kCheckpoints) continue;
    EPL_CHECK(output.metrics.count(entry.name) == 0,
              concat("the metric \"", entry.name, "\" is returned by the step and collected too"),
              "epl::add_to_collection");
    add_metric(run, entry.collection, entry.name, entry.tensor);
  }
}

void add_span(DeviceRun& run, Span::Kind kind, double begin) {
  Span span;
  span.kind = kind;
  span.micro_batch = run.micro_batch;
  span.begin = begin;
  span.end = seconds_since(run.begin);
  run.spans.push_back(span);
}

// 1 for what some worker has, by position.
std::vector<bool> on_any_worker(const std::vector<bool>& here, Communicator& workers) {
  at::Tensor flags = at::zeros({static_cast<int64_t>(here.size())}, at::kFloat);
  for (size_t i = 0; i < here.size(); ++i) flags.data_ptr<float>()[i] = here[i] ? 1 : 0;
  if (!here.empty()) workers.all_reduce({flags}, ReduceOp::kMax);
  std::vector<bool> any;
  for (size_t i = 0; i < here.size(); ++i) any.push_back(flags.data_ptr<float>()[i] > 0);
  return any;
}

// What the step closes over and writes may depend on the rows that a worker has.
void check_as_many(size_t tensors, Communicator& workers) {
  const auto count = static_cast<double>(tensors);
  const at::Tensor most = at::tensor({count, -count}, at::kDouble);
  workers.all_reduce({most}, ReduceOp::kMax);
  EPL_CHECK(most.sum().item<double>() == 0,
            "workers write different tensors that the step function closes over",
            "the step function", "buffers of the module (register_buffer), which all workers have");
}

// Tensors of one type travel together.
void sum_over_workers(const std::vector<at::Tensor>& tensors, Communicator& workers) {
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const auto& tensor : tensors) {
    if (tensor.numel() > 0) by_type[tensor.scalar_type()].push_back(tensor);
  }
  for (const auto& [type, group] : by_type) workers.all_reduce(group, ReduceOp::kSum);
}

}  // namespace

PlainRun::PlainRun(const Model& model, const StepFunction& function, LocalReplicas& replicas)
    : model_(model),
      function_(function),
      replicas_(replicas),
      sums_(model.parameters().size()),
      runs_(static_cast<size_t>(replicas.size())) {
  const c10::AutoGradMode no_grad(false);
  for (const auto& [name, tensor] : model.parameters()) {
    users_gradients_.push_back(tensor.grad());
    tensor.mutable_grad() = at::Tensor();
  }
}

// Parameters as well where several devices may write them.
void PlainRun::remember_state(const PlainRunRequest& request) {
  const c10::AutoGradMode no_grad(false);
  const auto add = [&](const NamedTensors& tensors, bool are_parameters) {
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.defined() || tensor.layout() != c10::kStrided) continue;
      state_.push_back({name, tensor.detach(), tensor.detach().clone(), are_parameters, false, {}});
    }
  };
  add(model_.state(), false);
  if (request.devices > 1) add(model_.parameters(), true);
  remember_outside(request);
}

void PlainRun::remember_outside(const PlainRunRequest& request) {
  if (!request.written_outside) return;
  const c10::AutoGradMode no_grad(false);
  for (const auto& [name, tensor] : request.written_outside()) {
    const auto is_it = [&tensor = tensor](const State& state) {
      return state.users.is_alias_of(tensor) && state.users.data_ptr() == tensor.data_ptr() &&
             state.users.sizes() == tensor.sizes();
    };
    const bool known = std::any_of(state_.begin(), state_.end(), is_it);
    if (known) continue;
    State state{name, tensor, tensor.clone(), false, false, {}};
    state.by_device.assign(devices_done_, state.before);
    state_.push_back(std::move(state));
  }
}

PlainRun::~PlainRun() {
  for (size_t i = 0; i < users_gradients_.size(); ++i) {
    model_.parameters()[i].second.mutable_grad() = users_gradients_[i];
  }
}

void PlainRun::run(const PlainRunRequest& request) {
  const auto begin = Clock::now();
  for (auto& run : runs_) run.begin = begin;
  replicas_.begin_step();
  remember_state(request);
  try {
    for (size_t device = 0; device < request.batches.size(); ++device) {
      run_device(device, request);
    }
  } catch (...) {
    for (State& state : state_) state.changed = true;
    restore_state();
    throw;
  }
}

void PlainRun::run_device(size_t device, const PlainRunRequest& request) {
  if (request.batches[device].empty()) return;
  if (device > 0) restore_state();
  {
    const DeviceNumbers numbers(replicas_[static_cast<int>(device)].streams);
    for (size_t i = 0; i < request.batches[device].size(); ++i) {
      runs_[device].micro_batch = static_cast<int>(i);
      run_micro_batch(request.batches[device][i], request, runs_[device]);
    }
  }
  add_state();
  ++devices_done_;
  take_gradients(request);
}

void PlainRun::run_micro_batch(const Batch& batch, const PlainRunRequest& request, DeviceRun& run) {
  std::optional<Capture> observed;
  const double begin = seconds_since(run.begin);
  if (request.observe) observed = request.observe(batch, request.seed);
  if (!observed) return call(batch, request, run);
  remember_outside(request);
  take(std::move(*observed), run);
  add_span(run, Span::Kind::kForward, begin);
}

void PlainRun::call(const Batch& batch, const PlainRunRequest& request, DeviceRun& run) {
  const c10::AutoGradMode grad_mode(true);
  Recording annotations;  // so that what the step collects is kept
  const IgnoredTargetsWatch targets;
  const double begin = seconds_since(run.begin);
  const StepOutput output = function_(batch);
  add_metrics(run, output, take_collections());
  annotations.finish();
  check_loss(output.loss);
  if (request.scales_loss) check_backward_is_unseen(output.loss);
  run.losses.push_back(output.loss.item<double>());
  add_span(run, Span::Kind::kForward, begin);
  const double half = seconds_since(run.begin);
  output.loss.backward(at::full_like(output.loss, request.seed));
  add_span(run, Span::Kind::kBackward, half);
}

namespace {

// As autograd gives it to grad(): itself where nobody else has it, and as its parameter lies.
at::Tensor as_grad(at::Tensor gradient, const at::Tensor& parameter) {
  const bool own = gradient.layout() == c10::kStrided && gradient.use_count() == 1 &&
                   gradient.storage().use_count() == 1 && gradient.strides() == parameter.strides();
  return own ? gradient : gradient.clone();
}

}  // namespace

void PlainRun::take(Capture capture, DeviceRun& run) {
  const c10::AutoGradMode no_grad(false);
  capture.effects.apply();
  run.losses.push_back(capture.loss);
  for (size_t i = 0; i < capture.graph.metrics.size(); ++i) {
    const Metric& metric = capture.graph.metrics[i];
    add_metric(run, metric.collection, metric.name, capture.metric_values[i]);
  }
  for (size_t i = 0; i < capture.effects.gradients.size(); ++i) {
    at::Tensor gradient = std::exchange(capture.effects.gradients[i], at::Tensor());
    if (!gradient.defined()) continue;
    const at::Tensor& parameter = model_.parameters()[i].second;
    at::Tensor& sum = parameter.mutable_grad();
    sum = sum.defined() ? sum + gradient : as_grad(std::move(gradient), parameter);
  }
}

void PlainRun::take_gradients(const PlainRunRequest& request) {
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> own;
  for (const auto& [name, parameter] : model_.parameters()) {
    if (parameter.grad().defined()) own.push_back(parameter.grad());
  }
  if (request.clip_replica) request.clip_replica(own);
  for (size_t i = 0; i < sums_.size(); ++i) {
    at::Tensor& gradient = model_.parameters()[i].second.mutable_grad();
    if (!gradient.defined()) continue;
    sums_[i] = sums_[i].defined() ? sums_[i] + gradient : gradient;
    gradient = at::Tensor();
  }
}

void PlainRun::restore_state() {
  const c10::AutoGradMode no_grad(false);
  for (const State& state : state_) {
    if (state.changed) state.users.copy_(state.before);
  }
}

void PlainRun::add_state() {
  const c10::AutoGradMode no_grad(false);
  for (State& state : state_) {
    const bool changed = !state.users.equal(state.before);
    state.changed |= changed;
    state.by_device.push_back(changed ? state.users.clone() : state.before);
  }
}

void PlainRun::reduce_gradients(Communicator* workers) {
  if (workers == nullptr) return;
  const c10::AutoGradMode no_grad(false);
  std::vector<bool> here;
  for (const auto& gradient : sums_) here.push_back(gradient.defined());
  const std::vector<bool> anywhere = on_any_worker(here, *workers);
  std::vector<at::Tensor> travelling;
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (!anywhere[i]) continue;
    const at::Tensor parameter = model_.parameters()[i].second.detach();
    sums_[i] = here[i] ? dense_and_contiguous(sums_[i])
                       : at::zeros_like(parameter, at::MemoryFormat::Contiguous);
    travelling.push_back(sums_[i]);
  }
  sum_over_workers(travelling, *workers);
}

// What no device has changed stays to the bit.
void PlainRun::merge_state(const PlainRunRequest& request) {
  if (request.devices == 1) return;
  const c10::AutoGradMode no_grad(false);
  if (request.workers != nullptr) check_as_many(state_.size(), *request.workers);
  std::vector<bool> changed;
  for (const State& state : state_) changed.push_back(state.changed);
  if (request.workers != nullptr) changed = on_any_worker(changed, *request.workers);
  std::vector<WrittenState> written;
  for (size_t i = 0; i < state_.size(); ++i) {
    if (!changed[i]) continue;
    const State& state = state_[i];
    const bool mean = state.users.is_floating_point() && !state.is_parameter;
    written.push_back({state.name,
                       mean ? WrittenState::Merge::kMean : WrittenState::Merge::kWriters, 0,
                       state.users, state.before, state.by_device, request.devices});
  }
  if (!written.empty()) merge_written_state(written, request.workers);
}

}  // namespace epl
