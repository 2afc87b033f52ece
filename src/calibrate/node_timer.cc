#include "calibrate/node_timer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "cost/op_signature.h"
#include "ops/facts.h"

namespace epl {
namespace {

at::Tensor make_operand(const TensorType& type) {
  const at::Tensor tensor = at::empty_strided(type.sizes, type.strides, type.dtype);
  // Zeros are valid as indices of anything; numbers must not be denormal or all alike.
  if (!at::isFloatingType(type.dtype)) return tensor.zero_();
  at::Tensor flat = at::empty({std::max<int64_t>(1, tensor.numel())}, at::kFloat);
  flat.uniform_(0.5, 1.5);
  return tensor.copy_(flat.narrow(0, 0, tensor.numel()).view(type.sizes));
}

// One set of operands as the arguments of a call; `bytes` grows by what they hold.
class OperandMaker {
 public:
  OperandMaker(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  std::vector<c10::IValue> arguments() {
    std::vector<c10::IValue> made;
    for (const Argument& argument : node_.arguments) made.push_back(value_of(argument));
    return made;
  }

  std::vector<c10::IValue> results() {
    std::vector<c10::IValue> made;
    for (const Result& result : node_.results) {
      for (const ValueId id : result.values) made.emplace_back(operand(id));
    }
    return made;
  }

  int64_t bytes() const { return bytes_; }

 private:
  at::Tensor operand(ValueId id) {
    const TensorType& type = graph_.value(id).type;
    bytes_ += type.numel() * type.item_bytes();
    return make_operand(type);
  }

  c10::IValue value_of(const Argument& argument) {
    switch (argument.kind) {
      case Argument::Kind::kConstant:
        return argument.constant;
      case Argument::Kind::kValue:
        if (argument.values[0] == kNoValue) return {};
        return operand(argument.values[0]);
      case Argument::Kind::kList:
        break;
    }
    c10::List<at::Tensor> list;
    for (const ValueId id : argument.values) list.push_back(operand(id));
    return list;
  }

  const Graph& graph_;
  const Node& node_;
  int64_t bytes_ = 0;
};

bool is_dense_tensor(const TensorType& type) { return type.layout == c10::kStrided; }

bool can_run_alone(const Graph& graph, const Node& node) {
  if (is_view(graph, node) || is_collective(node.op) || is_random(node.op)) return false;
  if (only_checks(node.op) || makes_uninitialized(node.op)) return false;
  if (!written_arguments(node).empty() || !values_that_decide_shape(graph, node).empty()) {
    return false;
  }
  bool plain = true;
  for (const Argument& argument : node.arguments) {
    if (argument.kind != Argument::Kind::kList) continue;
    for (const ValueId id : argument.values) plain = plain && id != kNoValue;
  }
  for_each_input(node, [&](ValueId id) { plain = plain && is_dense_tensor(graph.value(id).type); });
  int outputs = 0;
  for_each_output(node, [&](ValueId id) {
    plain = plain && is_dense_tensor(graph.value(id).type);
    ++outputs;
  });
  return plain && outputs > 0;
}

// The variant that writes into given tensors, where all results are there to be given.
std::optional<c10::OperatorHandle> variant_of(const Node& node) {
  for (const Result& result : node.results) {
    if (result.values.size() != 1 || result.values[0] == kNoValue) return std::nullopt;
  }
  return out_variant(node.op, c10::DispatchKey::CPU);
}

}  // namespace

std::optional<double> seconds_of_node(const Graph& graph, const Node& node, const Timing& timing) {
  if (!can_run_alone(graph, node)) return std::nullopt;
  const at::NoGradGuard no_gradients;
  const std::optional<c10::OperatorHandle> variant = variant_of(node);
  const c10::OperatorHandle op = variant.value_or(node.op);
  constexpr size_t kMostSets = 256;
  std::vector<std::vector<c10::IValue>> sets;
  int64_t bytes = 0;
  while (sets.size() < 2 || (sets.size() < kMostSets && bytes < timing.rotated_bytes)) {
    OperandMaker maker(graph, node);
    std::vector<c10::IValue>& set = sets.emplace_back(maker.arguments());
    if (variant) {
      for (c10::IValue& result : maker.results()) set.push_back(std::move(result));
    }
    bytes += maker.bytes();
  }
  torch::jit::Stack stack;
  return typical_seconds(
      [&](int64_t number) {
        stack = sets[static_cast<size_t>(number) % sets.size()];
        op.callBoxed(stack);
        stack.clear();
      },
      timing);
}

int time_operators(const Graph& graph, const Timing& timing, CostTable& table) {
  int timed = 0;
  for (const Node& node : graph.nodes) {
    const OpSignature signature = op_signature(graph, node);
    if (table.operators.count(signature.text) > 0) continue;
    const std::optional<double> seconds = seconds_of_node(graph, node, timing);
    if (!seconds) continue;
    table.operators[signature.text] = {*seconds, 1};
    ++timed;
  }
  return timed;
}

}  // namespace epl
