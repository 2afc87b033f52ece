// Parameters of stages that lie on several workers: who has what of them.
#pragma once

#include <vector>

#include "driver/job.h"
#include "driver/ready_step.h"

namespace epl {

// The first worker that has a gradient of the parameter: it speaks for it.
int first_holder(const ReadyStep& step, int leaf, const Cluster& cluster);

// Sums the gradients of parameters that stages on several workers use. All workers call it.
void reduce_tied(ReadyStep& step);

// Brings the parameters that the step updates to the workers that have no gradient of them. All
// workers call it.
void gather_parameters(Job& job, const ReadyStep& step);

}  // namespace epl
