#include "capture/backward.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <memory>
#include <unordered_set>

namespace epl {
namespace {

namespace autograd = torch::autograd;

struct EnterNode final : autograd::FunctionPreHook {
  EnterNode(Recorder& recorder, int taskgraph) : recorder(recorder), taskgraph(taskgraph) {}

  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    for (const auto& gradient : gradients) recorder.claim(gradient, taskgraph);
    recorder.set_backward_taskgraph(taskgraph);
    return gradients;
  }

  Recorder& recorder;
  int taskgraph;
};

struct LeaveNode final : autograd::FunctionPostHook {
  explicit LeaveNode(Recorder& recorder) : recorder(recorder) {}

  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list&) override {
    recorder.set_backward_taskgraph(std::nullopt);
    return outputs;
  }

  Recorder& recorder;
};

int taskgraph_at(uint64_t sequence, const std::vector<TaskGraphBorder>& borders) {
  const auto next = std::upper_bound(
      borders.begin(), borders.end(), sequence,
      [](uint64_t value, const TaskGraphBorder& border) { return value < border.sequence; });
  return next == borders.end() ? -1 : next->taskgraph;
}

// Nodes that an exception or a retained graph keeps alive must not call a recorder that is gone;
// the graph of a step dies with its loss, which is why hooks need no removal.
void add_hooks(Recorder& recorder, const at::Tensor& loss,
               const std::vector<TaskGraphBorder>& borders) {
  std::unordered_set<autograd::Node*> seen;
  std::vector<autograd::Node*> open{loss.grad_fn().get()};
  while (!open.empty()) {
    autograd::Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    node->add_pre_hook(
        std::make_unique<EnterNode>(recorder, taskgraph_at(node->sequence_nr(), borders)));
    node->add_post_hook(std::make_unique<LeaveNode>(recorder));
    for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
  }
}

}  // namespace

std::vector<at::Tensor> record_backward(Recorder& recorder, const at::Tensor& loss,
                                        const at::Tensor& seed,
                                        const std::vector<at::Tensor>& parameters,
                                        const std::vector<TaskGraphBorder>& borders) {
  add_hooks(recorder, loss, borders);
  recorder.enter_backward();
  recorder.set_backward_taskgraph(std::nullopt);
  return autograd::grad({loss}, parameters, {seed}, /*retain_graph=*/false,
                        /*create_graph=*/false, /*allow_unused=*/true);
}

}  // namespace epl
