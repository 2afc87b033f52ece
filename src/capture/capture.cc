#include "capture/capture.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SequenceNumber.h>
#include <epl/collection.h>

#include <limits>
#include <set>

#include "base/check.h"
#include "capture/backward.h"
#include "capture/recorder.h"
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

std::vector<at::Tensor> trained_tensors(const CaptureRequest& request) {
  std::vector<at::Tensor> trained;
  for (const auto& [name, tensor] : request.parameters) {
    if (tensor.requires_grad()) trained.push_back(tensor);
  }
  return trained;
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

}  // namespace

Capture capture_step(const CaptureRequest& request) {
  Recorder recorder;
  const at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor generator_state = generator.get_state();
  declare_tensors(recorder, request);

  std::vector<TaskGraphBorder> borders;
  Recording recording([&] {
    borders.push_back({at::sequence_number::peek(), current_taskgraph()});
  });
  struct Restore {  // also where the user's code throws
    Recorder& recorder;
    const at::Generator& generator;
    const at::Tensor& state;
    ~Restore() {
      recorder.restore_written();
      const_cast<at::Generator&>(generator).set_state(state);
    }
  } restore{recorder, generator, generator_state};

  const std::vector<at::Tensor> trained = trained_tensors(request);
  std::vector<at::Tensor> gradients;
  std::optional<StepOutput> output;
  at::Tensor seed;
  {
    const at::AutoGradMode grad_mode(true);
    const RecorderGuard guard(recorder);
    output.emplace(request.step(request.batch));
    check_loss(output->loss);
    borders.push_back({std::numeric_limits<uint64_t>::max(), current_taskgraph()});
    {
      const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
      seed = at::ones(output->loss.sizes(), output->loss.options().requires_grad(false));
    }
    Leaf leaf;
    leaf.kind = Leaf::Kind::kSeed;
    recorder.declare(std::move(leaf), seed);
    gradients = record_backward(recorder, output->loss, seed, trained, borders);
  }

  std::vector<CollectionEntry> collected = take_collections();
  const ValueId loss = recorder.returned(output->loss);
  std::vector<Metric> metrics;
  for (const auto& [name, tensor] : output->metrics) {
    EPL_CHECK(tensor.defined(), concat("the metric \"", name, "\" is undefined"), "epl::Trainer");
    metrics.push_back({collections::kGlobalMean, name, recorder.returned(tensor)});
  }
  for (const auto& entry : collected) {
    if (entry.collection == collections::kCheckpoints) continue;
    EPL_CHECK(output->metrics.count(entry.name) == 0,
              concat("the metric \"", entry.name, "\" is returned by the step and collected too"),
              "epl::add_to_collection");
    metrics.push_back({entry.collection, entry.name, recorder.returned(entry.tensor)});
  }
  std::vector<std::pair<at::Tensor, ValueId>> pairs;  // parameter, gradient
  for (size_t i = 0; i < trained.size(); ++i) {
    if (!gradients[i].defined()) continue;
    pairs.emplace_back(trained[i], recorder.value_of(gradients[i]));
    recorder.claim_gradient(trained[i], gradients[i]);
  }

  Capture capture;
  capture.loss = output->loss.item<double>();
  output.reset();
  collected.clear();
  capture.graph = recorder.take_graph();
  capture.graph.taskgraphs = recording.finish();
  capture.graph.loss = loss;
  capture.graph.metrics = std::move(metrics);
  const auto leaves = parameter_leaves(capture.graph);
  for (const auto& [parameter, gradient] : pairs) {
    capture.graph.gradients.push_back({leaves.at(parameter.unsafeGetTensorImpl()), gradient});
  }
  return capture;
}

}  // namespace epl
