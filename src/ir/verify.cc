#include "ir/verify.h"

#include <set>

#include "base/check.h"
#include "ir/text.h"

namespace epl {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, const std::string& after) : graph_(graph), after_(after) {}

  void run() {
    for (const auto& leaf : graph_.leaves) define(leaf.value, "leaf " + leaf.name);
    for (const auto& node : graph_.nodes) verify_node(node);
    for_each_returned(graph_, [&](ValueId id) { read(id, "return"); });
    verify_returned();
  }

 private:
  void check(bool holds, const std::string& what, const std::string& where) const {
    if (!holds) {
      throw InternalError(concat("epl internal error: after ", after_, ": ", what, " in ", where));
    }
  }

  void define(ValueId id, const std::string& where) {
    check(id >= 0 && id < graph_.value_count(), concat("%", id, " has no type"), where);
    check(defined_.insert(id).second, concat("%", id, " is defined twice"), where);
    const ValueId root = graph_.value(id).storage;
    check(root >= 0 && root < graph_.value_count() && graph_.value(root).storage == root,
          concat("%", id, " lies in a storage that has no root"), where);
  }

  void read(ValueId id, const std::string& where) const {
    check(defined_.count(id) != 0, concat("%", id, " is read before it is defined"), where);
  }

  void verify_node(const Node& node) {
    const std::string where = print_node(graph_, node);
    const auto& schema = node.op.schema();
    check(node.arguments.size() == schema.arguments().size(), "wrong number of arguments", where);
    check(node.results.size() == schema.returns().size(), "wrong number of results", where);
    for (const auto& argument : node.arguments) {
      check(argument.kind != Argument::Kind::kValue || argument.values.size() == 1,
            "an argument that is not one value", where);
    }
    check(node.taskgraph >= -1 && node.taskgraph < static_cast<int>(graph_.taskgraphs.size()),
          concat("unknown TaskGraph ", node.taskgraph), where);
    for_each_input(node, [&](ValueId id) { read(id, where); });
    for_each_output(node, [&](ValueId id) {
      define(id, where);
      const ValueId root = graph_.value(id).storage;
      check(root == id || defined_.count(root) != 0,
            concat("%", id, " shares a storage that is not there"), where);
    });
  }

  void verify_returned() const {
    check(graph_.value(graph_.loss).type.numel() == 1, "a loss of more than one element", "return");
    std::set<std::pair<int, ValueId>> gradients;
    for (const auto& gradient : graph_.gradients) {
      const Leaf& leaf = graph_.leaves.at(static_cast<size_t>(gradient.parameter));
      check(leaf.kind == Leaf::Kind::kParameter, "a gradient of what is no parameter", "return");
      check(gradients.insert({gradient.parameter, gradient.value}).second,
            "the same gradient of " + leaf.name + " twice", "return");
      check(graph_.value(leaf.value).type.sizes == graph_.value(gradient.value).type.sizes,
            "a gradient of another shape than " + leaf.name, "return");
    }
  }

  const Graph& graph_;
  const std::string& after_;
  std::set<ValueId> defined_;
};

}  // namespace

void verify_graph(const Graph& graph, const std::string& after) { Verifier(graph, after).run(); }

}  // namespace epl
