#include "capture/backward.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <algorithm>
#include <memory>
#include <unordered_set>

#include "config/libtorch.h"

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

template <typename Ours, typename Hook>
bool any_of_others(const std::vector<std::unique_ptr<Hook>>& hooks) {
  return std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
    return dynamic_cast<const Ours*>(hook.get()) == nullptr;
  });
}

// Those of LibTorch's operators are called MulBackward0 and the like; the few others of its own
// stand in its namespace, and so does the wrapper of a torch::autograd::Function.
bool is_of_libtorch(const std::string& node) {
  const bool of_operator = node.find("Backward") != std::string::npos &&
                           node.find("::") == std::string::npos && node.back() >= '0' &&
                           node.back() <= '9';
  const auto starts_with = [&](const char* prefix) { return node.rfind(prefix, 0) == 0; };
  return of_operator ||
         (starts_with("torch::autograd::") && !starts_with("torch::autograd::CppNode<"));
}

// Hooks of the tensors that the node gives gradients to. Before 2.0 they stand among its own.
bool has_tensor_hooks(autograd::Node& node) {
#if EPL_TORCH_AT_LEAST(2, 0)
  return !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty();
#else
  (void)node;
  return false;
#endif
}

// Whether the user's own code runs where autograd comes to this node.
bool runs_users_code(autograd::Node& node) {
  if (has_tensor_hooks(node)) return true;
  if (any_of_others<EnterNode>(node.pre_hooks())) return true;
  if (any_of_others<LeaveNode>(node.post_hooks())) return true;
  if (auto* leaf = dynamic_cast<autograd::AccumulateGrad*>(&node)) {
    return !autograd::impl::hooks(leaf->variable).empty();
  }
  if (auto* slices = dynamic_cast<autograd::CopySlices*>(&node)) {
    return slices->fn != nullptr && runs_users_code(*slices->fn);
  }
  return !is_of_libtorch(node.name());
}

struct AutogradGraph {
  std::vector<autograd::Node*> nodes;  // without those of leaves
  std::vector<at::Tensor> leaves;
  bool runs_users_code = false;
};

AutogradGraph walk_from(const at::Tensor& loss) {
  AutogradGraph graph;
  std::unordered_set<autograd::Node*> seen;
  std::vector<autograd::Node*> open{loss.grad_fn().get()};
  while (!open.empty()) {
    autograd::Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    graph.runs_users_code |= runs_users_code(*node);
    if (const auto* leaf = dynamic_cast<const autograd::AccumulateGrad*>(node)) {
      graph.leaves.push_back(leaf->variable);
    } else {
      graph.nodes.push_back(node);
    }
    for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  return graph;
}

void add_hooks(const HookTarget& target, const AutogradGraph& graph,
               const std::vector<TaskGraphBorder>& borders) {
  for (autograd::Node* node : graph.nodes) {
    const uint64_t sequence = node->sequence_nr();
    const ForwardPlace forward{taskgraph_at(sequence, borders), (*target)->call_at(sequence)};
    node->add_pre_hook(std::make_unique<EnterNode>(target, forward));
    node->add_post_hook(std::make_unique<LeaveNode>(target));
  }
}

// As the user's own backward() would run. What arrives at leaves that nobody trains is dropped.
std::vector<at::Tensor> run_backward(const at::Tensor& loss, const at::Tensor& seed,
                                     const AutogradGraph& graph, const AutogradLeaves& leaves) {
  std::vector<at::Tensor> reached = graph.leaves;
  reached.insert(reached.end(), leaves.others.begin(), leaves.others.end());
  const EmptiedGradients emptied(std::move(reached));
  autograd::backward({loss}, {seed}, /*retain_graph=*/false);
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : leaves.trained) gradients.push_back(parameter.grad());
  return gradients;
}

}  // namespace

EmptiedGradients::EmptiedGradients(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  for (const auto& tensor : tensors_) {
    before_.push_back(tensor.grad());
    tensor.mutable_grad() = at::Tensor();
  }
}

// Backwards, since a tensor may be named twice.
EmptiedGradients::~EmptiedGradients() {
  for (size_t i = tensors_.size(); i-- > 0;) tensors_[i].mutable_grad() = before_[i];
}

bool backward_runs_users_code(const at::Tensor& loss) { return walk_from(loss).runs_users_code; }

Gradients record_backward(Recorder& recorder, const at::Tensor& loss, const at::Tensor& seed,
                          const AutogradLeaves& leaves,
                          const std::vector<TaskGraphBorder>& borders) {
  const auto target = std::make_shared<Recorder*>(&recorder);
  struct Detach {  // also where backward throws
    const HookTarget& target;
    ~Detach() { *target = nullptr; }
  } detach{target};
  AutogradGraph graph = walk_from(loss);
  add_hooks(target, graph, borders);
  recorder.enter_backward(graph.runs_users_code);
  recorder.set_backward_of(std::nullopt);
  std::vector<at::Tensor> gradients =
      graph.runs_users_code ? run_backward(loss, seed, graph, leaves)
                            : autograd::grad({loss}, leaves.trained, {seed}, /*retain_graph=*/false,
                                             /*create_graph=*/false, /*allow_unused=*/true);
  return {std::move(gradients), std::move(graph.leaves)};
}

}  // namespace epl
