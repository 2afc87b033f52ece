#include "passes/own_gradients.h"

#include <set>

#include "base/check.h"
#include "ir/makers.h"

namespace epl {
namespace {

Node clone_of(Graph& graph, ValueId source) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
  Node node{op, {}, {}, Phase::kBackward, -1, {}};
  Argument from;
  from.kind = Argument::Kind::kValue;
  from.values = {source};
  Argument format;
  format.constant = static_cast<int64_t>(c10::MemoryFormat::Contiguous);
  node.arguments = {from, format};
  TensorType type = graph.value(source).type;
  type.strides = contiguous_strides(type.sizes);
  type.offset = 0;
  Result result;
  result.values = {graph.add_value(type)};
  node.results = {result};
  return node;
}

}  // namespace

bool OwnGradients::run(Graph& graph) {
  std::set<ValueId> taken;
  for (const auto& leaf : graph.leaves) taken.insert(graph.value(leaf.value).storage);
  taken.insert(graph.value(graph.loss).storage);
  for (const auto& metric : graph.metrics) taken.insert(graph.value(metric.value).storage);

  const Makers makers(graph);
  bool changed = false;
  for (auto& gradient : graph.gradients) {
    const TensorType& type = graph.value(gradient.value).type;
    const bool alone = taken.insert(graph.value(gradient.value).storage).second;
    if (type.layout != c10::kStrided || (alone && type.dense())) continue;
    Node clone = clone_of(graph, gradient.value);
    if (const Node* maker = makers.owner_of_gradient(gradient.value)) {
      clone.taskgraph = maker->taskgraph;
      clone.origin = maker->origin.beside();
    }
    gradient.value = clone.results[0].values[0];
    taken.insert(gradient.value);
    graph.nodes.push_back(std::move(clone));
    changed = true;
  }
  return changed;
}

}  // namespace epl
