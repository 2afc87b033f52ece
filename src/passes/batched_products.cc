#include "passes/batched_products.h"

#include <map>

#include "ops/emit.h"
#include "ops/facts.h"

namespace epl {
namespace {

using Sizes = std::vector<int64_t>;

class Rewriting {
 public:
  explicit Rewriting(Graph& graph) : graph_(graph), emitter_(graph) {}

  bool run() {
    std::vector<Node> before = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : before) {
      for_each_input(node, [&](ValueId& id) { id = name_of(id); });
      if (!give_back(node) && !is_undone(node)) keep(std::move(node));
    }
    for_each_returned(graph_, [&](ValueId& id) { id = name_of(id); });
    for (ValueId id = 0; id < graph_.value_count(); ++id) {
      const auto root = new_names_.find(graph_.value(id).storage);
      if (root != new_names_.end()) graph_.value(id).storage = graph_.value(root->second).storage;
    }
    return changed_;
  }

 private:
  const Sizes& sizes(ValueId id) const { return graph_.value(id).type.sizes; }

  ValueId name_of(ValueId id) const {
    const auto found = new_names_.find(id);
    return found == new_names_.end() ? id : found->second;
  }

  // Remembers what merges two leading dimensions, and what turns such a value round.
  void keep(Node node) {
    const auto input = [&] { return node.arguments[0].values[0]; };
    const auto output = [&] { return node.results[0].values[0]; };
    if (reshapes(node.op) && merges(sizes(input()), sizes(output()))) {
      unmerged_[output()] = {input(), false};
    } else if (op_name(node) == "aten::transpose.int" && unmerged_.count(input()) != 0 &&
               turns_matrices(node)) {
      unmerged_[output()] = {unmerged_.at(input()).whole, !unmerged_.at(input()).turned};
    }
    graph_.nodes.push_back(std::move(node));
  }

  static bool merges(const Sizes& before, const Sizes& after) {
    return before.size() == 4 && after.size() == 3 && after[0] == before[0] * before[1] &&
           after[1] == before[2] && after[2] == before[3];
  }

  static bool turns_matrices(const Node& node) {
    const int64_t a = (node.arguments[1].constant.toInt() + 3) % 3;
    const int64_t b = (node.arguments[2].constant.toInt() + 3) % 3;
    return (a == 1 && b == 2) || (a == 2 && b == 1);
  }

  bool give_back(const Node& node) {
    if (op_name(node) != "aten::bmm") return false;
    const auto left = unmerged_.find(node.arguments[0].values[0]);
    const auto right = unmerged_.find(node.arguments[1].values[0]);
    if (left == unmerged_.end() || right == unmerged_.end()) return false;
    const Sizes& a = sizes(left->second.whole);
    const Sizes& b = sizes(right->second.whole);
    if (a[0] != b[0] || a[1] != b[1]) return false;
    emitter_.stand_for(node);
    const ValueId product = emitter_.call("aten::matmul", {value_argument(turned(left->second)),
                                                           value_argument(turned(right->second))});
    const ValueId merged = node.results[0].values[0];
    const Sizes merged_sizes = sizes(merged);
    new_names_[merged] = emitter_.call(
        "aten::view",
        {value_argument(product), constant_argument(c10::List<int64_t>(merged_sizes))});
    products_[new_names_[merged]] = product;
    changed_ = true;
    return true;
  }

  struct Unmerged {
    ValueId whole = kNoValue;  // [rows, heads, m, k]
    bool turned = false;
  };

  ValueId turned(const Unmerged& value) {
    if (!value.turned) return value.whole;
    return emitter_.call("aten::transpose.int",
                         {value_argument(value.whole), constant_argument(int64_t{2}),
                          constant_argument(int64_t{3})});
  }

  // A reshape that gives a product its dimensions back has nothing left to do.
  bool is_undone(const Node& node) {
    if (!reshapes(node.op)) return false;
    const auto product = products_.find(node.arguments[0].values[0]);
    if (product == products_.end()) return false;
    const ValueId shown = node.results[0].values[0];
    const TensorType& type = graph_.value(shown).type;
    const TensorType& whole = graph_.value(product->second).type;
    if (type.sizes != whole.sizes || type.strides != whole.strides) return false;
    new_names_[shown] = product->second;
    return true;
  }

  Graph& graph_;
  Emitter emitter_;
  std::map<ValueId, ValueId> new_names_;
  std::map<ValueId, Unmerged> unmerged_;  // by merged value
  std::map<ValueId, ValueId> products_;   // merged view -> product of four dimensions
  bool changed_ = false;
};

}  // namespace

bool BatchedProducts::run(Graph& graph) { return Rewriting(graph).run(); }

}  // namespace epl
