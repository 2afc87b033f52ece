#include "calibrate/node_timer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "cost/op_signature.h"
#include "ops/facts.h"

namespace epl {
namespace {

// The memory is filled and the tensor laid over it: strides may be 0, as those of an expanded one.
at::Tensor make_operand(TensorType type) {
  type.offset = 0;
  const int64_t elements = type.extent_bytes() / type.item_bytes();
  const at::Tensor memory = at::zeros({elements}, type.dtype);
  // Zeros are valid as indices of anything; numbers must not all be alike.
  if (at::isFloatingType(type.dtype)) memory.copy_(at::rand({elements}).add_(0.5));
  return memory.as_strided(type.sizes, type.strides, 0);
}

at::Tensor copy_with_memory(const at::Tensor& tensor) {
  const auto elements = static_cast<int64_t>(tensor.storage().nbytes() / tensor.dtype().itemsize());
  return tensor.as_strided({elements}, {1}, 0)
      .clone()
      .as_strided(tensor.sizes(), tensor.strides(), 0);
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

c10::IValue copied(const c10::IValue& value) {
  if (value.isTensor()) return copy_with_memory(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(copy_with_memory(tensor));
  return list;
}

// Arguments of as many calls as it takes to leave the caches.
std::vector<std::vector<c10::IValue>> operand_sets(const Graph& graph, const Node& node,
                                                   bool with_results, const Timing& timing) {
  OperandMaker maker(graph, node);
  std::vector<c10::IValue> first = maker.arguments();
  if (with_results) {
    for (c10::IValue& result : maker.results()) first.push_back(std::move(result));
  }
  std::vector<std::vector<c10::IValue>> sets = {std::move(first)};
  const size_t count = timing.sets_of(maker.bytes());
  while (sets.size() < count) {
    std::vector<c10::IValue> set;
    for (const c10::IValue& value : sets.front()) set.push_back(copied(value));
    sets.push_back(std::move(set));
  }
  return sets;
}

}  // namespace

std::optional<double> seconds_of_node(const Graph& graph, const Node& node, const Timing& timing) {
  if (!can_run_alone(graph, node)) return std::nullopt;
  const at::NoGradGuard no_gradients;
  const std::optional<c10::OperatorHandle> variant = variant_of(node);
  const c10::OperatorHandle op = variant.value_or(node.op);
  const std::vector<std::vector<c10::IValue>> sets =
      operand_sets(graph, node, variant.has_value(), timing);
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
