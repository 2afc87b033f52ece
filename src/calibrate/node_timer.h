// The time of a node of a Graph on this thread, with operands that the caches do not have, as the
// executor runs it: into memory that is there already, where the operator can.
#pragma once

#include <optional>

#include "calibrate/timing.h"
#include "cost/cost_table.h"
#include "ir/graph.h"

namespace epl {

// None where a node cannot be run by itself: collectives, views, what draws random numbers or
// writes its arguments, what needs lists of tensors that may be missing.
std::optional<double> seconds_of_node(const Graph& graph, const Node& node, const Timing& timing);

// Times all operators of a graph that the table does not have yet, each signature once. Returns how
// many were timed.
int time_operators(const Graph& graph, const Timing& timing, CostTable& table);

}  // namespace epl
