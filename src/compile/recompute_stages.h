// What each stage of a step has to choose where backward may make values of forward again, and what
// it has chosen.
//
//   for (const StageRoles& roles : stages_of(step)) {
//     RecomputeRequest request{step.graph_of(roles.roles[0])};
//     add_stage(step.recorded_for(1), plan.schedule, roles.stage, request);
//     Stage stage(roles, recompute_model(request));
//     stage.choice = stage.chooser.cheapest_within(limit);
#pragma once

#include <map>
#include <vector>

#include "compile/compile.h"
#include "cost/recompute_choice.h"
#include "cost/recompute_units.h"

namespace epl {

// Roles of one stage that run the same nodes, and so choose alike.
struct StageRoles {
  int stage = 0;
  std::vector<size_t> roles;
};

std::vector<StageRoles> stages_of(const CompiledStep& step);

// The tasks of a stage of a pipeline as parts of the model, and what they are handed.
void add_stage(const Graph& whole, const Schedule& schedule, int stage, RecomputeRequest& request);

// One stage: what there is to choose, and what was chosen. It stays where it is: the chooser refers
// to the model.
struct Stage {
  Stage(StageRoles given, RecomputeModel made);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  std::vector<size_t> nodes_again() const;  // indices of the graph's nodes

  const StageRoles roles;
  const RecomputeModel model;
  RecomputeChooser chooser{model};
  RecomputeOutcome kept;   // where nothing runs again
  RecomputeChoice choice;  // none that runs again: all is kept
  int64_t beside = 0;      // bytes that a device holds beside the values
  size_t early = 0;        // so many clones of each chunk come first in its backward
};

// Nodes that Recompute has added to backward of the stage, in their order, by chunk; of tasks that
// begin with a receive. They do not need what is received. `whole`: as for
// lower(). `first_new`: the first value that the graph did not have before.
std::map<int, std::vector<size_t>> clones_behind_a_receive(const Graph& graph, ValueId first_new,
                                                           const Graph& whole,
                                                           const Schedule& schedule, int stage);

}  // namespace epl
