// Gradients that do not stay in a device's arena to the end of the step: which ones, and in which
// groups they go.
//
//   reduce  group 0: 4 gradients      the lane adds up what all devices have (zero.level = "v1"),
//   run     step  calls 30 to 41      while the device computes the next group
//   reduce  group 1: 4 gradients
//   await   group 0: 4 gradients      from here on their places are free
//
// With several micro batches each of them is reduced, and the sums over them are the worker's
// (PlanGradient::Stays). Where parameters are updated early (optimizer.update_early) the update of
// a group stands behind its reduction: nothing reads these parameters any more.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/lower.h"
#include "plan/program_parts.h"
#include "plan/role_segments.h"
#include "program/program.h"

namespace epl {

// By value of a role's graph; those that are not here stay.
using ShortGradients = std::map<ValueId, PlanGradient::Stays>;

// For each role. What is asked for and cannot be is said in `remarks`.
std::vector<ShortGradients> find_short_gradients(const std::vector<Role>& roles,
                                                 const StepTasks& step, const LowerOptions& options,
                                                 std::vector<std::string>& remarks);

// Gradients that a segment makes, and their places in it.
struct MadeGradient {
  int gradient = 0;  // of the Program
  SlotId slot = kNoSlot;
};

// Cuts them into groups, in the order in which they are complete.
std::vector<ShortGroup> cut_short_groups(const Program& program, int segment,
                                         const std::vector<MadeGradient>& made,
                                         const LowerOptions& options);

// What stands behind the calls of a run that has such groups; `goes_on`: the memory of the segment
// is used again after it.
std::vector<RunCut> cuts_of_short_groups(const std::vector<ShortGroup>& groups,
                                         const Program& program, const Instruction& run,
                                         bool goes_on);

}  // namespace epl
