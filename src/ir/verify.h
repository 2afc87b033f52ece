// What holds in every Graph, before and after each pass:
//   - every value is defined once, by a leaf or a node, before it is read;
//   - arguments and results fit the operator's schema in number and kind;
//   - a storage is named by its root, and values that a node makes without sharing have a new one;
//   - the loss has one element; each gradient has the shape of its parameter; parameters come once;
//   - TaskGraphs exist.
#pragma once

#include <string>

#include "ir/graph.h"

namespace epl {

// Throws InternalError naming `after` (the pass) and the first node that is wrong.
void verify_graph(const Graph& graph, const std::string& after);

}  // namespace epl
