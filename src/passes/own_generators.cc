#include "passes/own_generators.h"

#include "base/check.h"
#include "ops/facts.h"
#include "ops/rule.h"

namespace epl {
namespace {

c10::OperatorHandle find(const std::string& name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload);
}

bool has_generator(const Node& node) {
  for (const auto& argument : node.op.schema().arguments()) {
    if (argument.name() == "generator") return true;
  }
  return false;
}

Argument constant(c10::IValue value) {
  Argument argument;
  argument.constant = std::move(value);
  return argument;
}

void take_overload(const Draws& draws, Node& node) {
  node.op = find(node.op.schema().name(), draws.name);
  node.arguments.insert(node.arguments.begin() + static_cast<std::ptrdiff_t>(draws.position),
                        Argument{});
}

// Appends the two nodes that stand for this one.
void take_filling(const Draws& draws, Graph& graph, const Node& node, std::vector<Node>& nodes) {
  const ValueId result = node.results[0].values[0];
  const auto options = node.arguments.begin() + 1 + static_cast<std::ptrdiff_t>(draws.numbers);
  Node empty = node;
  empty.op = find("aten::empty_like", "");
  empty.arguments = {node.arguments[0]};
  empty.arguments.insert(empty.arguments.end(), options, node.arguments.end());
  TensorType type = graph.value(result).type;
  empty.results[0].values = {graph.add_value(type)};
  Node fill = node;
  fill.op = find(draws.fill, draws.name);
  Argument self;
  self.kind = Argument::Kind::kValue;
  self.values = empty.results[0].values;
  fill.arguments = {self};
  if (draws.numbers == 0) {
    fill.arguments.push_back(constant(draws.begin));
    fill.arguments.push_back(constant(draws.end));
  } else {
    if (draws.numbers == 1) fill.arguments.push_back(constant(int64_t{0}));
    fill.arguments.insert(fill.arguments.end(), node.arguments.begin() + 1, options);
  }
  fill.arguments.emplace_back();
  nodes.push_back(std::move(empty));
  nodes.push_back(std::move(fill));
}

}  // namespace

bool OwnGenerators::run(Graph& graph) {
  bool changed = false;
  std::vector<Node> nodes;
  for (auto& node : graph.nodes) {
    if (!is_random(node.op) || has_generator(node)) {
      nodes.push_back(std::move(node));
      continue;
    }
    changed = true;
    const OperatorRow* row = find_row(node.op);
    const Draws draws = row == nullptr ? Draws{} : row->facts.drawn;
    if (draws.kind == Draws::Kind::kFilling) {
      take_filling(draws, graph, node, nodes);
      continue;
    }
    EPL_CHECK(draws.kind == Draws::Kind::kOverload,
              concat(op_name(node),
                     " draws from the generator of the process, which devices cannot share"),
              "epl::Trainer", "an operator that takes a generator, or random numbers in the batch");
    take_overload(draws, node);
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
  return changed;
}

}  // namespace epl
