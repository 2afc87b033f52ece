// What the nodes of a Graph cost, in seconds: measured while the step was recorded, or estimated
// from floating-point operations and bytes.
//
//   take_shorter_times(graph, recorded_again);   // the first run of an operator is a cold one
//   NodeCosts costs = node_costs(graph);
//
// Costs are compared with each other, to share work out evenly; as a promise of time they are
// rough.
#pragma once

#include <string>
#include <vector>

#include "cost/machine.h"
#include "ir/graph.h"

namespace epl {

struct NodeCosts {
  std::vector<double> seconds;  // one a node of the Graph
  bool measured = false;        // else estimated

  double total() const;
};

// Multiplications and additions of matrix products and convolutions; 0 for other operators.
double estimated_flops(const Graph& graph, const Node& node);

// By the slower of arithmetic and memory traffic. Views and uninitialised memory cost nothing.
double estimated_seconds(const Graph& graph, const Node& node, const Machine& machine = {});

// The recorded time of each node; for nodes without one, and for all where none was recorded, the
// estimate. Operators on tensors of the same types cost alike, as the layers of a model have them:
// all of them take the median of their times, so that one that was interrupted does not count.
// Views cost nothing in either case.
NodeCosts node_costs(const Graph& graph, const Machine& machine = {});

// Keeps for each node the shorter of its times in two recordings of one step. Where the recordings
// differ in their operators (the step made a table in its first run), changes nothing and says so.
bool take_shorter_times(Graph& graph, const Graph& again);

}  // namespace epl
