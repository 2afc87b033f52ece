// How what crosses from one stage of a pipeline to another is cut over their devices.
#pragma once

#include "plan/crossings.h"
#include "plan/lower.h"
#include "program/program.h"

namespace epl {

// Who has which of `rows` that are cut evenly over the devices of both ends, in the order of the
// senders.
std::vector<Transfer::Rows> common_rows(int64_t rows, int senders, int receivers);

// Where both roles have as many devices each device has one peer; else rows are gathered and cut
// anew along the batch dimension. Throws epl::Error for a value that has no rows, or whose rows are
// mixed with another dimension.
Transfer make_transfer(const Graph& whole, const Crossing& crossing, const Role& from,
                       const Role& to);

}  // namespace epl
