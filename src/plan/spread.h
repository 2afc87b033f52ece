// zero.level = "v2": which parameters of a plan are spread over the workers of their role.
//
// Each of those workers keeps a range of the elements of a large parameter, which it also updates
// (plan/zero.h), and has the rest from a fetch to a store only (plan/fetches.h). Nobody gathers it
// after the update: the next fetch brings what its owners have made of it.
#pragma once

#include "plan/zero.h"
#include "program/program.h"

namespace epl {

// After owners were assigned, before the end of the step is added. Says in the remarks how many
// bytes are spread, and what stays whole although it has owners of ranges.
void spread_parameters(const ZeroOptions& options, Plan& plan);

// After the end of the step was added.
void add_spread_fetches(const ZeroOptions& options, Plan& plan);

}  // namespace epl
