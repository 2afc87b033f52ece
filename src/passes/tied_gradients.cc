#include "passes/tied_gradients.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "ir/makers.h"

namespace epl {
namespace {

// A sum of two dense tensors of the same shape, as autograd makes it.
bool is_plain_sum(const Graph& graph, const Node& node) {
  if (op_name(node) != "aten::add.Tensor" || node.phase != Phase::kBackward) return false;
  const TensorType& type = graph.value(node.results[0].values[0]).type;
  const auto same = [&](const Argument& argument) {
    return argument.kind == Argument::Kind::kValue && argument.values[0] != kNoValue &&
           graph.value(argument.values[0]).type.sizes == type.sizes &&
           graph.value(argument.values[0]).type.dtype == type.dtype &&
           graph.value(argument.values[0]).type.layout == c10::kStrided;
  };
  const c10::IValue& factor = node.arguments[2].constant;
  return same(node.arguments[0]) && same(node.arguments[1]) && factor.isInt() &&
         factor.toInt() == 1;
}

class Terms {
 public:
  explicit Terms(Graph& graph) : graph_(graph), makers_(graph) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (graph.nodes[i].phase == Phase::kForward) last_forward_ = i;
    }
  }

  // The values whose sum `value` is, by chunk.
  std::map<int, std::vector<ValueId>> of(ValueId value) const {
    std::map<int, std::vector<ValueId>> terms;
    collect(value, terms);
    return terms;
  }

  // Their sum, by new nodes behind the last of them.
  ValueId sum(const std::vector<ValueId>& terms) {
    ValueId total = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) total = add(total, terms[i]);
    return total;
  }

  void insert_sums() {
    for (auto sum = sums_.rbegin(); sum != sums_.rend(); ++sum) {
      graph_.nodes.insert(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(sum->first) + 1,
                          std::move(sum->second));
    }
  }

 private:
  void collect(ValueId value, std::map<int, std::vector<ValueId>>& terms) const {
    const Node* const maker = makers_.of(value);
    if (maker == nullptr || !is_plain_sum(graph_, *maker)) {
      const Node* const owner = makers_.owner_of_gradient(value);
      terms[owner == nullptr ? 0 : owner->chunk].push_back(value);
      return;
    }
    collect(maker->arguments[0].values[0], terms);
    collect(maker->arguments[1].values[0], terms);
  }

  // The node behind which a term is there; a leaf, which the seed is, behind all of forward.
  size_t made_at(ValueId id) const {
    const auto sum = made_behind_.find(id);
    return sum == made_behind_.end() ? makers_.index_of(id).value_or(last_forward_) : sum->second;
  }

  ValueId add(ValueId a, ValueId b) {
    const size_t behind = std::max(made_at(a), made_at(b));
    const bool of_leaves = graph_.nodes[behind].phase == Phase::kForward;
    const Node* const owner =
        of_leaves ? makers_.owner_of_gradient(a) : graph_.nodes.data() + behind;
    Node node{c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor"),
              {},
              {},
              Phase::kBackward,
              owner == nullptr ? -1 : owner->taskgraph,
              {},
              owner == nullptr ? Origin() : owner->origin.beside(),
              owner == nullptr ? 0 : owner->chunk};
    for (ValueId id : {a, b}) {
      Argument argument;
      argument.kind = Argument::Kind::kValue;
      argument.values = {id};
      node.arguments.push_back(argument);
    }
    node.arguments.emplace_back();
    node.arguments.back().constant = static_cast<int64_t>(1);
    TensorType type = graph_.value(a).type;
    type.strides = contiguous_strides(type.sizes);
    type.offset = 0;
    Result result;
    result.values = {graph_.add_value(type)};
    node.results = {result};
    const ValueId made = result.values[0];
    made_behind_[made] = behind;
    sums_.emplace(behind, std::move(node));
    return made;
  }

  Graph& graph_;
  const Makers makers_;
  size_t last_forward_ = 0;
  std::map<ValueId, size_t> made_behind_;  // of the sums
  std::multimap<size_t, Node> sums_;       // by the node behind which they come
};

}  // namespace

bool TiedGradients::run(Graph& graph) {
  Terms terms(graph);
  std::vector<Gradient> gradients;
  bool changed = false;
  for (const auto& gradient : graph.gradients) {
    const auto by_chunk = terms.of(gradient.value);
    if (by_chunk.size() == 1) {
      gradients.push_back(gradient);
      continue;
    }
    changed = true;
    for (const auto& [chunk, values] : by_chunk) {
      gradients.push_back({gradient.parameter, terms.sum(values)});
    }
  }
  graph.gradients = std::move(gradients);
  terms.insert_sums();
  return changed;
}

}  // namespace epl
