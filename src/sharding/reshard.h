// From one layout to another: THE table of what has to move.
//
//   R    -> S(d)   every device takes its piece: a view
//   R    -> P      device 0 keeps the value, the others have zeros
//   S(d) -> R      all-gather
//   S(a) -> S(b)   all-to-all
//   P    -> R      all-reduce
//   P    -> S(d)   reduce-scatter
//   S(d) -> P      by way of R
#pragma once

#include "layout/layout.h"
#include "layout/tensor_type.h"
#include "ops/emit.h"

namespace epl {

// The ways between the devices of a TaskGraph. Threads of one process reach this; what matters is
// the ratio to the cost of computing.
struct Wires {
  double seconds_per_call = 20e-6;
  double bytes_per_second = 5e9;
};

constexpr double kImpossible = 1e30;  // seconds

// `whole`: the type of the value, uncut.
double reshard_seconds(const TensorType& whole, Layout from, Layout to, int parts,
                       const Wires& wires = {});

// Appends what device `part` does. Returns the value in its new layout.
ValueId emit_reshard(Emitter& to_graph, ValueId local, const TensorType& whole, Layout from,
                     Layout to, int parts, int part);

}  // namespace epl
