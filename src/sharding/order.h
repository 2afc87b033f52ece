// In which order the search decides about nodes.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace epl {

// Backward nodes stand beside the forward that they belong to, and a node that reads one value that
// the step makes directly behind the node that makes it: so few values are undecided at any time.
std::vector<size_t> order_of_search(const Graph& graph);

}  // namespace epl
