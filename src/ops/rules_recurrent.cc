// Recurrent layers of oneDNN, which LibTorch 2 calls for an LSTM on CPUs: input [time, rows,
// features], states that end with [rows, features], cut over rows.
//
// For its backward the operator leaves a workspace: bytes of the kernel's own making, whose number
// grows with the rows in the kernel's own way. It counts as whole however rows are cut, since it is
// never brought elsewhere: a backward operator that runs on other rows than its forward did, on the
// same device, makes a workspace of its own.
#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>

#include <map>

#include "base/mutex.h"
#include "base/text.h"
#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

constexpr size_t kWorkspace = 3;       // among the results of the layer
constexpr size_t kReadWorkspace = 22;  // among the arguments of its backward

std::string rows_word(const Graph& graph, ValueId id) {
  return std::string(sizes_of(graph, id).size() - 2, '1') + "n1";
}

std::string whole_word(const Graph& graph, ValueId id) {
  return std::string(sizes_of(graph, id).size(), '1');
}

// Sequences that are packed end at different times, and rows may come first.
bool has_rows_apart(const Node& node) {
  const bool packed = !ints_at(node, *argument_named(node, "batch_sizes")).empty();
  return !packed && !node.arguments[*argument_named(node, "batch_first")].constant.toBool();
}

void add_layer_inputs(const Graph& graph, const Node& node, Pattern& pattern) {
  for (size_t i = 0; i <= 6; ++i) {
    const ValueId id = tensor_at(node, i);
    const bool weight = i >= 1 && i <= 4;
    pattern.inputs.push_back(weight ? whole_word(graph, id) : rows_word(graph, id));
  }
}

// mkldnn_rnn_layer(input, weight0, weight1, weight2, weight3, hx_, cx_, reverse, batch_sizes, mode,
// hidden_size, num_layers, has_biases, bidirectional, batch_first, train) -> (output, state, cell,
// workspace)
std::optional<Pattern> recurrent(const Graph& graph, const Node& node) {
  if (!has_rows_apart(node)) return std::nullopt;
  Pattern pattern;
  add_layer_inputs(graph, node, pattern);
  for (size_t i = 0; i < kWorkspace; ++i) {
    pattern.outputs.push_back(rows_word(graph, node.results[i].values.at(0)));
  }
  pattern.outputs.emplace_back("1");
  pattern.same = {"", "", "", "n"};
  pattern.expanded = "n";
  return pattern;
}

// mkldnn_rnn_layer_backward(the seven tensors, output, hy_, cy_, grad_output?, grad_hy?, grad_cy?,
// reverse, mode, hidden_size, num_layers, has_biases, train, bidirectional, batch_sizes,
// batch_first, workspace) -> the gradients of the seven
std::optional<Pattern> recurrent_backward(const Graph& graph, const Node& node) {
  if (!has_rows_apart(node)) return std::nullopt;
  Pattern pattern;
  add_layer_inputs(graph, node, pattern);
  for (size_t i = 0; i <= 6; ++i) {
    if (node.results[i].values.at(0) != kNoValue) pattern.outputs.push_back(pattern.inputs[i]);
  }
  for (size_t i = 7; i <= 12; ++i) {
    if (has_tensor(node, i)) pattern.inputs.push_back(rows_word(graph, tensor_at(node, i)));
  }
  pattern.inputs.emplace_back("1");
  pattern.expanded = {'n', kNothingCut};
  return pattern;
}

// The kernels look at no strides.
Node dense_copy(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  for_each_input(local, [&](ValueId& id) { id = to.dense(id); });
  return local;
}

// --- the workspace -----------------------------------------------------------------------------

int64_t ask_for_workspace(const Graph& graph, const Node& layer) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::AutoGradMode as_when_it_runs(true);  // the kernel asks whether it will go backward
  std::vector<c10::IValue> stack;
  for (const Argument& argument : layer.arguments) {
    if (argument.kind == Argument::Kind::kConstant) {
      stack.push_back(argument.constant);
      continue;
    }
    const TensorType& type = graph.value(argument.values.at(0)).type;
    stack.emplace_back(at::zeros(type.sizes, at::TensorOptions().dtype(type.dtype)));
  }
  layer.op.callBoxed(&stack);
  return stack.at(kWorkspace).toTensor().numel();
}

// How many bytes the kernel makes is known by running it alone: once for all layers of these sizes.
int64_t workspace_bytes(const Graph& graph, const Node& layer) {
  static Mutex mutex;
  static auto* const answers EPL_POINTS_AT_GUARDED_BY(mutex) = new std::map<std::string, int64_t>();
  std::string key;
  for (const Argument& argument : layer.arguments) {
    const bool constant = argument.kind == Argument::Kind::kConstant;
    key += constant ? concat(argument.constant, " ")
                    : concat(print_type(graph.value(argument.values.at(0)).type), " ");
  }
  const MutexLock lock(mutex);
  const auto known = answers->find(key);
  if (known != answers->end()) return known->second;
  return answers->emplace(key, ask_for_workspace(graph, layer)).first->second;
}

std::vector<ValueId> split_recurrent(const LocalNode& at, Emitter& to) {
  Node local = dense_copy(at, to);
  std::vector<Sizes> sizes;
  for (size_t i = 0; i < kWorkspace; ++i) sizes.push_back(at.output_sizes(i));
  sizes.push_back({workspace_bytes(to.graph(), local)});
  return to.add(std::move(local), sizes, at.graph, at.node);
}

// Whether the workspace comes from a layer of this device that had as many rows: the same ones.
bool is_of_these_rows(const Graph& graph, const Node& backward) {
  for (const Node& node : graph.nodes) {
    const bool makes = op_name(node) == "aten::mkldnn_rnn_layer" &&
                       node.results[kWorkspace].values.at(0) == tensor_at(backward, kReadWorkspace);
    if (makes) return input_sizes(graph, node, 0) == input_sizes(graph, backward, 0);
  }
  return false;
}

// Runs the layer again, on what its backward reads.
ValueId make_workspace(Emitter& to, const Node& backward) {
  Node layer = backward;
  layer.origin = backward.origin.beside();
  layer.op = find_op("aten::mkldnn_rnn_layer");
  layer.arguments.clear();
  for (const auto& argument : layer.op.schema().arguments()) {
    const size_t place = layer.arguments.size();
    const bool tensor = place <= 6;  // these have other names there
    layer.arguments.push_back(
        backward.arguments[tensor ? place : *argument_named(backward, argument.name())]);
  }
  Graph& graph = to.graph();
  const int64_t bytes = workspace_bytes(graph, layer);
  layer.results.clear();
  const auto make = [&](c10::ScalarType dtype, const Sizes& sizes) {
    TensorType type;
    type.dtype = dtype;
    type.sizes = sizes;
    type.strides = contiguous_strides(sizes);
    Result result;
    result.values = {graph.add_value(type)};
    layer.results.push_back(result);
  };
  for (size_t i = 7; i <= 9; ++i) {
    const TensorType like = graph.value(tensor_at(backward, i)).type;
    make(like.dtype, like.sizes);
  }
  make(c10::ScalarType::Byte, {bytes});
  const ValueId workspace = layer.results.back().values[0];
  graph.nodes.push_back(std::move(layer));
  return workspace;
}

std::vector<ValueId> split_recurrent_backward(const LocalNode& at, Emitter& to) {
  Node local = dense_copy(at, to);
  if (!is_of_these_rows(to.graph(), local)) {
    local.arguments[kReadWorkspace] = value_argument(make_workspace(to, local));
  }
  std::vector<Sizes> sizes;
  for (size_t i = 0; i < at.cut.outputs.size(); ++i) sizes.push_back(at.output_sizes(i));
  return to.add(std::move(local), sizes, at.graph, at.node);
}

}  // namespace

Rules recurrent_rules() {
  constexpr Linear kNo = Linear::kNo;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand, wants
      {"aten::mkldnn_rnn_layer", in_lower().recurs(1), "", "", kNo, recurrent, nullptr,
       split_recurrent, Wants::kDense},
      // Two products: of the input and of the weights.
      {"aten::mkldnn_rnn_layer_backward", in_lower().recurs(2), "", "", kNo, recurrent_backward,
       nullptr, split_recurrent_backward, Wants::kDense},
  };
  return rows;
}

}  // namespace epl
