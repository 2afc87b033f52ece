// The text form of a Graph: what golden files hold, what bug reports quote, what tests read.
//
// print_graph and parse_graph are inverse to each other, but for tensors that the text does not
// hold: a parsed graph has undefined tensors in its leaves (constants of one element excepted), no
// source locations, and no generators. The grammar, by example, stands at the head of graph.h;
// `{1,8}` are strides where they are not the contiguous ones, `+3` an offset, `@%1` a storage
// shared with %1.
#pragma once

#include <string>

#include "ir/graph.h"

namespace epl {

std::string print_graph(const Graph& graph);
std::string print_node(const Graph& graph, const Node& node);

// Throws epl::Error with the line number where the text is not a graph.
Graph parse_graph(const std::string& text);

}  // namespace epl
