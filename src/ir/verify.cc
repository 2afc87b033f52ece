#include "ir/verify.h"

#include <set>

#include "base/check.h"
#include "ir/text.h"

namespace epl {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, const std::string& after)
      : graph_(graph), after_(after), defined_(static_cast<size_t>(graph.value_count()), false) {}

  void run() {
    for (const auto& leaf : graph_.leaves) {
      leaf_ = &leaf;
      define(leaf.value);
    }
    leaf_ = nullptr;
    for (const auto& node : graph_.nodes) verify_node(node);
    for_each_returned(graph_, [&](ValueId id) { read(id); });
    verify_returned();
  }

 private:
  // `say` is asked only where something is wrong: the text of every node in every pass would take
  // half of the time in which a step is compiled.
  template <typename Say>
  void check(bool holds, const Say& say) const {
    if (holds) return;
    throw InternalError(concat("epl internal error: after ", after_, ": ", say(), " in ", where()));
  }

  std::string where() const {
    if (node_ != nullptr) return print_node(graph_, *node_);
    return leaf_ != nullptr ? "leaf " + leaf_->name : "return";
  }

  bool is_defined(ValueId id) const {
    return id >= 0 && id < graph_.value_count() && defined_[static_cast<size_t>(id)];
  }

  void define(ValueId id) {
    check(id >= 0 && id < graph_.value_count(), [&] { return concat("%", id, " has no type"); });
    check(!is_defined(id), [&] { return concat("%", id, " is defined twice"); });
    defined_[static_cast<size_t>(id)] = true;
    const ValueId root = graph_.value(id).storage;
    check(root >= 0 && root < graph_.value_count() && graph_.value(root).storage == root,
          [&] { return concat("%", id, " lies in a storage that has no root"); });
  }

  void read(ValueId id) const {
    check(is_defined(id), [&] { return concat("%", id, " is read before it is defined"); });
  }

  void verify_node(const Node& node) {
    node_ = &node;
    const auto& schema = node.op.schema();
    check(node.arguments.size() == schema.arguments().size(),
          [] { return "wrong number of arguments"; });
    check(node.results.size() == schema.returns().size(), [] { return "wrong number of results"; });
    for (const auto& argument : node.arguments) {
      check(argument.kind != Argument::Kind::kValue || argument.values.size() == 1,
            [] { return "an argument that is not one value"; });
    }
    check(node.taskgraph >= -1 && node.taskgraph < static_cast<int>(graph_.taskgraphs.size()),
          [&] { return concat("unknown TaskGraph ", node.taskgraph); });
    for_each_input(node, [&](ValueId id) { read(id); });
    for_each_output(node, [&](ValueId id) {
      define(id);
      check(is_defined(graph_.value(id).storage),
            [&] { return concat("%", id, " shares a storage that is not there"); });
    });
    node_ = nullptr;
  }

  void verify_returned() const {
    check(graph_.value(graph_.loss).type.numel() == 1,
          [] { return "a loss of more than one element"; });
    std::set<std::pair<int, ValueId>> gradients;
    for (const auto& gradient : graph_.gradients) {
      const Leaf& leaf = graph_.leaves.at(static_cast<size_t>(gradient.parameter));
      check(leaf.kind == Leaf::Kind::kParameter,
            [] { return "a gradient of what is no parameter"; });
      check(gradients.insert({gradient.parameter, gradient.value}).second,
            [&] { return concat("the same gradient of ", leaf.name, " twice"); });
      check(graph_.value(leaf.value).type.sizes == graph_.value(gradient.value).type.sizes,
            [&] { return concat("a gradient of another shape than ", leaf.name); });
    }
  }

  const Graph& graph_;
  const std::string& after_;
  std::vector<bool> defined_;   // by ValueId
  const Leaf* leaf_ = nullptr;  // that is looked at; null: none
  const Node* node_ = nullptr;  // likewise
};

}  // namespace

void verify_graph(const Graph& graph, const std::string& after) { Verifier(graph, after).run(); }

}  // namespace epl
