#include "passes/own_generators.h"

#include "base/check.h"
#include "ops/facts.h"

namespace epl {
namespace {

// The overload with a generator, and where the argument stands there.
struct Overload {
  const char* op;
  const char* name;
  size_t position;
};

const Overload kOverloads[] = {
    {"aten::rand", "generator", 1},     {"aten::randn", "generator", 1},
    {"aten::randint", "generator", 2},  {"aten::randint.low", "low_generator", 3},
    {"aten::randperm", "generator", 1},
};

// op(self, numbers ..., options of empty_like) is fill(empty_like(self, options), begin, numbers
// ... or end).
struct Filling {
  const char* op;
  size_t numbers;  // arguments between `self` and the options
  const char* fill;
  const char* overload;
  double begin;
  double end;
};

const Filling kFillings[] = {
    {"aten::rand_like", 0, "aten::uniform", "", 0, 1},
    {"aten::randn_like", 0, "aten::normal_functional", "", 0, 1},
    {"aten::randint_like", 1, "aten::random", "from", 0, 0},
    {"aten::randint_like.low_dtype", 2, "aten::random", "from", 0, 0},
};

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

bool take_overload(Node& node) {
  for (const Overload& overload : kOverloads) {
    if (op_name(node) != overload.op) continue;
    node.op = find(node.op.schema().name(), overload.name);
    node.arguments.insert(node.arguments.begin() + static_cast<std::ptrdiff_t>(overload.position),
                          Argument{});
    return true;
  }
  return false;
}

// Appends the two nodes that stand for this one.
bool take_filling(Graph& graph, const Node& node, std::vector<Node>& nodes) {
  for (const Filling& filling : kFillings) {
    if (op_name(node) != filling.op) continue;
    const ValueId result = node.results[0].values[0];
    const auto options = node.arguments.begin() + 1 + static_cast<std::ptrdiff_t>(filling.numbers);
    Node empty = node;
    empty.op = find("aten::empty_like", "");
    empty.arguments = {node.arguments[0]};
    empty.arguments.insert(empty.arguments.end(), options, node.arguments.end());
    TensorType type = graph.value(result).type;
    empty.results[0].values = {graph.add_value(type)};
    Node fill = node;
    fill.op = find(filling.fill, filling.overload);
    Argument self;
    self.kind = Argument::Kind::kValue;
    self.values = empty.results[0].values;
    fill.arguments = {self};
    if (filling.numbers == 0) {
      fill.arguments.push_back(constant(filling.begin));
      fill.arguments.push_back(constant(filling.end));
    } else {
      if (filling.numbers == 1) fill.arguments.push_back(constant(int64_t{0}));
      fill.arguments.insert(fill.arguments.end(), node.arguments.begin() + 1, options);
    }
    fill.arguments.emplace_back();
    nodes.push_back(std::move(empty));
    nodes.push_back(std::move(fill));
    return true;
  }
  return false;
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
    if (take_filling(graph, node, nodes)) continue;
    EPL_CHECK(take_overload(node),
              concat(op_name(node),
                     " draws from the generator of the process, which devices cannot share"),
              "epl::Trainer", "an operator that takes a generator, or random numbers in the batch");
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
  return changed;
}

}  // namespace epl
