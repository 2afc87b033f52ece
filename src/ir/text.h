// The text form of a Graph: what golden files hold, what bug reports quote, what tests read.
//
// print_graph and parse_graph are inverse to each other, but for what the text does not hold: a
// parsed graph has undefined tensors in its leaves (constants of one element excepted), no source
// locations, no Origins, the default generator for any other, and no values that nothing makes.
// The grammar, by example, stands at the head of graph.h; `{1,8}` are strides where they are not
// the contiguous ones, `+3` an offset, `@%1` a storage shared with %1. What is as it mostly is does
// not print: `{forward 1 chunk 2}` names a chunk other than 0, `[4:8 of 8 in dim 0]` behind a leaf
// the piece of it that a device has.
#pragma once

#include <string>

#include "ir/graph.h"

namespace epl {

std::string print_graph(const Graph& graph);
std::string print_node(const Graph& graph, const Node& node);

// The first leaf that is a parameter of that name, which is the one that a text means; -1: none.
int parameter_named(const Graph& graph, const std::string& name);

// Throws epl::Error with the line number where the text is not a graph.
Graph parse_graph(const std::string& text);

}  // namespace epl
