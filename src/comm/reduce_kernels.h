// The loops over elements that all transports within a host share.
//
// targets[*][i] = sources[0][i] op sources[1][i] op ..., in this order and in at least the
// precision of the element type: half and bfloat16 are combined in float and rounded once. Integers
// wrap. bool counts as in LibTorch's NCCL: sum and max are "or", product and min are "and". Where a
// number is NaN, so are the maximum and the minimum. The bits do not depend on the processor.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "comm/communicator.h"

namespace epl::comm {

// Whether there is a loop for it: there is no mean of integers and bools.
bool can_reduce(c10::ScalarType type, ReduceOp op);

// A target may be one of the sources; else arrays do not overlap. A mean is the sum divided by
// `source_count`.
void reduce_elements(c10::ScalarType type, ReduceOp op, const void* const* sources,
                     int source_count, void* const* targets, int target_count, int64_t count);

}  // namespace epl::comm
