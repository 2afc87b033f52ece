// For tests: a step captured as the trainer does it, and short answers about the Graph.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "capture/capture.h"
#include "config/libtorch.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace epl {

// How autograd adds a gradient to one that nobody else holds: LibTorch 2 does it in place.
inline const std::string kAddGradient = EPL_TORCH_AT_LEAST(2, 0) ? "add_.Tensor" : "add.Tensor";

// All parameters are trained, as by one optimizer over net.parameters().
inline Capture capture_with(const torch::nn::Module& net, const StepFunction& step,
                            const Batch& batch, bool may_keep_tensors = false) {
  NamedTensors parameters;
  NamedTensors state;
  for (const auto& item : net.named_parameters()) parameters.emplace_back(item.key(), item.value());
  for (const auto& item : net.named_buffers()) state.emplace_back(item.key(), item.value());
  Capture capture = capture_step({step, batch, parameters, state, may_keep_tensors});
  verify_graph(capture.graph, "capture");
  return capture;
}

inline Graph graph_of(const torch::nn::Module& net, const StepFunction& step, const Batch& batch) {
  return capture_with(net, step, batch).graph;
}

inline std::vector<Leaf> leaves_of(const Graph& graph, Leaf::Kind kind) {
  std::vector<Leaf> leaves;
  for (const Leaf& leaf : graph.leaves) {
    if (leaf.kind == kind) leaves.push_back(leaf);
  }
  return leaves;
}

// The types of the constants in the order of their first use, "i64[2] f32[]"; a C++ number that an
// operator takes as a tensor is a "number".
inline std::string constants_of(const Graph& graph) {
  std::vector<std::string> types;
  for (const Leaf& leaf : leaves_of(graph, Leaf::Kind::kConstant)) {
    const bool number = leaf.tensor.unsafeGetTensorImpl()->is_wrapped_number();
    types.push_back(number ? "number" : print_type(graph.value(leaf.value).type));
  }
  return join(types, " ");
}

// The operators of one phase, a word each: "mm:0" for one of TaskGraph 0, "mm" for one of none.
inline std::string ops_of(const Graph& graph, Phase phase) {
  std::vector<std::string> words;
  for (const Node& node : graph.nodes) {
    if (node.phase != phase) continue;
    const std::string name = op_name(node).substr(std::string("aten::").size());
    words.push_back(node.taskgraph < 0 ? name : concat(name, ":", node.taskgraph));
  }
  return join(words, " ");
}

inline int count_ops(const Graph& graph, const std::string& name) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const Node& node) { return op_name(node) == name; }));
}

}  // namespace epl
