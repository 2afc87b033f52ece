// Every operator that the test models call and that has an out= kernel: both give the same bits.
#include <gtest/gtest.h>

#include "base/text.h"
#include "ops/facts.h"
#include "tests/models/steps.h"

namespace epl {
namespace {

// Contents by dtype, drawn anew for each value.
at::Tensor make_value(const TensorType& type) {
  const auto options = at::TensorOptions().dtype(type.dtype);
  if (type.layout != c10::kStrided) return {};
  at::Tensor value = at::empty_strided(type.sizes, type.strides, options);
  if (type.dtype == at::kBool) return value.random_(0, 2);
  if (c10::isIntegralType(type.dtype, false)) return value.random_(0, 2);  // an index of anything
  return value.uniform_(0.25, 0.75);  // in the domain of anything, a probability
}

// The arguments of a node with contents of their own, as IValues.
torch::jit::Stack make_arguments(const Graph& graph, const Node& node) {
  torch::jit::Stack stack;
  const auto tensor = [&](ValueId id) {
    return id == kNoValue ? at::Tensor() : make_value(graph.value(id).type);
  };
  for (const auto& argument : node.arguments) {
    if (argument.kind == Argument::Kind::kConstant) {
      stack.push_back(argument.constant);
    } else if (argument.kind == Argument::Kind::kValue) {
      stack.emplace_back(tensor(argument.values[0]));
    } else {
      c10::List<at::Tensor> list;
      for (ValueId id : argument.values) list.push_back(tensor(id));
      stack.emplace_back(std::move(list));
    }
  }
  return stack;
}

std::string key_of(const Graph& graph, const Node& node) {
  std::string key = op_name(node);
  for_each_input(node, [&](ValueId id) { key += " " + print_type(graph.value(id).type); });
  return key;
}

bool is_dense(const Graph& graph, const Node& node) {
  bool dense = true;
  const auto look = [&](ValueId id) { dense &= graph.value(id).type.layout == c10::kStrided; };
  for_each_input(node, look);
  for_each_output(node, look);
  return dense;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype()) return false;
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

// Runs the node both ways; what differs, or nothing.
std::string compare(const Graph& graph, const Node& node, const c10::OperatorHandle& out) {
  const torch::jit::Stack arguments = make_arguments(graph, node);
  torch::jit::Stack made = arguments;
  at::manual_seed(3);
  node.op.callBoxed(&made);
  torch::jit::Stack written = arguments;
  for (const auto& result : made) {
    // Where the recorded graph has it, full of what no operator would give.
    written.push_back(at::full_like(result.toTensor(), 77));
  }
  at::manual_seed(3);
  out.callBoxed(&written);
  for (size_t i = 0; i < made.size(); ++i) {
    if (!same_bits(made[i].toTensor(), written[i].toTensor()))
      return concat("result ", i, " differs");
  }
  return "";
}

TEST(OutVariant, GivesTheBitsOfTheOperatorForAllThatTheModelsCall) {
  const at::NoGradGuard no_grad;
  std::set<std::string> seen;
  std::set<std::string> names;
  for (const auto& step : models::all_steps()) {
    const Graph graph = [&] {
      const at::AutoGradMode grad(true);
      return step.capture();
    }();
    for (const auto& node : graph.nodes) {
      const auto out = out_variant(node.op, c10::DispatchKey::CPU);
      if (!out || !is_dense(graph, node) || !seen.insert(key_of(graph, node)).second) continue;
      names.insert(op_name(node));
      EXPECT_EQ(compare(graph, node, *out), "") << step.name << ": " << key_of(graph, node);
    }
  }
  EXPECT_GE(names.size(), 40u) << join(names, ", ");  // the test looks at something
}

}  // namespace
}  // namespace epl
