// In which order the search decides about nodes.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace epl {

// Backward nodes stand beside the forward that they belong to, a node that reads one value that the
// step makes directly behind the node that makes it, and what reads leaves alone before its first
// reader: so few values are undecided at any time. (Taking next what leaves the fewest of them
// undecided was tried: it is faster, but where more ways are open than are kept it loses the
// better ones in attention.)
std::vector<size_t> order_of_search(const Graph& graph);

}  // namespace epl
