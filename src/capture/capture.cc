#include "capture/capture.h"

#include <ATen/SequenceNumber.h>
#include <epl/collection.h>

#include <limits>
#include <set>

#include "base/check.h"
#include "capture/backward.h"
#include "capture/contents_hash.h"
#include "capture/ghost.h"
#include "capture/recorder.h"
#include "capture/watched_inputs.h"
#include "config/collected.h"
#include "config/scopes.h"

namespace epl {
namespace {

void declare_tensors(Recorder& recorder, const CaptureRequest& request) {
  for (size_t i = 0; i < request.batch.size(); ++i) {
    Leaf leaf;
    leaf.kind = Leaf::Kind::kInput;
    leaf.index = static_cast<int>(i);
    if (request.batch[i].defined()) recorder.declare(std::move(leaf), request.batch[i]);
  }
  for (const auto* group : {&request.parameters, &request.state}) {
    for (const auto& [name, tensor] : *group) {
      Leaf leaf;
      const bool trained = group == &request.parameters && tensor.requires_grad();
      leaf.kind = trained ? Leaf::Kind::kParameter : Leaf::Kind::kState;
      leaf.name = name;
      leaf.tensor = tensor;
      recorder.declare(std::move(leaf), tensor);
    }
  }
}

void check_trained(const std::vector<at::Tensor>& trained) {
  EPL_CHECK(!trained.empty(), "no parameter of the optimizers requires a gradient", "epl::Trainer",
            "look for parameters that are all frozen");
}

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

// Parameters that no optimizer of the trainer has.
std::vector<at::Tensor> other_leaves(const CaptureRequest& request) {
  std::vector<at::Tensor> leaves;
  for (const auto& [name, tensor] : request.state) {
    if (tensor.defined() && tensor.requires_grad() && tensor.is_leaf()) leaves.push_back(tensor);
  }
  return leaves;
}

// The leaf of each parameter.
std::map<c10::TensorImpl*, int> parameter_leaves(const Graph& graph) {
  std::map<c10::TensorImpl*, int> leaves;
  for (size_t i = 0; i < graph.leaves.size(); ++i) {
    if (graph.leaves[i].kind == Leaf::Kind::kParameter) {
      leaves[graph.leaves[i].tensor.unsafeGetTensorImpl()] = static_cast<int>(i);
    }
  }
  return leaves;
}

// Sets back what the recorded run changes, also where the user's code throws.
class NoTrace {
 public:
  explicit NoTrace(Recorder& recorder) : recorder_(recorder) {}
  ~NoTrace() { recorder_.restore_written(); }
  NoTrace(const NoTrace&) = delete;
  NoTrace& operator=(const NoTrace&) = delete;

 private:
  Recorder& recorder_;
};

// The trainer runs backward and update; a step function that does so as well would do it twice.
void check_no_backward(const NamedTensors& parameters) {
  for (const auto& [name, parameter] : parameters) {
    EPL_CHECK(!parameter.grad().defined(), "the step function calls backward() itself",
              "epl::Trainer", "return the loss: epl::Trainer::step runs backward and the update");
  }
}

// While the user's code runs, and not an operator that it calls, the batch is closed.
class Watch {
 public:
  Watch(Recorder& recorder, WatchedInputs* inputs) : recorder_(recorder), inputs_(inputs) {
    recorder_.watch(inputs_);
    if (inputs_ != nullptr) inputs_->close();
  }
  ~Watch() {
    recorder_.watch(nullptr);
    if (inputs_ == nullptr) return;
    inputs_->open();
    const auto touched = inputs_->touched();
    if (!touched) return;
    recorder_.cannot_be_replayed(
        concat("C++ reads or writes tensor ", *touched,
               " of the batch itself, by data_ptr() or accessor(): a replay would not"));
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  Recorder& recorder_;
  WatchedInputs* const inputs_;
};

// Parameters and state, to tell what C++ writes through pointers: what changed though no operator
// wrote it.
class LeafContents {
 public:
  explicit LeafContents(const CaptureRequest& request) : request_(request), before_(hashes()) {}

  void check(Recorder& recorder) const {
    const std::vector<uint64_t> now = hashes();
    size_t i = 0;
    for (const auto* tensors : {&request_.parameters, &request_.state}) {
      for (const auto& [name, tensor] : *tensors) {
        const bool changed = before_[i] != now[i];
        ++i;
        if (!changed || recorder.writes(tensor)) continue;
        recorder.cannot_be_replayed(concat(
            "C++ writes `", name, "` itself, by data_ptr() or accessor(): a replay would not"));
      }
    }
  }

 private:
  std::vector<uint64_t> hashes() const {
    std::vector<uint64_t> all;
    for (const auto* tensors : {&request_.parameters, &request_.state}) {
      for (const auto& [name, tensor] : *tensors) all.push_back(hash_of_contents(tensor));
    }
    return all;
  }

  const CaptureRequest& request_;
  const std::vector<uint64_t> before_;
};

// What the run gave. Its tensors, and with them those of the autograd graph, live as long as this.
struct RecordedRun {
  StepOutput output;
  std::vector<at::Tensor> trained;
  Gradients gradients;
  std::vector<CollectionEntry> collected;
};

// The gradient of the loss, as a leaf. Its making is not part of the step.
at::Tensor declare_seed(Recorder& recorder, const at::Tensor& loss, double value) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
  const at::Tensor seed = at::full(loss.sizes(), value, loss.options().requires_grad(false));
  Leaf leaf;
  leaf.kind = Leaf::Kind::kSeed;
  recorder.declare(std::move(leaf), seed);
  return seed;
}

RecordedRun run_recorded(Recorder& recorder, const CaptureRequest& request,
                         std::vector<TaskGraphBorder>& borders) {
  const at::AutoGradMode grad_mode(true);
  const RecorderGuard guard(recorder);
  // So that the step's zero_grad() finds nothing.
  const EmptiedGradients emptied(tensors_of(request.parameters));
  const Watch watch(recorder, request.watched);
  RecordedRun run{request.step(request.batch), {}, {}, {}};
  check_no_backward(request.parameters);
  run.trained = recorder.settle_trained(request.parameters);
  check_loss(run.output.loss);
  check_trained(run.trained);
  if (request.scales_loss) check_backward_is_unseen(run.output.loss);
  borders.push_back({std::numeric_limits<uint64_t>::max(), current_taskgraph()});
  const at::Tensor seed = declare_seed(recorder, run.output.loss, request.seed.value_or(1));
  run.gradients = record_backward(recorder, run.output.loss, seed,
                                  {run.trained, other_leaves(request)}, borders);
  run.collected = take_collections();
  return run;
}

std::vector<Metric> metrics_of(Recorder& recorder, const RecordedRun& run,
                               std::vector<at::Tensor>& values) {
  std::vector<Metric> metrics;
  for (const auto& [name, tensor] : run.output.metrics) {
    EPL_CHECK(tensor.defined(), concat("the metric \"", name, "\" is undefined"), "epl::Trainer");
    metrics.push_back({collection_of_returned(tensor), name, recorder.returned(tensor)});
    values.push_back(tensor.detach().clone());
  }
  for (const auto& entry : run.collected) {
    if (entry.collection == collections::kCheckpoints) continue;
    EPL_CHECK(run.output.metrics.count(entry.name) == 0,
              concat("the metric \"", entry.name, "\" is returned by the step and collected too"),
              "epl::add_to_collection");
    metrics.push_back({entry.collection, entry.name, recorder.returned(entry.tensor)});
    values.push_back(entry.tensor.detach().clone());
  }
  return metrics;
}

void mark_kept(Recorder& recorder, const RecordedRun& run) {
  for (const auto& entry : run.collected) {
    if (entry.collection == collections::kCheckpoints) recorder.mark(entry.tensor);
  }
}

void check_nothing_kept(const Recorder& recorder) {
  const std::vector<std::string> kept = recorder.describe_kept();
  const std::string which =
      kept.size() == 1 ? concat("a tensor that it computed, ", join(kept, ""), ",")
                       : concat(kept.size(), " tensors that it computed, ", join(kept, ", "), ",");
  EPL_CHECK(
      kept.empty(),
      concat("the step function keeps ", which,
             " after it has returned: replayed steps would never change ",
             kept.size() == 1 ? "it" : "them"),
      "epl::Trainer",
      "return it as a metric, write it by copy_() into a tensor that lives outside of the step, "
      "or set debug.kept_tensor = \"ignore\" where nobody reads it");
}

// The gradients are those of the parameters that are trained. Where the user's code saw them they
// are copies: whoever still holds the memory of one then is the user.
void keep_gradients(const CaptureRequest& request, const RecordedRun& run, bool users_code_ran,
                    RunEffects& effects) {
  size_t next = 0;
  for (const auto& [name, tensor] : request.parameters) {
    const bool trained = next < run.trained.size() && run.trained[next].is_same(tensor);
    at::Tensor gradient = trained ? run.gradients.trained[next++] : at::Tensor();
    if (gradient.defined() && users_code_ran) gradient = gradient.clone();
    effects.gradients.push_back(std::move(gradient));
  }
}

}  // namespace

void check_loss(const at::Tensor& loss) {
  EPL_CHECK(loss.defined(), "the step function returned an undefined loss", "epl::Trainer",
            "return the loss as a tensor of one element");
  EPL_CHECK(loss.numel() == 1,
            concat("the step function returned a loss of shape ", loss.sizes(),
                   ", but a loss is one number"),
            "epl::Trainer", "the mean or the sum of it");
  EPL_CHECK(loss.requires_grad(), "the loss depends on no parameter that requires a gradient",
            "epl::Trainer", "look for a detach(), a NoGradGuard or parameters that are all frozen");
}

void check_backward_is_unseen(const at::Tensor& loss) {
  EPL_CHECK(!backward_runs_users_code(loss),
            "backward runs code of the program's own (a hook, retain_grad() or a "
            "torch::autograd::Function), which would see gradients times the loss scale",
            "amp.loss_scale",
            "amp.loss_scale = 1: bfloat16 has the range of float32, in which few gradients vanish");
}

void RunEffects::apply() const {
  const c10::AutoGradMode no_grad(false);
  for (const auto& [tensor, contents] : written) at::Tensor(tensor).copy_(contents);
  for (const auto& [generator, state] : generators) at::Generator(generator).set_state(state);
}

ClosedOver::ClosedOver(const at::Tensor& user) : tensor(user.getIntrusivePtr()) {
  if (user.layout() != c10::kStrided) return;
  storage = user.storage().unsafeGetStorageImpl();
  type = type_of(user);
}

bool ClosedOver::is_as_recorded() const {
  const auto now = tensor.lock();
  if (!now) return false;
  if (storage == nullptr) return true;
  return now->storage().unsafeGetStorageImpl() == storage && now->storage_offset() == type.offset &&
         now->sizes() == type.sizes && now->strides() == type.strides &&
         now->dtype() == c10::scalarTypeToTypeMeta(type.dtype);
}

Capture capture_step(const CaptureRequest& request) {
  Recorder recorder;
  recorder.measure(request.memory);
  const NoTrace no_trace(recorder);
  for (const at::Generator& generator : request.generators) recorder.expect_draws_from(generator);
  declare_tensors(recorder, request);
  std::vector<TaskGraphBorder> borders;
  Recording recording([&] {
    borders.push_back({at::sequence_number::peek(), current_taskgraph()});
  });

  Capture capture;
  ValueId loss = kNoValue;
  std::vector<Metric> metrics;
  std::vector<std::pair<at::Tensor, ValueId>> gradients;  // with their parameters
  {
    const LeafContents leaves(request);
    const RecordedRun run = run_recorded(recorder, request, borders);
    leaves.check(recorder);
    capture.loss = is_ghost(run.output.loss) ? std::numeric_limits<double>::quiet_NaN()
                                             : run.output.loss.item<double>();
    loss = recorder.returned(run.output.loss);
    metrics = metrics_of(recorder, run, capture.metric_values);
    mark_kept(recorder, run);
    for (size_t i = 0; i < run.trained.size(); ++i) {
      const at::Tensor& gradient = run.gradients.trained[i];
      if (!gradient.defined()) continue;
      gradients.emplace_back(run.trained[i], recorder.value_of(gradient));
      recorder.claim_gradient(run.trained[i], gradient);
    }
    for (const auto& leaf : run.gradients.reached) {
      capture.reached.emplace_back(leaf.getIntrusivePtr());
    }
    if (request.seed) {
      keep_gradients(request, run, recorder.users_code_in_backward(), capture.effects);
    }
  }
  recorder.end_of_step();
  if (!request.may_keep_tensors) check_nothing_kept(recorder);
  capture.closed_over = recorder.closed_over();
  capture.held_unseen = recorder.held_unseen();
  capture.unreplayable = recorder.unreplayable();

  std::vector<ValueId> returned{loss};
  for (const Metric& metric : metrics) returned.push_back(metric.value);
  for (const auto& [parameter, gradient] : gradients) returned.push_back(gradient);
  capture.graph = recorder.take_graph(returned);
  // Not before: while the graph is taken the recorder asks who else holds what was written.
  if (request.seed) recorder.describe_written(capture.effects);
  capture.graph.taskgraphs = recording.finish();
  capture.graph.loss = loss;
  capture.graph.metrics = std::move(metrics);
  const auto leaves = parameter_leaves(capture.graph);
  for (const auto& [parameter, gradient] : gradients) {
    const auto leaf = leaves.find(parameter.unsafeGetTensorImpl());
    if (leaf != leaves.end()) capture.graph.gradients.push_back({leaf->second, gradient});
  }
  return capture;
}

}  // namespace epl
