// Workers look together whether somebody reads the rows that each of them hands in.
#pragma once

#include <epl/step.h>

#include <cstdint>

#include "job/job.h"
#include "program/placement.h"

namespace epl {

// A worker without a first stage hands in the batch of the worker that reads for it. Other rows are
// rows that the program believes to be trained on and nobody reads: an Error on all workers. A
// batch of one number throughout, such as zeros, is no data and passes. On all workers together;
// looks at few steps, the first ones and then ever fewer.
void check_rows_are_read(Job& job, const Placement& placement, const Batch& batch, int64_t step);

}  // namespace epl
