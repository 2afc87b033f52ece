// Stamps each instruction of a Plan with its bytes and its estimated seconds (InstructionCost).
//
// All that it reads is in the Plan, so that a plan which was read from a text can be stamped anew,
// with the same numbers. Where devices lie is not: each counts as a worker of its own, and what it
// says to others as a message over a link.
#pragma once

#include "cost/machine.h"
#include "cost/node_cost.h"
#include "program/program.h"

namespace epl {

// Whole nanoseconds, so that the text of a plan holds them.
void stamp_costs(Plan& plan, const Machine& machine = {});

// Of one call, as node_cost.h has it for the node that it was.
double estimated_seconds(const Program& program, const Call& call, const Machine& machine = {});

}  // namespace epl
