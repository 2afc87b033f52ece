// A part of a Graph as a text in which only its own structure counts.
//
// Two parts with the same text do the same: the same operators in the same order with the same
// constants and types, connected alike inside; what comes from outside is named by when it is first
// read, and two names are never one value; what is made inside says who reads it outside (forward,
// backward) and what of it the step returns. Names of parameters, and which generator draws, are
// left out.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace epl {

// The step as a row of positions: a forward operator with its backward operators, by their indices
// in graph.nodes. A node of which it is not known belongs to the one before it.
using Positions = std::vector<std::vector<int>>;
Positions positions_of(const Graph& graph);

// Who makes and reads the values of a graph, and what is returned: asked for every part.
class GraphUses {
 public:
  GraphUses(const Graph& graph, const Positions& positions);

  int position_of(int node) const { return positions_[static_cast<size_t>(node)]; }
  // The node that makes a value; -1: a leaf.
  int maker(ValueId value) const { return makers_[static_cast<size_t>(value)]; }
  const std::vector<int>& readers(ValueId value) const {
    return readers_[static_cast<size_t>(value)];
  }
  const std::string& returned_as(ValueId value) const {
    return returned_[static_cast<size_t>(value)];
  }
  const Leaf* leaf(ValueId value) const { return leaves_[static_cast<size_t>(value)]; }

 private:
  std::vector<int> positions_;
  std::vector<int> makers_;
  std::vector<std::vector<int>> readers_;
  std::vector<std::string> returned_;
  std::vector<const Leaf*> leaves_;
};

struct BlockText {
  std::string text;
  int open_values = 0;  // tensors that other parts make and this one reads
  int parameters = 0;   // that it reads
};

// Of positions [begin, end).
BlockText block_text(const Graph& graph, const GraphUses& uses, const Positions& positions,
                     int begin, int end);

}  // namespace epl
