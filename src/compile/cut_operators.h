// A step whose operators and parameters are cut over devices (split): how each of its values lies,
// and the graph of each device.
#pragma once

#include <epl/cluster.h>
#include <epl/config.h>

#include <map>
#include <string>
#include <vector>

#include "compile/cut_rows.h"
#include "compile/step_recording.h"
#include "layout/layout.h"
#include "program/placement.h"
#include "program/program.h"
#include "state/state_map.h"

namespace epl {

// By role, as Placement::role_devices.
struct CutStep {
  std::vector<bool> is_cut;
  std::vector<Graph> parts;  // what the role runs; empty for those that are not cut
  // As Graph::gradients of the part: an earlier part of the same stage has all of it as well.
  std::vector<std::vector<bool>> repeated;
  // Without a pipeline: how the parts have the loss and the metrics; else each has them whole.
  Layout loss;
  std::vector<Layout> metrics;
  std::vector<std::string> remarks;  // for whoever reads the plan
};

// The graph of `recording` went through the passes for the whole step. `state`: see
// CompileOptions. Throws epl::Error where the scopes ask for what cannot be.
CutStep cut_operators(const StepRecording& recording, const Placement& placement,
                      const ClusterShape& cluster, const Config& config, const StateMap& state);

// A gradient that every part has is taken from the first one.
void drop_repeated_gradients(const CutStep& cut, size_t role, Graph& part);

// Sums that devices make together have another order than in the recorded run: what C++ read of
// them is the same up to rounding. What comes from no such sum is compared to the bit.
void settle_guards(const CutStep& cut, const SlicedSteps& sliced, Plan& plan);

// By leaf: whether it is a parameter that was made to be cut.
std::vector<bool> parameters_made_cut(const Graph& graph, const MadeUnder& made_under);

}  // namespace epl
