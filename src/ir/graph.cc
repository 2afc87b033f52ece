#include "ir/graph.h"

#include <cmath>

#include "base/check.h"

namespace epl {

ValueId Graph::add_value(TensorType type, ValueId storage) {
  const ValueId id = value_count();
  EPL_ASSERT(storage == kNoValue || values_.at(static_cast<size_t>(storage)).storage == storage,
             "a storage is named by its root");
  values_.push_back(Value{std::move(type), storage == kNoValue ? id : storage});
  return id;
}

void Graph::define_value(ValueId id, TensorType type, ValueId storage) {
  if (id >= value_count()) values_.resize(static_cast<size_t>(id) + 1);
  value(id) = Value{std::move(type), storage == kNoValue ? id : storage};
}

int64_t bytes_of(const Graph& graph, const Node& node) {
  int64_t bytes = 0;
  const auto add = [&](ValueId id) {
    const TensorType& type = graph.value(id).type;
    bytes += type.numel() * type.item_bytes();
  };
  for_each_input(node, add);
  for_each_output(node, add);
  return bytes;
}

int64_t workspace_of(const Graph& graph, const Node& node) {
  return std::llround(node.origin.workspace * static_cast<double>(bytes_of(graph, node)));
}

std::string op_name(const Node& node) { return c10::toString(node.op.operator_name()); }

}  // namespace epl
