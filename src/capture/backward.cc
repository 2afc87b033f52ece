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

// Shared by all hooks of one recording. Hooks cannot be removed, and a tensor that the user keeps
// keeps its autograd nodes: after the recording this holds null, and the hooks do nothing.
using HookTarget = std::shared_ptr<Recorder*>;

struct EnterNode final : autograd::FunctionPreHook {
  EnterNode(HookTarget target, ForwardPlace forward)
      : target(std::move(target)), forward(forward) {}

  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    Recorder* const recorder = *target;
    if (recorder == nullptr) return gradients;
    for (const auto& gradient : gradients) recorder->claim(gradient, forward);
    recorder->set_backward_of(forward);
    return gradients;
  }

  HookTarget target;
  ForwardPlace forward;
};

struct LeaveNode final : autograd::FunctionPostHook {
  explicit LeaveNode(HookTarget target) : target(std::move(target)) {}

  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list&) override {
    if (*target != nullptr) (*target)->set_backward_of(std::nullopt);
    return outputs;
  }

  HookTarget target;
};

int taskgraph_at(uint64_t sequence, const std::vector<TaskGraphBorder>& borders) {
  const auto next = std::upper_bound(
      borders.begin(), borders.end(), sequence,
      [](uint64_t value, const TaskGraphBorder& border) { return value < border.sequence; });
  return next == borders.end() ? -1 : next->taskgraph;
}

void add_hooks(const HookTarget& target, const at::Tensor& loss,
               const std::vector<TaskGraphBorder>& borders) {
  std::unordered_set<autograd::Node*> seen;
  std::vector<autograd::Node*> open{loss.grad_fn().get()};
  while (!open.empty()) {
    autograd::Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    const uint64_t sequence = node->sequence_nr();
    const ForwardPlace forward{taskgraph_at(sequence, borders), (*target)->call_at(sequence)};
    node->add_pre_hook(std::make_unique<EnterNode>(target, forward));
    node->add_post_hook(std::make_unique<LeaveNode>(target));
    for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
  }
}

}  // namespace

std::vector<at::Tensor> record_backward(Recorder& recorder, const at::Tensor& loss,
                                        const at::Tensor& seed,
                                        const std::vector<at::Tensor>& parameters,
                                        const std::vector<TaskGraphBorder>& borders) {
  const auto target = std::make_shared<Recorder*>(&recorder);
  struct Detach {  // also where backward throws
    const HookTarget& target;
    ~Detach() { *target = nullptr; }
  } detach{target};
  add_hooks(target, loss, borders);
  recorder.enter_backward();
  recorder.set_backward_of(std::nullopt);
  return autograd::grad({loss}, parameters, {seed}, /*retain_graph=*/false,
                        /*create_graph=*/false, /*allow_unused=*/true);
}

}  // namespace epl
