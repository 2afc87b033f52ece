// In which order the search decides about nodes.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace epl {

// The search has to tell apart how all values lie that some decided and some undecided node touch
// (search.h): so always that node comes next which leaves the fewest of them. Mostly it is one that
// reads what was just made, and the backward of a layer comes with its forward, since they share
// its parameters and what it saved. Looking far ahead is not always best; several distances are
// tried.
std::vector<size_t> order_of_search(const Graph& graph);

}  // namespace epl
