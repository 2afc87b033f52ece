#include "passes/dense_gradients.h"

#include "ir/makers.h"

namespace epl {
namespace {

Node to_dense_of(Graph& graph, ValueId source) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::to_dense", "");
  Node node{op, {}, {}, Phase::kBackward, -1, {}};
  Argument from;
  from.kind = Argument::Kind::kValue;
  from.values = {source};
  node.arguments = {from};
  node.arguments.resize(op.schema().arguments().size());  // LibTorch 2 has a third one
  TensorType type = graph.value(source).type;
  type.layout = c10::kStrided;
  type.strides = contiguous_strides(type.sizes);
  type.offset = 0;
  Result result;
  result.values = {graph.add_value(type)};
  node.results = {result};
  return node;
}

}  // namespace

bool DenseGradients::run(Graph& graph) {
  bool changed = false;
  for (auto& gradient : graph.gradients) {
    if (graph.value(gradient.value).type.layout == c10::kStrided) continue;
    const size_t maker = Makers(graph).index_of(gradient.value).value_or(graph.nodes.size() - 1);
    Node dense = to_dense_of(graph, gradient.value);
    dense.taskgraph = graph.nodes[maker].taskgraph;
    dense.chunk = graph.nodes[maker].chunk;
    dense.origin = graph.nodes[maker].origin.beside();
    gradient.value = dense.results[0].values[0];
    graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(maker) + 1,
                       std::move(dense));
    changed = true;
  }
  return changed;
}

}  // namespace epl
