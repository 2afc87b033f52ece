// What a worker has of the sums of gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace epl {

// Whether the sum of a gradient comes to its owners alone: not where it lies in memory in another
// order than its parameter, whose elements they own.
bool comes_to_owners(const Program& program, const PlanGradient& gradient);

// Bytes of the sums that the worker of this rank keeps itself (PlanGradient::Stays::kUntilSummed),
// by whole pages. `shares`: the devices of each worker that has the role, by rank.
int64_t worker_sum_bytes(const Program& program, const std::vector<int>& shares, int rank);

}  // namespace epl
