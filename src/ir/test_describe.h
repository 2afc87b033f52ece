// For tests: all that a Graph holds, as its text form should.
#pragma once

#include <string>

#include "base/text.h"
#include "ir/graph.h"
#include "layout/constant_text.h"

namespace epl {

// What the text form holds, read from the structure: catches whatever print_graph leaves out.
inline std::string describe(const c10::IValue& constant) {
  if (constant.isGenerator()) return "generator";
  std::string kind = constant.tagKind();
  if (constant.isList()) kind += " of " + constant.toList().elementType()->str();
  return kind + " " + print_constant(constant);
}

inline std::string describe(const Argument& argument) {
  return concat(static_cast<int>(argument.kind), " ", join(argument.values, ","), " ",
                describe(argument.constant));
}

inline std::string describe(const Graph& graph) {
  std::ostringstream out;
  const auto value = [&](ValueId id) {
    if (id == kNoValue) return std::string("_");
    const TensorType& type = graph.value(id).type;
    return concat(id, " ", type.dtype, " ", type.layout, " ", join(type.sizes, ","), " ",
                  join(type.strides, ","), " ", type.offset, " in ", graph.value(id).storage);
  };
  for (const auto& strategy : graph.taskgraphs) out << strategy.str() << "\n";
  for (const auto& leaf : graph.leaves) {
    out << static_cast<int>(leaf.kind) << " " << leaf.index << leaf.name << value(leaf.value)
        << " piece " << leaf.shard.dim << " " << leaf.shard.piece.begin << " "
        << leaf.shard.piece.length << " " << leaf.shard.whole;
    const bool number =
        leaf.kind == Leaf::Kind::kConstant && leaf.tensor.defined() && leaf.tensor.numel() == 1;
    if (number)
      out << describe(leaf.tensor.item()) << leaf.tensor.unsafeGetTensorImpl()->is_wrapped_number();
    out << "\n";
  }
  for (const auto& node : graph.nodes) {
    out << op_name(node) << static_cast<int>(node.phase) << node.taskgraph << " chunk "
        << node.chunk;
    for (const auto& argument : node.arguments) out << "; " << describe(argument);
    for (const auto& result : node.results) {
      out << " -> " << result.is_list;
      for (ValueId id : result.values) out << " " << value(id);
    }
    if (node.expects) out << " expects " << describe(*node.expects);
    out << "\n";
  }
  out << value(graph.loss);
  for (const auto& m : graph.metrics) out << m.collection << " " << m.name << value(m.value);
  for (const auto& g : graph.gradients) out << "gradient " << g.parameter << value(g.value);
  return out.str();
}

}  // namespace epl
