#include "passes/dead_code.h"

#include <set>

#include "ops/facts.h"

namespace epl {
namespace {

std::set<ValueId> leaf_storages(const Graph& graph) {
  std::set<ValueId> storages;
  for (const auto& leaf : graph.leaves) storages.insert(graph.value(leaf.value).storage);
  return storages;
}

std::vector<ValueId> written_storages(const Graph& graph, const Node& node) {
  std::vector<ValueId> storages;
  for (size_t i : written_arguments(node)) {
    for (ValueId id : node.arguments[i].values) {
      if (id != kNoValue) storages.push_back(graph.value(id).storage);
    }
  }
  return storages;
}

}  // namespace

bool DeadCode::run(Graph& graph) {
  const std::set<ValueId> outlives = leaf_storages(graph);
  std::set<ValueId> needed;  // values
  std::set<ValueId>
      needed_storages;  // an in-place write is needed by every later reader of its storage
  const auto need = [&](ValueId id) {
    needed.insert(id);
    needed_storages.insert(graph.value(id).storage);
  };
  for_each_returned(graph, need);

  std::vector<Node> kept;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    bool live = is_random(node->op) || only_checks(node->op) || node->expects.has_value();
    for_each_output(*node, [&](ValueId id) { live |= needed.count(id) != 0; });
    for (ValueId storage : written_storages(graph, *node)) {
      live |= outlives.count(storage) != 0 || needed_storages.count(storage) != 0;
    }
    if (!live) continue;
    for_each_input(*node, need);
    // Mostly that of an argument. The values of a sparse tensor lie in a storage of their own,
    // which the first node that showed them named.
    for_each_output(*node, [&](ValueId id) {
      if (graph.value(id).storage != id) need(graph.value(id).storage);
    });
    kept.push_back(std::move(*node));
  }
  const bool changed = kept.size() != graph.nodes.size();
  graph.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));

  std::set<ValueId> used_storages;
  for (const auto& node : graph.nodes) {
    for_each_output(node, [&](ValueId id) { used_storages.insert(graph.value(id).storage); });
  }
  std::vector<Leaf> leaves;
  std::vector<int> moved(graph.leaves.size(), -1);
  for (size_t i = 0; i < graph.leaves.size(); ++i) {
    const Leaf& leaf = graph.leaves[i];
    const bool constant = leaf.kind == Leaf::Kind::kConstant;
    if (constant && needed.count(leaf.value) == 0 && used_storages.count(leaf.value) == 0) continue;
    moved[i] = static_cast<int>(leaves.size());
    leaves.push_back(leaf);
  }
  graph.leaves = std::move(leaves);
  for (auto& gradient : graph.gradients) {
    gradient.parameter = moved[static_cast<size_t>(gradient.parameter)];
  }
  return changed;
}

}  // namespace epl
