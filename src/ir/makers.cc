#include "ir/makers.h"

#include <algorithm>

namespace epl {
namespace {

constexpr int kNobody = -1;

}  // namespace

Makers::Makers(const Graph& graph)
    : graph_(graph), nodes_(static_cast<size_t>(graph.value_count()), kNobody) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for_each_output(graph.nodes[i],
                    [&](ValueId id) { nodes_[static_cast<size_t>(id)] = static_cast<int>(i); });
  }
}

std::optional<size_t> Makers::index_of(ValueId id) const {
  const auto value = static_cast<size_t>(id);
  if (id < 0 || value >= nodes_.size() || nodes_[value] == kNobody) return std::nullopt;
  return static_cast<size_t>(nodes_[value]);
}

const Node* Makers::of(ValueId id) const {
  const std::optional<size_t> index = index_of(id);
  return index ? &graph_.nodes[*index] : nullptr;
}

const Node* Makers::owner_of_gradient(ValueId id) const {
  const bool seed = std::any_of(graph_.leaves.begin(), graph_.leaves.end(), [&](const Leaf& leaf) {
    return leaf.kind == Leaf::Kind::kSeed && leaf.value == id;
  });
  return of(seed ? graph_.loss : id);
}

}  // namespace epl
