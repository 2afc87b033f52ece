// Makers: which node of a Graph makes a value.
//
//   const Makers makers(graph);
//   if (const Node* node = makers.of(id)) std::cout << op_name(*node);   // null: a leaf
//   if (const auto index = makers.index_of(id)) graph.nodes[*index].chunk = 1;
//
// It knows the nodes and values that there were when it was made. Nodes that come into the Graph
// since then move those behind them, so it is made anew for what is asked afterwards.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace epl {

class Makers {
 public:
  explicit Makers(const Graph& graph);

  std::optional<size_t> index_of(ValueId id) const;
  const Node* of(ValueId id) const;
  // To whom a gradient belongs: its maker. The seed, which a parameter that is added to the loss
  // has as its gradient, belongs to the maker of the loss: devices of its stage have the share that
  // the seed is. Null: another leaf.
  const Node* owner_of_gradient(ValueId id) const;

 private:
  const Graph& graph_;
  std::vector<int> nodes_;  // by value
};

}  // namespace epl
