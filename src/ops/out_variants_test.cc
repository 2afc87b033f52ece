// Every operator that the test models call and that has an out= kernel: both give the same bits.
#include <gtest/gtest.h>

#include "base/text.h"
#include "ops/facts.h"
#include "tests/models/steps.h"

namespace epl {
namespace {

// Runs a captured graph as it stands, node by node.
class Replay {
 public:
  Replay(const Graph& graph, const Batch& batch) {
    for (const auto& leaf : graph.leaves) {
      at::Tensor& tensor = tensors_[leaf.value];
      tensor = leaf.tensor;
      if (leaf.kind == Leaf::Kind::kInput) tensor = batch[static_cast<size_t>(leaf.index)].clone();
      if (leaf.kind == Leaf::Kind::kSeed) tensor = at::ones(graph.value(leaf.value).type.sizes);
    }
  }

  torch::jit::Stack arguments(const Node& node) const {
    torch::jit::Stack stack;
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      const Argument& argument = node.arguments[i];
      if (argument.kind == Argument::Kind::kConstant) {
        stack.push_back(argument.constant);
      } else if (argument.kind == Argument::Kind::kValue) {
        stack.emplace_back(tensor(argument.values[0]));
      } else if (node.op.schema().arguments()[i].type()->str() == "Tensor?[]") {
        c10::List<c10::optional<at::Tensor>> list;
        for (ValueId id : argument.values) list.push_back(tensor(id));
        stack.emplace_back(std::move(list));
      } else {
        c10::List<at::Tensor> list;
        for (ValueId id : argument.values) list.push_back(tensor(id));
        stack.emplace_back(std::move(list));
      }
    }
    return stack;
  }

  void run(const Node& node) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // as the executor calls them
    const at::AutoGradMode as_recorded(true);
    torch::jit::Stack stack = arguments(node);
    node.op.callBoxed(&stack);
    for (size_t i = 0; i < node.results.size(); ++i) {
      const Result& result = node.results[i];
      for (size_t j = 0; j < result.values.size(); ++j) {
        tensors_[result.values[j]] =
            result.is_list ? stack[i].toTensorVector()[j] : stack[i].toTensor();
      }
    }
  }

 private:
  at::Tensor tensor(ValueId id) const { return id == kNoValue ? at::Tensor() : tensors_.at(id); }

  std::map<ValueId, at::Tensor> tensors_;
};

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
std::string compare(const Node& node, const c10::OperatorHandle& out,
                    const torch::jit::Stack& arguments) {
  torch::jit::Stack made = arguments;
  at::manual_seed(3);
  node.op.callBoxed(&made);
  // LibTorch's boxed calls hand out references to what the stack alone may own: keep them
  // ourselves.
  std::vector<at::Tensor> places;
  torch::jit::Stack written = arguments;
  for (const auto& result : made) {
    places.push_back(at::full_like(result.toTensor(), 77));
    written.emplace_back(places.back());
  }
  at::manual_seed(3);
  out.callBoxed(&written);
  for (size_t i = 0; i < made.size(); ++i) {
    if (!same_bits(made[i].toTensor(), places[i])) return concat("result ", i, " differs");
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
    Replay replay(graph, step.batch);
    for (const auto& node : graph.nodes) {
      const auto out = out_variant(node.op, c10::DispatchKey::CPU);
      if (out && is_dense(graph, node) && seen.insert(key_of(graph, node)).second) {
        names.insert(op_name(node));
        EXPECT_EQ(compare(node, *out, replay.arguments(node)), "")
            << step.name << ": " << key_of(graph, node);
      }
      replay.run(node);
    }
  }
  EXPECT_GE(names.size(), 40u) << join(names, ", ");  // the test looks at something
}

}  // namespace
}  // namespace epl
