// Sharding: how every value of a step lies on the devices of its TaskGraphs.
//
// The step is recorded with the rows of a whole micro batch. Code under split(k) is free: each
// operator may be cut along any index that its rule allows (ops/rule.h), and the cheapest
// assignment of layouts is searched (search.h). Code under replicate(k) takes a slice of the rows
// on each device, and its layouts follow from that (slices.h). Then every device gets a graph of
// its own, or all of them one that they share, in which changes of layout are explicit nodes
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
  Axis parts = 1;      // devices
  // By node: it runs on slices of the rows, and how (slices.h). None where there are no slices.
  std::vector<std::optional<Cut>> sliced = {};
  // By leaf: the parameter was made under split(), and is cut in dimension 0 wherever it is used.
  std::vector<bool> made_cut = {};
  // By leaf: how the parameter lies already, with the states of its optimizer, and stays. None:
  // it may be put anywhere.
  std::vector<std::optional<Layout>> homes = {};
  // Devices on other workers have rows of their own: no device has the whole batch. Workers read
  // rows evenly, whatever the shares of the axis.
  bool inputs_are_cut = false;
  // By node: it belongs to the stage of a pipeline that is cut. Other nodes stay as they are, and
  // what goes between them and these is whole. Empty: all nodes.
  std::vector<bool> inside = {};
  std::string asked_by = "";  // the scopes
  Machine machine = {};       // the devices, for what costs

  // The batch comes in even pieces, and what is cut otherwise lies in uneven ones: each device
  // gathers the rows that it did not load.
  bool gathers_inputs() const { return inputs_are_cut && !parts.is_even(); }
  bool is_inside(size_t node) const { return inside.empty() || inside[node]; }
  bool is_sliced(size_t node) const { return !sliced.empty() && sliced[node].has_value(); }
};

// Values that nodes inside of the stage make and nodes outside of it read.
std::set<ValueId> values_going_out(const ShardingRequest& request);

struct Sharding {
  Axis parts = 1;
  std::vector<Layout> values;     // for whoever reads them, by ValueId
  std::vector<Cut> nodes;         // as Graph::nodes
  std::vector<Layout> gradients;  // as Graph::gradients: P where the update sums them
  Layout loss;
  std::vector<Layout> metrics;       // as Graph::metrics
  std::vector<std::string> remarks;  // for whoever reads the plan
  // What C++ reads back comes from rows of several devices: it is that of the recorded run but for
  // rounding.
  bool reads_back_rows = false;
};

// Throws epl::Error where the scopes ask for what cannot be.
Sharding choose_layouts(const ShardingRequest& request);

// The graph that device `part` runs: leaves, loss, metrics and gradients are those of the whole
// graph, in the same order. Values are new; where there are nodes outside, they and what goes
// between them and the others keep their ids.
Graph local_graph(const ShardingRequest& request, const Sharding& sharding, int part);

// The graph that each of the devices runs, where they all run the same (slices.h). Values keep
// their ids.
Graph shared_graph(const Graph& graph, const Sharding& sharding);

}  // namespace epl
