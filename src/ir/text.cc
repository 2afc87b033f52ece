#include "ir/text.h"

#include <ATen/Functions.h>

#include "base/check.h"
#include "layout/constant_text.h"
#include "layout/shard.h"

namespace epl {
namespace {

std::string print_value(ValueId id) { return id == kNoValue ? "_" : concat("%", id); }

std::string print_values(const std::vector<ValueId>& ids) {
  std::vector<std::string> names;
  for (ValueId id : ids) names.push_back(print_value(id));
  return "[" + join(names, ", ") + "]";
}

std::string print_definition(const Graph& graph, ValueId id) {
  if (id == kNoValue) return "_";
  const Value& value = graph.value(id);
  std::string text = concat("%", id, ": ", print_type(value.type));
  if (value.storage != id) text += concat(" @%", value.storage);
  return text;
}

std::string print_results(const Graph& graph, const std::vector<Result>& results) {
  std::vector<std::string> parts;
  for (const auto& result : results) {
    std::vector<std::string> names;
    for (ValueId id : result.values) names.push_back(print_definition(graph, id));
    const std::string list = join(names, ", ");
    parts.push_back(result.is_list ? "[" + list + "]" : result.values.empty() ? "()" : list);
  }
  return parts.empty() ? "()" : join(parts, ", ");
}

std::string print_argument(const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::kValue:
      return print_value(argument.values[0]);
    case Argument::Kind::kList:
      return print_values(argument.values);
    case Argument::Kind::kConstant:
      break;
  }
  return print_constant(argument.constant);
}

// What a constant of one element holds.
std::string print_content(const at::Tensor& tensor) {
  const bool is_number =
      tensor.defined() && tensor.numel() == 1 && tensor.layout() == c10::kStrided;
  if (!is_number) return "";
  const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  return concat(" ", print_constant(c10::IValue(tensor.item())), wrapped ? " number" : "");
}

std::string print_kind(const Leaf& leaf) {
  switch (leaf.kind) {
    case Leaf::Kind::kInput:
      return concat("input ", leaf.index);
    case Leaf::Kind::kSeed:
      return "seed";
    case Leaf::Kind::kParameter:
      return "parameter " + quoted(leaf.name);
    case Leaf::Kind::kState:
      return "state " + quoted(leaf.name);
    case Leaf::Kind::kConstant:
      break;
  }
  return "constant " + quoted(leaf.name) + print_content(leaf.tensor);
}

std::string print_leaf(const Leaf& leaf) {
  const bool is_input = leaf.kind == Leaf::Kind::kInput;
  const bool has_name = !is_input && leaf.kind != Leaf::Kind::kSeed;
  std::string text = print_kind(leaf) + print_shard(leaf.shard);
  if (!is_input && leaf.index != 0) text += concat(" index ", leaf.index);
  if (!has_name && !leaf.name.empty()) text += " named " + quoted(leaf.name);
  return text;
}

std::string print_gradient(const Graph& graph, const Gradient& gradient) {
  const std::string& name = graph.leaves.at(static_cast<size_t>(gradient.parameter)).name;
  const bool by_name = parameter_named(graph, name) == gradient.parameter;
  return concat("gradient ", by_name ? quoted(name) : concat("leaf ", gradient.parameter), " ",
                print_value(gradient.value));
}

}  // namespace

int parameter_named(const Graph& graph, const std::string& name) {
  for (size_t i = 0; i < graph.leaves.size(); ++i) {
    const Leaf& leaf = graph.leaves[i];
    if (leaf.kind == Leaf::Kind::kParameter && leaf.name == name) return static_cast<int>(i);
  }
  return -1;
}

std::string print_node(const Graph& graph, const Node& node) {
  std::vector<std::string> arguments;
  for (const auto& argument : node.arguments) arguments.push_back(print_argument(argument));
  std::string text = print_results(graph, node.results) + " = " + op_name(node) + "(" +
                     join(arguments, ", ") + ")";
  text += node.phase == Phase::kForward ? " {forward" : " {backward";
  if (node.taskgraph >= 0) text += concat(" ", node.taskgraph);
  if (node.chunk != 0) text += concat(" chunk ", node.chunk);
  text += "}";
  if (node.expects) text += " expects " + print_constant(*node.expects);
  return text;
}

std::string print_graph(const Graph& graph) {
  std::ostringstream out;
  out << "graph\n";
  for (size_t i = 0; i < graph.taskgraphs.size(); ++i) {
    const Strategy& strategy = graph.taskgraphs[i];
    out << "  taskgraph " << i
        << (strategy.kind == Strategy::Kind::kReplicate ? " replicate(" : " split(")
        << strategy.device_count << ", " << quoted(strategy.name) << ")\n";
  }
  for (const auto& leaf : graph.leaves) {
    out << "  " << print_definition(graph, leaf.value) << " = " << print_leaf(leaf) << "\n";
  }
  for (const auto& node : graph.nodes) out << "  " << print_node(graph, node) << "\n";
  std::vector<std::string> returned{"loss " + print_value(graph.loss)};
  for (const auto& metric : graph.metrics) {
    returned.push_back(concat("metric ", word_or_quoted(metric.collection), " ",
                              quoted(metric.name), " ", print_value(metric.value)));
  }
  for (const auto& gradient : graph.gradients) returned.push_back(print_gradient(graph, gradient));
  out << "  return " << join(returned, ", ") << "\n";
  return out.str();
}

}  // namespace epl
