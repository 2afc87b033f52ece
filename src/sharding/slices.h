// Slices: how the values of a step lie where the rows of its micro batch are cut over devices, as
// under replicate(k).
//
//   x: S(0), weight: R  ->  mm: S(0)  ->  mean: P (each device has its addend)  ->  loss
//
// Nothing is searched. The batch is cut in dimension 0, parameters and state are whole, and each
// operator follows what it reads, by its rule (ops/rule.h). Where rows look at each other, what is
// cut or a partial sum is brought together first, whatever costs least: so the devices together do
// what one device would do with all rows, for every program. What is by intention otherwise: batch
// norm takes its statistics from the rows of its device, unless it is asked not to, and each device
// draws its own random numbers.
//
// All devices run the same nodes: where they differ, such as in which rows they take of a value
// that all of them have, the node finds out when it runs (epl::own_piece).
#pragma once

#include <set>

#include "cost/machine.h"
#include "sharding/sharding.h"

namespace epl {

struct SliceRequest {
  const Graph& graph;  // pure, with all rows of a micro batch
  int parts = 2;       // devices
  Machine machine = {};
  // Values that go between stages with different numbers of devices: they lie whole, or cut in one
  // run.
  std::set<ValueId> settled = {};
  // Batch norm takes its statistics from all rows of the micro batch.
  bool whole_batch_norm = false;
  // A value may be cut in several runs.
  bool runs = true;
  std::string asked_by = "";
};

// Gradients are partial sums, which the update adds up. Throws epl::Error where the step writes in
// place into a value that other values show as well and that is not cut as the write needs it.
Sharding follow_slices(const SliceRequest& request);

}  // namespace epl
