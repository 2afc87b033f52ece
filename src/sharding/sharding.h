// Sharding: how every value of a step lies on the devices of its TaskGraphs.
//
// The step is recorded with the rows of a whole micro batch. Code under split(k) is free: each
// operator may be cut along any index that its rule allows (ops/rule.h), and the cheapest
// assignment of layouts is searched (search.h). Code under replicate(k) on the same devices keeps
// its meaning: each device takes a slice of the rows, and runs what was recorded with so few. Then
// every device gets a graph of its own, in which changes of layout are explicit nodes
// (localize.cc).
//
//   x: R, fc1.weight: S(0)  ->  h: S(1)  ->  relu  ->  h: S(1), fc2.weight: S(1)  ->  y: P  ->  R
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cost/machine.h"
#include "ir/graph.h"
#include "layout/layout.h"
#include "ops/rule.h"

namespace epl {

struct ShardingRequest {
  const Graph& graph;  // recorded with all rows of a micro batch
  int parts = 1;       // devices
  // Where some code runs on slices of the rows: the same step recorded with 1/parts of them, and
  // which dimension of each value is the batch (-1: none). Else null and empty.
  const Graph* slice = nullptr;
  std::vector<int> batch_dims = {};
  std::vector<bool> rows_in_order = {};  // by value: its rows lie end to end (plan/crossings.h)
  // By node: it runs on slices. None where there are no slices.
  std::vector<bool> sliced = {};
  // By leaf: the parameter was made under split(), and is cut in dimension 0 wherever it is used.
  std::vector<bool> made_cut = {};
  // By leaf: how the parameter lies already, with the states of its optimizer, and stays. None:
  // it may be put anywhere.
  std::vector<std::optional<Layout>> homes = {};
  // Devices on other workers have rows of their own: no device has the whole batch.
  bool inputs_are_cut = false;
  // By node: it belongs to the stage of a pipeline that is cut. Other nodes stay as they are, and
  // what goes between them and these is whole. Empty: all nodes.
  std::vector<bool> inside = {};
  std::string asked_by = "";  // the scopes
  Machine machine = {};       // the devices, for what costs

  bool is_inside(size_t node) const { return inside.empty() || inside[node]; }
};

// Values that nodes inside of the stage make and nodes outside of it read.
std::set<ValueId> values_going_out(const ShardingRequest& request);

// What one node does. Nodes on slices run what was recorded so.
struct Choice {
  Cut cut;
  bool slice = false;
};

struct Sharding {
  int parts = 1;
  std::vector<Layout> values;     // as they are made, by ValueId
  std::vector<Choice> nodes;      // as Graph::nodes
  std::vector<Layout> gradients;  // as Graph::gradients: P where the update sums them
  bool loss_of_slices = false;    // each device has that of its rows
  std::vector<bool> metrics_of_slices;
  std::vector<std::string> remarks;  // for whoever reads the plan
};

// Throws epl::Error where the scopes ask for what cannot be.
Sharding choose_layouts(const ShardingRequest& request);

// The graph that device `part` runs: leaves, loss, metrics and gradients are those of the whole
// graph, in the same order. Values are new; where there are nodes outside, they and what goes
// between them and the others keep their ids.
Graph local_graph(const ShardingRequest& request, const Sharding& sharding, int part);

}  // namespace epl
