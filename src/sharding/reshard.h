// From one layout to another: THE table of what has to move.
//
//   R    -> S(d)   every device takes its piece: a view, or epl::own_piece
//   R    -> P      one device keeps the value, the others have zeros (epl::own_addend)
//   S(d) -> R      all-gather
//   S(a) -> S(b)   all-to-all
//   P    -> R      all-reduce
//   P    -> S(d)   reduce-scatter
//   S(d) -> P      by way of R
// Where a dimension is cut in several runs, all but S -> R and R -> S goes by way of R.
#pragma once

#include "cost/machine.h"
#include "layout/layout.h"
#include "layout/tensor_type.h"
#include "ops/emit.h"

namespace epl {

constexpr double kImpossible = 1e30;  // seconds

// Devices that run the same nodes: which part a device is it finds out when it runs.
constexpr int kEachPart = -1;

// `whole`: the type of the value, uncut.
double reshard_seconds(const TensorType& whole, Layout from, Layout to, const Axis& parts,
                       const Machine& machine = {});

// Appends what device `part` does, or each one (kEachPart). Returns the value in its new layout.
ValueId emit_reshard(Emitter& to_graph, ValueId local, const TensorType& whole, Layout from,
                     Layout to, const Axis& parts, int part);

}  // namespace epl
