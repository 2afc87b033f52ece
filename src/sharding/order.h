// In which order the search decides about nodes: so that few values are undecided at any time.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace epl {

// Always that node comes next which leaves the fewest values that some decided and some undecided
// node touch. Mostly it is one that reads what was just made, and the backward of a layer comes
// with its forward, since they share its parameters and what it saved.
std::vector<size_t> order_by_open_values(const Graph& graph);

}  // namespace epl
